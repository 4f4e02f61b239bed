"""Writer entries of a partition: which writers are admitted, closed and forgotten (protocol.md section 5).

An entry is open(next) or closed(closed_at). Storing the time of each record would slow down every message. So only
PRUNE stores times: an entry that changed since the last PRUNE gets the time of this PRUNE. That time is never too
early, so no entry is closed or forgotten too early.
"""

from __future__ import annotations

from typing import Final

from konverse.dialog.state.endpoint import Record
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.writer import CHANGED, NO_HEIR, Writer
from konverse.schemas.identifiers import time_of_writer
from konverse.schemas.limits import NOTICED_WRITERS_MAX, WRITER_AHEAD_MS_MAX, WRITER_HOLE_RECORDS_MAX
from konverse.schemas.wire.operations import Prune
from konverse.schemas.wire.records import HEIR, Envelope, Kind, Notice, NoticeReason

from .heirs import closing_of, is_behind, may_open
from .holes import may_lack, vouches
from .loss import lose_acked
from .replies import answer, home_of

_REFUSING: Final = (NoticeReason.PRUNED, NoticeReason.CLOCK)
"""Reasons for which every record of a writer is refused."""
NO_NOTICE: Final = -128
"""Value of `noticed` for a refused writer that got no NOTICE, because none of its records named a home. A session that
asks under this id learns from it that no answer will come (`dialog.session.rotation.reply`)."""


def admit(state: Partition, envelope: Envelope) -> Writer | None:
    """Make an entry for an unknown writer; None when it is not admitted: its home gets the reason (rule 2)."""
    reason = _stranger(state, envelope.writer)
    if reason is None and envelope.counter and _was_refused(state, envelope.writer):
        reason = NoticeReason.CLOCK
    if reason is not None:
        state.statistics.strangers += 1
        _tell(state, envelope, 0, reason)
    elif envelope.counter and not (may_lack(state, envelope.counter) or vouches(state, envelope, 0)):
        on_gap(state, envelope, 0)
    else:
        writer = state.writers[envelope.writer] = Writer(envelope.writer)
        return writer
    return None


def on_gap(state: Partition, envelope: Envelope, expected: int) -> None:
    """Answer a gap: a record of this writer before this one is missing."""
    state.statistics.gaps += 1
    _tell(state, envelope, expected, NoticeReason.GAP)


def on_contested(state: Partition, envelope: Envelope) -> None:
    """Notify the session that a stranger writes in its name: two records have its writer and this counter."""
    _tell(state, envelope, envelope.counter, NoticeReason.FORGED)


def _stranger(state: Partition, identifier: bytes) -> NoticeReason | None:
    """Why an unknown writer is not admitted; None when it is.

    A writer older than the floor may have had an entry before. One ahead of the partition's time is not trusted.
    """
    time_ms = time_of_writer(identifier)
    if time_ms is None:
        return None
    if time_ms < state.floor_ms:
        return NoticeReason.PRUNED
    return NoticeReason.CLOCK if time_ms > state.now_ms + WRITER_AHEAD_MS_MAX else None


def _was_refused(state: Partition, identifier: bytes) -> bool:
    """Whether records of a writer without an entry were refused here because of its id: they are not lost."""
    return identifier not in state.writers and state.noticed.get(identifier, 0) < 0


def _tell(state: Partition, envelope: Envelope, expected: int, reason: NoticeReason) -> None:
    """Send a NOTICE to the writer's home, once, when a record names the home (M118).

    Owners get none: their records are answers, and answers are not answered.
    """
    writer, home = envelope.writer, home_of(envelope, state)
    told = expected if reason is NoticeReason.GAP else -reason
    if time_of_writer(writer) is None or state.noticed.get(writer) == told:
        return
    if home is None:
        state.statistics.undeliverable += 1
        if reason in _REFUSING and writer not in state.noticed:
            _note(state, writer, NO_NOTICE)
        return
    _note(state, writer, told)
    answer(state, home, Kind.NOTICE, Notice(writer, expected, state.address, reason))


