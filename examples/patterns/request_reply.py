"""Request and reply: ask a service, and wait for the answer, fetch it later, or learn that no answer will come.

Use it where the service may be away for a while: a question is answered once, however often either side dies. Where an
answer is worthless a moment later and may be lost, use HTTP instead.

    konverse run examples.patterns.request_reply:app   answers
    python -m examples.patterns.request_reply          creates the services, asks, and prints the answers

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import konverse

QUESTION: Final = "//rates/Question"
ANSWER: Final = "//rates/Answer"
ASKING: Final = "//rates/Asking"
BANK: Final = "//rates/Bank"
HOLIDAY: Final = "//rates/BankOnHoliday"
TRAVELLER: Final = "//rates/Traveller"

RATES: Final = {b"CHF": b"0.94", b"NOK": b"11.60"}
UNKNOWN: Final = 404
PATIENCE_S: Final = 60.0

app = konverse.App()


@app.activate("RatesDesk", max_readers=2)
def answer(transaction: konverse.Transaction) -> None:
    """Answer, and end the dialog. The asking side ends it when it has the answer."""
    for message in transaction:
        if message.type == QUESTION and message.dialog.state.code == "CO":  # else the asking side has ended
            rate = RATES.get(message.body)
            if rate is None:
                text = message.body.decode("utf-8", "replace")
                transaction.end(message.dialog, error=UNKNOWN, description=f"there is no rate of {text}")
                return
            transaction.send(message.dialog, ANSWER, rate)
        transaction.end(message.dialog)
        return


def create(broker: konverse.Broker) -> None:
    """A bank with two partitions, a bank whose queue has no reader, and a traveller."""
    broker.admin.create_message_type(QUESTION, if_not_exists=True)
    broker.admin.create_message_type(ANSWER, if_not_exists=True)
    broker.admin.create_contract(ASKING, {QUESTION: "INITIATOR", ANSWER: "TARGET"}, if_not_exists=True)
    broker.admin.create_queue("RatesDesk", partitions=2, if_not_exists=True)
    broker.admin.create_queue("Holiday", if_not_exists=True)
    broker.admin.create_queue("RateAskers", if_not_exists=True)
    broker.admin.create_service(BANK, queue="RatesDesk", contracts=[ASKING], if_not_exists=True)
    broker.admin.create_service(HOLIDAY, queue="Holiday", contracts=[ASKING], if_not_exists=True)
    broker.admin.create_service(TRAVELLER, queue="RateAskers", if_not_exists=True)


def ask(broker: konverse.Broker, currency: bytes, *, service: str = BANK, lifetime: float = 3600) -> UUID:
    """Ask, and return the id of the conversation, by which the answer can be fetched in any process."""
    dialog = broker.begin_dialog(TRAVELLER, service, ASKING, lifetime=lifetime)
    dialog.send(QUESTION, currency)
    dialog.flush()  # from here on there will be an answer, or an Error when the lifetime is over
    return dialog.id


def fetch(reader: konverse.Reader, question: UUID) -> str:
    """Wait for the answer to that question, and end the conversation."""
    transaction = reader.receive(dialog=question, timeout=PATIENCE_S)
    if transaction is None:
        return "no answer yet: does `konverse run examples.patterns.request_reply:app` run?"
    with transaction:
        message = next(iter(transaction))  # the EndDialog after it can be ignored: both sides have ended then
        transaction.end(message.dialog)
        if message.type == konverse.ERROR:
            return "error {}, {}".format(*konverse.read_error(message.body))
        return message.body.decode()


def main() -> None:
    """Four questions. Another connection fetches the answer to the last one."""
    with konverse.connect() as broker:
        create(broker)
        with broker.reader("RateAskers") as reader:
            reader.wait_for_partitions(1)
            print("CHF:", fetch(reader, ask(broker, b"CHF")))
            print("XYZ:", fetch(reader, ask(broker, b"XYZ")))
            print("CHF on a holiday:", fetch(reader, ask(broker, b"CHF", service=HOLIDAY, lifetime=0.5)))
            reader.settle()
        noted = str(ask(broker, b"NOK"))  # in an application: in a table, a file, a URL

    with konverse.connect() as broker, broker.reader("RateAskers") as reader:
        reader.wait_for_partitions(1)
        print("NOK, fetched later:", fetch(reader, UUID(noted)))
        reader.settle()


if __name__ == "__main__":
    main()
