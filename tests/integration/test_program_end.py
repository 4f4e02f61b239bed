"""A program that ends without flush and close: its messages arrive, or their loss is logged soon."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
import weakref
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest

from konverse.bridge.runtime import exits
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, begin, connected, open_shop, receive, sent, until

ADMIN_THREADS = 4

PROGRAM = """
import os, sys, konverse
from tests.kit.shop import ORDER, begin
broker = konverse.connect("kafka://{bootstrap}", database="{database}")
dialog = begin(broker)
for number in range(3):
    dialog.send(ORDER, b"%d" % number)
"""

FORKING = """
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""

READING = """
import threading, konverse
handled = threading.Event()
def handle(transaction):
    list(transaction)
    handled.set()
broker = konverse.connect("kafka://{bootstrap}", database="{database}")
reader = broker.reader("Orders")
threading.Thread(target=reader.run, args=(handle,), kwargs=dict(threads=3), daemon=True).start()
assert handled.wait(60)
"""

WITHOUT_KAFKA = """
import uuid
from konverse.bridge.runtime import exits
from konverse.schemas.catalog.objects import Queue
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.client.session_ids import SessionRenewal
from konverse.bridge.client.sender import Sender
from konverse.bridge.runtime.settings import Settings
from konverse.bridge.runtime.clock import now_ms
from konverse.dialog.session.dialogs import PLAIN
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.records import Begin

exits.EXIT_S = 0.5
class Ids:
    topic = "opened"

    def new(self, timeout_s=None):
        return uuid.uuid4().bytes, now_ms()

sender = Sender(Kafka(Settings.load(kafka="kafka://127.0.0.1:1")), SessionRenewal(Ids(), lambda address: None))
there = Address("topic", 0, b"1234")
dialog = sender.begin(b"c" * 16, Begin("from", "to", "contract", there, there, b"c" * 16, None), PLAIN)
for _ in range(3):
    sender.send(dialog, "type", b"body")
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", dedent(program)], check=False, capture_output=True, text=True, timeout=60
    )


@pytest.mark.stack
@pytest.mark.parametrize("more", ["", FORKING, "raise SystemExit(0)"])
def test_unflushed_messages_arrive_when_the_program_ends(servers: Servers, database: str, more: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        done = run(PROGRAM.format(bootstrap=servers.bootstrap, database=database) + more)
        assert (done.returncode, done.stderr) == (0, "")
        assert [message.body for message in receive(broker, "Orders", 3)] == [b"0", b"1", b"2"]


@pytest.mark.stack
def test_closed_readers_and_brokers_leave_no_threads(servers: Servers, database: str) -> None:
    """In a process of its own: clients that other tests have left to the collector would be counted."""
    called = f"open_and_close({servers.bootstrap!r}, {servers.redis_url!r}, {database!r})"
    done = run(f"from tests.integration.test_program_end import open_and_close\n{called}")
    assert (done.returncode, done.stderr) == (0, "")


def open_and_close(bootstrap: str, redis_url: str, database: str) -> None:
    """Producers and consumers end at once. The admin client of a broker, with four threads, waits for the collector."""
    with connected(bootstrap, database) as broker:
        open_shop(broker)
    gc.collect()
    gc.disable()
    before = threads()
    for _ in range(3):
        with connected(bootstrap, database, redis=redis_url) as broker:
            opened = 0
            for number in range(5):
                sent(broker, b"%d" % number)
                receive(broker, "Orders", 1)
                if number < 2:  # a client has all of its threads when it has met every broker
                    opened = max(opened, threads())
            until(partial(at_most, opened), "closed readers have ended their threads")
        before += ADMIN_THREADS
        until(partial(at_most, before), "a closed broker has ended its threads")
    gc.enable()
    gc.collect()
    until(partial(at_most, before - 3 * ADMIN_THREADS), "the collector ends the admin clients")


def at_most(most: int) -> bool:
    return threads() <= most


def threads() -> int:
    """Number of threads of this process, those of librdkafka included."""
    return len([*Path("/proc/self/task").iterdir()])


@pytest.mark.stack
@pytest.mark.parametrize("more", ["", "reader.close()", "broker.close()"])
def test_handlers_in_the_background_do_not_keep_a_program_from_ending_nor_break_its_end(
    servers: Servers, database: str, more: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        begin(broker).send(ORDER, b"handled")
        broker.flush()
        done = run(READING.format(bootstrap=servers.bootstrap, database=database) + more)
        assert (done.returncode, done.stderr) == (0, "")


def test_messages_that_kafka_does_not_accept_are_soon_given_up_with_a_report() -> None:
    began = time.monotonic()
    done = run(WITHOUT_KAFKA)
    assert done.returncode == 0
    assert "3 messages are given up" in done.stderr
    assert time.monotonic() - began < 10


@pytest.mark.stack
def test_a_closed_broker_is_not_kept_for_the_end(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        begin(broker).send(ORDER, b"x")
        sender = weakref.ref(broker._client.open_sender())
        assert sender() in exits._OPEN
    del broker
    gc.collect()
    assert sender() is None
