"""What a driver tells the tasks of a write: whom rows may name, where they go, and who the tasks themselves are.

Everything that decides where a row goes is a function of the plan and the row, so a task that is executed again sends
it to the same conversation and partition. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from konverse.routing.partitioning import choose_partition
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.records import Begin

VERSION: Final = 8
"""Of the UUIDs of conversations that a plan makes; brokers make none of it."""

_STREAMS: Final = UUID("6f0e4d5e-6b0c-5c39-9a53-7d5b1a0f2c11")
_NAMES: Final = UUID("0a5f7a34-5c1c-5d0e-8f7e-3f1f2b9ad2c7")
_POOLS: Final = UUID("c7b1a1de-2f65-5d6b-9a0d-58e7a4ac90d4")
"""So that a stream, a name and a pool never have one id."""


class Plan(NamedTuple):
    """One run of a write, as all its tasks know it."""

    run: bytes
    """Writer id of the driver, new for each run."""
    database: str
    from_service: str
    contract: str
    transmission: Queue
    """In its partitions batches are decided."""
    homes: tuple[Address, ...]
    """Of the queue of `from_service`."""
    services: Mapping[str, tuple[Address, ...]]
    """Partitions of the queue of each service that rows may name."""
    types: Mapping[str, bool]
    """Message types of the contract; whether its initiator may send them."""
    for_all_rows: Mapping[str, str]
    """Columns that the rows leave out, and the value that all have in them."""
    pool: str | None
    began_ms: int = 0
    """When its driver began with the run."""
    topics: tuple[tuple[str, bytes], ...] = ()
    """Data topics and journals of all these queues, as the catalog means them: by Kafka's own ids."""
    over: frozenset[bytes] = frozenset()
    """Conversations that were over before it began (`successions`): those next in their lines take their place."""

    @property
    def targets(self) -> tuple[Address, ...]:
        """Every partition that any row can go to."""
        return tuple(dict.fromkeys(address for places in self.services.values() for address in places))

    def judge(self, query: bytes) -> Address:
        """Where a query's batches are decided: the same place for as long as the queue lives."""
        return self.transmission.address(choose_partition(query, self.transmission.partitions))

    def dialog(self, query: bytes, to_service: str, key: bytes) -> tuple[bytes, Begin]:
        """The conversation of a key: the same one in every batch, task and run, until it is over."""
        targets = self.services[to_service]
        conversation = self._conversation(query, to_service, key)
        while conversation in self.over:
            conversation = _identifier(conversation)
        home = self.homes[choose_partition(conversation, len(self.homes))]
        target = targets[choose_partition(key or conversation, len(targets))]
        return conversation, Begin(self.from_service, to_service, self.contract, home, target, conversation, key)

    def _conversation(self, query: bytes, to_service: str, key: bytes) -> bytes:
        """The first one of a key. A queue that is made again counts as another."""
        space = query if self.pool is None else uuid5(_POOLS, f"{self.database}\0{self.pool}").bytes
        names = (self.from_service.encode(), to_service.encode(), self.contract.encode())
        logs = (self.homes[0].tag, self.services[to_service][0].tag)
        return _identifier(space + b"".join(len(part).to_bytes(4, "big") + part for part in (*names, *logs, key)))


def _identifier(data: bytes) -> bytes:
    """A UUID of VERSION that nothing but these bytes makes."""
    value = int.from_bytes(sha256(data).digest()[:16], "big")
    value = value & ~(0xF << 76) & ~(0b11 << 62) | VERSION << 76 | 0b10 << 62
    return value.to_bytes(16, "big")


def stream_id(query: str, checkpoint: str) -> bytes:
    """The id under which a streaming query writes: of Spark's id for it, which its checkpoint holds, and of its place.

    A copy of a checkpoint is another writer: otherwise one of the two would lose what the other has written.
    """
    return uuid5(_STREAMS, f"{query}\0{checkpoint}").bytes


def tied_id(query: bytes, stream: str) -> bytes:
    """The id under which a query writes within a stream: of its own id, and of Spark's id of the stream.

    The latter is in the stream's checkpoint. One with a new checkpoint numbers its micro-batches from 0 again, and what
    it writes is something else than what the one before has written under these numbers.
    """
    return uuid5(UUID(bytes=query), stream).bytes


def name_id(database: str, name: str, services: Iterable[str]) -> bytes:
    """The id under which batch writes of that name between these services write: to others it is another query."""
    return uuid5(_NAMES, "\0".join((database, name, *services))).bytes
