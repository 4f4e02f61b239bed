"""System messages and errors: EndDialog, Errors of an application and of the broker, and calls that are refused.

    python -m examples.errors

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

from typing import Final

import konverse
from konverse.schemas.errors import BadInput, ConversationEnded

LETTER: Final = "//post/Letter"
REPLY: Final = "//post/Reply"
WRITING: Final = "//post/Writing"
SENDER: Final = "//post/Sender"
OFFICE: Final = "//post/Office"


def create(broker: konverse.Broker) -> None:
    """An office that takes letters in XML."""
    broker.admin.create_message_type(LETTER, "WELL_FORMED_XML", if_not_exists=True)
    broker.admin.create_message_type(REPLY, if_not_exists=True)
    broker.admin.create_contract(WRITING, {LETTER: "INITIATOR", REPLY: "TARGET"}, if_not_exists=True)
    broker.admin.create_queue("Office", if_not_exists=True)
    broker.admin.create_queue("Senders", if_not_exists=True)
    broker.admin.create_service(OFFICE, queue="Office", contracts=[WRITING], if_not_exists=True)
    broker.admin.create_service(SENDER, queue="Senders", if_not_exists=True)


def refused(dialog: konverse.Dialog) -> None:
    """A send that the contract forbids raises an exception with Service Broker's number, and writes nothing."""
    for message_type in (REPLY, "//post/Unheard"):
        try:
            dialog.send(message_type)
        except BadInput as error:
            print(f"{type(error).__name__} ({error.number})")


def handle(broker: konverse.Broker, queue: str) -> None:
    """Print the messages of a queue. An Error is received before all messages that wait on its conversation."""
    with broker.reader(queue, timeout=2) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    if message.type == konverse.ERROR:
                        code, description = konverse.read_error(message.body)
                        whose = "the broker's" if code < 0 else "an application's"
                        print(f"{queue}: {whose} error {code}: {description}")
                        transaction.end(message.dialog)
                        break
                    if message.type == konverse.END_DIALOG:
                        print(f"{queue}: the other side has ended")
                        transaction.end(message.dialog)
                    elif message.body == b"<letter/>":
                        transaction.end(message.dialog, error=4711, description="an empty letter")
                        break
                    else:
                        transaction.end(message.dialog)


def main() -> None:
    """A good letter, a malformed one, one that the office refuses, and one to a service without the contract."""
    with konverse.connect() as broker:
        create(broker)
        dialogs = [broker.begin_dialog(SENDER, OFFICE, WRITING) for _ in range(3)]
        for dialog, body in zip(dialogs, (b"<letter>hello</letter>", b"<letter>", b"<letter/>"), strict=True):
            dialog.send(LETTER, body)
        refused(dialogs[0])
        other = broker.begin_dialog(SENDER, SENDER, WRITING)  # SENDER lists no contract, so it cannot be a target
        other.send(LETTER, b"<letter>to myself</letter>")
        broker.flush()
        handle(broker, "Office")
        handle(broker, "Senders")
        handle(broker, "Office")
        dialogs[0].end()
        try:
            dialogs[0].send(LETTER, b"<letter>too late</letter>")
        except ConversationEnded as error:
            print(f"{type(error).__name__} ({error.number})")


if __name__ == "__main__":
    main()
