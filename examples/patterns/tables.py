"""Databases of the services in these programs: SQLite files in EXAMPLES_TABLES, or in the working directory."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import konverse


@contextmanager
def tables(inbox: konverse.Inbox, name: str, *created: str) -> Iterator[sqlite3.Connection]:
    """A connection to the database `name`, closed after the block. Each thread needs a connection of its own."""
    path = Path(os.environ.get("EXAMPLES_TABLES", "."), f"{name}.db")
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        inbox.create(connection)
        for table in created:
            connection.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        connection.commit()
        yield connection
