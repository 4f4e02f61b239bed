"""Writers in the second fold: admission, CLOSE_WRITER, heirs, PRUNE, and notices (protocol.md section 5)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from konverse.schemas.identifiers import NO_WRITER, Address, Role
from konverse.schemas.limits import ANSWER_ENTRIES_MAX, NOTICED_WRITERS_MAX, WRITER_AHEAD_MS_MAX
from konverse.schemas.wire.operations import Prune
from konverse.schemas.wire.records import HEIR, Envelope, Kind, Notice, NoticeReason, Opened, WriterClosed

from .state import Output, SecondState, Side, minted_ms

UNANSWERED: Final = -128
"""Mark of a writer whose records are not accepted and have named no home."""


def is_known(state: SecondState, writer: bytes) -> bool:
    """Whether the partition has an entry for a writer."""
    return writer in state.accepted and writer not in state.forgotten


def untrusted(state: SecondState, writer: bytes) -> NoticeReason | None:
    """Why the records of an unknown writer are not accepted; None if they are."""
    born = minted_ms(writer)
    if born is not None and born < state.floor_ms:
        return NoticeReason.PRUNED
    if born is not None and born - state.now_ms > WRITER_AHEAD_MS_MAX:
        return NoticeReason.CLOCK
    return None


def is_over(state: SecondState, query: bytes) -> bool:
    """Whether a query is over: the writer with the query's id was closed, or is too old to be known.

    The driver of a single write uses the query's id as its own writer id.
    """
    if is_known(state, query):
        return query in state.closed
    return untrusted(state, query) is NoticeReason.PRUNED


def notify(state: SecondState, envelope: Envelope, due: int, reason: NoticeReason) -> None:
    """Send a NOTICE about a writer, once for each counter or reason, unless the writer is an owner.

    A record that names no home only marks a writer that is not accepted, so that a later record is answered.
    """
    writer, home = envelope.writer, reads_at(state, envelope)
    word = due if reason is NoticeReason.GAP else -int(reason)
    known = state.told.get(writer)
    if minted_ms(writer) is None or known == word:
        return
    if home is None:
        if known is not None or reason not in (NoticeReason.PRUNED, NoticeReason.CLOCK):
            return
        word = UNANSWERED
    state.told.pop(writer, None)
    state.told[writer] = word
    if len(state.told) > NOTICED_WRITERS_MAX:
        state.told.pop(next(iter(state.told)))
    if home is not None:
        _say(state, home, Kind.NOTICE, Notice(writer, due, state.address, reason))


def came_early(state: SecondState, writer: bytes) -> bool:
    """Whether an unknown writer was refused because its id was ahead of time.

    The writer does not resend the refused records.
    """
    return state.told.get(writer, 0) < 0


def reads_at(state: SecondState, envelope: Envelope) -> Address | None:
    """The home of the session that wrote a record, where it reads its answers; None if the record names none."""
    if envelope.role == Role.TARGET:
        return None
    if envelope.kind in (Kind.END_CALL, Kind.CONFIRM, Kind.REDIRECT):
        return state.address
    begin = envelope.suffix.begin
    return envelope.suffix.home or (begin.home if begin is not None else None)


def _say(state: SecondState, home: Address, kind: Kind, detail: Notice | WriterClosed) -> None:
    state.stage(home, Output(state.order, kind, int(Role.TARGET), detail.writer, -1, "", b"", detail))


def close(state: SecondState, envelope: Envelope) -> None:
    """Apply CLOSE_WRITER."""
    writer = envelope.conversation
    home = envelope.suffix.home
    if not is_known(state, writer):
        reason = untrusted(state, writer)
        if reason is not None:
            if home is not None:
                _say(state, home, Kind.NOTICE, Notice(writer, 0, state.address, reason))
            return
        state.accepted[writer] = []
    if writer not in state.closed:
        state.closed[writer] = len(state.accepted[writer])
        state.seen.pop(writer, None)
    state.batches.end(writer)
    wanted = bool(envelope.flags & HEIR) and writer not in (envelope.writer, *line_of(state, envelope.writer))
    if writer not in state.heirs:
        comes_again = envelope.sequence <= state.closed[writer]
        at = envelope.counter if comes_again else -1
        state.heirs[writer] = (envelope.writer, at) if wanted else (NO_WRITER, -1)
    elif wanted and envelope.writer not in line_of(state, writer):
        state.closed.setdefault(envelope.writer, len(state.accepted[envelope.writer]))
        state.heirs[envelope.writer] = (NO_WRITER, -1)
        state.seen.pop(envelope.writer, None)
        state.tally["late heir"] += 1
    state.tombstones = {key: opener for key, opener in state.tombstones.items() if may_come(state, opener)}
    if home is not None:
        _say(state, home, Kind.WRITER_CLOSED, said_of(state, writer))


def said_of(state: SecondState, writer: bytes) -> WriterClosed:
    """The WRITER_CLOSED record about a closed writer."""
    heir, _ = state.heirs.get(writer, (None, -1))
    return WriterClosed(writer, state.closed[writer], state.address, heir)


def goes_on(state: SecondState, writer: bytes) -> bool:
    """Whether a closed writer's session may send again under another id: it has an heir, or may still get one."""
    return any(state.heirs.get(writer, (b"?", 0))[0])


