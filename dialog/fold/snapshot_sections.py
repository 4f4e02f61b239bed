"""Sections of a snapshot, apart from endpoints, messages and outputs (protocol.md section 7.5).

For each part of the state one function makes its Avro values (`…_of`) and another restores them (`restore_…`):

    base_of, pending_rows  batches of Spark: undecided rows, decisions, vetoes
    writers_of             writers, their holes and heirs, and answers about them
    moves_of               stubs of endpoints that moved away, and endpoints that moved here
    bounced_of             the mailbox
    levels_of              priorities
    cleaned_of             targets that were ended WITH CLEANUP
    leaving_of             groups that are about to move to another partition
    named_of               conversations whose id the caller chose
    pieces_of              the most recently ingested records

A section without entries is not written. So a state without entries has the same bytes, and hash, as in versions that
do not know the section.

The most recently ingested records are not state, and no hash covers them. They follow the state in a snapshot, because
the next owner needs them to tell a duplicate of an earlier record from a forgery (M276).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from konverse.dialog.rules.groups import set_level
from konverse.dialog.state.batches import Attempt, Judgement, PendingRow
from konverse.dialog.state.endpoint import Stamp
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.named import How, Key, Over
from konverse.dialog.state.partition import Cleaned, Partition
from konverse.dialog.state.recent import DIGEST_BYTES, WRITER, DigestedRecord, Recent
from konverse.dialog.state.relocations import Arrival, Stub
from konverse.dialog.state.writer import NO_HEIR, Hole, Writer
from konverse.schemas.identifiers import Role
from konverse.schemas.levels import DEFAULT_LEVEL
from konverse.schemas.limits import SNAPSHOT_PIECE_ENTRIES_MAX
from konverse.schemas.wire.columns import identifiers, pack, unpack
from konverse.schemas.wire.records import (
    Bounce,
    BounceReason,
    Notice,
    NoticeReason,
    WriterClosed,
    address_from_avro,
    address_to_avro,
)
from konverse.schemas.wire.snapshot import CLEANED, LEAVING, LEVELS, NAMED, RECENT, encode_section

ABSENT: Final = -1
"""Stands for a missing number: the close of an open writer, the size of a key that an endpoint lacks, the reason of an
answer that is not a Notice, the `How` of a side that lives."""
_ROLES: Final = {int(role): role for role in Role}
WRITER_BYTES = WRITER.stop - WRITER.start


def base_of(state: Partition) -> dict[str, Any]:
    """Fields of the Base section about batches. The rows have sections of their own."""
    pending = state.pending
    places = {track: at for at, track in enumerate(pending.decided)}
    return {
        "tracks": [
            {"query": query, "begins": begins, "judge_writer": judge_writer, "decided": decided}
            for (query, begins, judge_writer), decided in pending.decided.items()
        ],
        "attempts": [
            {"track": places[track], "batch": batch, "id": attempt, "judge": address_to_avro(judge)}
            for (track, batch, attempt), judge in ((key, pending.live.get(key)) for key in pending.attempts)
        ],
        "judgements": [
            {
                "query": query,
                "decided": judgement.decided,
                "by": judgement.by,
                "vetoed": [{"batch": batch, "id": attempt} for attempt, batch in judgement.vetoed.items()],
            }
            for query, judgement in state.judgements.items()
        ],
    }


def pending_rows(state: Partition) -> Iterator[dict[str, Any]]:
    """The undecided rows as of this call. The state may change before the iterator is consumed."""
    return _rows([rows.copy() for rows in state.pending.attempts.values()])


def _rows(attempts: list[dict[int, PendingRow]]) -> Iterator[dict[str, Any]]:
    for at, rows in enumerate(attempts):
        for number, row in ((number, row) for number, one in rows.items() for row in one.all):
            timestamp_ms, headers = (row.stamp, []) if isinstance(row.stamp, int) else row.stamp[:2]
            yield {
                "attempt": at,
                "number": number,
                "offset": row.offset,
                "flags": row.flags,
                "role": row.role,
                "conversation": row.conversation,
                "suffix": row.suffix,
                "body": row.body,
                "timestamp_ms": timestamp_ms,
                "headers": [{"name": name, "value": value} for name, value in headers],
            }


def restore_batches(state: Partition, base: dict[str, Any]) -> None:
    """Restore the batches of the Base section."""
    for item in base["tracks"]:
        state.pending.decided[item["query"], item["begins"], item["judge_writer"]] = item["decided"]
    for attempt in _attempts(base):
        state.pending.attempts[attempt] = {}
    for attempt, item in zip(_attempts(base), base["attempts"], strict=True):
        if item["judge"] is not None:
            state.pending.live[attempt] = address_from_avro(item["judge"])
    for item in base["judgements"]:
        judgement = state.judgements[item["query"]] = Judgement()
        judgement.decided, judgement.by = item["decided"], item["by"]
        judgement.vetoed = {attempt["id"]: attempt["batch"] for attempt in item["vetoed"]}


def _attempts(base: dict[str, Any]) -> list[Attempt]:
    tracks = [(item["query"], item["begins"], item["judge_writer"]) for item in base["tracks"]]
    return [(tracks[item["track"]], item["batch"], item["id"]) for item in base["attempts"]]


def restore_rows(state: Partition, rows: list[dict[str, Any]]) -> None:
    """Restore undecided rows of attempts that the Base section names."""
    attempts = [*state.pending.attempts]
    for item in rows:
        headers = [(header["name"], header["value"]) for header in item["headers"]]
        stamp: Stamp = (item["timestamp_ms"], headers) if headers else item["timestamp_ms"]
        row = PendingRow(
            item["offset"],
            item["flags"],
            Role(item["role"]),
            item["conversation"],
            item["suffix"],
            item["body"],
            stamp,
        )
        state.pending.put(attempts[item["attempt"]], item["number"], row)


def writers_of(state: Partition) -> dict[str, Any]:
    """Fields of the Base section about the partition's times, lost data and writers."""
    writers = state.writers.values()
    return {
        "now_ms": state.now_ms,
        "floor_ms": state.floor_ms,
        "lost_from": state.lost_from,
        "lost_to": state.lost_to,
        "writers": b"".join(state.writers),
        "next": pack("Q", [writer.next for writer in writers]),
        "closed_at": pack("q", [ABSENT if writer.closed_at is None else writer.closed_at for writer in writers]),
        "noted": pack("q", [writer.noted for writer in writers]),
        "noted_ms": pack("Q", [writer.noted_ms for writer in writers]),
        "heirs": [
            {"writer": place, "heir": writer.heir[0], "at": writer.heir[1]}
            for place, writer in enumerate(writers)
            if writer.heir is not None
        ],
        "holes": [
            {"writer": place, "start": hole.start, "end": hole.end, "told": hole.answered_to}
            for place, writer in enumerate(writers)
            for hole in writer.holes
        ],
        "noticed": [{"writer": writer, "of": of} for writer, of in state.noticed.items()],
        "answers": [_answer(said) for said in state.answers.values()],
    }


