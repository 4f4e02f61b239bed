"""RECEIVE with conversation groups: related messages are received together, by one handler at a time.

    python -m examples.groups

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

from typing import Final

import konverse

TASK: Final = "//trips/Task"
DONE: Final = "//trips/Done"
BOOKING: Final = "//trips/Booking"
AGENCY: Final = "//trips/Agency"
HOTELS: Final = "//trips/Hotels"


def create(broker: konverse.Broker) -> None:
    """An agency that asks, and hotels that answer."""
    broker.admin.create_message_type(TASK, if_not_exists=True)
    broker.admin.create_message_type(DONE, if_not_exists=True)
    broker.admin.create_contract(BOOKING, {TASK: "INITIATOR", DONE: "TARGET"}, if_not_exists=True)
    broker.admin.create_queue("Hotels", if_not_exists=True)
    broker.admin.create_queue("Agency", if_not_exists=True)
    broker.admin.create_service(HOTELS, queue="Hotels", contracts=[BOOKING], if_not_exists=True)
    broker.admin.create_service(AGENCY, queue="Agency", if_not_exists=True)


def ask(broker: konverse.Broker, *places: bytes) -> konverse.Dialog:
    """A dialog for each place, all of them in the group of the first."""
    first = broker.begin_dialog(AGENCY, HOTELS, BOOKING)
    dialogs = [first, *(broker.begin_dialog(AGENCY, HOTELS, BOOKING, related_to=first) for _ in places[1:])]
    for dialog, place in zip(dialogs, places, strict=True):
        dialog.send(TASK, place)
    broker.flush()
    return first


def answer_all(broker: konverse.Broker) -> None:
    """Answer as the hotels. A group belongs to one side: on this side each dialog has a group of its own."""
    with broker.reader("Hotels", timeout=2) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    transaction.send(message.dialog, DONE, message.body + b" is booked")
                    transaction.end(message.dialog)


def main() -> None:
    """Two trips, received one after the other; the answers of each come in one transaction."""
    with konverse.connect() as broker:
        create(broker)
        north = ask(broker, b"Oslo", b"Bergen", b"Narvik")
        south = ask(broker, b"Rome", b"Naples")
        answer_all(broker)

        with broker.reader("Agency", timeout=2) as reader:
            transaction = reader.receive(group=south.id, timeout=10)  # RECEIVE WHERE: this group first
            assert transaction is not None
            with transaction:
                print("south:", *sorted(told(transaction)))
            for transaction in reader:  # any group
                with transaction:
                    which = "north" if transaction.dialog.group_id == north.begin.group else "another"
                    print(f"{which}:", *sorted(told(transaction)))


def told(transaction: konverse.Transaction) -> list[str]:
    """The texts of a transaction's messages; `transaction.members` are the conversations that they belong to."""
    found = []
    for message in transaction:
        if message.type == konverse.END_DIALOG:
            transaction.end(message.dialog)
        else:
            found.append(f"[{message.body.decode()}]")
    return found


if __name__ == "__main__":
    main()