def opened_by(envelope: Envelope) -> bytes:
    """Writer id of the BEGIN to which a record belongs."""
    detail = envelope.suffix.detail
    if isinstance(detail, Opened):
        return detail.opener
    return envelope.suffix.origin or envelope.writer


def is_handlers(envelope: Envelope) -> bool:
    """Whether an owner wrote an initiator's record by itself, because a handler or an operator asked for it."""
    owner = minted_ms(envelope.writer) is None and envelope.role == Role.INITIATOR
    return owner and envelope.suffix.origin is None


def is_opened_at_home(envelope: Envelope) -> bool:
    """Whether home sent this FIRST in place of the opener. The rows of a query name no session either."""
    return is_handlers(envelope) and opened_by(envelope) != envelope.writer


def spoken_for(envelope: Envelope, side: Side | None) -> bytes | None:
    """The session to whose conversation a handler's message belongs; None for other messages and conversations."""
    detail = envelope.suffix.detail
    opener = detail.opener if isinstance(detail, Opened) else side.opener if side is not None else b""
    return opener if opener and is_handlers(envelope) and minted_ms(opener) is not None else None


def tell_closed(state: SecondState, envelope: Envelope) -> None:
    """Answer a record of a closed writer that is not a message."""
    home = reads_at(state, envelope)
    if home is not None:
        _say(state, home, Kind.WRITER_CLOSED, said_of(state, envelope.writer))


def line_of(state: SecondState, writer: bytes) -> list[bytes]:
    """A writer's heir, the heir's heir, and so on."""
    line: list[bytes] = []
    while any(writer) and writer in state.heirs:
        writer, _ = state.heirs[writer]
        line.append(writer)
    return line


def is_one_session(state: SecondState, speakers: Collection[bytes]) -> bool:
    """Whether these writers are ids of one session, of which nothing was refused or lost."""
    if state.losses.any and len(speakers) > 1:
        return False
    open_ones = [writer for writer in speakers if writer not in state.closed]
    return len(open_ones) == 1 and all(
        goes_on(state, writer) and open_ones[0] in line_of(state, writer)
        for writer in speakers
        if writer in state.closed
    )


def may_come(state: SecondState, opener: bytes) -> bool:
    """Whether a FIRST that names this opener may still be accepted."""
    return all(map(any, line_of(state, opener)))


def keep(state: SecondState, detail: object) -> None:
    """Keep another partition's answer about a session's writer."""
    if not isinstance(detail, Notice | WriterClosed):
        return
    key = (detail.writer, detail.at)
    known = state.answers.get(key)
    mild = (NoticeReason.GAP, NoticeReason.FORGED)
    is_mild = isinstance(detail, Notice) and detail.reason in mild
    if is_mild and known is not None and getattr(known, "reason", None) is not NoticeReason.FORGED:
        return
    state.answers.pop(key, None)
    state.answers[key] = detail
    if len(state.answers) > ANSWER_ENTRIES_MAX:
        state.answers.pop(next(iter(state.answers)))


def prune(state: SecondState, operation: Prune) -> None:
    """Apply PRUNE: note writers that have changed, close those silent for long, and later forget these."""
    floor = max(state.floor_ms, operation.floor_ms)
    state.floor_ms = floor
    # the writers of a side that moved here have their entries where the side began
    speaking = {writer for side in state.living.values() if not side.generation for writer in side.voices}
    for writer, counters in state.accepted.items():
        born = minted_ms(writer)
        if born is None or writer in state.forgotten:
            continue
        count, since = state.seen.get(writer, (-1, 0))
        if count != len(counters):
            state.seen[writer] = (len(counters), state.now_ms)
        elif since >= floor:
            continue
        elif writer not in state.closed:
            state.closed[writer] = len(counters)
            del state.seen[writer]
            state.tally["closed by a PRUNE"] += 1
        elif born < floor and writer not in speaking:
            state.forgotten.add(writer)
            del state.closed[writer], state.seen[writer]
            state.heirs.pop(writer, None)
            state.losses.missed.pop(writer, None)
            state.tally["forgotten"] += 1
    state.named.prune(floor)
    state.cleanups.cleaned = {key: known for key, known in state.cleanups.cleaned.items() if known[1] >= floor}
    for key in [key for key in state.answers if (minted_ms(key[0]) or 0) < floor]:
        del state.answers[key]
    for query in [query for query in state.batches.judged if is_over(state, query)]:
        state.batches.end(query)