def _answer(said: Notice | WriterClosed) -> dict[str, Any]:
    value = {"writer": said.writer, "at": address_to_avro(said.at)}
    if isinstance(said, WriterClosed):
        return {**value, "code": ABSENT, "number": said.closed_at, "heir": said.heir}
    return {**value, "code": said.reason, "number": said.next, "heir": None}


def restore_writers(state: Partition, base: dict[str, Any]) -> None:
    """Restore the writers of an empty state."""
    state.now_ms = base["now_ms"]
    state.floor_ms = base["floor_ms"]
    state.lost_from, state.lost_to = base["lost_from"], base["lost_to"]
    numbers = zip(unpack("Q", base["next"]), unpack("q", base["closed_at"]), strict=True)
    notes = zip(unpack("q", base["noted"]), unpack("Q", base["noted_ms"]), strict=True)
    for identifier, (following, closed_at), (noted, noted_ms) in zip(
        identifiers(base["writers"]), numbers, notes, strict=True
    ):
        writer = state.writers[identifier] = Writer(identifier)
        writer.next = following
        writer.closed_at = None if closed_at == ABSENT else closed_at
        writer.noted, writer.noted_ms = noted, noted_ms
        writer.carry()
    known = list(state.writers.values())
    for item in base["heirs"]:
        heir = (item["heir"], item["at"])
        known[item["writer"]].heir = NO_HEIR if heir == NO_HEIR else heir
    for item in base["holes"]:
        writer = known[item["writer"]]
        writer.holes = (*writer.holes, Hole(item["start"], item["end"], item["told"]))
    state.noticed = {item["writer"]: item["of"] for item in base["noticed"]}
    for item in base["answers"]:
        at = address_from_avro(item["at"])
        if item["code"] == ABSENT:
            state.keep_answer(WriterClosed(item["writer"], item["number"], at, item["heir"]))
        else:
            state.keep_answer(Notice(item["writer"], item["number"], at, NoticeReason(item["code"])))


