"""Exactly-once effects in an application's own database: once for each message, whichever process dies.

A handler may run again for a message if its process died before the commit was in the journal, or if another reader
took over the partition. The inbox is a table in the handler's database, with a row for each message whose effects are
in the database. Row and effects are written in one database transaction, which commits before the transaction of the
conversation does. A handler that gets the message again finds the row, skips the effects and sends the same answer.
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
_LEGACY: Final = -1
"""`autocommit` of a SQLite connection whose transactions `isolation_level` governs; the default."""
_IN_TRANSACTION: Final = (1, 2, 3)
"""libpq's status of a connection in a transaction: ACTIVE, INTRANS, INERROR. A broken one has 4: its driver raises."""
_PLACEHOLDERS: Final = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class Cursor(Protocol):
    """The part of a DB-API cursor (PEP 249) that the inbox uses."""

    @property
    def rowcount(self) -> int:
        """Number of rows that the last statement wrote."""

    def execute(self, statement: str, parameters: Any = ..., /) -> Any:
        """Run a statement."""

    def fetchone(self) -> Any:
        """The next row."""

    def close(self) -> Any:
        """Close the cursor."""


class DatabaseConnection(Protocol):
    """The part of a DB-API connection (PEP 249) that the inbox uses."""

    def cursor(self) -> Any:
        """A new `Cursor`."""

    def commit(self) -> Any:
        """Commit the database transaction."""

    def rollback(self) -> Any:
        """Roll the database transaction back."""


class InboxStep:
    """One message inside an `Inbox.once` block."""

    def __init__(self, *, first: bool, result: bytes | None) -> None:
        self.first = first
        """True: apply the effects now. False: the database has them, and they must not be applied again."""
        self.result = result
        """Result of the message, for instance the answer: set it when `first`; otherwise the stored one."""


class Inbox:
    """A table of the messages whose effects a database holds."""

    def __init__(self, table: str = "konverse_inbox") -> None:
        """`table` may be qualified by a schema. Raises BadInput when it is not a plain SQL name."""
        if not _NAME.fullmatch(table):
            raise BadInput(f"{table!r} is not a valid table name; use letters, digits, _ and at most one dot")
        self.table = table

    def create(self, connection: DatabaseConnection) -> None:
        """Create the table if it does not exist. Works with SQLite (3.24 or newer) and PostgreSQL."""
        with _committed(connection) as cursor:
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self.table} "
                "(id VARCHAR(200) PRIMARY KEY, at DOUBLE PRECISION NOT NULL, result BYTEA)"
            )

    @contextmanager
    def once(self, connection: DatabaseConnection, message: Message) -> Iterator[InboxStep]:
        """Apply the effects of a message in a `with` block if `step.first`; the end of the block commits them.

        Raises BadInput for a connection in autocommit mode, and for one that is in a transaction already, for instance
        one that another thread began (give each thread its own connection). An exception in the block rolls the
        database back and propagates, so that the transaction of the conversation is rolled back, too. While another
        process is in its block for the same message, the database makes this call wait for that process's row.
        """
        mark = _placeholder(connection)
        key = f"{message.id}/{message.dialog.id}"  # after a data loss, Errors of many conversations share one offset
        insert = f"INSERT INTO {self.table} (id, at) VALUES ({mark}, {mark}) ON CONFLICT (id) DO NOTHING"  # noqa: S608
        select = f"SELECT result FROM {self.table} WHERE id = {mark}"  # noqa: S608  # the name was checked
        update = f"UPDATE {self.table} SET result = {mark} WHERE id = {mark}"  # noqa: S608
        with _committed(connection) as cursor:
            cursor.execute(insert, (key, message.context.now_ms() / 1000))
            step = InboxStep(first=cursor.rowcount == 1, result=None)
            if not step.first:
                cursor.execute(select, (key,))
                (found,) = cursor.fetchone()
                step.result = None if found is None else bytes(found)
            yield step
            if step.first and step.result is not None:
                _check_result(message, step.result)
                cursor.execute(update, (step.result, key))

    def forget(self, connection: DatabaseConnection, older_than: timedelta) -> int:
        """Delete rows older than the newest row by more than `older_than`, in Kafka's time. Returns their number.

        A message can be redelivered until its commit is in the journal. So choose several days, plus the longest
        time for which a conversation may be suspended.
        """
        mark = _placeholder(connection)
        delete = f"DELETE FROM {self.table} WHERE at < (SELECT MAX(at) FROM {self.table}) - {mark}"  # noqa: S608
        with _committed(connection) as cursor:
            cursor.execute(delete, (older_than.total_seconds(),))
            return cursor.rowcount


@contextmanager
def _committed(connection: DatabaseConnection) -> Iterator[Cursor]:
    """A database transaction: committed at the end of the block, rolled back when the block raises."""
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


def _check_result(message: Message, result: object) -> None:
    """Raise BadInput for a result that would not be found again as it was given."""
    if not isinstance(result, bytes | bytearray | memoryview):
        raise BadInput(
            f"a result must be bytes, not {type(result).__name__}, as for message {message.id}; encode it first"
        )
    if len(result) > INBOX_RESULT_BYTES_MAX:
        raise BadInput(
            f"the result of message {message.id} has {len(result)} bytes; an inbox keeps up to "
            f"{INBOX_RESULT_BYTES_MAX}: keep it in a table of your own"
        )


def _check_transactional(connection: DatabaseConnection) -> None:
    """Raise BadInput for a connection in autocommit mode or inside a transaction."""
    mode = getattr(connection, "autocommit", _LEGACY)
    by_itself = mode is True
    if _driver(connection) == "sqlite3" and mode == _LEGACY:
        by_itself = getattr(connection, "isolation_level", "") is None
    if by_itself:
        raise BadInput(
            "the connection is in autocommit mode, so the effects and the inbox row would not commit together: turn "
            "autocommit off"
        )
    always_in_one = _driver(connection) == "sqlite3" and mode is False  # PEP 249: always in a transaction
    busy = not always_in_one and getattr(connection, "in_transaction", False)
    if busy or getattr(getattr(connection, "info", None), "transaction_status", 0) in _IN_TRANSACTION:  # psycopg
        raise BadInput(
            "the connection is in a transaction already: commit it first, and give each thread a connection of its own"
        )


def _driver(connection: DatabaseConnection) -> str:
    return type(connection).__module__.partition(".")[0]


def _placeholder(connection: DatabaseConnection) -> str:
    """The placeholder of a parameter in the driver's SQL (PEP 249 `paramstyle`)."""
    driver = _driver(connection)
    style = getattr(sys.modules.get(driver), "paramstyle", None)
    if style not in _PLACEHOLDERS:
        raise BadInput(
            f"driver {driver!r} has a paramstyle that an inbox does not support ({style}); it supports "
            f"{', '.join(_PLACEHOLDERS)}"
        )
    return _PLACEHOLDERS[style]
