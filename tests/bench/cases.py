"""All cases, in the order of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.bench import (
    crowd,
    fold,
    killed,
    loop,
    owner_memory,
    per_message,
    pool_send,
    recovery,
    redis_memory,
    router,
    send,
    spark_read,
    spark_receive,
    spark_stream,
    spark_write,
    timers,
    transactions,
)
from tests.bench.model import Case

CASES: Final[tuple[Case, ...]] = (
    *send.CASES,
    *pool_send.CASES,
    *loop.CASES,
    *transactions.CASES,
    *per_message.CASES,
    *timers.CASES,
    *crowd.CASES,
    *fold.CASES,
    *recovery.CASES,
    *killed.CASES,
    *owner_memory.CASES,
    *redis_memory.CASES,
    *router.CASES,
    *spark_read.CASES,
    *spark_receive.CASES,
    *spark_stream.CASES,
    *spark_write.CASES,
)


def row_names() -> list[str]:
    """The names that `--only` takes."""
    return [row.name for case in CASES for row in case.rows]


def chosen(only: str | None) -> list[Case]:
    """All cases, or the case of row `only` with that row alone. LookupError for an unknown row."""
    if only is None:
        return list(CASES)
    found = [
        replace(case, rows=rows) for case in CASES if (rows := tuple(row for row in case.rows if row.name == only))
    ]
    if not found:
        raise LookupError(f"no row {only!r}; there are {', '.join(row_names())}")
    return found
