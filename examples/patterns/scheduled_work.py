"""Scheduled work: a dialog's timer fires, the work is done, and the timer is set again, all in one commit.

Use it for work that is due at intervals for as long as a client wants it: reminders, polls, retries, leases. The timer
is part of the conversation, so the schedule goes on whichever process is killed, and no run is done twice or halfway.
An interval counts from the commit. Work that falls due while no reader runs is done once, not once for each interval.
For work that is due at a time of day, set the timer to the time that is left until then.

    konverse run examples.patterns.scheduled_work:app   does the work
    python -m examples.patterns.scheduled_work          creates the services, asks for the work, and stops it again

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

from typing import Final

import konverse

START: Final = "//watch/Start"
REPORT: Final = "//watch/Report"
WATCHING: Final = "//watch/Watching"
OWNER: Final = "//watch/Owner"
WATCHMAN: Final = "//watch/Watchman"

INTERVAL_S: Final = 0.3
ROUNDS: Final = 3
PATIENCE_S: Final = 60.0

app = konverse.App()


@app.activate("Watchmen", max_readers=2)
def watch(transaction: konverse.Transaction) -> None:
    """Set the timer when the work begins, and again after each run. The end of the dialog cancels it."""
    for message in transaction:
        if message.type in (konverse.END_DIALOG, konverse.ERROR):
            transaction.end(message.dialog)
            return
        if message.dialog.state.code == "CO":  # else the end of the dialog follows
            if message.type == konverse.DIALOG_TIMER:
                transaction.send(message.dialog, REPORT, b"all is well")  # if this raises, the timer fires again
            transaction.set_timer(message.dialog, INTERVAL_S)


def create(broker: konverse.Broker) -> None:
    """An owner, and a watchman."""
    broker.admin.create_message_type(START, "EMPTY", if_not_exists=True)
    broker.admin.create_message_type(REPORT, if_not_exists=True)
    broker.admin.create_contract(WATCHING, {START: "INITIATOR", REPORT: "TARGET"}, if_not_exists=True)
    broker.admin.create_queue("Watchmen", partitions=2, if_not_exists=True)
    broker.admin.create_queue("Owners", if_not_exists=True)
    broker.admin.create_service(WATCHMAN, queue="Watchmen", contracts=[WATCHING], if_not_exists=True)
    broker.admin.create_service(OWNER, queue="Owners", if_not_exists=True)


def main() -> None:
    """Have the house watched for some rounds."""
    with konverse.connect() as broker:
        create(broker)
        dialog = broker.begin_dialog(OWNER, WATCHMAN, WATCHING)
        dialog.send(START)
        dialog.flush()
        heard = 0
        with broker.reader("Owners", max_messages=1) as reader:
            reader.wait_for_partitions(1)
            while heard < ROUNDS:
                transaction = reader.receive(dialog=dialog.id, timeout=PATIENCE_S)
                if transaction is None:
                    print("no report: does `konverse run examples.patterns.scheduled_work:app` run?")
                    break
                with transaction:
                    for message in transaction:
                        heard += 1
                        print(f"round {message.sequence + 1}: {message.body.decode()}")
                    if heard == ROUNDS:
                        transaction.end(transaction.dialog)  # there is no next round
            reader.settle()


if __name__ == "__main__":
    main()
