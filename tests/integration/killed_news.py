"""The publisher of the news pattern, with a table that outlives its processes, and subscribers."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from uuid import UUID

import konverse
from examples.patterns import publish_subscribe
from examples.patterns.publish_subscribe import AUTHOR, NEWS, PUBLISH, PUBLISHER, Publisher, subscribe
from tests.kit.shop import until

TAGS: Final = ("%", "A", "B", "C")
ARTICLES: Final = {b"A,B: one": 3, b"B: two": 2, b"A: three": 2}
"""Article → number of subscribers that want it."""

PATIENCE_S: Final = 30.0

create: Final = publish_subscribe.create
app = konverse.App()


def table() -> closing[sqlite3.Connection]:
    """The publisher's table."""
    return closing(sqlite3.connect(Path(os.environ["EXAMPLES_TABLES"], "news.db"), timeout=30))


@app.activate("Publisher")
def publish(transaction: konverse.Transaction) -> None:
    """The pattern's handler."""
    with table() as tables:
        Publisher(tables).handle(transaction)


def subscribed() -> int:
    """Number of known subscriptions with their tags."""
    with table() as tables:
        Publisher(tables)
        (count,) = tables.execute("SELECT count(tag) FROM subscriptions").fetchone()
    return int(count)


def main() -> None:
    """Subscribe with tags, send articles one after another, and end everything."""
    with konverse.connect() as broker:
        dialogs = subscribe(broker, TAGS)
        until(lambda: subscribed() == len(TAGS), "all have subscribed", PATIENCE_S)
        author = broker.begin_dialog(AUTHOR, PUBLISHER, NEWS)
        got: dict[UUID, list[str]] = {dialog.id: [] for dialog in dialogs}
        with broker.reader("Subscribers", timeout=PATIENCE_S) as reader:
            for article, wanted in ARTICLES.items():
                author.send(PUBLISH, article)
                author.flush()
                taken = 0
                while taken < wanted:
                    transaction = next(reader, None)
                    assert transaction is not None, f"no more of {article!r} within {PATIENCE_S} s, behind {got}"
                    with transaction:
                        for message in transaction:
                            got[message.dialog.id].append(message.body.decode())
                            taken += 1
            reader.settle()
        for dialog, tag in zip(dialogs, TAGS, strict=True):
            print(f"{tag}: {'; '.join(got[dialog.id])}")
        for dialog in (*dialogs, author):
            dialog.end()
        broker.flush()
