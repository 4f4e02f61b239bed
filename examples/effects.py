"""Effects outside Kafka: a table in SQLite changes once for each message, even if the handler runs twice.

    python -m examples.effects

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

import sqlite3
from typing import Final

import konverse

PAYMENT: Final = "//bank/Payment"
RECEIPT: Final = "//bank/Receipt"
PAYING: Final = "//bank/Paying"
CUSTOMER: Final = "//bank/Customer"
BANK: Final = "//bank/Bank"


def create(broker: konverse.Broker) -> None:
    """A bank that books payments."""
    broker.admin.create_message_type(PAYMENT, if_not_exists=True)
    broker.admin.create_message_type(RECEIPT, if_not_exists=True)
    broker.admin.create_contract(PAYING, {PAYMENT: "INITIATOR", RECEIPT: "TARGET"}, if_not_exists=True)
    broker.admin.create_queue("Bank", if_not_exists=True)
    broker.admin.create_queue("Customers", if_not_exists=True)
    broker.admin.create_service(BANK, queue="Bank", contracts=[PAYING], if_not_exists=True)
    broker.admin.create_service(CUSTOMER, queue="Customers", if_not_exists=True)


class Bookkeeper:
    """Books payments, and fails once between the commit of its database and the commit of the transaction."""

    def __init__(self, accounts: sqlite3.Connection) -> None:
        self.accounts = accounts
        self.inbox = konverse.Inbox()
        self.inbox.create(accounts)
        self.fails = True
        accounts.execute("CREATE TABLE bookings (number INTEGER PRIMARY KEY, amount INTEGER)")
        accounts.commit()

    def book(self, transaction: konverse.Transaction) -> None:
        """Book every payment of the transaction, and answer with the number of the booking."""
        for message in transaction:
            with self.inbox.once(self.accounts, message) as effects:  # the end of the block commits the database
                if effects.first:
                    row = self.accounts.execute("INSERT INTO bookings (amount) VALUES (?)", (int(message.body),))
                    effects.result = b"booking %d" % (row.lastrowid or 0)
                else:
                    print("booked already, the answer is the same:", (effects.result or b"").decode())
            if self.fails:
                self.fails = False
                raise RuntimeError("the power fails")  # the message is received again
            transaction.send(message.dialog, RECEIPT, effects.result or b"")
            transaction.end(message.dialog)


def main() -> None:
    """Three payments. The handler fails halfway through one of them."""
    with konverse.connect() as broker:
        create(broker)
        for amount in (10, 20, 30):
            dialog = broker.begin_dialog(CUSTOMER, BANK, PAYING)
            dialog.send(PAYMENT, b"%d" % amount)
        broker.flush()
        accounts = sqlite3.connect(":memory:", check_same_thread=False)
        bookkeeper = Bookkeeper(accounts)
        with broker.reader("Bank", timeout=2) as reader:
            reader.run(bookkeeper.book)  # logs failures, and continues
        booked = accounts.execute("SELECT count(*), sum(amount) FROM bookings").fetchone()
        print("bookings: {}, together {}".format(*booked))
        accounts.close()
        with broker.reader("Customers", timeout=2) as reader:
            for transaction in reader:
                with transaction:
                    for message in transaction:
                        if message.type == RECEIPT:
                            print("receipt for", message.body.decode())
                    transaction.end(transaction.dialog)


if __name__ == "__main__":
    main()
