"""Publish and subscribe: subscribers begin the dialogs; the publisher sends each article to those that want it.

Use it where subscribers come and go, and must get every article from their subscription on, whether they run or not:
articles wait in their queue, in order. The dialogs of all subscribers are in one conversation group, so that an article
goes to all of them in one transaction. The bodies of a transaction may have 4 MB together, enough to send an article of
4 kB to a thousand subscribers. If there are more, or if readers need no conversation, have them read the topic itself
with a Kafka client. A program that began the dialogs itself, and lives as long as they do, sends to all with
`broker.send(dialogs, …)`.

    python -m examples.patterns.publish_subscribe

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import konverse
from konverse.schemas.errors import InvalidGroup

SUBSCRIBE: Final = "//news/Subscribe"
PUBLISH: Final = "//news/Publish"
ARTICLE: Final = "//news/Article"
NEWS: Final = "//news/News"
AUTHOR: Final = "//news/Author"
PUBLISHER: Final = "//news/Publisher"
SUBSCRIBER: Final = "//news/Subscriber"

TAGS: Final = ("%", "B", "C", "D", "E", "%", "G", "H", "I", "J")
"""The tag that each subscriber wants, as a pattern of LIKE: % stands for every tag."""


class Publisher:
    """Keeps the subscriptions in a table, and the dialogs of all subscribers in one conversation group."""

    def __init__(self, tables: sqlite3.Connection) -> None:
        self.tables = tables
        tables.execute("CREATE TABLE IF NOT EXISTS subscriptions (dialog TEXT PRIMARY KEY, tag TEXT, home TEXT)")
        tables.commit()

    def handle(self, transaction: konverse.Transaction) -> None:
        """Handle subscriptions, articles and ends. A dialog that is moved into the group is received again with it."""
        if self.gather(transaction):
            return
        for message in transaction:
            name = str(message.dialog.id)
            if message.type == SUBSCRIBE:
                self.change("UPDATE subscriptions SET tag = ? WHERE dialog = ?", message.body.decode(), name)
            elif message.type == PUBLISH:
                self.publish(transaction, message.body)
            else:  # EndDialog or Error
                self.change("DELETE FROM subscriptions WHERE dialog = ?", name)
                transaction.end(message.dialog)
                return

    def gather(self, transaction: konverse.Transaction) -> bool:
        """Move a new dialog into the group of the other subscribers. Returns whether it was moved."""
        dialog = transaction.dialog
        own = UUID(bytes=dialog.group_id)
        for (home,) in self.tables.execute("SELECT DISTINCT home FROM subscriptions").fetchall():
            if UUID(home) == own:
                break
            try:
                transaction.move(dialog, UUID(home))  # its messages stay in the queue, and come with the group
            except InvalidGroup:  # the group ended with its last dialog
                self.change("DELETE FROM subscriptions WHERE home = ?", home)
            else:
                own = UUID(home)
                break
        note = "INSERT INTO subscriptions VALUES (?, NULL, ?) ON CONFLICT (dialog) DO NOTHING"
        self.change(note, str(dialog.id), str(own))
        return own.bytes != dialog.group_id

    def publish(self, transaction: konverse.Transaction, body: bytes) -> None:
        """Send an article, `tag,tag: text`, once on each dialog whose subscription matches one of the tags."""
        wanted = "SELECT 1 FROM subscriptions WHERE dialog = ? AND ? LIKE tag"
        tags = body.decode().partition(":")[0].split(",")
        for dialog in transaction.dialogs:
            if dialog.state.code == "CO" and any(
                self.tables.execute(wanted, (str(dialog.id), tag)).fetchone() for tag in tags
            ):
                transaction.send(dialog, ARTICLE, body)

    def change(self, statement: str, *values: str) -> None:
        """Change the table. Each statement has the same effect when it runs twice."""
        self.tables.execute(statement, values)
        self.tables.commit()


def create(broker: konverse.Broker) -> None:
    """Author and subscribers begin dialogs with the publisher."""
    for name in (SUBSCRIBE, PUBLISH, ARTICLE):
        broker.admin.create_message_type(name, if_not_exists=True)
    directions = {SUBSCRIBE: "INITIATOR", PUBLISH: "INITIATOR", ARTICLE: "TARGET"}
    broker.admin.create_contract(NEWS, directions, if_not_exists=True)
    broker.admin.create_queue("Publisher", if_not_exists=True)
    broker.admin.create_queue("Subscribers", if_not_exists=True)
    broker.admin.create_service(PUBLISHER, queue="Publisher", contracts=[NEWS], if_not_exists=True)
    broker.admin.create_service(AUTHOR, queue="Subscribers", if_not_exists=True)
    broker.admin.create_service(SUBSCRIBER, queue="Subscribers", if_not_exists=True)


def subscribe(broker: konverse.Broker, tags: Sequence[str] = TAGS) -> list[konverse.Dialog]:
    """Begin a dialog for each subscriber, and send its tag."""
    dialogs = [broker.begin_dialog(SUBSCRIBER, PUBLISHER, NEWS) for _ in tags]
    for dialog, tag in zip(dialogs, tags, strict=True):
        dialog.send(SUBSCRIBE, tag.encode())
    broker.flush()
    return dialogs


def work(broker: konverse.Broker, publisher: Publisher) -> None:
    """Run the publisher until its queue is empty. In an application, `konverse run` runs it."""
    with broker.reader("Publisher", timeout=1) as reader:
        reader.run(publisher.handle)


def main() -> None:
    """Ten subscribers, and an article with three tags."""
    with konverse.connect() as broker:
        create(broker)
        publisher = Publisher(
            sqlite3.connect(":memory:", check_same_thread=False)
        )  # in an application: a file, or a server
        subscribers = subscribe(broker)
        work(broker, publisher)  # these subscribers get every article from here on
        author = broker.begin_dialog(AUTHOR, PUBLISHER, NEWS)
        author.send(PUBLISH, b"A,B,C: three of a kind")
        broker.flush()
        work(broker, publisher)

        got: Counter[UUID] = Counter()
        with broker.reader("Subscribers", timeout=1) as reader:
            for transaction in reader:
                with transaction:
                    got.update(message.dialog.id for message in transaction)
        for number, (dialog, tag) in enumerate(zip(subscribers, TAGS, strict=True)):
            print(f"subscriber {number} of {tag}: {got[dialog.id]}")

        for dialog in (*subscribers, author):
            dialog.end()
        broker.flush()
        with broker.reader("Subscribers", timeout=1) as reader:
            reader.run(list)  # passes the ends on
        work(broker, publisher)
        (left,) = publisher.tables.execute("SELECT count(*) FROM subscriptions").fetchone()
        print("subscriptions left:", left)
        publisher.tables.close()


if __name__ == "__main__":
    main()
