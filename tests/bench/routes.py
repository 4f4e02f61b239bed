"""Routing: the time of a decision, and delayed conversations: their memory at the owner, and how fast they leave."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final
from uuid import UUID

import konverse
from konverse.bridge.broker import Broker
from konverse.bridge.server.server import InstanceServer
from konverse.dialog.fold.ingest import ingest
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import RecordColumns
from konverse.routing.routes.decision import RouteOutcome, RouteQuestion, decide
from konverse.routing.routes.instance import BrokerDatabase, RoutingInstance
from konverse.routing.routes.table import RouteTable
from konverse.schemas.catalog.routes import Route
from konverse.schemas.identifiers import Address, LogIdentity, Role
from konverse.schemas.wire.envelope import encode, encode_suffix, head
from konverse.schemas.wire.records import FIRST, Begin, Kind, Suffix
from tests.bench import conversations
from tests.bench.clients import DEADLINE_S, PARTITIONS
from tests.bench.measure import Meter, resident_growth
from tests.bench.model import Case, Figures, Load, Place, Row, Run

ROUTES: Final = 1_000
STEP: Final = 500
SESSION: Final = 100
"""Conversations that one session begins."""
LINK: Final = "konverse.link"
LATER: Final = "//order/later"


def decisions(_: Place, load: Load) -> Figures:
    """Decisions by a prepared table of 1,000 routes: half by service, half by service and broker id."""
    databases = [BrokerDatabase(f"db{n}", UUID(int=n), frozenset(f"//{n}/{k}" for k in range(100))) for n in range(10)]
    services = [(service, one.broker_id) for one in databases for service in sorted(one.services)][:ROUTES]
    routes = [
        Route(f"r{number}", "LOCAL", service, str(broker_id) if number % 2 else "")
        for number, (service, broker_id) in enumerate(services)
    ]
    tables, instance = {"db0": RouteTable.of("db0", routes, 0)}, RoutingInstance(databases)
    questions = [
        RouteQuestion(service, broker_id if number % 4 == 1 else None, "db0")
        for number, (service, broker_id) in enumerate(services)
    ]
    with Meter() as meter:
        for number in range(load.messages):
            outcome = decide(questions[number % ROUTES], instance, tables, lambda _: 0).outcome
            if outcome is not RouteOutcome.DELIVER:
                raise RuntimeError(f"{questions[number % ROUTES]} is not delivered: {outcome}")
    return meter.figures(load.messages)


def delayed_conversations(place: Place, count: int) -> Partition:
    """A link partition with `count` delayed conversations of one message each, all with one service."""
    state = Partition(LogIdentity(LINK, 0, bytes(16), bytes(16), bytes(16)))
    home = Address(f"konverse.{place.name}.Shop", 0, bytes(4))
    chance, start = random.Random(7), b""
    for low in range(0, count, STEP):
        numbers = range(low, min(low + STEP, count))
        headers: list[bytes | None] = []
        for number in numbers:
            if number % SESSION == 0:
                writer = bytes([1]) * 8 + chance.randbytes(8)
                start = head(Kind.MESSAGE, FIRST, Role.INITIATOR, state.address.tag, writer)
            conversation = chance.randbytes(16)
            begin = Begin("//shop", "//orders", "//order", home, state.address, conversation)
            suffix = encode_suffix(Suffix("//order/line", begin=begin))
            headers.append(encode(start + conversation, number % SESSION, 0, suffix))
        bodies: list[bytes | None] = [_order(chance, number) for number in numbers]
        ingest(state, RecordColumns(numbers, headers, bodies, [0] * len(numbers), numbers[-1] + 1, low))
    if state.delayed.count != count:
        raise RuntimeError(f"{state.delayed.count} of {count} conversations are delayed")
    return state


def _order(chance: random.Random, number: int) -> bytes:
    """An order of 97 bytes."""
    pieces, price = chance.randrange(1, 100), chance.randrange(100, 100_000)
    order = {"order": number, "customer": f"c-{chance.randrange(1_000_000)}", "pieces": pieces, "price": price}
    return json.dumps(order).encode().ljust(97)


def memory(place: Place, load: Load) -> Figures:
    """Growth of the process per delayed conversation."""
    grown, _ = resident_growth(lambda: delayed_conversations(place, load.conversations))
    return {"bytes_each": grown / load.conversations}


# -------------------------------------------------------------------------------------------------------------- release


def connect(place: Place) -> Broker:
    """A broker of an instance of its own: all databases of an instance share a link queue."""
    name = conversations.database(place)
    return konverse.connect(f"kafka://{place.bootstrap}", database=name, instance=name)


def delayed(place: Place, load: Load) -> Figures:
    """Send one message on each of `load.conversations` dialogs with a service that does not exist."""
    chance = random.Random(7)
    with connect(place) as broker:
        conversations.create(broker)
        for number in range(load.conversations):
            dialog = broker.begin_dialog("//order/shop", LATER, "//order")
            dialog.send(conversations.MESSAGE, _order(chance, number))
        broker.flush(DEADLINE_S)
    return {}


def release(place: Place, load: Load) -> Figures:
    """Seconds from the creation of the service until every conversation has arrived at it."""
    with connect(place) as broker, broker.server() as server, ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.run)
        try:
            _wait(running, lambda: _waiting(server) == load.conversations)
            broker.admin.create_queue("Later", partitions=PARTITIONS)
            began = time.perf_counter()
            broker.admin.create_service(LATER, queue="Later", contracts=["//order"])
            _wait(running, lambda: not _waiting(server) and server.reader._driver.settled)
            took = time.perf_counter() - began
        finally:
            server.stop()
        running.result()
    return {"seconds": took}


def _waiting(server: InstanceServer) -> int:
    return sum(owner.fold.state.delayed.dialogs for owner in server.reader.owners)


def _wait(running: Future[None], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10 * DEADLINE_S
    while not condition():
        if running.done() or time.monotonic() > deadline:
            raise TimeoutError("the server does not get on")
        time.sleep(0.05)


CASES: Final = (
    Case((Row("route-decision", "caller_us", "us"),), Run(decisions, Load(messages=100_000))),
    Case(
        (Row("delayed-memory", "bytes_each", "B/conversation"),),
        Run(memory, Load(messages=100_000, conversations=100_000)),
    ),
    Case(
        (Row("delayed-release", "seconds", "s"),),
        Run(release, Load(messages=100_000, conversations=100_000), delayed),
        rounds=1,
    ),
)
