"""`reader.operations`: an operator suspends, resumes, skips, ends and fails conversations (protocol.md section 7)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final
from uuid import UUID

from konverse.bridge.owner.driver import OwnerDriver
from konverse.bridge.runtime.arguments import checked
from konverse.dialog.owner.commands import Order, reason_of
from konverse.dialog.owner.events import LEADING
from konverse.dialog.owner.owner import Owner
from konverse.dialog.state.endpoint import Endpoint, timestamp_ms
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import DialogNotFound, InvalidState
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import BROKER_ERROR, BROKER_ERROR_DESCRIPTION, check_error
from konverse.schemas.wire.instruction import Action
from konverse.schemas.wire.journal import EndOperation
from konverse.schemas.wire.operations import Cleanup, Fail, Resume, Skip, Suspend

BY_OPERATOR: Final = "suspended by an operator"
"""Reason of a suspension for which the operator gives none."""


class ReaderOperations:
    """Operators' commands on conversations of one reader. Each joins the next commit; `Reader.settle` waits for it."""

    def __init__(self, driver: OwnerDriver, lock: threading.RLock, check_open: Callable[[], None]) -> None:
        self._driver = driver
        self._lock = lock
        self._check_open = check_open

    @property
    def suspended(self) -> list[Endpoint]:
        """Conversations of this reader's partitions that failed five times, or that an operator has suspended."""
        with self._lock:
            self._check_open()
            return [
                endpoint
                for owner in self._driver.owners.values()
                if owner.phase is LEADING
                for endpoint in suspended_sides(owner.fold.state)
            ]

    @checked
    def suspend(self, conversation: UUID, *, reason: str = "", role: Role | None = None) -> None:
        """Hand out no messages of a conversation and its group until it is resumed or skipped.

        If a transaction has the group, this takes effect after it. `suspended` shows `reason`. `role` limits the
        command to one side; otherwise both sides are suspended if both live here. Raises DialogNotFound when the
        conversation, or its side, lives in no partition of this reader, InvalidState when it is suspended already or
        has ended here.
        """
        text = reason_of(reason or BY_OPERATOR)
        self._order(conversation, role, lambda one: Suspend(one.index, text, ordered=True), Action.SUSPEND)

    @checked
    def resume(self, conversation: UUID, *, role: Role | None = None) -> None:
        """Hand out the messages of a suspended conversation and its group again, with five new attempts.

        `role` as for `suspend`. Raises DialogNotFound as `suspend`, InvalidState when the conversation is not
        suspended.
        """
        self._order(conversation, role, lambda one: Resume(one.index), Action.RESUME)

    @checked
    def skip(self, conversation: UUID, *, role: Role | None = None) -> None:
        """Drop the first message that waits on a conversation, and resume the conversation if it is suspended.

        If a transaction has the group, this takes effect after it; if that transaction has received the message, no
        message is skipped. `role` as for `suspend`. Raises DialogNotFound as `suspend`, InvalidState when no message
        waits, messages wait on both sides, or the first one is an EndDialog or Error.
        """
        self._order(conversation, role, lambda one: Skip(one.index), Action.SKIP)

    @checked
    def end(
        self,
        conversation: UUID,
        *,
        error: int | None = 0,
        description: str | None = "",
        cleanup: bool = False,
        role: Role | None = None,
    ) -> None:
        """End a conversation, with `error` > 0 as WITH ERROR. Other conversations of its group stay as they are.

        If a transaction has the group, this takes effect after it. If both sides live here, `role` chooses one;
        otherwise the suspended one is ended, or both when neither is suspended. `cleanup` means WITH CLEANUP: the side
        that `role` chooses, or each side here, is removed at once, without notifying its peer (behaviours 120, 121).
        Raises DialogNotFound as `suspend`, InvalidState when the conversation has ended here, or for `error` together
        with `cleanup`, InvalidError for a code without a description (112).
        """
        error, description = check_error(error, description)
        check_cleanup(error, cleanup=cleanup)
        if cleanup:
            self._sweep(conversation, role, lambda one: Cleanup(one.index))
            return
        self._order(conversation, role, lambda one: EndOperation(one.index, error, description), Action.END)

    @checked
    def fail(self, conversation: UUID) -> None:
        """Make an open conversation fail with Error -9719 on both sides, after a transaction that holds it.

        `broker.operations.error_broker_conversations` does so with all conversations of a database (behaviour 136).
        Raises DialogNotFound as `suspend`.
        """
        self._sweep(conversation, None, lambda one: Fail(one.index, BROKER_ERROR, BROKER_ERROR_DESCRIPTION))

    def sides(self, conversation: UUID, role: Role | None = None) -> list[tuple[Owner, Endpoint]]:
        """The sides of a conversation that live here, or the one of this role, with their owners.

        An argument of `counts`. Raises DialogNotFound when there is none.
        """
        with self._lock:
            return self._find(conversation, role)

    def counts(self, sides: list[tuple[Owner, Endpoint]], pending: Callable[[Endpoint], bool]) -> bool | None:
        """Whether the operation on these sides is in the journal; None when that can no longer be known.

        `pending`: whether the state of a side shows that the operation has not been done yet.
        """
        with self._lock:
            if any(owner.phase is not LEADING or _has_left(owner, endpoint) for owner, endpoint in sides):
                return None
            undone = any(
                owner.fold.state.table[endpoint.index] is endpoint and pending(endpoint) for owner, endpoint in sides
            )
            return not undone and not any(owner.committing for owner, _ in sides)

    def _sweep(self, conversation: UUID, role: Role | None, ending: Callable[[Endpoint], Order]) -> None:
        with self._lock:
            for owner, endpoint in self._find(conversation, role):
                owner.trial.order(endpoint, ending(endpoint))

    def _find(self, conversation: UUID, role: Role | None) -> list[tuple[Owner, Endpoint]]:
        """The sides of a conversation that live here: two when both do and no `role` chooses one."""
        self._check_open()
        known = [
            (owner, endpoint)
            for owner in self._driver.owners.values()
            if owner.phase is LEADING
            for side in owner.fold.state.sides
            if (endpoint := side.get(conversation.bytes)) is not None and role in (None, endpoint.role)
        ]
        if not known:
            side = "" if role is None else f"the {role.name.lower()} of "
            raise DialogNotFound(
                f"{side}conversation {conversation} is in no partition of this reader; ask the process that owns it"
            )
        return known

    def _order(self, conversation: UUID, role: Role | None, order: Callable[[Endpoint], Order], action: Action) -> None:
        with self._lock:
            found = self._find(conversation, role)
            owners = {id(endpoint): owner for owner, endpoint in found}
            for endpoint in affected_sides(action, [endpoint for _, endpoint in found]):
                owners[id(endpoint)].trial.order(endpoint, order(endpoint))