def moves_of(state: Partition) -> dict[str, Any]:
    """Fields of the Base section about relocation."""
    moves = state.moves
    return {
        "stubs": [
            {
                "role": role,
                "conversation": conversation,
                "generation": generation,
                "to": address_to_avro(stub.to),
                "previous": address_to_avro(stub.previous),
                "key": stub.key,
                "opened": stub.opened,
            }
            for (role, conversation), chain in moves.stubs.items()
            for generation, stub in chain.items()
        ],
        "arrivals": [
            {
                "endpoint": place,
                "generation": arrival.generation,
                "previous": address_to_avro(arrival.previous),
                "first": address_to_avro(arrival.first),
                "named": arrival.named,
            }
            for place, arrival in moves.arrivals.items()
        ],
        "far_writers": b"".join(far_writers(state)),
        "installing": [{"writer": writer, "pieces": pieces} for writer, pieces in moves.installing.items()],
    }


def far_writers(state: Partition) -> dict[bytes, int]:
    """Id -> place, for the writers of endpoints that moved here. Another partition counts their records."""
    far: dict[bytes, int] = {}
    for index in state.moves.arrivals:
        endpoint = state.table[index]
        assert endpoint is not None
        for lane in endpoint.lanes():
            far.setdefault(lane.writer.id, len(far))
    return far


def restore_moves(state: Partition, base: dict[str, Any]) -> list[Writer]:
    """Restore the moves of an empty state. Returns the writers that are counted in another partition."""
    moves = state.moves
    for item in base["stubs"]:
        previous = item["previous"] and address_from_avro(item["previous"])
        stub = Stub(address_from_avro(item["to"]), previous, item["key"], item["opened"])
        moves.leave((_ROLES[item["role"]], item["conversation"]), item["generation"], stub)
    for item in base["arrivals"]:
        moves.arrivals[item["endpoint"]] = Arrival(
            item["generation"],
            address_from_avro(item["previous"]),
            address_from_avro(item["first"]),
            item["named"],
        )
    moves.installing.update((item["writer"], item["pieces"]) for item in base["installing"])
    return [Writer(identifier) for identifier in identifiers(base["far_writers"])]


def bounced_of(bounced: Bounced) -> dict[str, Any]:
    """Avro value of a message in the mailbox."""
    writer, counter, at, reason = bounced.bounce
    return {
        "session": bounced.session,
        "writer": writer,
        "counter": counter,
        "at": address_to_avro(at),
        "reason": reason,
        "conversation": bounced.conversation,
        "sequence": bounced.sequence,
        "type": bounced.message_type,
        "body": bounced.body,
        "key": bounced.key,
    }


def restore_mailbox(state: Partition, entries: list[dict[str, Any]]) -> None:
    """Restore messages of the mailbox."""
    for item in entries:
        at = address_from_avro(item["at"])
        bounce = Bounce(item["writer"], item["counter"], at, BounceReason(item["reason"]))
        what = item["conversation"], item["sequence"], item["type"], item["body"], item["key"]
        state.mailbox.keep(Bounced(item["session"], bounce, *what))


