"""Takes records of the data log into the state: checks writer and counter, then runs the rule of the record's kind.

The usual record is the next one of a known writer on a known conversation, and its header ends like the last one of
that lane. Its header is predicted and compared byte by byte; nothing is parsed. All other records are decoded and
judged in full (protocol.md section 3, `ingest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from konverse.dialog.rules.batches import hear_batch, hear_decision, hear_pending, hear_veto
from konverse.dialog.rules.bounces import hear_bounce, hear_confirm, hear_redirect
from konverse.dialog.rules.client_transactions import hear_transaction
from konverse.dialog.rules.endings import hear_end, hear_end_call, hear_no_peer
from konverse.dialog.rules.half_close import hear_fin, hear_fin_answer
from konverse.dialog.rules.holes import comes_late, goes_on_behind
from konverse.dialog.rules.loss import hear_late
from konverse.dialog.rules.messages import hear_begin, hear_message
from konverse.dialog.rules.relocation import forwarded, hear_closed, hear_install, unwrap
from konverse.dialog.rules.replies import hear_answer, refuse_closed
from konverse.dialog.rules.reused_ids import refuse_former
from konverse.dialog.rules.timers import hear_set_timer
from konverse.dialog.rules.writers import admit, closing_of, hear_close_writer, hear_contested, hear_gap
from konverse.dialog.state.endpoint import Record, Stamp
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import RecordColumns
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.wire.envelope import CONVERSATION_AT, PREFIX_BYTES, decode, encode_envelope
from konverse.schemas.wire.records import Envelope, Kind
from konverse.schemas.wire.varint import LOW_MASK

_Handler = Callable[[Partition, int, bytes, Envelope, Record], None]


def ingest(state: Partition, columns: RecordColumns) -> None:
    """Take records in log order, each counter of a writer once and in order (invariants I4, I5)."""
    lanes = {} if state.rejected else state.lanes  # what is rejected may look like what is predicted
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
        hear_pending(state, offset, envelope, record)
        return
    writer = state.writers.get(envelope.writer) or admit(state, envelope)
    if writer is None:
        state.recent.pass_over(offset)
        return
    refused = writer.closed_at is not None
    if envelope.counter < writer.next:
        if comes_late(writer, envelope.counter):
            state.recent.pass_over(offset)
            hear_late(state, envelope, record)
            return
        if not state.recent.is_contested(envelope, offset, header, record):
            statistics.duplicates += 1
            return
        statistics.forged += 1
        hear_contested(state, envelope)
        # the writer was told that its counters below `closed_at` arrived, so such a record is taken (M278)
        refused = writer.closed_at is not None and envelope.counter >= writer.closed_at
        envelope = envelope._replace(counter=-1 - offset)
        header = encode_envelope(envelope)
    else:
        if envelope.counter > writer.next and not goes_on_behind(state, writer, envelope.counter):
            state.recent.pass_over(offset)
            hear_gap(state, envelope, writer.next)
            return
        writer.advance()
    if refused:
        refuse_closed(state, envelope, record, closing_of(state, writer))
        return
    if state.named.openers and refuse_former(state, envelope, record):
        return
    if not (state.moves.stubs and forwarded(state, offset, header, envelope, record)):
        _hear(state, offset, header, envelope, record)


def _hear(state: Partition, offset: int, header: bytes, envelope: Envelope, record: Record) -> None:
    handler = _HANDLERS.get(envelope.kind)
    if handler is None:  # VOID, or a kind of a later version: it takes its counter and has no effect
        state.statistics.undeliverable += 1
        return
    handler(state, offset, header, envelope, record)


def _hear_forward(state: Partition, offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """FORWARD: treat the record inside as if it had been written here, where its endpoint lives."""
    found = unwrap(state, envelope, record)
    if found is not None:
        _hear(state, offset, *found)


_HANDLERS: Final[dict[Kind, _Handler]] = {
    Kind.MESSAGE: hear_message,
    Kind.BEGIN: hear_begin,
    Kind.END_CALL: hear_end_call,
    Kind.END: hear_end,
    Kind.ERROR: hear_end,
    Kind.BOUNCE: hear_bounce,
    Kind.CLOSE_WRITER: hear_close_writer,
    Kind.BATCH: hear_batch,
    Kind.DECISION: hear_decision,
    Kind.VETO: hear_veto,
    Kind.FIN: hear_fin,
    Kind.FIN_ANSWER: hear_fin_answer,
    Kind.TRANSACTION: hear_transaction,
    Kind.CONFIRM: hear_confirm,
    Kind.REDIRECT: hear_redirect,
    Kind.NO_PEER: hear_no_peer,
    Kind.NOTICE: hear_answer,
    Kind.WRITER_CLOSED: hear_answer,
    Kind.INSTALL: hear_install,
    Kind.FORWARD: _hear_forward,
    Kind.CLOSED: hear_closed,
    Kind.SET_TIMER: hear_set_timer,
}


assert CONVERSATION_AT + 16 == PREFIX_BYTES
