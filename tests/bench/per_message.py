"""A dialog for each message, end to end: begin, send, reply, and an END by both sides, all at the same time."""

from __future__ import annotations

import multiprocessing
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Final

from konverse.schemas.system_messages import END_DIALOG
from tests.bench import conversations
from tests.bench.clients import PARTITIONS
from tests.bench.model import Case, Figures, Load, Place, Row, Run

SILENT_S: Final = 20.0
"""A side that has received nothing for this long is done. The run fails when messages are missing then."""


def prepared(place: Place, _load: Load) -> Figures:
    """Create empty queues."""
    with conversations.connect(place) as broker:
        conversations.create(broker)
    return {}


def _reply_and_end(place: Place, ends: Connection) -> None:
    """The target's process: answer each request and end its dialog."""
    with conversations.connect(place) as broker, broker.reader(conversations.QUEUE, timeout=SILENT_S) as reader:
        reader.wait_for_partitions(PARTITIONS)
        ends.send("ready")
        for transaction in reader:
            with transaction:
                for message in transaction:
                    transaction.send(message.dialog, conversations.REPLY, message.body)
                    transaction.end(message.dialog)
            if ends.poll():
                break
        reader.settle()


def _end(place: Place, ends: Connection, count: int) -> None:
    """The initiator's process: end each dialog that the target has ended. Sends their number when all ends count."""
    ended = 0
    with conversations.connect(place) as broker, broker.reader("Shop", timeout=SILENT_S) as reader:
        reader.wait_for_partitions(PARTITIONS)
        ends.send("ready")
        for transaction in reader:
            with transaction:
                for message in transaction:
                    if message.type == END_DIALOG:
                        transaction.end(message.dialog)
                        ended += 1
            if ended == count:
                break
        reader.settle()
        ends.send(ended)


def talked(place: Place, load: Load) -> Figures:
    """Begin and send in this process, while two others answer and end."""
    fresh = multiprocessing.get_context("spawn")
    with ExitStack() as exits:
        sides = []
        for target, arguments in ((_reply_and_end, ()), (_end, (load.messages,))):
            ours, theirs = fresh.Pipe()
            side = fresh.Process(target=target, args=(place, theirs, *arguments), daemon=True)
            side.start()
            exits.callback(side.join)
            sides.append(ours)
        for side_ends in sides:
            assert side_ends.recv() == "ready"
        replying, ending = sides
        body = b"x" * load.body_bytes
        with conversations.connect(place) as broker:
            began = time.perf_counter()
            for _ in range(load.messages):
                dialog = broker.begin_dialog("//order/shop", "//order/service", "//order")
                dialog.send(conversations.MESSAGE, body)
            broker.flush()
            sent = time.perf_counter() - began
            ended = ending.recv()
            took = time.perf_counter() - began
            replying.send("enough")
    assert ended == load.messages, f"{ended} of {load.messages} dialogs were ended by both sides"
    return {"rate": load.messages / took, "begun": load.messages / sent}


CASES: Final = (
    Case(
        (Row("per-message", "rate", "conversations/s"),),
        Run(talked, Load(messages=50_000), prepare=prepared),
    ),
)
