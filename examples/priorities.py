"""Priorities and savepoints: urgent messages are received first, and a handler undoes a part of its work.

    python -m examples.priorities

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

from typing import Final

import konverse

CASE: Final = "//ward/Case"
REPORT: Final = "//ward/Report"
ROUTINE: Final = "//ward/Routine"
EMERGENCY: Final = "//ward/Emergency"
DOOR: Final = "//ward/Door"
DOCTORS: Final = "//ward/Doctors"


def create(broker: konverse.Broker) -> None:
    """A ward with two contracts, one of which has a higher priority for the doctors."""
    broker.admin.create_message_type(CASE, if_not_exists=True)
    broker.admin.create_message_type(REPORT, if_not_exists=True)
    for contract in (ROUTINE, EMERGENCY):
        broker.admin.create_contract(contract, {CASE: "INITIATOR", REPORT: "TARGET"}, if_not_exists=True)
    broker.admin.create_queue("Doctors", partitions=1, if_not_exists=True)
    broker.admin.create_queue("Door", partitions=1, if_not_exists=True)
    broker.admin.create_service(DOCTORS, queue="Doctors", contracts=[ROUTINE, EMERGENCY], if_not_exists=True)
    broker.admin.create_service(DOOR, queue="Door", if_not_exists=True)
    broker.admin.create_broker_priority(
        "emergencies", contract=EMERGENCY, local_service=DOCTORS, level=10, if_not_exists=True
    )


def come(broker: konverse.Broker, contract: str, *cases: bytes) -> None:
    """A dialog for each case."""
    for case in cases:
        dialog = broker.begin_dialog(DOOR, DOCTORS, contract)
        dialog.send(CASE, case)
    broker.flush()


def treat(transaction: konverse.Transaction) -> None:
    """Report a treatment. A wrong one is rolled back to the savepoint, and its message stays received."""
    for message in transaction:
        if message.type != CASE:
            continue
        print(f"level {message.priority}: {message.body.decode()}")
        transaction.savepoint("treatment")
        transaction.send(message.dialog, REPORT, b"a plaster on " + message.body)
        if message.body == b"a fever":
            transaction.rollback("treatment")
            transaction.send(message.dialog, REPORT, b"rest against " + message.body)
    transaction.end(transaction.dialog)


def main() -> None:
    """Cases come in one order and are treated in another."""
    with konverse.connect() as broker:
        create(broker)
        come(broker, ROUTINE, b"a cut")
        come(broker, ROUTINE, b"a fever")
        come(broker, EMERGENCY, b"a broken leg")
        with broker.reader("Doctors", timeout=2) as reader:
            reader.wait_for_partitions(1)
            for transaction in reader:
                with transaction:
                    treat(transaction)
        with broker.reader("Door", timeout=2) as reader:
            for transaction in reader:
                with transaction:
                    print(*(message.body.decode() for message in transaction if message.type == REPORT))
                    transaction.end(transaction.dialog)


if __name__ == "__main__":
    main()
