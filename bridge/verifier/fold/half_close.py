"""FIN and transactions of clients, in the second fold (protocol.md sections 5 and 6)."""

from __future__ import annotations

from konverse.bridge.verifier.records import LogRecord
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import END_WRITERS_MAX, SUFFIX_BYTES_MAX
from konverse.schemas.system_messages import END_DIALOG
from konverse.schemas.wire.client_transaction import decode
from konverse.schemas.wire.envelope import decode_suffix, encode_suffix
from konverse.schemas.wire.operations import Finish
from konverse.schemas.wire.records import FIRST, NAMED, Detail, Envelope, FinAnswer, Kind, Opened, Suffix, Timer

from .state import Output, SecondState


def second_finish(state: SecondState, operation: Finish) -> None:
    """FINISH: send the FIN of a handler."""
    side = state.table.get(operation.endpoint)
    if side is None:
        state.problem(f"I3: a commit finishes endpoint {operation.endpoint}, which does not exist")
        return
    side.finished = True
    state.stage(side.peer_at, Output(state.order, Kind.FIN, side.key[0], side.key[1], -1, "", b"", None))


def on_finished(state: SecondState, envelope: Envelope) -> None:
    """Take a FIN, or the answer to one."""
    role = 1 - int(envelope.role)
    side = state.living.get((role, envelope.conversation))
    detail = envelope.suffix.detail
    if envelope.kind is Kind.FIN_ANSWER:
        if side is not None and isinstance(detail, FinAnswer):
            side.finished = True  # the session has sent FIN, if no handler had
            side.answer = detail.received
            if detail.asker not in side.askers:
                side.askers = [*side.askers, detail.asker][-END_WRITERS_MAX:]
            state.tally["FIN answered"] += 1
        return
    heard: tuple[tuple[bytes, int], ...] = ()
    state.tally["FIN without an endpoint" if side is None else "FIN"] += 1
    if side is not None:
        side.peer_finished, side.finisher = True, envelope.suffix.origin or envelope.writer
        heard = side.latest()
    say_finished(state, envelope, heard)


def say_finished(state: SecondState, envelope: Envelope, heard: tuple[tuple[bytes, int], ...]) -> None:
    """Answer a FIN, if it asks for an answer."""
    home = envelope.suffix.home
    if home is not None:
        role = 1 - int(envelope.role)
        detail = FinAnswer(envelope.suffix.origin or envelope.writer, heard)
        state.stage(home, Output(state.order, Kind.FIN_ANSWER, role, envelope.conversation, -1, "", b"", detail))


def _can_be_sent(suffix: Suffix) -> bool:
    """Whether a receiver would accept a header with this suffix."""
    try:
        data = encode_suffix(suffix)
        decode_suffix(data)
    except (MalformedRecord, ValueError, OverflowError):
        return False
    return len(data) <= SUFFIX_BYTES_MAX


def _flags_of(kind: Kind, flags: int, *, opens: bool) -> int:
    """Header flags of a step: a message has all flags of the dialog, a BEGIN those about the id, other kinds none."""
    return {Kind.MESSAGE: FIRST * opens | flags, Kind.BEGIN: flags & NAMED}.get(kind, 0)


def expand(state: SecondState, envelope: Envelope, record: LogRecord) -> None:
    """TRANSACTION: send each step as an output, after the outputs that must arrive before it.

    A malformed transaction sends nothing.
    """
    try:
        transaction = decode(record.body or b"")
    except MalformedRecord:
        state.tally["malformed"] += 1
        return
    session = envelope.writer
    said: list[Output] = []
    begun_by: dict[int, bytes] = {}
    for number, kind, sequence, name, body, timeout_ms in transaction.steps:
        if kind is Kind.OPEN:
            begun_by[number] = body or b""
            continue
        dialog = transaction.dialogs[number]
        opens = kind is Kind.BEGIN or (kind is Kind.MESSAGE and sequence == 0)
        detail: Detail = Timer(timeout_ms) if kind is Kind.SET_TIMER else None
        if kind is Kind.MESSAGE and opens and number in begun_by:
            detail = Opened(begun_by[number])
        suffix = Suffix(
            END_DIALOG if kind is Kind.END_CALL else name,
            home=None if opens or kind in (Kind.END_CALL, Kind.SET_TIMER) else dialog.begin.home,
            begin=dialog.begin if opens else None,
            origin=session,
            detail=detail,
        )
        if not _can_be_sent(suffix):
            state.tally["malformed"] += 1
            return
        said.append(Output(
            state.order, kind, int(Role.INITIATOR), dialog.conversation, sequence, suffix.message_type,
            state.brief(body or b""), suffix.detail, session,
            _flags_of(kind, dialog.flags, opens=opens),
        ))  # fmt: skip
    state.tally["transaction"] += 1
    for step, output in zip((s for s in transaction.steps if s.kind is not Kind.OPEN), said, strict=True):
        begin = transaction.dialogs[step.dialog].begin
        if output.kind is Kind.MESSAGE and output.sequence == 0:
            state.hold(begin.target, begin.home)
        if output.kind is Kind.END_CALL:
            state.hold(begin.home, begin.target)
        state.stage(begin.target if output.kind in (Kind.MESSAGE, Kind.FIN) else begin.home, output)
