"""CLEANUP, WITHDRAW, GIVE_BACK and FAIL in the second fold (protocol.md sections 6 and 7.11)."""

from __future__ import annotations

from collections.abc import Collection

from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import ACKED_LOST_BODY, ERROR, NO_PEER_BODY, error_body, lost_body
from konverse.schemas.wire.operations import Cleanup, Fail, GiveBack, Withdraw
from konverse.schemas.wire.records import Bounce, BounceReason, Envelope, Kind

from .ended import CLEANED_UP
from .state import NOT_YET, Output, SecondState, Side
from .writers import reads_at

SPOKEN = (Kind.MESSAGE, Kind.END, Kind.ERROR, Kind.FIN)


def clean(state: SecondState, operation: Cleanup) -> None:
    """CLEANUP: remove a side, and turn its outputs that are not known to have arrived into VOID."""
    side = state.table.get(operation.endpoint)
    if side is None:
        state.problem(f"I3: a commit cleans up endpoint {operation.endpoint}, which does not exist")
        return
    state.tally["cleaned up"] += 1
    if side.peer_ended or side.peer_failed:
        state.end(side, failed=False)  # a peer that has ended waits only for this END
        return
    state.tally["cleaned up, not open"] += side.ended
    if not side.ended:
        side.thrown_away += side.heard[len(side.consumed) :]
    side.ended = True
    state.named.end(side.key, CLEANED_UP, state.now_ms)
    side.forget_urgent()
    state.given_up.add(side.key[1])
    state.cleanups.cut_off.add(side.key)
    _take_back(state, side, SPOKEN)
    if side.key[0] == Role.TARGET:
        state.cleanups.remember(side.key[1], side.peer_at, state.now_ms)
    state.await_home(side)
    state.remove(side)


def leave_the_error(state: SecondState, operation: Withdraw) -> None:
    """WITHDRAW, after END WITH ERROR: turn the side's other outputs that are not known to have arrived into VOID."""
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
            said[counter] = Output(order, Kind.VOID, *side.key, -1, "", b"", None)


def return_unread(state: SecondState, operation: GiveBack) -> None:
    """GIVE_BACK: end a target, and send a note and its unreceived messages to the mailbox of its peer."""
    side = state.table.get(operation.endpoint)
    if side is None or side.key[0] != Role.TARGET:
        state.problem(f"I3: a commit gives back messages of endpoint {operation.endpoint}, which is not a target")
        return
    if side.ended:
        state.problem(f"I9: a commit gives back messages of {side.key[1].hex()}, which has ended")
        return
    first = len(side.consumed) + len(side.thrown_away)
    unread = side.heard[first:]
    letters = [(operation.message_type, state.brief(operation.body), -1, BounceReason.REDIRECTED)]
    letters += [
        (heard.type, heard.body, place, BounceReason.GIVEN_BACK)
        for place, heard in enumerate(unread, first)
        if heard.kind is Kind.MESSAGE
    ]
    state.given_back += len(letters)
    for number, (name, body, place, reason) in enumerate(letters, first):
        detail = Bounce(side.key[1], number, state.address, reason)
        state.stage(side.peer_at, Output(
            state.order, Kind.BOUNCE, int(Role.TARGET), side.key[1], place, name, body, detail, side.opener
        ))  # fmt: skip
    state.end(side, failed=False)


def told_of_cleanup(state: SecondState, conversation: bytes) -> bool:
    """Notify home by NO_PEER when a message comes for a target that was cleaned up.

    Returns False if the target was not cleaned up.
    """
    home, _ = state.cleanups.cleaned.pop(conversation, (None, 0))
    if home is not None:
        state.tally["cleaned up and spoken to"] += 1
        body = state.brief(NO_PEER_BODY)
        state.stage(home, Output(state.order, Kind.NO_PEER, int(Role.TARGET), conversation, -1, ERROR, body, None))
    return home is not None


def told_of_loss(state: SecondState, envelope: Envelope) -> None:
    """Tell an initiator whose target does not live that its first message may have been lost."""
    home = reads_at(state, envelope)
    lives = (int(Role.TARGET), envelope.conversation) in state.living
    lossy = state.losses.count or state.losses.missed.get(envelope.writer)
    if home is None or lives or not lossy:
        return
    state.tally["told of a loss"] += 1
    body = state.brief(lost_body(*state.losses.hole) if state.losses.count else ACKED_LOST_BODY)
    state.stage(home, Output(state.order, Kind.NO_PEER, int(Role.TARGET), envelope.conversation, -1, ERROR, body, None))


def give_up_side(state: SecondState, operation: Fail) -> None:
    """FAIL: both sides of an open conversation get an Error of the broker."""
    side = state.table.get(operation.endpoint)
    if side is None:
        state.problem(f"I3: a commit fails endpoint {operation.endpoint}, which does not exist")
    elif not (side.ended or side.peer_ended or side.peer_failed):
        state.tally["given up"] += 1
        state.fail(side, state.ingested_to, error_body(operation.code, operation.description))
