"""Received messages as rows for a user's function, and the rows that it returns as answers.

A row in is a message, with a number in the column `receipt`. A row out is an action on the conversation of its receipt:
a reply, an end, or an end with an error. Actions are staged in the order of the rows. A message without an answer is
received, and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from konverse.dialog.state.endpoint import Endpoint, timestamp_ms
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import (
    BadInput,
    BodyTooLarge,
    InvalidSettings,
    InvalidState,
    MessageTypeNotFound,
    NotInContract,
    WrongDirection,
)
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import END_DIALOG, ERROR, shortened
from konverse.spark.log.columns import TIMESTAMP
from konverse.spark.log.headers import HEADERS_TYPE

RECEIPT: Final = "receipt"

MESSAGES: Final = pa.schema([
    pa.field(RECEIPT, pa.int64(), nullable=False),
    pa.field("conversation", pa.binary()),
    pa.field("conversation_group", pa.binary()),
    pa.field("key", pa.binary()),
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
    pa.field("accepted_time", TIMESTAMP),
])  # fmt: skip
"""Columns that a function gets. A reply can be sent on a conversation whose `state` is CONVERSING."""

ANSWERS: Final = pa.schema([
    pa.field("message_type", pa.string()),
    pa.field("body", pa.binary()),
    pa.field("end", pa.bool_()),
    pa.field("error", pa.int32()),
    pa.field("description", pa.string()),
])  # fmt: skip
"""Columns that a function may return beside `receipt`, all optional. Other columns are ignored."""


Row = tuple[int, str | None, bytes | None, bool | None, int | None, str | None]
"""A row of an answer: its receipt, then the columns of ANSWERS; None for a null or a column that was left out."""


class AnsweredTransaction(NamedTuple):
    """The messages of one transaction, and the rows that answer them in the order of their receipts."""

    messages: list[Message]
    first: int
    """Receipt of the first message; the others follow it."""
    rows: list[Row]

    def head(self, count: int) -> AnsweredTransaction:
        """The first `count` messages alone."""
        last = self.first + count
        return AnsweredTransaction(self.messages[:count], self.first, [row for row in self.rows if row[0] < last])


class Done(NamedTuple):
    """Counts of the work."""

    messages: int = 0
    replies: int = 0
    ends: int = 0
    failed: int = 0
    """Attempts that were rolled back."""

    def plus(self, other: Done) -> Done:
        """The sum of both."""
        return Done(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def rows_of(messages: Sequence[Message], first: int) -> pa.RecordBatch:
    """Messages, one at least, as rows; receipts count from `first` on."""
    types, bodies, sequences, dialogs, _, stamps, _ = zip(*messages, strict=True)
    numbers = {dialog: number for number, dialog in enumerate(dict.fromkeys(dialogs))}
    which = pa.array([numbers[dialog] for dialog in dialogs], pa.int32())
    counted = pa.array(sequences, pa.int64())
    times = pa.array([1_000 * timestamp_ms(stamp) for stamp in stamps], TIMESTAMP)
    columns: dict[str, Any] = {
        RECEIPT: np.arange(first, first + len(messages), dtype=np.int64),
        **{name: pa.array(map(of, numbers), MESSAGES.field(name).type).take(which) for name, of in _SIDES.items()},
        "sequence": pc.if_else(pc.less(counted, 0), None, counted),
        "message_type": pa.array(types, pa.string()),
        "body": pa.array(bodies, pa.binary()),
        "headers": pa.array([() if isinstance(stamp, int) else stamp[1] for stamp in stamps], HEADERS_TYPE),
        "timestamp": times,
        "accepted_time": times,
    }
    return pa.RecordBatch.from_pydict(columns, schema=MESSAGES)


_SIDES: Final[dict[str, Callable[[Endpoint], Any]]] = {
    "conversation": lambda side: side.conversation,
    "conversation_group": lambda side: side.group_id,
    "key": lambda side: side.key,
    "role": lambda side: Role(side.role).name,
    "service": lambda side: side.terms.service,
    "far_service": lambda side: side.terms.far_service,
    "contract": lambda side: side.terms.contract,
    "state": lambda side: side.state.name,
}
"""Columns that all messages of a conversation share."""


def read(answered: Any, first: int, count: int) -> list[Row]:
    """The returned rows, sorted by receipt and otherwise in their order. InvalidSettings for rows of a wrong shape."""
    receipts = receipts_of(answered, first, count)
    rows: list[Row] = list(zip(receipts, *(column_of(answered, field) for field in ANSWERS), strict=True))
    rows.sort(key=itemgetter(0))
    return rows


def receipts_of(answered: Any, first: int, count: int) -> list[int]:
    """The receipt of each returned row. InvalidSettings for a receipt that no message of the batch has."""
    if not isinstance(answered, pa.RecordBatch | pa.Table):
        raise InvalidSettings(f"the function must return an Arrow batch or table, not {type(answered).__name__}")
    if RECEIPT not in answered.schema.names:
        raise InvalidSettings(
            f"the returned rows have no column {RECEIPT!r}, they have {', '.join(answered.schema.names)}; keep "
            "that column of the input: it identifies the message that a row answers"
        )
    receipts = column_of(answered, MESSAGES.field(RECEIPT))
    for receipt in receipts:
        if receipt is None or not first <= receipt < first + count:
            raise InvalidSettings(
                f"a returned row has the receipt {receipt}, which no message of this batch has; keep receipts unchanged"
            )
    return receipts


def column_of(answered: Any, field: pa.Field) -> list[Any]:
    """The values of a returned column; nulls when it was left out. InvalidSettings for another type."""
    if field.name not in answered.schema.names:
        return [None] * answered.num_rows
    if answered.schema.names.count(field.name) > 1:
        raise InvalidSettings(
            f"column {field.name!r} came back more than once: select one of them, or rename the others"
        )
    column = answered.column(field.name)
    try:
        values = pa.chunked_array([column]) if isinstance(column, pa.Array) else column
        values = values.cast(field.type)
    except pa.ArrowException as error:
        raise InvalidSettings(f"column {field.name!r} came back as {column.type}, not {field.type}: {error}") from None
    if field.type == pa.binary() or (field.name == RECEIPT and not values.null_count):  # few values repeat
        return cast("list[Any]", values.to_numpy().tolist())
    # equal texts become one object, which makes their comparison fast
    return [*chain.from_iterable(map(_decoded, values.dictionary_encode().chunks))]


def _decoded(chunk: pa.DictionaryArray) -> list[Any]:
    try:
        values = [*chunk.dictionary.to_pylist(), None]
    except UnicodeDecodeError:  # Spark keeps any bytes in a string
        texts = chunk.dictionary.cast(pa.binary()).to_pylist()
        values = [*(text.decode("utf-8", "replace") for text in texts), None]
    return [values[index] for index in pc.fill_null(chunk.indices, len(values) - 1).to_numpy().tolist()]


def apply(transaction: Transaction, part: AnsweredTransaction) -> Done:
    """Stage the answers. A conversation on which EndDialog or an Error was received is ended, if no answer ends it.

    Raises the errors of Transaction.send and Transaction.end for an impossible answer. The text then names the message
    and, if only one can be the cause, the column.
    """
    messages, first, rows = part
    replies, ended, receipt = 0, set[Endpoint](), first
    try:
        for receipt, message_type, body, end, error, description in rows:
            dialog = messages[receipt - first].dialog
            if message_type is not None:
                transaction.send(dialog, message_type, body or b"")
                replies += 1
            if error is not None and dialog not in ended:
                if error <= 0:
                    raise BadInput(f"the code is {error}; give 1 or more, or null for no error")
                transaction.end(dialog, error=error, description=shortened(description or f"Error {error}."))
                ended.add(dialog)
            elif end and dialog not in ended:  # several rows of a conversation may end it
                transaction.end(dialog)
                ended.add(dialog)
    except tuple(_FAULTS) as fault:
        raise _named(fault, messages[receipt - first]) from fault
    for message in messages:
        if message.type in LAST and message.dialog not in ended:
            transaction.end(message.dialog)
            ended.add(message.dialog)
    return Done(len(messages), replies, len(ended), 0)


def _named(fault: BadInput, message: Message) -> BadInput:
    """The same error, naming the answer among all those of the transaction."""
    which = _FAULTS.get(type(fault), "the answer")
    return type(fault)(f"{which} to message {message.id} (#{message.sequence}): {fault}")


_FAULTS: Final[dict[type[BadInput], str]] = {
    MessageTypeNotFound: "column 'message_type' of the answer",
    NotInContract: "column 'message_type' of the answer",
    WrongDirection: "column 'message_type' of the answer",
    BadInput: "column 'error' of the answer",
    BodyTooLarge: "column 'body' of the answer",
    InvalidState: "the answer",
}
"""Error of Transaction.send or Transaction.end for an impossible answer -> the part of the answer that causes it."""

LAST: Final = frozenset({END_DIALOG, ERROR})
"""Message types that come last in a conversation."""
