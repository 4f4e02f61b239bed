"""What a function of the user gets of received messages, and what becomes of the rows that it answers with.

A row in is a message; `receipt` says which one. A row out is something to do on the conversation of a receipt: a reply,
an end, or an end with an error, in the order of the rows. A message without an answer is received, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from konverse.dialog.endpoint import Endpoint, timestamp_ms
from konverse.dialog.received import Message
from konverse.dialog.transaction import Transaction
from konverse.schemas.catalog import END_DIALOG, ERROR
from konverse.schemas.errors import InvalidSettings
from konverse.schemas.records import Role

from .columns import TIMESTAMP
from .headers import HEADERS_TYPE

RECEIPT: Final = "receipt"

MESSAGES: Final = pa.schema([
    pa.field(RECEIPT, pa.int64(), nullable=False),
    pa.field("conversation", pa.binary()),
    pa.field("role", pa.string()),
    pa.field("service", pa.string()),
    pa.field("far_service", pa.string()),
    pa.field("contract", pa.string()),
    pa.field("state", pa.string()),
    pa.field("sequence", pa.int64()),
    pa.field("message_type", pa.string()),
    pa.field("body", pa.binary()),
    pa.field("headers", HEADERS_TYPE),
    pa.field("timestamp", TIMESTAMP),
])  # fmt: skip
"""What a function gets. A reply can be sent on a conversation whose `state` is CONVERSING."""

ANSWERS: Final = pa.schema([
    pa.field(RECEIPT, pa.int64()),
    pa.field("message_type", pa.string()),
    pa.field("body", pa.binary()),
    pa.field("end", pa.bool_()),
    pa.field("error", pa.int32()),
    pa.field("description", pa.string()),
])  # fmt: skip
"""What it may answer with: `receipt`, and those of the others that it needs. Further columns are not looked at."""


class Answer(NamedTuple):
    """A row of an answer; what is null or was left out is None."""

    receipt: int | None
    message_type: str | None
    body: bytes | None
    end: bool | None
    error: int | None
    description: str | None


class Done(NamedTuple):
    """Counts of what was done."""

    messages: int = 0
    replies: int = 0
    ends: int = 0
    failed: int = 0
    """Transactions that were rolled back, each time."""

    def plus(self, other: Done) -> Done:
        """Both together."""
        return Done(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def rows_of(messages: Sequence[Message], first: int) -> pa.RecordBatch:
    """Messages as rows; the receipts count from `first` on."""
    numbers: dict[Endpoint, int] = {}
    which = pa.array([numbers.setdefault(message.dialog, len(numbers)) for message in messages], pa.int32())
    columns: dict[str, Any] = {
        RECEIPT: pa.array(range(first, first + len(messages)), pa.int64()),
        **{name: pa.array(map(of, numbers), MESSAGES.field(name).type).take(which) for name, of in _SIDES.items()},
        **{name: pa.array(map(of, messages), MESSAGES.field(name).type) for name, of in _EACH.items()},
    }
    return pa.RecordBatch.from_pydict(columns, schema=MESSAGES)


_SIDES: Final[dict[str, Callable[[Endpoint], Any]]] = {
    "conversation": lambda side: side.conversation,
    "role": lambda side: Role(side.role).name,
    "service": lambda side: side.terms.service,
    "far_service": lambda side: side.terms.far_service,
    "contract": lambda side: side.terms.contract,
    "state": lambda side: side.state.name,
}
"""What all messages of a conversation share."""

_EACH: Final[dict[str, Callable[[Message], Any]]] = {
    "sequence": lambda message: None if message.sequence < 0 else message.sequence,
    "message_type": lambda message: message.type,
    "body": lambda message: message.body,
    "headers": lambda message: message.headers,
    "timestamp": lambda message: 1_000 * timestamp_ms(message.stamp),
}


def read(answered: Any, first: int, count: int) -> dict[int, list[Answer]]:
    """The answers by receipt, in their order. InvalidSettings for what cannot be one; nothing is done then."""
    receipts = receipts_of(answered, first, count)
    columns = [column_of(answered, field) for field in ANSWERS]
    found: dict[int, list[Answer]] = {}
    for receipt, row in zip(receipts, zip(*columns, strict=True), strict=True):
        found.setdefault(receipt, []).append(Answer(*row))
    return found


def receipts_of(answered: Any, first: int, count: int) -> list[int]:
    """The receipt of each row that came back. InvalidSettings for one that no message of the batch has."""
    if not isinstance(answered, pa.RecordBatch | pa.Table):
        raise InvalidSettings(f"the function must return an Arrow batch or table, not {type(answered).__name__}")
    if RECEIPT not in answered.schema.names:
        raise InvalidSettings(
            f"the rows that came back have no column {RECEIPT!r}, they have {', '.join(answered.schema.names)}; keep "
            "the one that came in: it says to which message a row is an answer"
        )
    receipts = column_of(answered, ANSWERS.field(RECEIPT))
    for receipt in receipts:
        if receipt is None or not first <= receipt < first + count:
            raise InvalidSettings(
                f"a row came back with the receipt {receipt}, which no message of this batch has; keep receipts as "
                "they come in"
            )
    return receipts


def column_of(answered: Any, field: pa.Field) -> list[Any]:
    """The values of a column that came back; nulls when it was left out. InvalidSettings for another type."""
    if field.name not in answered.schema.names:
        return [None] * answered.num_rows
    if answered.schema.names.count(field.name) > 1:
        raise InvalidSettings(
            f"column {field.name!r} came back more than once: select one of them, or rename the others"
        )
    column = answered.column(field.name)
    try:
        values: list[Any] = column.cast(field.type).to_pylist()
    except pa.ArrowException as error:
        raise InvalidSettings(f"column {field.name!r} came back as {column.type}, not {field.type}: {error}") from None
    return values


def apply(transaction: Transaction, messages: Sequence[tuple[Message, list[Answer]]]) -> Done:
    """Stage the answers. Who has heard of the end of a conversation ends it, too, when no answer does."""
    replies, ended = 0, set[Endpoint]()
    for message, answers in messages:
        dialog = message.dialog
        for answer in answers:
            if answer.message_type is not None:
                transaction.send(dialog, answer.message_type, answer.body or b"")
                replies += 1
            if answer.error is not None:
                transaction.end(dialog, error=answer.error, description=answer.description or "")
            elif answer.end:
                transaction.end(dialog)
            if answer.error is not None or answer.end:
                ended.add(dialog)
        if message.type in (END_DIALOG, ERROR) and dialog not in ended:
            transaction.end(dialog)
            ended.add(dialog)
    return Done(len(messages), replies, len(ended), 0)
