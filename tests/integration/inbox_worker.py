"""A worker that books orders in SQLite and is killed once at each step: `python -m … KAFKA DATABASE FOLDER`."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import konverse
from konverse.schemas.system_messages import END_DIALOG, ERROR
from tests.kit.shop import RECEIPT

QUIET_S = 15.0
"""Longer than Kafka's group keeps the partitions of a worker that was killed."""
STEPS = ("received", "noted", "changed", "committed there", "answered", "over")


def main() -> None:
    """Book orders until none has come for a while."""
    kafka, database, folder = sys.argv[1:]

    def step(name: str) -> None:
        mark = Path(folder, name)
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    inbox = konverse.Inbox()
    with (
        closing(sqlite3.connect(Path(folder, "accounts.db"))) as connection,
        konverse.connect(f"kafka://{kafka}", database=database) as broker,
        broker.reader("Orders", timeout=QUIET_S) as reader,
    ):
        inbox.create(connection)
        connection.execute("CREATE TABLE IF NOT EXISTS booked (total INTEGER NOT NULL)")
        for transaction in reader:
            with transaction:
                for message in transaction:
                    if message.type in (END_DIALOG, ERROR):
                        transaction.end(message.dialog)
                        continue
                    step("received")
                    with inbox.once(connection, message) as effects:
                        step("noted")
                        if effects.first:
                            (total,) = connection.execute("SELECT coalesce(max(total), 0) FROM booked").fetchone()
                            total += int(message.body)
                            connection.execute("INSERT INTO booked VALUES (?)", (total,))
                            effects.result = b"%d" % total
                            step("changed")
                    step("committed there")
                    assert effects.result is not None
                    transaction.send(message.dialog, RECEIPT, effects.result)
                    step("answered")
            step("over")


if __name__ == "__main__":
    main()
