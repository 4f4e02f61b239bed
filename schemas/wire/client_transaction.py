"""The body of a TRANSACTION: a client's steps on several dialogs. Plain Avro (`transaction.avsc`).

`decode` is total: a value, or MalformedRecord.
"""

from __future__ import annotations

import json
from importlib.resources import files
from io import BytesIO
from typing import Any, Final, NamedTuple, cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.limits import BODY_BYTES_MAX, TRANSACTION_RECORDS_MAX, WRITER_RECORDS_MAX

from .records import FOR_EVER, NAMED, NO_SEQUENCE, RETURNING, Begin, Kind, begin_from_avro, begin_to_avro

_OPENER_BYTES: Final = 16


class TransactionDialog(NamedTuple):
    """A conversation, with everything needed to send on it."""

    conversation: bytes
    begin: Begin
    returning: bool = False
    """Its messages bounce when the target has ended."""
    named: bool = False
    """The caller chose its id."""

    @classmethod
    def of(cls, conversation: bytes, begin: Begin, flags: int) -> TransactionDialog:
        """The conversation whose messages have these flags."""
        return cls(conversation, begin, bool(flags & RETURNING), bool(flags & NAMED))

    @property
    def flags(self) -> int:
        """Flags of its messages."""
        return RETURNING * self.returning | NAMED * self.named

    @property
    def key(self) -> bytes:
        """Kafka key of its records."""
        return self.begin.key or self.begin.group


class TransactionStep(NamedTuple):
    """One step: BEGIN, MESSAGE, FIN, END_CALL or SET_TIMER.

    An OPEN step is not an output. It names the session that began a dialog whose FIRST follows.
    """

    dialog: int
    """Index in the transaction's dialogs."""
    kind: Kind
    sequence: int = NO_SEQUENCE
    message_type: str = ""
    body: bytes | None = None
    """For OPEN: id of the session that began the dialog, outside of this transaction."""
    timeout_ms: int = FOR_EVER
    """Timeout of a SET_TIMER; NO_TIMER cancels the timer."""

    @property
    def is_first(self) -> bool:
        """Whether this message creates the target."""
        return self.kind is Kind.MESSAGE and self.sequence == 0


class TransactionRecord(NamedTuple):
    """Steps that take effect together, or not at all."""

    dialogs: list[TransactionDialog]
    steps: list[TransactionStep]
    """In the order of the calls."""


def encode(transaction: TransactionRecord) -> bytes:
    """The bytes of a transaction."""
    out = BytesIO()
    value = {
        "dialogs": [{**dialog._asdict(), "begin": begin_to_avro(dialog.begin)} for dialog in transaction.dialogs],
        "steps": [{**step._asdict(), "kind": step.kind.name} for step in transaction.steps],
    }
    schemaless_writer(out, TRANSACTION_SCHEMA, value, strict=True)
    return out.getvalue()


def decode(data: bytes) -> TransactionRecord:
    """The transaction in `data`; MalformedRecord for anything else, whatever the bytes are."""
    if len(data) > BODY_BYTES_MAX:
        raise MalformedRecord(f"a transaction of {len(data)} bytes; at most {BODY_BYTES_MAX} are allowed")
    source = BytesIO(data)
    try:
        value = cast("dict[str, Any]", schemaless_reader(source, TRANSACTION_SCHEMA, None))
        dialogs = [TransactionDialog(**{**item, "begin": begin_from_avro(item["begin"])}) for item in value["dialogs"]]
        steps = [TransactionStep(**{**item, "kind": Kind[item["kind"]]}) for item in value["steps"]]
    except Exception as error:  # fastavro raises a dozen types for broken input; they all mean this
        raise MalformedRecord("a transaction that is not Avro") from error
    if source.tell() != len(data):
        raise MalformedRecord("a transaction with trailing bytes")
    said, most = sum(step.kind is not Kind.OPEN for step in steps), TRANSACTION_RECORDS_MAX
    if said > most or len(steps) > 2 * most or len(dialogs) > most:
        raise MalformedRecord(f"a transaction of {len(steps)} steps; at most {TRANSACTION_RECORDS_MAX} are allowed")
    if not all(0 <= step.dialog < len(dialogs) and NO_SEQUENCE <= step.sequence < WRITER_RECORDS_MAX for step in steps):
        raise MalformedRecord(
            "a step of a transaction on a dialog that it does not name, or with an invalid sequence number"
        )
    if any((step.timeout_ms == FOR_EVER) == (step.kind is Kind.SET_TIMER) for step in steps):
        raise MalformedRecord("a transaction with a timeout on a step that takes none, or none on SET_TIMER")
    if any(step.kind is Kind.SET_TIMER and step.message_type for step in steps):
        raise MalformedRecord("a transaction that sets a timer with a message type")
    if any(step.kind is Kind.OPEN and len(step.body or b"") != _OPENER_BYTES for step in steps):
        raise MalformedRecord("a transaction that names no session as the one that began a dialog")
    return TransactionRecord(dialogs, steps)


TRANSACTION_SCHEMA: Final = parse_schema(
    json.loads(files("konverse.schemas").joinpath("transaction.avsc").read_text("utf-8"))
)
