"""A client's transaction: one record becomes the outputs of one commit (protocol.md section 5).

The partition accepts the record or refuses it, so all of its steps happen or none does. The partition sends the outputs
under its own writer id and counters; `origin` names the session.
"""

from __future__ import annotations

from collections.abc import Iterator

from konverse.dialog.state.endpoint import Record
from konverse.dialog.state.outbox import Run
from konverse.dialog.state.partition import Partition
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import SUFFIX_BYTES_MAX
from konverse.schemas.system_messages import END_DIALOG
from konverse.schemas.wire.client_transaction import TransactionDialog, TransactionStep, decode
from konverse.schemas.wire.envelope import decode_suffix, encode_suffix
from konverse.schemas.wire.records import FIRST, RETURNING, Envelope, Kind, Opened, Suffix, Timer


def on_transaction(state: Partition, _offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """TRANSACTION: all of its steps become outputs, in the order of the calls.

    FIRST leaves after its home has BEGIN. END_CALL leaves after the target has everything that was sent before it.
    """
    try:
        steps = list(_steps(record[0] or b"", envelope.writer))
    except MalformedRecord:
        state.statistics.malformed += 1
        return
    for dialog, step, suffix in steps:
        home, target = state.stream_to(dialog.begin.home), state.stream_to(dialog.begin.target)
        stream = target if step.kind in (Kind.MESSAGE, Kind.FIN) else home
        if step.is_first:
            state.hold(target, behind=home)
        elif step.kind is Kind.END_CALL:
            state.hold(home, behind=target)
        flags = FIRST if step.is_first else 0
        if step.kind is Kind.MESSAGE:
            flags |= dialog.flags
        elif step.kind is Kind.BEGIN:
            flags = dialog.flags & ~RETURNING
        prefix = stream.head(step.kind, Role.INITIATOR, flags) + dialog.conversation
        stream.push(Run(prefix, dialog.key, step.sequence, suffix, [step.body]))


def _steps(data: bytes, session: bytes) -> Iterator[tuple[TransactionDialog, TransactionStep, bytes]]:
    """Each step with its dialog and header suffix. Raises MalformedRecord when any step cannot be sent."""
    transaction = decode(data)
    openers: dict[int, bytes] = {}
    for step in transaction.steps:
        dialog = transaction.dialogs[step.dialog]
        if step.kind is Kind.OPEN:
            openers[step.dialog] = step.body or b""
            continue
        try:
            suffix = encode_suffix(_suffix(dialog, step, session, openers.get(step.dialog)))
        except (ValueError, OverflowError) as error:
            raise MalformedRecord("a step of a transaction has a number that does not fit into a header") from error
        decode_suffix(suffix)  # the receiver will decode it the same way
        if len(suffix) > SUFFIX_BYTES_MAX:
            raise MalformedRecord("the header of a step of a transaction is too long")
        yield dialog, step, suffix


def _suffix(dialog: TransactionDialog, step: TransactionStep, session: bytes, opener: bytes | None) -> Suffix:
    if step.kind is Kind.END_CALL:
        return Suffix(END_DIALOG, origin=session)
    if step.kind is Kind.SET_TIMER:
        return Suffix(origin=session, detail=Timer(step.timeout_ms))
    if step.kind is Kind.BEGIN or step.is_first:
        detail = None if opener is None or step.kind is Kind.BEGIN else Opened(opener)
        return Suffix(step.message_type, begin=dialog.begin, origin=session, detail=detail)
    return Suffix(step.message_type, home=dialog.begin.home, origin=session)
