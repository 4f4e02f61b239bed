"""Failed attempts at conversation groups, and groups that may have killed their process (protocol.md section 7.1).

The journal alone decides. A handler that raised is counted by ATTEMPT. A handler that kills its process cannot be
counted by that process. So after a crash the owner writes a TRY that names the groups it delivers next. A CLAIM that
finds an open TRY follows another crash: the groups of the TRY that no later COMMIT names are suspects. If they are a
single group, the crash counts as an attempt at it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from konverse.dialog.state.endpoint import NOTHING, Endpoint, bytes_of
from konverse.schemas.errors import WAY_ON, PartitionHalted
from konverse.schemas.wire.journal import Commit
from konverse.schemas.wire.operations import (
    Attempt,
    Cleanup,
    Finish,
    GiveBack,
    Move,
    MoveAway,
    Resume,
    SetTimer,
    Skip,
    Suspend,
    Try,
)

if TYPE_CHECKING:
    from konverse.dialog.state.partition import Partition

_SPEAK: Final = Finish | SetTimer | Cleanup | Move | MoveAway | GiveBack
"""Rare operations of a handler on an endpoint; receives, sends and ends have columns of their own in a COMMIT."""


def attempts_of(endpoint: Endpoint) -> int:
    """Failed attempts at the endpoint's group: those of the member that failed most often."""
    return max(member.attempts for member in endpoint.members)


# ---------------------------------------------------------------------------------------------------- from the journal
def claimed(state: Partition, *, clean: bool) -> None:
    """Apply a valid CLAIM: the groups of an open TRY become suspects.

    `clean`: the last owner released the partition, so no group is suspected.
    """
    attempts = state.attempts
    if clean:
        return
    attempts.careful = True
    known = [state.table[index] for index in attempts.trying]
    suspects = [endpoint for endpoint in known if endpoint is not None and endpoint.waits]
    attempts.trying.clear()
    if not suspects:
        return
    alone = all(endpoint in suspects[0].members for endpoint in known if endpoint is not None)
    attempts.suspect([endpoint.index for endpoint in suspects], alone=alone)
    if alone:
        for endpoint in suspects:
            state.touch(endpoint)
            attempts.count(endpoint)


def came_back(state: Partition, commit: Commit) -> None:
    """Take the groups of a COMMIT out of the TRY, and reset the attempts of endpoints that received something (209)."""
    attempts, operations = state.attempts, commit.operations
    touched = [
        *operations.receive_endpoints,
        *(index for index, _, _ in operations.sends),
        *(end.endpoint for end in operations.ends),
        *(operation.endpoint for operation in operations.rare if isinstance(operation, _SPEAK)),
    ]
    for index in touched:
        endpoint = state.find(index)
        if endpoint is not None:
            attempts.take_out(endpoint)
    for index in operations.receive_endpoints if attempts.failing else ():
        endpoint = state.find(index)
        if endpoint is not None and endpoint.trouble is not None:
            state.touch(endpoint)
            attempts.heal(endpoint)
    if commit.release:  # groups that are still with a handler lose its work, but no process has died
        attempts.trying.clear()


def count_attempt(state: Partition, operation: Attempt) -> None:
    """ATTEMPT: a handler failed, and its process lives."""
    for index in operation.endpoints:
        endpoint = state.at(index)
        state.touch(endpoint)
        state.attempts.count(endpoint)
        state.attempts.take_out(endpoint)


def try_groups(state: Partition, operation: Try) -> None:
    """TRY: these groups are delivered from here on; no group of the previous TRY is suspected any longer."""
    attempts = state.attempts
    for index in attempts.trying:
        attempts.suspects.pop(index, None)
    for index in operation.endpoints:
        state.at(index)
    attempts.trying = dict.fromkeys(operation.endpoints)
    if not operation.endpoints:
        attempts.suspects.clear()
        attempts.careful = False


def suspend(state: Partition, operation: Suspend) -> None:
    """SUSPEND: suspends the whole group, because it is locked and received as one."""
    endpoint = state.at(operation.endpoint)
    state.attempts.take_out(endpoint)
    for member in endpoint.members:
        state.touch(member)
        state.attempts.suspend(member, operation.reason, state.now_ms)


def resume(state: Partition, operation: Resume) -> None:
    """RESUME: the group can be delivered again."""
    _resume(state, _suspended(state, operation.endpoint))


def skip(state: Partition, operation: Skip) -> None:
    """SKIP: drops the next message and resumes the group; does not drop an EndDialog or Error that came meanwhile."""
    endpoint = _suspended(state, operation.endpoint)
    state.touch(endpoint)
    if endpoint.rings:
        endpoint.urgent = endpoint.urgent[1:]
    elif endpoint.queue and not endpoint.ends_next:
        state.unread_bytes -= bytes_of(endpoint.queue[:1])
        endpoint.queue = endpoint.queue[1:] or NOTHING
        endpoint.consumed += 1
        state.unread -= 1
    _resume(state, endpoint)


def _resume(state: Partition, endpoint: Endpoint) -> None:
    for member in endpoint.members:
        state.touch(member)
        state.attempts.heal(member)
        member.held = False
        state.clocks.expect(member)  # its timer may have come due meanwhile
        if member.waits:
            state.ready.append(member)


def _suspended(state: Partition, index: int) -> Endpoint:
    endpoint = state.at(index, "resumes")
    if not endpoint.suspended:
        raise PartitionHalted(
            f"a commit of {state.identity.data_topic}/{state.identity.partition} resumes endpoint {index}, which is "
            f"not suspended: the journal contradicts itself. {WAY_ON}"
        )
    return endpoint
