"""Asynchronous call of a function: its result or its exception arrives as a message, exactly once, whatever dies.

Use it for a function that takes longer than a caller should wait, or that must run even if the caller dies. The call is
a conversation. Store its id anywhere, and fetch the result by the id later. A function may run again if its worker dies
before the commit, so its effects outside of Kafka need an inbox. Calls are received in the order of their commits; a
single reader runs them one after the other. Only registered functions can be called, by their names and with arguments
in JSON, so a caller can run nothing else.

    konverse run examples.patterns.asynchronous_call:app   calls the functions
    python -m examples.patterns.asynchronous_call          creates the services, calls, and fetches the results

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import konverse

CALL: Final = "//calls/Call"
RESULT: Final = "//calls/Result"
CALLING: Final = "//calls/Calling"
CALLER: Final = "//calls/Caller"
CALLEE: Final = "//calls/Callee"

RAISED: Final = 1
UNKNOWN: Final = 2
PATIENCE_S: Final = 60.0

app = konverse.App()
functions: dict[str, Callable[..., Any]] = {}


def function(called: Callable[..., Any]) -> Callable[..., Any]:
    """Register the decorated function, so that callers can name it."""
    functions[called.__name__] = called
    return called


@function
def mean(*numbers: float) -> float:
    """The mean of the numbers. Raises ZeroDivisionError when there are none."""
    return sum(numbers) / len(numbers)


@function
def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


@app.activate("Calls", max_readers=2, max_messages=1)
def perform(transaction: konverse.Transaction) -> None:
    """Call the function. An exception is its result, sent to the caller; the call is not tried again."""
    for message in transaction:
        dialog = message.dialog
        if message.type != CALL:
            transaction.end(dialog)
            return
        call = json.loads(message.body)
        called = functions.get(call["function"])
        if called is None:
            transaction.end(dialog, error=UNKNOWN, description=f"no function {call['function']!r} is registered")
            return
        try:
            result = json.dumps(called(*call["arguments"])).encode()
        except Exception as error:  # noqa: BLE001  # the caller gets it, whatever it is
            transaction.end(dialog, error=RAISED, description=f"{type(error).__name__}: {error}")
            return
        if dialog.state.code == "CO":  # else the caller has ended
            transaction.send(dialog, RESULT, result)
        transaction.end(dialog)
        return


def create(broker: konverse.Broker) -> None:
    """A caller and a callee."""
    broker.admin.create_message_type(CALL, if_not_exists=True)
    broker.admin.create_message_type(RESULT, if_not_exists=True)
    broker.admin.create_contract(CALLING, {CALL: "INITIATOR", RESULT: "TARGET"}, if_not_exists=True)
    broker.admin.create_queue("Calls", partitions=2, if_not_exists=True)
    broker.admin.create_queue("Results", if_not_exists=True)
    broker.admin.create_service(CALLEE, queue="Calls", contracts=[CALLING], if_not_exists=True)
    broker.admin.create_service(CALLER, queue="Results", if_not_exists=True)


def call(broker: konverse.Broker, name: str, *arguments: Any) -> UUID:
    """Call a function. Returns at once, with an id to fetch the result by; `broker.flush()` makes the call durable."""
    dialog = broker.begin_dialog(CALLER, CALLEE, CALLING)
    dialog.send(CALL, json.dumps({"function": name, "arguments": arguments}).encode())
    return dialog.id


def result(reader: konverse.Reader, called: UUID) -> Any:
    """The result of a call. Raises RuntimeError if the function raised, TimeoutError if there is no result in time."""
    transaction = reader.receive(dialog=called, timeout=PATIENCE_S)
    if transaction is None:
        raise TimeoutError("no result yet: does `konverse run examples.patterns.asynchronous_call:app` run?")
    with transaction:
        message = next(iter(transaction))
        transaction.end(message.dialog)
    if message.type == konverse.ERROR:
        code, description = konverse.read_error(message.body)
        raise RuntimeError(f"error {code}, {description}")
    return json.loads(message.body)


def main() -> None:
    """Four calls at once. Another connection fetches their results."""
    with konverse.connect() as broker:
        create(broker)
        calls = [
            call(broker, "mean", 1, 2, 6),
            call(broker, "words", "to be or not"),
            call(broker, "mean"),
            call(broker, "eval", "1 + 1"),
        ]
    with konverse.connect() as broker, broker.reader("Results") as reader:
        reader.wait_for_partitions(1)
        for each in calls:
            try:
                print("result:", result(reader, each))
            except RuntimeError as error:
                print("raised:", error)
        reader.settle()


if __name__ == "__main__":
    main()
