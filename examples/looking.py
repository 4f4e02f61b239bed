"""Views and `why`: look at conversations and queues without receiving, and ask what a conversation waits for.

    python -m examples.looking

The same on the command line: `konverse view conversation_endpoints`, `konverse why <conversation id>`.
KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

from typing import Final

import konverse

PARCEL: Final = "//depot/Parcel"
SENDING: Final = "//depot/Sending"
SENDER: Final = "//depot/Sender"
DEPOT: Final = "//depot/Depot"


def create(broker: konverse.Broker) -> None:
    """A depot whose queue has no reader."""
    broker.admin.create_message_type(PARCEL, if_not_exists=True)
    broker.admin.create_contract(SENDING, {PARCEL: "INITIATOR"}, if_not_exists=True)
    broker.admin.create_queue("Depot", if_not_exists=True)
    broker.admin.create_queue("DepotSenders", if_not_exists=True)
    broker.admin.create_service(DEPOT, queue="Depot", contracts=[SENDING], if_not_exists=True)
    broker.admin.create_service(SENDER, queue="DepotSenders", if_not_exists=True)


def work(broker: konverse.Broker, queue: str) -> None:
    """Receive the waiting messages, and end conversations that the other side has ended."""
    with broker.reader(queue, timeout=2) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    if message.type == konverse.END_DIALOG:
                        transaction.end(message.dialog)


def main() -> None:
    """One conversation with two parcels, viewed before and after they are received."""
    with konverse.connect() as broker:
        create(broker)
        views = broker.views
        dialog = broker.begin_dialog(SENDER, DEPOT, SENDING, lifetime=3_600)  # needed, as this side awaits no reply
        for body in (b"a book", b"a lamp"):
            dialog.send(PARCEL, body)
        dialog.end()
        broker.flush()

        for row in views.contents("Depot"):  # the columns of RECEIVE
            print(f"waits: {row.message_type_name} #{row.message_sequence_number}, {row.message_body!r}")
        for sent in views.transmission_queue():  # messages that have not arrived
            print(f"on its way: {sent.message_type_name} to {sent.to_service_name}: {sent.transmission_status}")
        work(broker, "DepotSenders")  # a reader of the sender's queue passes the end on
        for sides in broker.why(dialog.id):
            for side in sides:
                print(f"{side.role} {side.service}, {side.state}:", *side.reasons)

        work(broker, "Depot")
        work(broker, "DepotSenders")
        states = {row.state_desc for row in views.conversation_endpoints("Depot")}
        print(len(views.contents("Depot")), "messages wait, states:", *sorted(states) or ["none"])
        print("on its way:", len(views.transmission_queue()))


if __name__ == "__main__":
    main()
