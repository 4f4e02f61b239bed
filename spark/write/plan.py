"""The plan that a driver gives the tasks of a write: allowed services and types, partitions, conversations and ids.

The conversation and partition of a row are a function of the plan and the row, so that a task that is executed again
sends the row to the same place. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from konverse.routing.partitioning import choose_partition
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.identifiers import Address, owner_writer
from konverse.schemas.wire.records import Begin

_VERSION: Final = 8
"""UUID version of the conversations that a plan makes. Sessions make no ids of this version, but routers do."""
_VERSION_AT: Final = 6
_MARK_AT: Final = slice(9, 12)
_MARK: Final = b"\xd1\x3c\xa8"
"""Mark of a plan in a conversation id. Ids of routers have another one there (`routing.loops`)."""

_STREAMS: Final = UUID("6f0e4d5e-6b0c-5c39-9a53-7d5b1a0f2c11")
_NAMES: Final = UUID("0a5f7a34-5c1c-5d0e-8f7e-3f1f2b9ad2c7")
_POOLS: Final = UUID("c7b1a1de-2f65-5d6b-9a0d-58e7a4ac90d4")
"""Namespaces of UUIDs, so that a stream, a name and a pool never have the same id."""


class Plan(NamedTuple):
    """One run of a write, as all its tasks know it."""

    run: bytes
    """Writer id of the driver, new for each run."""
    database: str
    from_service: str
    contract: str
    transmission: Queue
    """The queue in whose partitions batches are decided."""
    homes: tuple[Address, ...]
    """Partitions of the queue of `from_service`."""
    services: Mapping[str, tuple[Address, ...]]
    """Service that rows may name -> partitions of its queue."""
    types: Mapping[str, bool]
    """Message type of the contract -> whether the initiator may send it."""
    for_all_rows: Mapping[str, str]
    """Columns that the frame leaves out -> their value for all rows."""
    pool: str | None
    began_ms: int = 0
    """Kafka's time when the driver began the run."""
    topics: tuple[tuple[str, bytes], ...] = ()
    """Data topics and journals of all these queues, with the topic ids that the catalog has."""
    over: frozenset[bytes] = frozenset()
    """Conversations that had ended before the run began (`successions`). Their keys use the successors."""

    @property
    def targets(self) -> tuple[Address, ...]:
        """Every partition that any row can go to."""
        return tuple(dict.fromkeys(address for places in self.services.values() for address in places))

    def judge(self, query: bytes) -> tuple[Address, bytes]:
        """The partition that decides a query's batches, and its owners' writer id: fixed while the queue lives."""
        partition = choose_partition(query, self.transmission.partitions)
        return self.transmission.address(partition), owner_writer(self.transmission.incarnation, partition)

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
        """The first conversation of a key. A queue that was created again has other conversations."""
        space = query if self.pool is None else uuid5(_POOLS, f"{self.database}\0{self.pool}").bytes
        names = (self.from_service.encode(), to_service.encode(), self.contract.encode())
        logs = (self.homes[0].tag, self.services[to_service][0].tag)
        return _identifier(space + b"".join(len(part).to_bytes(4, "big") + part for part in (*names, *logs, key)))


def _identifier(data: bytes) -> bytes:
    """A UUID of _VERSION with _MARK, made of the SHA-256 of these bytes."""
    value = int.from_bytes(sha256(data).digest()[:16], "big")
    value = value & ~(0xF << 76) & ~(0b11 << 62) | _VERSION << 76 | 0b10 << 62
    made = bytearray(value.to_bytes(16, "big"))
    made[_MARK_AT] = _MARK
    return bytes(made)


def is_of_plan(conversation: bytes) -> bool:
    """Whether a plan made this conversation id."""
    return conversation[_VERSION_AT] >> 4 == _VERSION and conversation[_MARK_AT] == _MARK


def stream_id(query: str, checkpoint: str) -> bytes:
    """The id under which a streaming query writes, made of Spark's id in its checkpoint and the checkpoint's location.

    A copy of a checkpoint is another writer. Under one id, batches of one stream would be taken for those of the other,
    and their rows dropped.
    """
    return uuid5(_STREAMS, f"{query}\0{checkpoint}").bytes


def tied_id(query: bytes, stream: str) -> bytes:
    """The id under which a query writes inside `foreachBatch`, made of its own id and Spark's id of the stream.

    Spark's id is in the stream's checkpoint. A stream with a new checkpoint numbers its micro-batches from 0 again;
    their rows must not be taken for a repetition of earlier ones.
    """
    return uuid5(UUID(bytes=query), stream).bytes


def name_id(database: str, name: str, services: Iterable[str]) -> bytes:
    """The id of a named query between these services. The same name between other services is another query."""
    return uuid5(_NAMES, "\0".join((database, name, *services))).bytes