def levels_of(levels: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """The Levels section for these (place, level) pairs; none when all have the default level."""
    known = {place: level for place, level in levels if level != DEFAULT_LEVEL}
    if known:
        yield encode_section(LEVELS, {"places": pack("Q", [*known]), "levels": bytes(known.values())})


def restore_levels(state: Partition, value: dict[str, Any]) -> None:
    """Restore the levels of endpoints."""
    for place, level in zip(unpack("Q", value["places"]), value["levels"], strict=True):
        endpoint = state.table[place]
        assert endpoint is not None
        set_level(state, endpoint, level)


def cleaned_of(state: Partition) -> tuple[str, dict[str, Any], str, list[dict[str, Any]]]:
    """Section of cleaned-up targets: its name, its other fields, the name of its entries, and the entries."""
    entries = [
        {"conversation": conversation, "home": address_to_avro(cleaned.home), "at_ms": cleaned.at_ms}
        for conversation, cleaned in state.cleaned.items()
    ]
    return CLEANED, {}, "entries", entries


def restore_cleaned(state: Partition, entries: list[dict[str, Any]]) -> None:
    """Restore targets that were ended WITH CLEANUP."""
    for item in entries:
        state.cleaned[item["conversation"]] = Cleaned(address_from_avro(item["home"]), item["at_ms"])


def leaving_of(state: Partition) -> tuple[str, dict[str, Any], str, list[dict[str, Any]]]:
    """Section of leaving groups: its name, its other fields, the name of its entries, and the entries."""
    entries = [{"group": group, "to": address_to_avro(to)} for group, to in state.moves.leaving.items()]
    return LEAVING, {}, "entries", entries


def restore_leaving(state: Partition, entries: list[dict[str, Any]]) -> None:
    """Restore groups that are about to move to another partition."""
    state.moves.leaving.update((item["group"], address_from_avro(item["to"])) for item in entries)


def named_of(state: Partition) -> tuple[str, dict[str, Any], str, list[dict[str, Any]]]:
    """Section of ids that callers chose: its name, its other fields, the name of its entries, and the entries."""

    def entry(key: Key, how: int, at_ms: int, *, shared: bool = False) -> dict[str, Any]:
        return {"role": key[0], "conversation": key[1], "how": how, "at_ms": at_ms, "shared": shared}

    entries = [entry(key, ABSENT, 0, shared=shared) for key, shared in state.named.living.items()]
    entries += [entry(key, int(over.how), over.at_ms) for key, over in state.named.over.items()]
    return NAMED, {}, "entries", entries


def restore_named(state: Partition, entries: list[dict[str, Any]]) -> None:
    """Restore conversations whose id the caller chose."""
    for item in entries:
        key = Role(item["role"]), item["conversation"]
        if item["how"] == ABSENT:
            state.named.living[key] = item["shared"]
        else:
            state.named.over[key] = Over(How(item["how"]), item["at_ms"])


def pieces_of(recent: Recent) -> Iterator[bytes]:
    """Sections with the most recently ingested records as of this call, even if the iterator is consumed later."""
    return _pieces(recent.known())


def _pieces(known: Iterator[DigestedRecord]) -> Iterator[bytes]:
    while chunk := list(islice(known, SNAPSHOT_PIECE_ENTRIES_MAX)):
        yield encode_section(RECENT, {
            "writers": b"".join(one.writer for one in chunk),
            "counters": pack("q", [one.counter for one in chunk]),
            "offsets": pack("q", [one.offset for one in chunk]),
            "digests": b"".join(one.digest for one in chunk),
        })  # fmt: skip


def restore_recent(recent: Recent, value: dict[str, Any]) -> None:
    """Restore knowledge of the records before the snapshot."""
    writers, digests = value["writers"], value["digests"]
    numbers = zip(unpack("q", value["counters"]), unpack("q", value["offsets"]), strict=True)
    for place, (counter, offset) in enumerate(numbers):
        writer = writers[place * WRITER_BYTES : (place + 1) * WRITER_BYTES]
        recent.recall(
            DigestedRecord(writer, counter, offset, digests[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES])
        )
