"""MOVE CONVERSATION: a help desk gathers the questions about one fault in one group, and answers them together.

    python -m examples.regrouping

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import konverse

QUESTION: Final = "//desk/Question"
ANSWER: Final = "//desk/Answer"
HELP: Final = "//desk/Help"
CALLER: Final = "//desk/Caller"
DESK: Final = "//desk/Desk"


def create(broker: konverse.Broker) -> None:
    """Callers ask, the desk answers."""
    broker.admin.create_message_type(QUESTION, if_not_exists=True)
    broker.admin.create_message_type(ANSWER, if_not_exists=True)
    broker.admin.create_contract(HELP, {QUESTION: "INITIATOR", ANSWER: "TARGET"}, if_not_exists=True)
    broker.admin.create_queue("HelpDesk", if_not_exists=True)
    broker.admin.create_queue("Callers", if_not_exists=True)
    broker.admin.create_service(DESK, queue="HelpDesk", contracts=[HELP], if_not_exists=True)
    broker.admin.create_service(CALLER, queue="Callers", if_not_exists=True)


def sort(reader: konverse.Reader) -> dict[bytes, UUID]:
    """Move each question to the group of its fault, which is the group of the first question about it."""
    faults: dict[bytes, UUID] = {}

    def handler(transaction: konverse.Transaction) -> None:
        for message in transaction:
            group = faults.setdefault(message.body.split()[0], UUID(bytes=message.dialog.group_id))
            transaction.move(message.dialog, group)  # locks both groups until the commit; while another reader
            # has the group this raises GroupLocked, and `run` calls the handler again after a moment

    reader.run(handler)
    return faults


def main() -> None:
    """Three callers, who know nothing of each other; two of them ask about the printer."""
    with konverse.connect() as broker:
        create(broker)
        first, badge, second = (broker.begin_dialog(CALLER, DESK, HELP) for _ in range(3))
        first.send(QUESTION, b"printer jams")
        badge.send(QUESTION, b"badge is lost")
        broker.flush()
        second.send(QUESTION, b"printer smokes")
        broker.flush()

        with broker.reader("HelpDesk", timeout=2) as reader:
            faults = sort(reader)
            second.send(QUESTION, b"still smokes")
            broker.flush()
            transaction = reader.receive(group=faults[b"printer"], timeout=10)
            assert transaction is not None
            with transaction:
                print("asked:", *(message.body.decode() for message in transaction))
                for dialog in transaction.dialogs:  # all of the group, also those without a new message
                    transaction.send(dialog, ANSWER, b"the printer is replaced")
                    transaction.end(dialog)
            reader.settle()

        with broker.reader("Callers", timeout=2) as reader:
            for transaction in reader:
                with transaction:
                    for message in transaction:
                        if message.type == konverse.END_DIALOG:
                            transaction.end(message.dialog)
                        else:
                            print("answered:", message.body.decode())


if __name__ == "__main__":
    main()