def _note(state: Partition, writer: bytes, told: int) -> None:
    state.noticed.pop(writer, None)
    if len(state.noticed) >= NOTICED_WRITERS_MAX:
        del state.noticed[next(iter(state.noticed))]
    state.noticed[writer] = told


def on_close_writer(state: Partition, offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """CLOSE_WRITER: closes the writer named in the conversation field, and tells the sender where it was closed."""
    identifier, home = envelope.conversation, envelope.suffix.home
    writer, refused = state.writers.get(identifier), _was_refused(state, identifier)
    if writer is None:
        reason = _stranger(state, identifier)
        if reason is not None:
            if home is not None:
                answer(state, home, Kind.NOTICE, Notice(identifier, 0, state.address, reason))
            return
        writer = state.writers[identifier] = Writer(identifier)
    # a stranger might name a writer's own heir: the line of heirs must end somewhere
    in_circle = envelope.writer == identifier or is_behind(state, state.writers[envelope.writer], identifier)
    inherits = envelope.flags & HEIR and not in_circle
    lacks = 0 < envelope.sequence - writer.next <= WRITER_HOLE_RECORDS_MAX
    if inherits and lacks and writer.closed_at is None and not refused:
        lose_acked(state, writer, envelope.sequence, offset)
    writer.close()
    state.judgements.pop(identifier, None)
    if writer.heir is None:
        writer.heir = (envelope.writer, _goes_on_at(envelope, writer)) if inherits else NO_HEIR
    elif inherits and not is_behind(state, writer, envelope.writer):
        late = state.writers[envelope.writer]  # another sender was told that nothing more is received
        late.close()
        late.heir = NO_HEIR
    _drop_tombstones(state)
    if home is not None:
        answer(state, home, Kind.WRITER_CLOSED, closing_of(state, writer))


def _goes_on_at(envelope: Envelope, writer: Writer) -> int:
    """Counter of the heir's CLOSE_WRITER, after which the heir resends; -1 when it believes that nothing is missing."""
    assert writer.closed_at is not None
    return envelope.counter if envelope.sequence <= writer.closed_at else NO_HEIR[1]


def _drop_tombstones(state: Partition) -> None:
    """Drop the tombstones of openers that were closed without an heir: their FIRST cannot come any more."""
    for conversation in [key for key, opener in state.tombstones.items() if not may_open(state, opener)]:
        del state.tombstones[conversation]


def prune(state: Partition, operation: Prune) -> None:
    """PRUNE: close writers silent since the floor, and forget those closed before the floor, which never falls."""
    floor_ms = state.floor_ms = max(state.floor_ms, operation.floor_ms)
    for writer in [*state.writers.values()]:
        time_ms = time_of_writer(writer.id)
        if time_ms is None:
            continue
        if writer.noted != writer.next:
            writer.noted, writer.noted_ms = writer.next, state.now_ms
        elif writer.noted_ms >= floor_ms:
            continue
        elif writer.closed_at is None:
            writer.close()
        elif time_ms < floor_ms and not writer.lanes:
            del state.writers[writer.id]
    for conversation in [key for key, cleaned in state.cleaned.items() if cleaned.at_ms < floor_ms]:
        del state.cleaned[conversation]
    state.named.prune(floor_ms)
    old = [key for key in state.answers if (time_of_writer(key[0]) or 0) < floor_ms]
    for key in old:
        del state.answers[key]
    for query in [query for query in state.judgements if is_over(state, query)]:
        del state.judgements[query]


assert CHANGED < 0, "no counter"


def is_over(state: Partition, query: bytes) -> bool:
    """Whether no batch of a query is decided any more: the writer with the query's id is closed, or was forgotten."""
    writer = state.writers.get(query)
    if writer is not None:
        return writer.closed_at is not None
    time_ms = time_of_writer(query)
    return time_ms is not None and time_ms < state.floor_ms
