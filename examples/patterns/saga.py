"""A saga: several services do one step each. If a step fails, the steps before it are undone, the last one first.

Use it where one transaction cannot span all steps, and every step has an inverse. Other programs see the steps before
the saga is over, and a step may be undone long after it was done. Where that is not acceptable, put the steps into one
service with one database.

The conductor has no state of its own. Its dialogs with the steps are in the conversation group of the order, and its
open dialogs are the steps that were done; all other data is in the messages. Each reaction is one commit, so the saga
continues where it was, whichever process is killed in whatever step. An inbox makes the effects of a step on its own
database happen once.

    konverse run examples.patterns.saga:app   the conductor and the steps
    python -m examples.patterns.saga          creates the services, and orders trips

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database. The tables of the steps
are in travel.db, in the folder EXAMPLES_TABLES or the working directory.
"""

from __future__ import annotations

import sqlite3
from typing import Final

import konverse
from examples.patterns.tables import tables
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.transaction.begun import NewDialog

ORDER: Final = "//travel/Order"
DONE: Final = "//travel/Done"
UNDO: Final = "//travel/Undo"
UNDONE: Final = "//travel/Undone"
TRAVELLING: Final = "//travel/Travelling"
TRAVELLER: Final = "//travel/Traveller"
AGENCY: Final = "//travel/Agency"
STEPS: Final = ("//travel/Flight", "//travel/Hotel", "//travel/Car")

FULL: Final = {"//travel/Car": b"Venice"}
"""Service -> the place where it has nothing to offer."""

TABLES: Final = (
    "bookings (dialog TEXT PRIMARY KEY, service TEXT, place TEXT)",
    "deeds (number INTEGER PRIMARY KEY, text TEXT)",
)
NOT_POSSIBLE: Final = 409
PATIENCE_S: Final = 60.0

Dialogs = list[Endpoint | NewDialog]

app = konverse.App()
inbox = konverse.Inbox()


@app.activate("TravelAgency", max_readers=2)
def conduct(transaction: konverse.Transaction) -> None:
    """Order one step after the other. After a failure, or when the traveller has gone, undo one after the other."""
    dialogs = transaction.dialogs
    for message in transaction:
        kind, dialog = message.type, message.dialog
        done = [one for one in dialogs if one.is_initiator and one.state.code == "CO" and one is not dialog]
        travellers = [one for one in dialogs if not one.is_initiator]
        wanted = any(one.state.code == "CO" for one in travellers)
        if kind == ORDER:
            if wanted:
                order(transaction, STEPS[0], message)
        elif kind == DONE:
            place = STEPS.index(dialog.far_service)
            if len(done) < place:  # an earlier step has failed since, and this one has its UNDO already
                continue
            if not wanted:
                transaction.send(dialog, UNDO, b"the traveller has gone")
            elif place + 1 < len(STEPS):
                order(transaction, STEPS[place + 1], message)
            else:
                go_through(transaction, [*done, dialog], travellers, message.body)
            return
        elif dialog.is_initiator:  # this step was undone, or never done
            reason = message.body if kind == UNDONE else konverse.read_error(message.body)[1].encode()
            transaction.end(dialog)
            go_back(transaction, done, travellers, reason)
            return
        elif not any(one.is_initiator for one in dialogs):  # the traveller has ended, and no step is at work
            transaction.end(dialog)
            return


def order(transaction: konverse.Transaction, service: str, message: konverse.Message) -> None:
    """Order the next step. Its answer comes in this conversation group."""
    step = transaction.begin(AGENCY, service, TRAVELLING, related_to=message.dialog)
    transaction.send(step, ORDER, message.body)


def go_through(transaction: konverse.Transaction, done: Dialogs, travellers: Dialogs, place: bytes) -> None:
    """Report success to the traveller, and end all dialogs, which makes the steps final."""
    for traveller in travellers:
        transaction.send(traveller, DONE, place)
    for dialog in (*done, *travellers):
        transaction.end(dialog)


