"""Test fixtures of the pure core: writers that make records, and partitions that fold them.

`identifier(name)` is 16 bytes derived from the name, the same in every run. A `Scribe` is a writer whose envelopes
carry running counters. A `Side` is one partition that ingests every record at once. A `Pair` is the basic fixture: the
home and the target of conversations, and a session that begins them. Outputs travel only when a test delivers them.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from konverse.dialog.fold.apply import apply
from konverse.dialog.fold.ingest import ingest
from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.owner.staging import Staging
from konverse.dialog.session.lanes import Handed
from konverse.dialog.state.endpoint import Endpoint, Record, system_bit
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import RecordColumns
from konverse.dialog.transaction.received import Rule
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.identifiers import Address, LogIdentity, Role, incarnation_tag
from konverse.schemas.system_messages import error_body
from konverse.schemas.wire.envelope import decode, encode_envelope
from konverse.schemas.wire.journal import GENESIS_HASH, Commit, CommitOperations, EndOperation
from konverse.schemas.wire.records import FIRST, NO_SEQUENCE, Begin, Bounce, End, Envelope, Kind, Suffix

from .hosts import host_of

GARBAGE: Final = b"\xff" * 60
"""Bytes that do not decode as an envelope."""


def identifier(name: str) -> bytes:
    """16 bytes derived from `name`: a UUID of version 4, so it carries no time."""
    hashed = hashlib.sha256(name.encode()).digest()[:16]
    return hashed[:6] + bytes((hashed[6] & 0x0F | 0x40,)) + hashed[7:]


def log_of(queue: str = "orders", partition: int = 0) -> LogIdentity:
    """The log identity of a queue's partition."""
    return LogIdentity(
        queue,
        partition,
        identifier(f"{queue} incarnation"),
        identifier(f"{queue} data"),
        identifier(f"{queue} journal"),
    )


def address_of(queue: str = "orders", partition: int = 0) -> Address:
    """The address of a queue's partition."""
    return Address(queue, partition, incarnation_tag(log_of(queue).incarnation))


def begin_block(home: str = "replies", target: str = "orders", **changes: Any) -> Begin:
    """The BEGIN block of a conversation from queue `home` to queue `target`."""
    block = Begin("shop", "store", "orders", address_of(home), address_of(target), identifier("a group"))
    return block._replace(**changes)


def record(body: bytes | None = None, time_ms: int = 0, headers: list[tuple[str, bytes]] | None = None) -> Record:
    """Body, broker time and headers of a record, as a driver reads them from Kafka."""
    return (body, (time_ms, headers) if headers else time_ms)


GROUP: Final = identifier("a group")

Row = tuple[bytes | None, Record]


def records_of(emit: Emit) -> list[Handed]:
    """Header, key and body of each emitted record."""
    out: list[Handed] = []
    for key, headers, bodies in emit.batches():
        out += [(header, key, body) for header, body in zip(headers, bodies, strict=True)]
    return out


def columns_of(rows: Iterable[Row], start: int = 0) -> RecordColumns:
    """Columns of rows as a driver hands them to an owner, at offsets from `start`."""
    rows = list(rows)
    end = start + len(rows)
    bodies, stamps = [body for _, (body, _) in rows], [stamp for _, (_, stamp) in rows]
    return RecordColumns(range(start, end), [header for header, _ in rows], bodies, stamps, end, start)


