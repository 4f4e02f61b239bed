"""What came for each side of each conversation, counted column by column."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from konverse.schemas.records import Kind, Role

from .acceptance import IS_SEQUENCED
from .columns import identifiers
from .ingest import Rows, Verdict

PARTS_MAX: Final = 64
"""Chunks that are counted apart before they are counted together."""

_SUMMED: Final = [
    ("messages", "sum"),
    ("bytes", "sum"),
    ("duplicates", "sum"),
    ("first_ms", "min"),
    ("last_ms", "max"),
]
_KEY: Final = ["conversation", "role"]


class Came(NamedTuple):
    """What came for one side."""

    messages: int
    bytes: int
    duplicates: int
    first_ms: int | None
    last_ms: int | None


NOTHING: Final = Came(0, 0, 0, None, None)


class Counting:
    """One partition, chunk by chunk."""

    def __init__(self) -> None:
        self._parts: list[pa.Table] = []

    def add(self, rows: Rows) -> None:
        """Count the records of a chunk that an application would see, and the duplicates of such."""
        accepted = rows.sequence >= 0
        duplicate = (rows.verdict == Verdict.duplicate) & IS_SEQUENCED[rows.frame.kind]
        keep = accepted | duplicate
        if not keep.any():
            return
        is_message = accepted & (rows.frame.kind == Kind.MESSAGE)
        sizes = np.fromiter((len(message.value() or b"") for message in rows.messages), np.int64, len(keep))
        times = pa.array(np.array([message.timestamp()[1] for message in rows.messages], np.int64), mask=~accepted)
        table = pa.table(
            {
                "conversation": identifiers(rows.frame.conversation, rows.decoded),
                "role": rows.frame.role,
                "messages": is_message.astype(np.int64),
                "bytes": np.where(is_message, sizes, 0),
                "duplicates": duplicate.astype(np.int64),
                "first_ms": times,
                "last_ms": times,
            }
        )
        self._parts.append(_summed(table.filter(pa.array(keep))))
        if len(self._parts) > PARTS_MAX:
            self._parts = [_summed(pa.concat_tables(self._parts))]

    def result(self) -> dict[tuple[bytes, Role], Came]:
        """By conversation, and by the side for which it came."""
        if not self._parts:
            return {}
        table = _summed(pa.concat_tables(self._parts))
        conversations, senders = (table.column(name).to_pylist() for name in _KEY)
        counts = zip(*(table.column(name).to_pylist() for name, _ in _SUMMED), strict=True)
        return {
            (conversation, Role(1 - sender)): Came(*came)
            for conversation, sender, came in zip(conversations, senders, counts, strict=True)
        }


def _summed(table: pa.Table) -> pa.Table:
    grouped = table.group_by(_KEY).aggregate(_SUMMED)
    return grouped.rename_columns({f"{name}_{function}": name for name, function in _SUMMED})
