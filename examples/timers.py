"""Conversation timers and lifetimes: get a reminder, ask again, and give up.

    python -m examples.timers

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

from typing import Final

import konverse

OFFER: Final = "//house/Offer"
SELLING: Final = "//house/Selling"
SELLER: Final = "//house/Seller"
BUYER: Final = "//house/Buyer"

REMINDERS: Final = 2


def create(broker: konverse.Broker) -> None:
    """A buyer who does not answer."""
    broker.admin.create_message_type(OFFER, if_not_exists=True)
    broker.admin.create_contract(SELLING, {OFFER: "INITIATOR"}, if_not_exists=True)
    broker.admin.create_queue("Buyers", if_not_exists=True)
    broker.admin.create_queue("Sellers", if_not_exists=True)
    broker.admin.create_service(BUYER, queue="Buyers", contracts=[SELLING], if_not_exists=True)
    broker.admin.create_service(SELLER, queue="Sellers", if_not_exists=True)


def main() -> None:
    """One offer is repeated when its timer fires, and then given up; another offer has a lifetime."""
    with konverse.connect() as broker:
        create(broker)
        patient = broker.begin_dialog(SELLER, BUYER, SELLING)
        patient.send(OFFER, b"a house")
        patient.flush()
        patient.set_timer(0.3)  # seconds; setting it again replaces it, and the end cancels it
        hasty = broker.begin_dialog(SELLER, BUYER, SELLING, lifetime=0.5)
        hasty.send(OFFER, b"a house, today")
        broker.flush()

        rung = 0
        with broker.reader("Sellers", timeout=2) as reader:
            for transaction in reader:
                with transaction:
                    for message in transaction:
                        if message.type == konverse.ERROR:
                            print("the lifetime is over:", konverse.read_error(message.body)[0])
                            transaction.end(message.dialog)
                        elif message.type == konverse.DIALOG_TIMER and rung < REMINDERS:
                            rung += 1
                            print("nobody answered, reminder", rung)
                            transaction.send(message.dialog, OFFER, b"a house, cheaper")
                            transaction.set_timer(message.dialog, 0.3)  # set when this is committed
                        elif message.type == konverse.DIALOG_TIMER:
                            print("given up")
                            transaction.end(message.dialog, error=1, description="nobody answered")

        with broker.reader("Buyers", timeout=2) as reader:  # the far side sees no timer; both sides have the lifetime
            for transaction in reader:
                with transaction:
                    for message in transaction:
                        if message.type == konverse.ERROR:
                            print("the buyer hears:", *konverse.read_error(message.body))
                            transaction.end(message.dialog)
                            break


if __name__ == "__main__":
    main()
