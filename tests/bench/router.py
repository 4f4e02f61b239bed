"""A router that forwards: messages per second against the loop of a replying service, and memory per dialog."""

from __future__ import annotations

from itertools import islice
from typing import Final

from konverse.bridge.reader.reader import Reader
from konverse.bridge.router.service import RoutingService
from konverse.dialog.fold.apply import apply
from konverse.dialog.fold.ingest import ingest
from konverse.dialog.state.partition import Partition, indices
from konverse.dialog.state.recent import RecordColumns
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.groups import own_group
from konverse.schemas.identifiers import Address, LogIdentity, Role
from konverse.schemas.wire.envelope import encode, encode_suffix, head
from konverse.schemas.wire.journal import SYSTEM_BITS, Commit, CommitOperations
from konverse.schemas.wire.records import FIRST, Begin, Kind, Suffix
from tests.bench import conversations, fill, loop
from tests.bench.clients import PARTITIONS
from tests.bench.many import BODY, STEP, open_conversations
from tests.bench.measure import Meter, resident_growth
from tests.bench.model import WARM_UP_BATCHES, Case, Figures, Load, Place, Row, Run

TARGETS: Final = tuple(f"//order/service-{number}" for number in range(4))
TARGET_QUEUE: Final = "Lines"

_BEGINNING: Final = Load(messages=20_000, conversations=25_000)
"""As many conversations as messages, with those of the warm-up: each message is the first of its conversation."""


def by_id(message: Message) -> str:
    """A target by the conversation's id."""
    return TARGETS[message.dialog.conversation[-1] % len(TARGETS)]


def filled(place: Place, load: Load) -> Figures:
    """Fill the queue, and create the services behind the router."""
    fill.queue(place, load)
    with conversations.connect(place) as broker:
        broker.admin.create_queue(TARGET_QUEUE, partitions=PARTITIONS)
        for name in TARGETS:
            broker.admin.create_service(name, queue=TARGET_QUEUE, contracts=["//order"])
    return {}


def product(place: Place, load: Load) -> Figures:
    """Route all waiting messages, with as many per commit as the loop. The first WARM_UP_BATCHES are not timed."""
    messages_each = max(1, load.batch // loop.MESSAGES_EACH_FROM) if load.conversations < load.messages else 1
    with conversations.connect(place) as broker:
        router = broker.router("//order/service", contracts=["//order"])(by_id)
        queue = router.activation(broker).queue
        with broker.reader(queue, batch=load.batch // messages_each, max_messages=messages_each) as reader:
            warm = pass_on(reader, router, WARM_UP_BATCHES * load.batch)
            with Meter() as meter:
                measured = pass_on(reader, router, load.with_warm_up - warm)
        if router.routed.messages != load.with_warm_up:
            raise RuntimeError(f"{router.routed} instead of {load.with_warm_up} messages")
    return meter.figures(measured)


def pass_on(reader: Reader, router: RoutingService, count: int) -> int:
    """Route at least `count` messages, and wait until everything is committed and delivered."""
    done = 0

    def route(transaction: Transaction) -> None:
        nonlocal done
        done += len(transaction)
        router.route(transaction)
        if done >= count:
            reader.stop()

    reader.run(route)
    reader.settle()
    return done


# --------------------------------------------------------------------------------------------------------------- memory


def mapped_dialogs(count: int) -> Partition:
    """A router's partition with `count` mapped dialogs. On each, one message arrived, left and was acknowledged."""
    identity = LogIdentity("konverse.bench.Orders", 0, bytes(16), bytes(16), bytes(16))
    state = Partition(identity)
    shop, depot = Address("konverse.bench.Shop", 0, bytes(4)), Address("konverse.bench.Lines", 0, bytes(4))
    first = head(Kind.MESSAGE, FIRST, Role.INITIATOR, state.address.tag, bytes([1]) * 16)
    counter = number = 0
    for number, start in enumerate(range(0, count, STEP), 1):
        names = [place.to_bytes(16, "big") for place in range(start, min(start + STEP, count))]
        headers: list[bytes | None] = [
            encode(
                first + name, counter + place, 0, encode_suffix(Suffix("//order/line", begin=_begin(name, shop, state)))
            )
            for place, name in enumerate(names)
        ]
        size = len(headers)
        counter += size
        ingest(
            state,
            RecordColumns(range(counter - size, counter), headers, [BODY] * size, [0] * size, counter, counter - size),
        )
        apply(state, Commit(1, b"", number, b"", counter, _passing_on(state, depot), [(depot, counter)]))
        for endpoint in state.changed:
            endpoint.changed = False
        state.changed = []
    apply(state, Commit(1, b"", number + 1, b"", counter, CommitOperations(), [(depot, counter)]))
    if len(state.live()) != 2 * count or state.unread or state.stream_to(depot).waiting:
        raise RuntimeError(f"{len(state.live())} endpoints of {count} mapped dialogs, {state.unread} messages unread")
    return state


def _begin(conversation: bytes, home: Address, state: Partition) -> Begin:
    return Begin("//order/shop", "//order/service", "//order", home, state.address, conversation)


def _passing_on(state: Partition, depot: Address) -> CommitOperations:
    operations = CommitOperations()
    ready = [*state.ready]
    state.ready.clear()
    for endpoint, index in zip(ready, islice(indices(state), len(ready)), strict=True):
        outbound = b"\xff" + endpoint.conversation[1:]
        group = own_group(Role.TARGET, endpoint.conversation)
        begin = Begin("//order/service", TARGETS[0], "//order", state.address, depot, group)
        operations.begins.append((outbound, begin))
        operations.receive_endpoints.append(endpoint.index)
        operations.receive_positions.append(endpoint.received << SYSTEM_BITS)
        operations.sends.append((index, "//order/line", [BODY]))
    return operations


def memory(_place: Place, load: Load) -> Figures:
    """Memory growth: bytes of the router per mapped dialog, and GiB of a million of them with both ends.

    Each end is in a partition of its own.
    """
    count = load.conversations
    router, kept = resident_growth(lambda: mapped_dialogs(count))
    ends, also = resident_growth(lambda: [open_conversations(_end(name), count) for name in ("Shop", "Lines")])
    del kept, also
    return {"bytes_each": router / count, "gib_of_million": 1e6 * (router + ends) / count / 2**30}


def _end(queue: str) -> LogIdentity:
    return LogIdentity(f"konverse.bench.{queue}", 0, bytes(16), bytes(16), bytes(16))


_LOAD: Final = Load(messages=200_000)
_MAPPED: Final = Load(messages=100_000, conversations=100_000)
CASES: Final = (
    Case(
        (Row("router-forward", "rate", "msg/s"),),
        Run(product, _LOAD, prepare=filled),
        Run(loop.product, _LOAD, prepare=fill.queue),
        rounds=5,
    ),
    Case((Row("router-begin", "rate", "dialogs/s"),), Run(product, _BEGINNING, prepare=filled)),
    Case(
        (
            Row("router-memory", "bytes_each", "B/mapped dialog"),
            Row("router-memory-million", "gib_of_million", "GiB, from 100,000"),
        ),
        Run(memory, _MAPPED),
    ),
)
