"""A program that answers: you write the handler, and `konverse run` does the rest.

    python -m examples.answering              creates the services, asks, and waits for the answers
    konverse run examples.answering:app       answers, in readers that are restarted when they die

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

from typing import Final

import konverse

NUMBER: Final = "//sums/Number"
SQUARE: Final = "//sums/Square"
SQUARING: Final = "//sums/Squaring"
PUPIL: Final = "//sums/Pupil"
TEACHER: Final = "//sums/Teacher"

PATIENCE_S: Final = 60.0

app = konverse.App()


@app.activate("Teacher", max_readers=2)
def square(transaction: konverse.Transaction) -> None:
    """Answer numbers. The transaction commits when this returns; when it raises, it rolls back and is tried again."""
    for message in transaction:
        if message.type in (konverse.END_DIALOG, konverse.ERROR):
            transaction.end(message.dialog)
            return
        if message.dialog.state.code == "CO":  # else the pupil has ended, and wants no answer
            transaction.send(message.dialog, SQUARE, b"%d" % int(message.body) ** 2)


def create(broker: konverse.Broker) -> None:
    """Create the services. The teacher's queue has two partitions, so that two readers can share the work."""
    broker.admin.create_message_type(NUMBER, if_not_exists=True)
    broker.admin.create_message_type(SQUARE, if_not_exists=True)
    broker.admin.create_contract(SQUARING, {NUMBER: "INITIATOR", SQUARE: "TARGET"}, if_not_exists=True)
    broker.admin.create_queue("Teacher", partitions=2, if_not_exists=True)
    broker.admin.create_queue("Pupils", if_not_exists=True)
    broker.admin.create_service(TEACHER, queue="Teacher", contracts=[SQUARING], if_not_exists=True)
    broker.admin.create_service(PUPIL, queue="Pupils", if_not_exists=True)


def main() -> None:
    """Ask three questions, each on a dialog of its own, and wait for the answer on each dialog."""
    with konverse.connect() as broker:
        create(broker)
        dialogs = [broker.begin_dialog(PUPIL, TEACHER, SQUARING) for _ in range(3)]
        for number, dialog in enumerate(dialogs, 7):
            dialog.send(NUMBER, b"%d" % number)
        broker.flush()
        with broker.reader("Pupils") as reader:
            reader.wait_for_partitions(1)
            for number, dialog in enumerate(dialogs, 7):
                transaction = reader.receive(dialog=dialog.id, timeout=PATIENCE_S)
                if transaction is None:
                    print("no answer: does `konverse run examples.answering:app` run?")
                    break
                with transaction:
                    for message in transaction:
                        print(f"{number} squared is {message.body.decode()}")
                    transaction.end(transaction.dialog)
            reader.settle()


if __name__ == "__main__":
    main()
