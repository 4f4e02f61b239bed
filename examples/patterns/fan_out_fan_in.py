"""Fan-out and fan-in: one inquiry becomes many at once, and is answered when all replies are in or the time is up.

Use it where one answer needs the answers of several services that work in parallel. The dialogs with them are begun in
the conversation group of the inquiry, so one handler at a time has all messages of an inquiry, and replies cannot race
each other. Replies are kept in a table under the group's id until the last one, because a handler does not wait. If one
step needs the result of another, or steps have to be undone, use a saga instead.

    konverse run examples.patterns.fan_out_fan_in:app   the desk and the carriers
    python -m examples.patterns.fan_out_fan_in          creates the services, and inquires

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database. The desk's table is in
freight.db, in the folder EXAMPLES_TABLES or the working directory.
"""

from __future__ import annotations

import sqlite3
from typing import Final

import konverse
from examples.patterns.tables import tables
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.transaction.begun import NewDialog

INQUIRY: Final = "//freight/Inquiry"
OFFER: Final = "//freight/Offer"
OFFERING: Final = "//freight/Offering"
SHIPPER: Final = "//freight/Shipper"
DESK: Final = "//freight/Desk"

PRICES: Final = {"//freight/Rail": 70, "//freight/Ship": 40, "//freight/Truck": 90}
"""Carrier -> its price for a pallet."""

SILENT: Final = "//freight/Sledge"
"""A carrier that never answers."""

CARRIERS: Final = (*PRICES, SILENT)
OFFERS: Final = "offers (inquiry BLOB, carrier TEXT, price INTEGER)"
DESK_PATIENCE_S: Final = 1.0
PATIENCE_S: Final = 60.0

app = konverse.App()
inbox = konverse.Inbox()


@app.activate("OfferDesk", max_readers=2)
def on_desk(transaction: konverse.Transaction) -> None:
    """Send an inquiry to all carriers, keep their offers, and answer after the last offer or when the timer fires."""
    over = []
    late = False
    with tables(inbox, "freight", OFFERS) as database:
        for message in transaction:
            if message.type == INQUIRY:
                fan_out(transaction, message)
                return
            if message.type == OFFER:
                note(database, message)
            elif message.type == konverse.DIALOG_TIMER:
                late = True
            else:  # EndDialog or Error
                transaction.end(message.dialog)
                over.append(message.dialog)
        left = [dialog for dialog in transaction.dialogs if dialog not in over and dialog.state.code == "CO"]
        asked = [dialog for dialog in left if dialog.is_initiator]
        shippers = [dialog for dialog in left if not dialog.is_initiator]
        if late or not asked or not shippers:
            fan_in(transaction, database, shippers)
            for dialog in (*asked, *shippers):  # later offers are dropped
                transaction.end(dialog)


def fan_out(transaction: konverse.Transaction, inquiry: konverse.Message) -> None:
    """Ask all carriers, and set a timer for those that do not answer, in one transaction."""
    for carrier in CARRIERS:
        dialog = transaction.begin(DESK, carrier, OFFERING, related_to=inquiry.dialog)
        transaction.send(dialog, INQUIRY, inquiry.body)
    transaction.set_timer(inquiry.dialog, DESK_PATIENCE_S)


def note(database: sqlite3.Connection, offer: konverse.Message) -> None:
    """Insert an offer under its conversation group, once."""
    with inbox.once(database, offer) as effects:
        if effects.first:
            row = (offer.dialog.group_id, offer.dialog.far_service, int(offer.body))
            database.execute("INSERT INTO offers VALUES (?, ?, ?)", row)


def fan_in(
    transaction: konverse.Transaction, database: sqlite3.Connection, shippers: list[Endpoint | NewDialog]
) -> None:
    """Answer with the best offer so far."""
    cheapest = "SELECT price, carrier, (SELECT count(*) FROM offers WHERE inquiry = ?1) FROM offers WHERE inquiry = ?1"
    row = database.execute(f"{cheapest} ORDER BY price", (transaction.dialog.group_id,)).fetchone()
    for shipper in shippers:
        text = "no offer" if row is None else "{} by {}, of {} offers".format(*row)
        transaction.send(shipper, OFFER, text.encode())


@app.activate("Carriers", max_readers=2)
def on_carrier(transaction: konverse.Transaction) -> None:
    """Every carrier answers with its price, except one."""
    for message in transaction:
        if message.type == INQUIRY and message.dialog.state.code == "CO":
            if message.dialog.service == SILENT:
                continue
            price = PRICES[message.dialog.service] * int(message.body)
            transaction.send(message.dialog, OFFER, b"%d" % price)
        transaction.end(message.dialog)
        return


def create(broker: konverse.Broker) -> None:
    """Shippers ask the desk, and the desk asks carriers under the same contract."""
    broker.admin.create_message_type(INQUIRY, if_not_exists=True)
    broker.admin.create_message_type(OFFER, if_not_exists=True)
    broker.admin.create_contract(OFFERING, {INQUIRY: "INITIATOR", OFFER: "TARGET"}, if_not_exists=True)
    for queue in ("Shippers", "OfferDesk", "Carriers"):
        broker.admin.create_queue(queue, partitions=2, if_not_exists=True)
    broker.admin.create_service(SHIPPER, queue="Shippers", if_not_exists=True)
    broker.admin.create_service(DESK, queue="OfferDesk", contracts=[OFFERING], if_not_exists=True)
    for carrier in CARRIERS:
        broker.admin.create_service(carrier, queue="Carriers", contracts=[OFFERING], if_not_exists=True)


def main() -> None:
    """Two inquiries at once."""
    with konverse.connect() as broker:
        create(broker)
        dialogs = [broker.begin_dialog(SHIPPER, DESK, OFFERING) for _ in range(2)]
        for pallets, dialog in enumerate(dialogs, 3):
            dialog.send(INQUIRY, b"%d" % pallets)
        broker.flush()
        with broker.reader("Shippers") as reader:
            reader.wait_for_partitions(2)
            for pallets, dialog in enumerate(dialogs, 3):
                transaction = reader.receive(dialog=dialog.id, timeout=PATIENCE_S)
                if transaction is None:
                    print("no answer: does `konverse run examples.patterns.fan_out_fan_in:app` run?")
                    break
                with transaction:
                    print(f"{pallets} pallets: {next(iter(transaction)).body.decode()}")
                    transaction.end(transaction.dialog)
            reader.settle()


if __name__ == "__main__":
    main()
