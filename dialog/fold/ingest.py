"""Takes records of the data log into the state: checks writer and counter, then runs the rule of the record's kind.

A lane is one writer on one conversation. The usual record is the next one of a known lane, and its header ends like the
previous one of the lane. Such a header is predicted and compared byte by byte, without parsing. All other records are
decoded and judged in full (protocol.md section 3, `ingest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from konverse.dialog.rules.batches import on_batch, on_decision, on_pending, on_veto
from konverse.dialog.rules.bounces import on_bounce, on_confirm, on_redirect
from konverse.dialog.rules.client_transactions import on_transaction
from konverse.dialog.rules.endings import on_end, on_end_call, on_no_peer
from konverse.dialog.rules.half_close import on_fin, on_fin_answer
from konverse.dialog.rules.heirs import closing_of
from konverse.dialog.rules.holes import comes_late, skips_gap, vouches
from konverse.dialog.rules.loss import lose_acked, on_late
from konverse.dialog.rules.messages import on_begin, on_message
from konverse.dialog.rules.relocation import forwarded, on_closed, on_install, unwrap
from konverse.dialog.rules.replies import on_answer, refuse_closed
from konverse.dialog.rules.timers import on_set_timer
from konverse.dialog.rules.writers import admit, on_close_writer, on_contested, on_gap
from konverse.dialog.state.endpoint import Record, Stamp
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import RecordColumns
from konverse.dialog.state.writer import Writer
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.wire.envelope import CONVERSATION_AT, PREFIX_BYTES, decode, encode_envelope, unflagged
from konverse.schemas.wire.records import ACKED, Envelope, Kind
from konverse.schemas.wire.varint import LOW_MASK

_Handler = Callable[[Partition, int, bytes, Envelope, Record], None]


def ingest(state: Partition, columns: RecordColumns) -> None:
    """Take records in log order, each counter of a writer once and in order (invariants I4, I5)."""
    lanes = {} if state.rejected else state.lanes  # a rejected record can match a predicted header
    accepted = judged_bytes = 0
    body_bytes = sum(map(len, filter(None, columns.bodies)))
    state.recent.keep(columns, body_bytes)
    rows: Iterable[tuple[int, bytes | None, bytes | None, Stamp]] = zip(*columns[:4], strict=True)
    for offset, header, body, stamp in rows:
        lane = lanes.get(header[:PREFIX_BYTES]) if header else None
        if lane is not None:
            writer = lane.writer
            endpoint = lane.endpoint
            counter = writer.next
            sequence = endpoint.received
            predicted = writer.low[counter & LOW_MASK] + writer.high + lane.low[sequence & LOW_MASK] + lane.tail
            if header[PREFIX_BYTES:] == predicted and writer.closed_at is None:  # type: ignore[index]  # lanes have headers
                if not endpoint.changed:
                    state.touch(endpoint)
                lane.last = counter
                writer.next = counter = counter + 1
                if not counter & LOW_MASK:
                    writer.carry()
                endpoint.received = sequence = sequence + 1
                if not sequence & LOW_MASK:
                    endpoint.carry()
                if endpoint.queue:
                    endpoint.queue.append((offset, lane.message_type, body, stamp))
                else:
                    endpoint.queue = [(offset, lane.message_type, body, stamp)]
                    state.ready.append(endpoint)
                accepted += 1
                continue
        if body:
            judged_bytes += len(body)
        _judge(state, offset, header, (body, stamp))
    state.statistics.accepted += accepted
    state.unread += accepted
    state.unread_bytes += body_bytes - judged_bytes
    state.ingest_to = max(state.ingest_to, columns.next_offset)


def _judge(state: Partition, offset: int, header: bytes | None, record: Record) -> None:
    """Decode a record that was not predicted, check its writer and counter, and run the rule of its kind."""
    statistics = state.statistics
    if header is None:
        statistics.foreign += 1
        return
    try:
        envelope = decode(header)
    except MalformedRecord:
        statistics.malformed += 1
        return
    if envelope.tag != state.address.tag:
        statistics.foreign += 1
        return
    if envelope.kind is Kind.PENDING:
        on_pending(state, offset, envelope, record)
        return
    writer = state.writers.get(envelope.writer) or admit(state, envelope)
    if writer is None:
        state.recent.pass_over(offset)
        return
    refused = writer.closed_at is not None
    if envelope.counter < writer.next:
        if comes_late(writer, envelope.counter):
            state.recent.pass_over(offset)
            on_late(state, envelope, record)
            return
        if not state.recent.is_contested(envelope, offset, header, record):
            statistics.duplicates += 1
            return
        statistics.forged += 1
        on_contested(state, envelope)
        # the writer was notified that its counters below `closed_at` arrived, so the record is accepted (M278)
        refused = writer.closed_at is not None and envelope.counter >= writer.closed_at
        envelope = envelope._replace(counter=-1 - offset)
        header = encode_envelope(envelope)
    else:
        if envelope.counter > writer.next and not _goes_on(state, writer, envelope, offset):
            state.recent.pass_over(offset)
            on_gap(state, envelope, writer.next)
            return
        writer.advance()
    if envelope.flags & ACKED:
        envelope, header = envelope._replace(flags=envelope.flags & ~ACKED), unflagged(header, ACKED)
    if refused:
        refuse_closed(state, envelope, record, closing_of(state, writer))
        return
    if not (state.moves.stubs and forwarded(state, offset, header, envelope, record)):
        _dispatch(state, offset, header, envelope, record)


def _goes_on(state: Partition, writer: Writer, envelope: Envelope, offset: int) -> bool:
    """Whether a record after a gap is accepted, because the missing records before it are lost."""
    if writer.closed_at is None and vouches(state, envelope, writer.next):
        lose_acked(state, writer, envelope.counter, offset)
        return True
    return skips_gap(state, writer, envelope.counter)


def _dispatch(state: Partition, offset: int, header: bytes, envelope: Envelope, record: Record) -> None:
    handler = _HANDLERS.get(envelope.kind)
    if handler is None:  # VOID, or a kind of a later version: it uses up its counter and has no effect
        state.statistics.undeliverable += envelope.kind is not Kind.VOID
        return
    handler(state, offset, header, envelope, record)


def _hear_forward(state: Partition, offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """FORWARD: treat the record inside as if it had been written here, where its endpoint lives."""
    found = unwrap(state, envelope, record)
    if found is not None:
        _dispatch(state, offset, *found)


_HANDLERS: Final[dict[Kind, _Handler]] = {
    Kind.MESSAGE: on_message,
    Kind.BEGIN: on_begin,
    Kind.END_CALL: on_end_call,
    Kind.END: on_end,
    Kind.ERROR: on_end,
    Kind.BOUNCE: on_bounce,
    Kind.CLOSE_WRITER: on_close_writer,
    Kind.BATCH: on_batch,
    Kind.DECISION: on_decision,
    Kind.VETO: on_veto,
    Kind.FIN: on_fin,
    Kind.FIN_ANSWER: on_fin_answer,
    Kind.TRANSACTION: on_transaction,
    Kind.CONFIRM: on_confirm,
    Kind.REDIRECT: on_redirect,
    Kind.NO_PEER: on_no_peer,
    Kind.NOTICE: on_answer,
    Kind.WRITER_CLOSED: on_answer,
    Kind.INSTALL: on_install,
    Kind.FORWARD: _hear_forward,
    Kind.CLOSED: on_closed,
    Kind.SET_TIMER: on_set_timer,
}


assert CONVERSATION_AT + 16 == PREFIX_BYTES