def go_back(transaction: konverse.Transaction, done: Dialogs, travellers: Dialogs, reason: bytes) -> None:
    """Undo the last step that was done. When none is left, the order has failed."""
    if done:
        last = max(done, key=lambda dialog: STEPS.index(dialog.far_service))
        transaction.send(last, UNDO, reason)
        return
    for traveller in travellers:
        transaction.end(traveller, error=NOT_POSSIBLE, description=reason.decode())


@app.activate("TravelSteps", max_readers=2)
def step(transaction: konverse.Transaction) -> None:
    """Book, or refuse with a reason; cancel a booking on UNDO."""
    for message in transaction:
        dialog = message.dialog
        if message.type not in (ORDER, UNDO):
            transaction.end(dialog)
            return
        if message.type == ORDER and FULL.get(dialog.service) == message.body:
            transaction.end(dialog, error=NOT_POSSIBLE, description=f"no {kind_of(dialog)} in {message.body.decode()}")
            return
        with tables(inbox, "travel", *TABLES) as database, inbox.once(database, message) as effects:
            if effects.first:
                book(database, message)
        if dialog.state.code == "CO":  # else this is a second UNDO
            transaction.send(dialog, DONE if message.type == ORDER else UNDONE, message.body)


def kind_of(dialog: Endpoint) -> str:
    """Flight, hotel or car."""
    return dialog.service.rpartition("/")[2].lower()


def book(database: sqlite3.Connection, message: konverse.Message) -> None:
    """Do the step, or its inverse. The id of the dialog is the booking's key."""
    dialog = message.dialog
    if message.type == ORDER:
        row = (str(dialog.id), dialog.service, message.body.decode())
        database.execute("INSERT INTO bookings VALUES (?, ?, ?)", row)
        text = f"{kind_of(dialog)} booked"
    else:
        database.execute("DELETE FROM bookings WHERE dialog = ?", (str(dialog.id),))
        text = f"{kind_of(dialog)} taken back"
    database.execute("INSERT INTO deeds (text) VALUES (?)", (text,))


def create(broker: konverse.Broker) -> None:
    """Travellers order at the agency, and the agency at the steps, under one contract."""
    for name in (ORDER, DONE, UNDO, UNDONE):
        broker.admin.create_message_type(name, if_not_exists=True)
    directions = {ORDER: "INITIATOR", DONE: "TARGET", UNDO: "INITIATOR", UNDONE: "TARGET"}
    broker.admin.create_contract(TRAVELLING, directions, if_not_exists=True)
    for queue in ("Tourists", "TravelAgency", "TravelSteps"):
        broker.admin.create_queue(queue, partitions=2, if_not_exists=True)
    broker.admin.create_service(TRAVELLER, queue="Tourists", if_not_exists=True)
    broker.admin.create_service(AGENCY, queue="TravelAgency", contracts=[TRAVELLING], if_not_exists=True)
    for service in STEPS:
        broker.admin.create_service(service, queue="TravelSteps", contracts=[TRAVELLING], if_not_exists=True)


def travel(broker: konverse.Broker, place: bytes) -> str:
    """Order a trip, and wait for the result."""
    dialog = broker.begin_dialog(TRAVELLER, AGENCY, TRAVELLING)
    dialog.send(ORDER, place)
    with broker.reader("Tourists") as reader:
        reader.wait_for_partitions(2)
        transaction = reader.receive(dialog=dialog.id, timeout=PATIENCE_S)
        if transaction is None:
            return "no answer: does `konverse run examples.patterns.saga:app` run?"
        with transaction:
            message = next(iter(transaction))
            transaction.end(message.dialog)
        reader.settle()
    return konverse.read_error(message.body)[1] if message.type == konverse.ERROR else "booked"


def main() -> None:
    """A trip that works, one that fails, and a list of what the steps did."""
    with konverse.connect() as broker, tables(inbox, "travel", *TABLES) as database:
        create(broker)
        (before,) = database.execute("SELECT count(*) FROM deeds").fetchone()
        print("Oslo:", travel(broker, b"Oslo"))
        print("Venice:", travel(broker, b"Venice"))
        for (text,) in database.execute("SELECT text FROM deeds WHERE number > ? ORDER BY number", (before,)):
            print(text)


if __name__ == "__main__":
    main()
