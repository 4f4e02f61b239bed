"""Freezes the state of a partition into bytes, and restores it (protocol.md section 7.5).

The bytes are canonical: equal states give equal bytes, so the SHA-256 of the bytes identifies the state (I3). Freezing
a million endpoints takes seconds, and the owner must keep working. So the bytes are made in pieces. An endpoint that
changes before its piece is made is copied first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple
from itertools import islice
from typing import Any, Final, NamedTuple

from konverse.dialog.state.endpoint import (
    NOTHING,
    Clock,
    Endpoint,
    Entry,
    FarStamp,
    Finished,
    Group,
    HeaderPrediction,
    Stamp,
    Terms,
)
from konverse.dialog.state.outbox import Gate, Run, Stream
from konverse.dialog.state.partition import Partition, Statistics
from konverse.dialog.state.transitions import State
from konverse.dialog.state.writer import Writer
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import SNAPSHOT_PIECE_ENTRIES_MAX
from konverse.schemas.wire.columns import identifiers, pack, unpack
from konverse.schemas.wire.records import Origin, address_from_avro, address_to_avro, begin_from_avro, begin_to_avro
from konverse.schemas.wire.snapshot import (
    BASE,
    ENDPOINTS,
    LEAVING,
    LEVELS,
    MAILBOX,
    NAMED,
    OUTPUTS,
    PENDING,
    RECENT,
    WAITING,
    encode_section,
    sections,
)

from .snapshot_sections import (
    ABSENT,
    base_of,
    bounced_of,
    cleaned_of,
    far_writers,
    leaving_of,
    levels_of,
    moves_of,
    named_of,
    pending_rows,
    restore_batches,
    restore_cleaned,
    restore_leaving,
    restore_levels,
    restore_mailbox,
    restore_moves,
    restore_named,
    restore_recent,
    restore_rows,
    restore_writers,
    writers_of,
)

_ROLES: Final = {int(role): role for role in Role}
_STATES: Final = {int(state): state for state in State}
"""A dict lookup takes a third of the time of `State(number)`."""


class _EndpointRow(NamedTuple):
    """An endpoint as it was when the snapshot began."""

    place: int
    conversation: bytes
    opener: bytes
    role: int
    state: int
    terms: int
    stream: int
    key: bytes | None
    received: int
    consumed: int
    sent: int
    lanes: list[tuple[int, int]]
    queue: list[Entry]
    urgent: tuple[Entry, ...]
    finished: Finished | None
    clock: Clock | None
    level: int


class Freeze:
    """A snapshot of the state at the moment of construction, made into bytes piece by piece."""

    def __init__(self, state: Partition) -> None:
        self._state = state
        self._table = state.table.copy()
        self._done = 0
        """Endpoints with an index below this are already in a piece."""
        self._kept: dict[int, _EndpointRow] = {}
        self._terms: dict[Terms, int] = {terms: at for at, terms in enumerate(state.terms.values())}
        self._streams: dict[Stream, int] = {stream: at for at, stream in enumerate(state.streams.values())}
        self._writers: dict[Writer, int] = {writer: at for at, writer in enumerate(state.writers.values())}
        self._far = far_writers(state)
        self._runs = [list(stream.runs) for stream in self._streams]
        self._pending = pending_rows(state)
        self._mailbox = list(state.mailbox.entries.values())
        self._cleaned = cleaned_of(state)
        self._named = named_of(state)
        self._leaving = leaving_of(state)
        self._base = _base(state)
        self.oldest_waiting = state.pending.oldest()
        """Lowest data offset of an undecided row, or of a waiting message in the pieces made so far; None when
        nothing waits."""

    def follow(self) -> None:
        """Allow the state to change while the pieces are made: each endpoint is copied before its first change."""
        for endpoint in self._table:
            if endpoint is not None:
                endpoint.changed = False  # so that `touch` reports the next change; the view may get the endpoint twice
        self._state.on_touch = self._keep

    def _keep(self, endpoint: Endpoint) -> None:
        place = endpoint.index
        if self._done <= place < len(self._table) and self._table[place] is endpoint and place not in self._kept:
            self._kept[place] = self._row(endpoint)

    def _row(self, endpoint: Endpoint) -> _EndpointRow:
        return _EndpointRow(
            endpoint.index,
            endpoint.conversation,
            endpoint.opener,
            endpoint.role,
            endpoint.committed,
            self._terms[endpoint.terms],
            self._streams[endpoint.stream],
            endpoint.key,
            endpoint.received,
            endpoint.consumed,
            endpoint.sent,
            [(self._place_of(lane.writer), lane.last) for lane in endpoint.lanes()],
            endpoint.queue.copy() if endpoint.queue else NOTHING,
            endpoint.urgent,
            endpoint.finished,
            endpoint.clock,
            endpoint.level,
        )

    def _place_of(self, writer: Writer) -> int:
        place = self._writers.get(writer)
        return len(self._writers) + self._far[writer.id] if place is None else place

    def pieces(self) -> Iterator[bytes]:
        """The sections of the state, in order. The state may change between two of them after `follow`."""
        yield self._base
        size = SNAPSHOT_PIECE_ENTRIES_MAX
        while self._done < len(self._table):
            rows = self._rows(self._done, size)
            self._done += size
            if rows:
                yield _endpoints(rows)
            yield from levels_of((row.place, row.level) for row in rows)
            yield from _pieces_of(WAITING, {}, "entries", (w for row in rows for w in _waiting(row)), size)
        if self._state.on_touch == self._keep:
            self._state.on_touch = None
        for at, runs in enumerate(self._runs):
            yield from _pieces_of(OUTPUTS, {"stream": at}, "runs", map(_run, runs), size)
        yield from _pieces_of(PENDING, {}, "rows", self._pending, size)
        yield from _pieces_of(MAILBOX, {}, "entries", map(bounced_of, self._mailbox), size)
        yield from _pieces_of(*self._cleaned, size)
        yield from _pieces_of(*self._named, size)
        yield from _pieces_of(*self._leaving, size)

    def _rows(self, first: int, count: int) -> list[_EndpointRow]:
        rows: list[_EndpointRow] = []
        for place, endpoint in enumerate(self._table[first : first + count], first):
            if endpoint is not None:
                row = self._kept.pop(place, None) or self._row(endpoint)
                rows.append(row)
                self._note_oldest(row)
        return rows

    def _note_oldest(self, row: _EndpointRow) -> None:
        waiting = [entry[0] for entry in (*row.queue, *row.urgent)]
        if waiting:
            known = self.oldest_waiting
            self.oldest_waiting = min(waiting) if known is None else min(known, *waiting)


# --------------------------------------------------------------------------------------------------- state to bytes


def _pieces_of(name: str, fields: dict[str, Any], items: str, values: Iterable[Any], size: int) -> Iterator[bytes]:
    rest = iter(values)
    while chunk := list(islice(rest, size)):
        yield encode_section(name, {**fields, items: chunk})


def _base(state: Partition) -> bytes:
    return encode_section(BASE, {
        "ingest_to": state.ingest_to,
        "statistics": astuple(state.statistics),
        "places": len(state.table),
        "free": pack("Q", state.free),
        **writers_of(state),
        "terms": [
            {"service": service, "far_service": far, "contract": contract} for service, far, contract in state.terms
        ],
        "streams": [
            {
                "to": address_to_avro(stream.address),
                "acked": stream.acked,
                "next": stream.next,
                "gates": [{**gate._asdict(), "to": address_to_avro(gate.to)} for gate in stream.gates],
            }
            for stream in state.streams.values()
        ],
        "groups": [
            {"id": group.id, "members": pack("Q", [member.index for member in group.members])}
            for group in state.groups.values()
        ],
        "beginning": [{"endpoint": place, "begin": begin_to_avro(begin)} for place, begin in state.beginning.items()],
        "tombstones": b"".join(conversation + opener for conversation, opener in state.tombstones.items()),
        **state.attempts.freeze(),
        **base_of(state),
        **moves_of(state),
    })  # fmt: skip


def _endpoints(rows: Sequence[_EndpointRow]) -> bytes:
    places, conversations, openers, roles, states, terms, streams, keys, received, consumed, sent, lanes, *_ = zip(
        *rows, strict=True
    )
    joined = [lane for chain in lanes for lane in chain]
    return encode_section(ENDPOINTS, {
        "places": pack("Q", places),
        "conversations": b"".join(conversations),
        "openers": b"".join(openers),
        "roles": bytes(roles),
        "states": bytes(states),
        "terms": pack("I", terms),
        "streams": pack("I", streams),
        "key_sizes": pack("i", [ABSENT if key is None else len(key) for key in keys]),
        "keys": b"".join(key for key in keys if key),
        "received": pack("Q", received),
        "consumed": pack("Q", consumed),
        "sent": pack("q", sent),
        "lanes": pack("I", map(len, lanes)),
        "lane_writers": pack("I", [writer for writer, _ in joined]),
        "lane_lasts": pack("q", [last for _, last in joined]),
        "finished": [_finished(row.place, row.finished) for row in rows if row.finished is not None],
        "clocks": [{"place": row.place, **row.clock._asdict()} for row in rows if row.clock is not None],
    })  # fmt: skip


def _finished(place: int, finished: Finished) -> dict[str, Any]:
    own, peer, answer, askers = finished
    received = None if answer is None else [{"writer": writer, "counter": counter} for writer, counter in answer]
    return {"place": place, "own": own, "peer": peer, "answer": received, "askers": [*askers]}


def _waiting(row: _EndpointRow) -> Iterator[dict[str, Any]]:
    entries = [(False, entry) for entry in row.queue] + [(True, entry) for entry in row.urgent]
    for overtakes, (offset, name, body, stamp) in entries:
        timestamp_ms, headers = (stamp, []) if isinstance(stamp, int) else stamp[:2]
        yield {
            "endpoint": row.place,
            "overtakes": overtakes,
            "offset": offset,
            "type": name,
            "body": body,
            "timestamp_ms": timestamp_ms,
            "headers": [{"name": header, "value": value} for header, value in headers],
            "origin": stamp.origin._asdict() if isinstance(stamp, FarStamp) else None,
        }


def _run(run: Run) -> dict[str, Any]:
    return {**run._asdict(), "bodies": list(run.bodies)}


# --------------------------------------------------------------------------------------------------- bytes to state


def restore(state: Partition, data: bytes) -> None:
    """Restore a frozen state into an empty one. The caller has verified that the bytes are complete and intact."""
    parts = sections(data)
    _, base = next(parts)
    writers, terms, streams = _restore_base(state, base)
    for name, value in parts:
        if name == ENDPOINTS:
            _restore_endpoints(state, value, writers, terms, streams)
        elif name == WAITING:
            _restore_waiting(state, value["entries"])
        elif name == PENDING:
            restore_rows(state, value["rows"])
        elif name == MAILBOX:
            restore_mailbox(state, value["entries"])
        elif name == NAMED:
            restore_named(state, value["entries"])
        elif name == LEAVING:
            restore_leaving(state, value["entries"])
        elif name == LEVELS:
            restore_levels(state, value)
        elif name == RECENT:
            restore_recent(state.recent, value)
        elif name == OUTPUTS:
            streams[value["stream"]].runs += [Run(**run) for run in value["runs"]]
        else:
            restore_cleaned(state, value["entries"])
    for group in base["groups"]:
        shared = state.groups[group["id"]] = Group(group["id"])
        for place in unpack("Q", group["members"]):
            member = state.table[place]
            assert member is not None
            member.group = shared
            shared.members.append(member)
    state.attempts.restore(base, state.table)


def _restore_base(state: Partition, base: dict[str, Any]) -> tuple[list[Writer], list[Terms], list[Stream]]:
    state.ingest_to = base["ingest_to"]
    state.statistics = Statistics(*base["statistics"])
    state.table = [None] * base["places"]
    state.free = unpack("Q", base["free"])
    restore_writers(state, base)
    for names in base["terms"]:
        state.terms_of(names["service"], names["far_service"], names["contract"])
    for value in base["streams"]:
        stream = state.stream_to(address_from_avro(value["to"]))
        stream.acked, stream.next = value["acked"], value["next"]
        for gate in value["gates"]:
            stream.gates.append(Gate(gate["counter"], address_from_avro(gate["to"]), gate["after"]))
        if stream.gates:
            state.gated.append(stream)
    state.beginning = {item["endpoint"]: begin_from_avro(item["begin"]) for item in base["beginning"]}
    pairs = identifiers(base["tombstones"])
    state.tombstones = dict(zip(pairs[::2], pairs[1::2], strict=True))
    restore_batches(state, base)
    far = restore_moves(state, base)
    return [*state.writers.values(), *far], list(state.terms.values()), list(state.streams.values())


def _restore_endpoints(
    state: Partition, value: dict[str, Any], writers: list[Writer], terms: list[Terms], streams: list[Stream]
) -> None:
    keys, at = value["keys"], 0
    lanes = zip(unpack("I", value["lane_writers"]), unpack("q", value["lane_lasts"]), strict=True)
    for place, conversation, opener, role, code, term, stream, size, received, consumed, sent, count in zip(
        unpack("Q", value["places"]), identifiers(value["conversations"]), identifiers(value["openers"]),
        map(_ROLES.__getitem__, value["roles"]), map(_STATES.__getitem__, value["states"]), unpack("I", value["terms"]),
        unpack("I", value["streams"]), unpack("i", value["key_sizes"]), unpack("Q", value["received"]),
        unpack("Q", value["consumed"]), unpack("q", value["sent"]), unpack("I", value["lanes"]), strict=True,
    ):  # fmt: skip
        endpoint = Endpoint(conversation, role, code, terms[term], streams[stream])
        endpoint.terms.uses += 1
        endpoint.index = place
        known = state.writers.get(opener)
        endpoint.opener = known.id if known is not None else opener
        if size != ABSENT:
            endpoint.key = keys[at : at + size]
            at += size
        endpoint.received, endpoint.consumed, endpoint.sent = received, consumed, sent
        for writer, last in reversed([*islice(lanes, count)]):
            lane = endpoint.lane = HeaderPrediction(b"", writers[writer], endpoint)
            lane.last = last
        state.table[place] = state.sides[role][conversation] = endpoint
    for item in value["finished"]:
        finished = state.table[item["place"]]
        assert finished is not None
        received = item["answer"]
        answer = None if received is None else tuple((one["writer"], one["counter"]) for one in received)
        finished.finished = Finished(item["own"], item["peer"], answer, tuple(item["askers"]))
    for item in value["clocks"]:
        expecting = state.table[item.pop("place")]
        assert expecting is not None
        state.clocks.set(expecting, Clock(**item))


def _restore_waiting(state: Partition, entries: list[dict[str, Any]]) -> None:
    for item in entries:
        endpoint = state.table[item["endpoint"]]
        assert endpoint is not None
        headers = [(header["name"], header["value"]) for header in item["headers"]]
        stamp: Stamp = (item["timestamp_ms"], headers) if headers else item["timestamp_ms"]
        if item["origin"] is not None:
            stamp = FarStamp(item["timestamp_ms"], headers, Origin(**item["origin"]))
        entry = (item["offset"], item["type"], item["body"], stamp)
        if item["overtakes"]:
            endpoint.urgent = (*endpoint.urgent, entry)
        elif endpoint.queue:
            endpoint.queue.append(entry)
        else:
            endpoint.queue = [entry]
        if not item["overtakes"]:
            state.unread += 1
            state.unread_bytes += len(item["body"] or b"")
