"""Data that was deleted before anybody ingested it, in the second fold: who fails by it, and who may go on behind it.

The verdict is the same whether the records are still there to be read or not: from LOST on they never were.
"""

from __future__ import annotations

from konverse.schemas.catalog import ERROR
from konverse.schemas.envelope import encode_envelope
from konverse.schemas.journal import Commit
from konverse.schemas.operations import Lost
from konverse.schemas.records import End, Envelope, Kind, Role, Suffix
from konverse.schemas.system_messages import lost_body

from .records import Record
from .second_moves import follow
from .second_state import SecondState, Side
from .second_writers import minted_ms


def hole_of(commit: Commit) -> Lost | None:
    """Where the data that a commit ingests has a hole."""
    holes = [operation for operation in commit.operations.rare if isinstance(operation, Lost)]
    return holes[0] if holes else None


def miss(state: SecondState, lost: Lost) -> None:
    """Whoever lives here may have missed something."""
    state.problems.append(
        f"lost: the records {lost.start} to {lost.end - 1} were deleted before they were received, and the "
        "conversations that lived here got an Error"
    )
    state.holes += 1
    state.unsure = {w: len(counters) for w, counters in state.accepted.items() if minted_ms(w) is None}
    state.moves.installing.clear()
    body = lost_body(*lost)
    for index in sorted(state.table):
        side = state.table.get(index)
        if side is not None:
            _fail(state, side, lost, body)
    for key in [*state.moves.stubs]:
        _fail_elsewhere(state, key[1], Role(1 - key[0]), lost, body)


def _fail(state: SecondState, side: Side, lost: Lost, body: bytes) -> None:
    if side.peer_ended or side.peer_failed or (side.code == "SO" and side.numbering >= 0):
        return  # its peer has nothing to say, any more or yet
    state.tally["freed by a loss" if side.ended else "failed by a loss"] += 1
    if side.ended:
        side.peer_failed = True
        state.bury(side)
    else:
        state.fail(side, lost.start, body)


def _fail_elsewhere(state: SecondState, conversation: bytes, role: Role, lost: Lost, body: bytes) -> None:
    told = End(state.writer, state.address)
    envelope = Envelope(
        Kind.ERROR, 0, role, state.address.tag, state.writer, conversation, 0, -1, Suffix(ERROR, detail=told)
    )
    state.tally["failed elsewhere by a loss"] += 1
    follow(state, envelope, Record(lost.start, encode_envelope(envelope), state.brief(body), state.now_ms))


def resumes(state: SecondState, writer: bytes, counter: int) -> bool:
    """An owner may go on behind a hole, once; what is missing counts as heard."""
    taken = state.accepted.get(writer)
    if minted_ms(writer) is not None or not state.holes:
        return False
    if taken is not None and state.unsure.get(writer) != len(taken):
        return False
    state.unsure.pop(writer, None)
    state.accepted[writer] = [*range(counter)]
    state.tally["owner went on behind a loss"] += 1
    return True
