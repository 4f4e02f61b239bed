"""END WITH CLEANUP and conversations that the broker gives up, in the second fold (protocol.md section 6)."""

from __future__ import annotations

from collections.abc import Collection

from konverse.schemas.catalog import ERROR
from konverse.schemas.operations import Cleanup, Fail, Withdraw
from konverse.schemas.records import Kind, Role
from konverse.schemas.system_messages import NO_PEER_BODY, error_body

from .second_state import NOT_YET, Said, SecondState, Side

SPOKEN = (Kind.MESSAGE, Kind.END, Kind.ERROR, Kind.FIN)


def clean(state: SecondState, operation: Cleanup) -> None:
    """A side goes, and what it said and nobody is known to have is said no more."""
    side = state.table.get(operation.endpoint)
    if side is None:
        state.problem(f"I3: a commit cleans up endpoint {operation.endpoint}, where nobody lives")
        return
    state.tally["cleaned up"] += 1
    if side.peer_ended or side.peer_failed:
        state.end(side, failed=False)  # the peer waits for it, and for nothing else
        return
    state.tally["cleaned up, not open"] += side.ended
    if not side.ended:
        side.thrown_away += side.heard[len(side.consumed) :]
    side.ended = True
    side.error = side.rang = side.timer_ms = side.expires_ms = None
    state.given_up.add(side.key[1])
    state.cleanups.cut_off.add(side.key)
    _take_back(state, side, SPOKEN)
    if side.key[0] == Role.TARGET:
        state.cleanups.cleaned[side.key[1]] = side.peer_at, state.now_ms
    state.remove(side)


def leave_the_error(state: SecondState, operation: Withdraw) -> None:
    """A side has ended WITH ERROR: that is all it says, as far as the rest is not known to be there."""
    side = state.table.get(operation.endpoint)
    if side is not None and side.ended:
        _take_back(state, side, (Kind.MESSAGE, Kind.FIN))


def _take_back(state: SecondState, side: Side, kinds: Collection[Kind]) -> None:
    to, said = side.peer_at, state.outputs.get(side.peer_at, [])
    for counter in range(state.acknowledged.get(to, 0), len(said)):
        one = said[counter]
        if one.kind in kinds and (one.role, one.conversation) == side.key:
            state.tally["taken back"] += 1
            state.cleanups.taken_back[to, counter] = one
            order = one.order if one.order == NOT_YET else state.order
            said[counter] = Said(order, Kind.VOID, *side.key, -1, "", b"", None)


def told_of_cleanup(state: SecondState, conversation: bytes) -> None:
    """Somebody talks to a target that went: its initiator gets an Error."""
    home, _ = state.cleanups.cleaned.pop(conversation, (None, 0))
    if home is not None:
        state.tally["cleaned up and spoken to"] += 1
        body = state.brief(NO_PEER_BODY)
        state.say(home, Said(state.order, Kind.NO_PEER, int(Role.TARGET), conversation, -1, ERROR, body, None))


def give_up_side(state: SecondState, operation: Fail) -> None:
    """Both sides of a conversation get an Error of the broker."""
    side = state.table.get(operation.endpoint)
    if side is None:
        state.problem(f"I3: a commit fails endpoint {operation.endpoint}, where nobody lives")
    elif not (side.ended or side.peer_ended or side.peer_failed):
        state.tally["given up"] += 1
        state.fail(side, state.ingested_to, error_body(operation.code, operation.description))