class Scribe:
    """A writer outside the partitions. Its records to each partition get the next counter, unless a test gives one."""

    def __init__(self, name: str) -> None:
        self.id = identifier(name)
        self.next: dict[Address, int] = defaultdict(int)

    def envelope(self, kind: Kind, to: Address, conversation: bytes, **changes: Any) -> Envelope:
        """The next envelope to a partition. A `counter` in `changes` does not advance the running counter."""
        if "counter" not in changes:
            changes["counter"] = self.next[to]
            self.next[to] += 1
        plain = Envelope(kind, 0, Role.INITIATOR, to.tag, self.id, conversation, 0, NO_SEQUENCE, Suffix())
        return plain._replace(**changes)

    def write(self, kind: Kind, to: Address, conversation: bytes, **changes: Any) -> bytes:
        """The encoded header of the next envelope."""
        return encode_envelope(self.envelope(kind, to, conversation, **changes))

    def first(
        self, to: Address, conversation: bytes, begin: Begin, message_type: str = "order", **changes: Any
    ) -> bytes:
        """FIRST: the message that creates the target endpoint."""
        suffix = Suffix(message_type, begin=begin)
        return self.write(
            Kind.MESSAGE, to, conversation, **{"flags": FIRST, "sequence": 0, "suffix": suffix, **changes}
        )

    def message(self, to: Address, conversation: bytes, message_type: str = "order", **changes: Any) -> bytes:
        """A message of a conversation, without a sequence number unless `changes` has one."""
        return self.write(Kind.MESSAGE, to, conversation, **{"suffix": Suffix(message_type), **changes})

    def begin(self, conversation: bytes, begin: Begin, **changes: Any) -> bytes:
        """BEGIN to the home that the block names."""
        return self.write(Kind.BEGIN, begin.home, conversation, suffix=Suffix(begin=begin), **changes)

    def end(self, to: Address, conversation: bytes, detail: End, kind: Kind = Kind.END, **changes: Any) -> bytes:
        """END (or ERROR), as the owner of the other side sends it."""
        return self.write(kind, to, conversation, **{"suffix": Suffix("its end", detail=detail), **changes})

    def close(self, to: Address, writer: bytes) -> bytes:
        """CLOSE_WRITER for `writer`."""
        return self.write(Kind.CLOSE_WRITER, to, writer)

    def bounce(self, to: Address, conversation: bytes, detail: Bounce) -> bytes:
        """BOUNCE to the mailbox of a session."""
        return self.write(Kind.BOUNCE, to, conversation, suffix=Suffix("order", detail=detail))


@dataclass(frozen=True)
class Sent:
    """A decoded output of a partition."""

    envelope: Envelope
    key: bytes
    body: bytes | None

    @property
    def kind(self) -> Kind:
        return self.envelope.kind

    @property
    def detail(self) -> Any:
        return self.envelope.suffix.detail


@dataclass
class Side:
    """A partition that ingests every record at once."""

    queue: str
    state: Partition = field(init=False)
    number: int = 0

    def __post_init__(self) -> None:
        self.state = Partition(log_of(self.queue))

    @property
    def address(self) -> Address:
        return self.state.address

    def take(self, header: bytes | None, body: bytes | None = None) -> None:
        """One record arrives."""
        self.take_all([(header, record(body))])

    def take_all(self, rows: Iterable[Row]) -> None:
        """Several records arrive in one read."""
        ingest(self.state, columns_of(rows, self.state.ingest_to))

    def commit(self, **columns: Any) -> None:
        """Commit what was ingested so far. `columns` are fields of `CommitOperations`, or other fields of `Commit`."""
        names = CommitOperations.__dataclass_fields__
        operations = CommitOperations(**{name: value for name, value in columns.items() if name in names})
        others = {name: value for name, value in columns.items() if name not in names}
        self.number += 1
        apply(self.state, Commit(1, b"o" * 16, self.number, GENESIS_HASH, self.state.ingest_to, operations, **others))

    def send(self, endpoint: Endpoint, *bodies: bytes, message_type: str = "reply") -> None:
        """A handler sends bodies on an endpoint and commits."""
        self.commit(sends=[(endpoint.index, message_type, [*bodies])])

    def end(self, endpoint: Endpoint, code: int = 0, description: str = "") -> None:
        """A handler ends an endpoint and commits."""
        self.commit(ends=[EndOperation(endpoint.index, code, description)])

    def receive(self, endpoint: Endpoint) -> list[str]:
        """A handler receives everything that waits, urgent messages first, and commits. Returns the message types."""
        taken = [entry[1] for entry in endpoint.urgent]
        position = (endpoint.consumed + len(endpoint.queue)) << 2 | sum(map(system_bit, taken))
        taken += [entry[1] for entry in endpoint.queue]
        self.commit(receive_endpoints=[endpoint.index], receive_positions=[position])
        return taken

    def outputs(self, to: Address) -> list[Sent]:
        """Decoded outputs that wait for a destination."""
        stream = self.state.streams.get(to)
        if stream is None:
            return []
        emit = Emit(to, stream.acked, stream.cut(stream.acked, stream.waiting))
        return [Sent(decode(header), key, body) for header, key, body in records_of(emit)]

    def deliver(self, other: Side) -> list[Sent]:
        """Deliver the outputs that wait for the other side, acknowledge them in a COMMIT, and return them."""
        sent = self.outputs(other.address)
        other.take_all([(encode_envelope(one.envelope), record(one.body)) for one in sent])
        if sent:
            self.commit(output_acks=[(other.address, self.state.streams[other.address].next)])
        return sent

    def waiting(self, endpoint: Endpoint) -> list[str]:
        """Types of the messages that wait in the endpoint's queue."""
        return [entry[1] for entry in endpoint.queue]