def first_of(endpoint: Endpoint) -> int:
    """A number that identifies the first waiting message within its conversation; 0 when none waits."""
    entry = endpoint.first
    if entry is None:
        return 0
    # a DialogTimer is in no log: the time when it was due identifies it
    return 2 * timestamp_ms(entry[3]) + 1 if endpoint.rings else 2 * (entry[0] + 1)


def _has_left(owner: Owner, endpoint: Endpoint) -> bool:
    """Whether the side has moved to another partition, whose owner must then do the operation."""
    return (endpoint.role, endpoint.conversation) in owner.fold.state.moves.stubs


def awaits_operator(endpoint: Endpoint) -> bool:
    """Whether its messages wait for an operator: it is suspended and has not been ended since."""
    return endpoint.suspended and endpoint.committed is not State.DISCONNECTED_OUTBOUND


def suspended_sides(state: Partition) -> list[Endpoint]:
    """The sides of a partition whose messages wait for an operator."""
    troubled = (state.table[index] for index in state.attempts.troubled)
    return [one for one in troubled if one is not None and awaits_operator(one)]


def check_cleanup(error: int, *, cleanup: bool) -> None:
    """Raise InvalidState for an END that is both WITH ERROR and WITH CLEANUP."""
    if cleanup and error:
        raise InvalidState("a conversation is ended WITH ERROR or WITH CLEANUP, not with both")


def affected_sides(action: Action, sides: list[Endpoint]) -> list[Endpoint]:
    """The sides of a conversation to which an operator's action applies: the suspended one rather than the other.

    Raises InvalidState when the state of no side permits the action, and for SKIP also when it applies to both sides or
    the first message is an EndDialog or Error.
    """
    conversation, parked = sides[0].id, [one for one in sides if awaits_operator(one)]
    living = [one for one in sides if one.committed is not State.DISCONNECTED_OUTBOUND]
    match action:
        case Action.RESUME:
            found, why = parked, "is not suspended; its messages are being delivered"
        case Action.SUSPEND:
            found, why = [one for one in living if not one.suspended], "is suspended already, or has ended here"
        case Action.SKIP:
            found = parked or [one for one in living if one.waits]
            why = "has no waiting message; a message that a handler has received cannot be skipped"
        case _:
            found, why = parked or living, "has ended here already; `cleanup` removes it"
    if not found:
        raise InvalidState(f"conversation {conversation} {why}")
    if action is Action.SKIP:
        if len(found) > 1:
            raise InvalidState(
                f"messages wait on both sides of conversation {conversation}: name the queue of the side that is "
                "meant, or suspend that side first"
            )
        _check_skip(found[0])
    return found


def _check_skip(endpoint: Endpoint) -> None:
    """Raise InvalidState when the first message is an EndDialog or Error, which cannot be skipped."""
    if endpoint.ends_next:
        raise InvalidState(
            f"the first message of conversation {endpoint.id} is its EndDialog or Error, which cannot be skipped; end "
            "the conversation, or fix its handler and resume it"
        )
