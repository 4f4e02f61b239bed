"""Effects outside: what a handler does to its own database happens once for each message, whatever dies.

A handler may run again: its process died before the commit counted, or another reader took the partition. The inbox is
a table beside the handler's own ones, with a row for each message whose effects are there. Both are written in one
transaction of the database, which is committed before the conversation's. Whoever handles the message again finds the
row, leaves the effects alone and answers as the first time.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, Protocol

from konverse.dialog.transaction.received import Message
from konverse.schemas.errors import BadInput
from konverse.schemas.limits import INBOX_RESULT_BYTES_MAX

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_PLACEHOLDERS: Final = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class Cursor(Protocol):
    """What is asked of a cursor of a DB-API connection (PEP 249)."""

    @property
    def rowcount(self) -> int:
        """Rows that the last statement wrote."""

    def execute(self, statement: str, parameters: Any = ..., /) -> Any:
        """Run a statement."""

    def fetchone(self) -> Any:
        """The next row."""

    def close(self) -> Any:
        """Free it."""


class Connection(Protocol):
    """What is asked of a DB-API connection (PEP 249)."""

    def cursor(self) -> Any:
        """A `Cursor`."""

    def commit(self) -> Any:
        """Make it last."""

    def rollback(self) -> Any:
        """Undo it."""


class Step:
    """The effects of one message."""

    def __init__(self, *, first: bool, result: bytes | None) -> None:
        self.first = first
        """Nobody has had these effects: have them now. False: they are there, and must not happen again."""
        self.result = result
        """What the message led to, for instance the answer: set by whoever is first, found by whoever comes again."""


class Inbox:
    """The table in which a database keeps the messages whose effects it holds."""

    def __init__(self, table: str = "konverse_inbox") -> None:
        """`table` may be qualified by a schema. Raises BadInput when it is no plain SQL name."""
        if not _NAME.fullmatch(table):
            raise BadInput(f"{table!r} is no name of a table; use letters, digits, _ and at most one point")
        self.table = table

    def create(self, connection: Connection) -> None:
        """Create the table, unless it is there. SQLite (3.24 or newer) and PostgreSQL understand this."""
        with _committed(connection) as cursor:
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self.table} "
                "(id VARCHAR(200) PRIMARY KEY, at DOUBLE PRECISION NOT NULL, result BYTEA)"
            )

    @contextmanager
    def once(self, connection: Connection, message: Message) -> Iterator[Step]:
        """Have the effects of a message in a `with` block, when `first` says so; the block's end commits them.

        Raises BadInput for a connection that is in a transaction already, for instance in another thread's: each thread
        has its own; and for one that commits by itself. What the block raises rolls the database back and is raised on,
        so that the transaction of the conversation is rolled back, too. While another process has the same message's
        block, this waits as the database does for a row that somebody else inserts.
        """
        mark = _placeholder(connection)
        key = f"{message.id}/{message.dialog.id}"  # of data that was lost every conversation hears from one place
        insert = f"INSERT INTO {self.table} (id, at) VALUES ({mark}, {mark}) ON CONFLICT (id) DO NOTHING"  # noqa: S608
        select = f"SELECT result FROM {self.table} WHERE id = {mark}"  # noqa: S608  # the name was checked
        update = f"UPDATE {self.table} SET result = {mark} WHERE id = {mark}"  # noqa: S608
        with _committed(connection) as cursor:
            cursor.execute(insert, (key, message.scope.now_ms() / 1000))
            step = Step(first=cursor.rowcount == 1, result=None)
            if not step.first:
                cursor.execute(select, (key,))
                (found,) = cursor.fetchone()
                step.result = None if found is None else bytes(found)
            yield step
            if step.first and step.result is not None:
                _check_size(message, step.result)
                cursor.execute(update, (step.result, key))

    def forget(self, connection: Connection, older_than: timedelta) -> int:
        """Delete rows that are so much older than the newest one, by Kafka's time; returns how many.

        A message can come again as long as its commit does not count: leave several days, and the time for which
        conversations may be suspended.
        """
        mark = _placeholder(connection)
        delete = f"DELETE FROM {self.table} WHERE at < (SELECT MAX(at) FROM {self.table}) - {mark}"  # noqa: S608
        with _committed(connection) as cursor:
            cursor.execute(delete, (older_than.total_seconds(),))
            return cursor.rowcount


@contextmanager
def _committed(connection: Connection) -> Iterator[Cursor]:
    """A transaction of the database: committed with the block, rolled back when anything fails."""
    _check_transactional(connection)
    cursor: Cursor = connection.cursor()
    try:
        yield cursor
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        cursor.close()


def _check_size(message: Message, result: bytes) -> None:
    if len(result) > INBOX_RESULT_BYTES_MAX:
        raise BadInput(
            f"the result of message {message.id} has {len(result)} bytes; an inbox keeps up to "
            f"{INBOX_RESULT_BYTES_MAX}: keep it in a table of your own"
        )


def _check_transactional(connection: Connection) -> None:
    """Raise BadInput for a connection that commits each statement by itself, or is in a transaction."""
    by_itself = getattr(connection, "autocommit", False) is True
    if _driver(connection) == "sqlite3" and by_itself is False:
        by_itself = getattr(connection, "isolation_level", "") is None and getattr(connection, "autocommit", -1) == -1
    if by_itself:
        raise BadInput("the connection commits each statement by itself (autocommit): effects and inbox would part")
    busy = getattr(connection, "in_transaction", False)  # sqlite3
    if busy or getattr(getattr(connection, "info", None), "transaction_status", 0):  # psycopg
        raise BadInput(
            "the connection is in a transaction already: commit it first, and give each thread a connection of its own"
        )


def _driver(connection: Connection) -> str:
    return type(connection).__module__.partition(".")[0]


def _placeholder(connection: Connection) -> str:
    """How its driver writes a parameter (PEP 249 `paramstyle`)."""
    driver = _driver(connection)
    style = getattr(sys.modules.get(driver), "paramstyle", None)
    if style not in _PLACEHOLDERS:
        raise BadInput(
            f"a connection of {driver!r} writes parameters in a style of its own ({style}); an inbox knows "
            f"{', '.join(_PLACEHOLDERS)}"
        )
    return _PLACEHOLDERS[style]