class Pair:
    """Home (initiators, queue `replies`), target (queue `orders`), and a session that begins conversations."""

    def __init__(self) -> None:
        self.home = Side("replies")
        self.target = Side("orders")
        self.client = Scribe("client")

    def begin(self, name: str = "a conversation", messages: int = 1, **changes: Any) -> bytes:
        """The session begins a conversation with `messages` messages; both sides ingest everything. Returns its id."""
        conversation = identifier(name)
        block = begin_block(group=conversation)._replace(**changes)
        self.home.take(self.client.begin(conversation, block))
        if messages:
            self.target.take(self.client.first(self.target.address, conversation, block), b"0")
        for number in range(1, messages):
            self.send(conversation, str(number).encode(), sequence=number)
        return conversation

    def send(self, conversation: bytes, body: bytes = b"", **changes: Any) -> None:
        """The session sends one more message."""
        suffix = Suffix("order", home=self.home.address)
        self.target.take(self.client.message(self.target.address, conversation, **{"suffix": suffix, **changes}), body)

    def end_call(self, conversation: bytes, error: tuple[int, str] | None = None) -> None:
        """END_CALL, the session's END CONVERSATION, arrives at home."""
        body = error_body(*error) if error else None
        self.home.take(self.client.write(Kind.END_CALL, self.home.address, conversation), body)

    def answered(self, *names: str, messages: int = 1) -> list[Endpoint]:
        """Begin conversations of one group. Returns their initiators, each with `messages` replies waiting."""
        conversations = [self.begin(name, group=GROUP) for name in names]
        for conversation in conversations:
            self.target.send(self.receiver(conversation), *(str(number).encode() for number in range(messages)))
        self.target.deliver(self.home)
        return [self.initiator(conversation) for conversation in conversations]

    def initiator(self, conversation: bytes) -> Endpoint:
        return _living(self.home, Role.INITIATOR, conversation)

    def receiver(self, conversation: bytes) -> Endpoint:
        return _living(self.target, Role.TARGET, conversation)


def _living(side: Side, role: Role, conversation: bytes) -> Endpoint:
    endpoint = side.state.endpoint(role, conversation)
    assert endpoint is not None, f"no {role.name} of the conversation lives in {side.queue}"
    return endpoint


def of(
    side: Side, endpoint: Endpoint, rule: Rule | None = None, done: Callable[[Transaction, bool], None] | None = None
) -> Transaction:
    """A transaction with everything that waits for the group of `endpoint`."""
    for member in endpoint.members:
        member.held = False
    side.state.ready.clear()
    side.state.ready.append(endpoint)
    staging = Staging(side.state, rule or anything, OwnerSettings())
    transaction = staging.take()
    assert transaction is not None, "nothing waits for the group"
    if done is not None:
        host_of(staging).done = done
        transaction.await_block()
    return transaction


def anything(_contract: str, _role: Role, _message_type: str) -> None:
    """A contract check that allows every message type."""


def conversations(*names: str, messages: int = 1, client: Scribe | None = None, **changes: Any) -> list[Row]:
    """Rows of conversations that a client begins with `messages` messages each, one conversation after the other."""
    client, to = client or Scribe("client"), address_of()
    rows: list[Row] = []
    for name in names:
        conversation = identifier(name)
        block = begin_block(group=conversation)._replace(**changes)
        rows.append((client.first(to, conversation, block), record(b"0")))
        rows += [
            (client.message(to, conversation, sequence=number), record(str(number).encode()))
            for number in range(1, messages)
        ]
    return rows
