"""Dialogs: a question and its answer, several dialogs in one transaction, and the end on both sides.

    python -m examples.dialogs

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

from typing import Final

import konverse

QUESTION: Final = "//library/Question"
ANSWER: Final = "//library/Answer"
ASKING: Final = "//library/Asking"
READER: Final = "//library/Reader"
LIBRARIAN: Final = "//library/Librarian"


def create(broker: konverse.Broker) -> None:
    """Two services, each on a queue of its own."""
    broker.admin.create_message_type(QUESTION, if_not_exists=True)
    broker.admin.create_message_type(ANSWER, if_not_exists=True)
    broker.admin.create_contract(ASKING, {QUESTION: "INITIATOR", ANSWER: "TARGET"}, if_not_exists=True)
    broker.admin.create_queue("Desk", if_not_exists=True)
    broker.admin.create_queue("Readers", if_not_exists=True)
    broker.admin.create_service(LIBRARIAN, queue="Desk", contracts=[ASKING], if_not_exists=True)
    broker.admin.create_service(READER, queue="Readers", if_not_exists=True)


def answer(broker: konverse.Broker) -> None:
    """Answer all waiting questions, as the librarian."""
    with broker.reader("Desk", timeout=2) as reader:
        for transaction in reader:
            with transaction:  # received, answered and ended together, or not at all
                for message in transaction:
                    if message.type == konverse.END_DIALOG:
                        transaction.end(message.dialog)
                    elif message.type == QUESTION and message.dialog.state.code == "CO":
                        transaction.send(message.dialog, ANSWER, b"shelf " + message.body[:1].upper())


def hear(broker: konverse.Broker) -> None:
    """Receive the answers, as the reader, and end the dialogs."""
    with broker.reader("Readers", timeout=2) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    print(f"#{message.sequence} {message.body.decode()}")
                    transaction.end(message.dialog)  # no further question: the librarian gets an EndDialog


def main() -> None:
    """Three dialogs: one begun directly, and two begun in one transaction."""
    with konverse.connect() as broker:
        create(broker)
        dialog = broker.begin_dialog(READER, LIBRARIAN, ASKING)
        print("begun:", dialog.begin.from_service, "to", dialog.begin.to_service)
        dialog.send(QUESTION, b"knitting")  # returns at once
        dialog.flush()  # returns when Kafka has the message

        with broker.transaction() as transaction:
            for subject in (b"zoology", b"music"):
                one = transaction.begin(READER, LIBRARIAN, ASKING)
                transaction.send(one, QUESTION, subject)
        try:
            with broker.transaction() as transaction:
                dropped = transaction.begin(READER, LIBRARIAN, ASKING)
                transaction.send(dropped, QUESTION, b"nobody hears of this")
                raise ValueError("changed my mind")
        except ValueError as error:
            print("rolled back:", error)
        broker.flush()

        answer(broker)
        hear(broker)
        answer(broker)  # the EndDialogs
        left = broker.views.conversation_endpoints()
        print(sum(row.state != "CD" for row in left), "conversations are open")


if __name__ == "__main__":
    main()
