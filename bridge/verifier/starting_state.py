"""Sets the second fold to the state in a snapshot: where the logs were cut, or for `--since`.

The verifier trusts the snapshot and proves the records after it. A snapshot holds only the number of the messages that
were consumed before it: each of them is `PAST`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from konverse.bridge.verifier.fold.batches import WHOLE, restore_batches, restore_row
from konverse.bridge.verifier.fold.fold import SecondFold, as_said
from konverse.bridge.verifier.fold.holes import Missed
from konverse.bridge.verifier.fold.moved_state import SecondStub
from konverse.bridge.verifier.fold.state import (
    CODES,
    NOT_YET,
    PAST,
    AcceptedRecord,
    BouncedRecord,
    Output,
    SecondGate,
    Side,
    without,
)
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.groups import own_group
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import DIALOG_TIMER, END_DIALOG
from konverse.schemas.wire.columns import identifiers, unpack
from konverse.schemas.wire.envelope import decode as decode_envelope
from konverse.schemas.wire.records import (
    BounceId,
    BounceReason,
    Kind,
    Notice,
    NoticeReason,
    Origin,
    WriterClosed,
    address_from_avro,
)
from konverse.schemas.wire.snapshot import (
    BASE,
    CLEANED,
    ENDPOINTS,
    LEAVING,
    LEVELS,
    MAILBOX,
    NAMED,
    PENDING,
    RECENT,
    WAITING,
    Chunk,
    SnapshotEnd,
    decode,
    sections,
)
from konverse.schemas.wire.varint import varint

from .journal import JournalJudge
from .records import Key, LogRecord

UNKNOWN: Final = Output(-1, Kind.MESSAGE, 0, b"", -1, "", b"", None)
"""Stands for an output that was acknowledged before the snapshot."""


class StartingState(NamedTuple):
    """A whole snapshot: its END chunk, and its data with the right SHA-256."""

    end: SnapshotEnd
    data: bytes


def starts(records: Iterable[LogRecord], identity: tuple[bytes, bytes, bytes]) -> list[StartingState]:
    """The whole snapshots of the log with these ids, oldest state first. Malformed records are skipped."""
    chunks: dict[bytes, dict[int, bytes]] = {}
    ends: list[SnapshotEnd] = []
    for record in records:
        try:
            found = decode(record.body or b"")
        except MalformedRecord:
            continue
        if isinstance(found, Chunk):
            chunks.setdefault(found.snapshot, {})[found.number] = found.data
        elif (found.incarnation, found.data_topic_id, found.journal_topic_id) == identity:
            ends.append(found)
    whole = []
    for end in sorted(ends, key=lambda end: end.offset):
        pieces = chunks.get(end.snapshot, {})
        data = b"".join(pieces.get(number, b"") for number in range(end.chunks))
        if hashlib.sha256(data).digest() == end.sha256:
            whole.append(StartingState(end, data))
    return whole


def beginning(
    snapshots: Iterable[StartingState], journal_start: int, data_start: int, since_ms: int | None = None
) -> StartingState | None:
    """Choose the snapshot to begin at, for logs that begin at these offsets; None: begin with the logs.

    With `since_ms` it is the last snapshot from before that time. Otherwise one is needed only where the logs were cut:
    the oldest one after which no record is missing. Also None when the logs were cut and no snapshot can be used.
    """
    is_cut = journal_start > 0 or data_start > 0
    usable = [one for one in snapshots if one.end.offset + 1 >= journal_start and one.end.ingest_to >= data_start]
    early = [one for one in usable if since_ms is not None and one.end.now_ms <= since_ms]
    if early:
        return early[-1]
    return usable[0] if is_cut and usable else None


def resume(start: StartingState, judge: JournalJudge) -> None:
    """Set a journal judge to the offset of a snapshot."""
    end = start.end
    judge.epoch, judge.owner, judge.number, judge.link = end.epoch, end.owner, end.number, end.hash
    judge.claimed_at, judge.now_ms = end.claim_offset, end.now_ms


def begin_at(start: StartingState, fold: SecondFold, judge: JournalJudge) -> dict[bytes, int]:
    """Set a fold and its journal judge to a snapshot; return each writer's next counter."""
    end = start.end
    resume(start, judge)
    fold.clean = end.clean
    fold.journal_ms = end.now_ms
    parts = (part for part in sections(start.data) if part[0] != RECENT)  # digests, not state
    name, base = next(parts)
    assert name == BASE, "a state begins with its base"
    writers = _begin_base(fold, base)
    arrivals = {
        item["endpoint"]: (item["generation"], address_from_avro(item["previous"]), item["named"])
        for item in base["arrivals"]
    }
    streams = [address_from_avro(stream["to"]) for stream in base["streams"]]
    for name, value in parts:
        if name == ENDPOINTS:
            for side, consumed in _sides(value, writers, streams):
                _place(fold, side, consumed)
                if side.index in arrivals:
                    side.generation, side.previous, side.named = arrivals[side.index]
            for clock in value["clocks"]:
                _expect(fold, clock)
        elif name == LEVELS:
            for place, level in zip(unpack("Q", value["places"]), value["levels"], strict=True):
                for side in _known(fold, [place]):
                    side.level = level
        elif name == PENDING:
            for row in value["rows"]:
                restore_row(fold, base, row)
        elif name in _ENTRIES:
            for item in value["entries"]:
                _ENTRIES[name](fold, item)
        else:
            _say_again(fold, streams[value["stream"]], value["runs"])
    _begin_groups(fold, base)
    _begin_past(fold, base)
    for address, stream in zip(streams, base["streams"], strict=True):
        said = fold.outputs[address]
        for gate in stream["gates"]:
            fold.gates.append(SecondGate(address, gate["counter"], address_from_avro(gate["to"]), gate["after"]))
            said[gate["counter"] :] = [output._replace(order=NOT_YET) for output in said[gate["counter"] :]]
    return {writer: len(counters) for writer, counters in fold.accepted.items()}


def _begin_base(fold: SecondFold, base: dict[str, Any]) -> list[bytes]:
    fold.ingested_to = base["ingest_to"]
    fold.now_ms, fold.floor_ms = base["now_ms"], base["floor_ms"]
    _begin_losses(fold, base)
    writers = identifiers(base["writers"])
    for writer, count, since_ms in zip(writers, unpack("q", base["noted"]), unpack("Q", base["noted_ms"]), strict=True):
        if count >= 0:
            fold.seen[writer] = (count, since_ms)
    for item in base["heirs"]:
        fold.heirs[writers[item["writer"]]] = (item["heir"], item["at"])
    fold.told = {item["writer"]: item["of"] for item in base["noticed"]}
    for item in base["answers"]:
        place = (item["writer"], address_from_avro(item["at"]))
        if item["code"] < 0:
            fold.answers[place] = WriterClosed(*place[:1], item["number"], place[1], item["heir"])
        else:
            fold.answers[place] = Notice(*place[:1], item["number"], place[1], NoticeReason(item["code"]))
    for writer, following, closed_at in zip(
        writers, unpack("Q", base["next"]), unpack("q", base["closed_at"]), strict=True
    ):
        fold.accepted[writer] = [-1] * following
        if closed_at >= 0:
            fold.closed[writer] = closed_at
    fold.unused = unpack("Q", base["free"])
    for stream in base["streams"]:
        address = address_from_avro(stream["to"])
        fold.acknowledged[address] = stream["acked"]
        fold.outputs[address] = [UNKNOWN] * stream["acked"]
    pairs = identifiers(base["tombstones"])
    fold.tombstones = dict(zip(pairs[::2], pairs[1::2], strict=True))
    restore_batches(fold, base)
    for item in base["stubs"]:
        previous = item["previous"] and address_from_avro(item["previous"])
        chain = fold.moves.stubs.setdefault((item["role"], item["conversation"]), {})
        chain[item["generation"]] = SecondStub(address_from_avro(item["to"]), previous, item["opened"])
    for item in base["installing"]:
        fold.moves.installing[item["writer"]] = list(item["pieces"])
    return [*writers, *identifiers(base["far_writers"])]


def _begin_losses(fold: SecondFold, base: dict[str, Any]) -> None:
    losses, writers = fold.losses, identifiers(base["writers"])
    losses.count, losses.hole = int(base["lost_to"] > 0), (base["lost_from"], base["lost_to"])
    losses.unsaid = 0 if losses.count else len(base["holes"])
    for item in base["holes"]:
        told = item["told"]
        unanswered = None if told < 0 else [*range(told, item["end"])]
        missed = Missed([*range(item["start"], item["end"])], unanswered)
        losses.missed.setdefault(writers[item["writer"]], []).append(missed)


def _known(fold: SecondFold, indices: Iterable[int]) -> Iterator[Side]:
    """The sides with these indices; an index that no side has is a contradiction in the snapshot."""
    for index in indices:
        side = fold.table.get(index)
        if side is None:
            fold.problem(f"I3: the snapshot names endpoint {index}, which does not exist")
        else:
            yield side


def _begin_groups(fold: SecondFold, base: dict[str, Any]) -> None:
    for group in base["groups"]:
        for side in _known(fold, unpack("Q", group["members"])):
            side.group = group["id"]
    for side in fold.living.values():
        fold.join(side)


def _begin_past(fold: SecondFold, base: dict[str, Any]) -> None:
    past = fold.past
    for item in base["troubled"]:
        for side in _known(fold, [item["endpoint"]]):
            if item["attempts"]:
                past.failures[side.key] = item["attempts"]
            if item["suspended"]:
                past.suspended[side.key] = item["reason"]
    past.handed = [side.key for side in _known(fold, unpack("Q", base["trying"]))]
    cases: dict[int, list[Key]] = {}
    for index, death in zip(unpack("Q", base["suspects"]), unpack("Q", base["deaths"]), strict=True):
        cases.setdefault(death, []).extend(side.key for side in _known(fold, [index]))
    past.accused = without([*cases.values()], [])
    past.wary = base["careful"]


def _sides(value: dict[str, Any], writers: list[bytes], streams: list[Any]) -> Iterator[tuple[Side, int]]:
    """The endpoints of a section, each with the number of its messages that were consumed."""
    lanes = zip(unpack("I", value["lane_writers"]), unpack("q", value["lane_lasts"]), strict=True)
    finished = {item["place"]: item for item in value["finished"]}
    for place, conversation, opener, role, code, stream, received, consumed, sent, count in zip(
        unpack("Q", value["places"]), identifiers(value["conversations"]), identifiers(value["openers"]),
        value["roles"], value["states"], unpack("I", value["streams"]), unpack("Q", value["received"]),
        unpack("Q", value["consumed"]), unpack("q", value["sent"]), unpack("I", value["lanes"]), strict=True,
    ):  # fmt: skip
        group = own_group(Role(role), conversation)
        side = Side((role, conversation), place, opener, streams[stream], sent, group=group, taken_back=None)
        state = CODES[code]
        side.talked = state != "SO"
        side.ended, side.peer_ended, side.peer_failed = state == "DO", state == "DI", state == "ER"
        side.voices = {writers[writer]: last for writer, last in reversed([*islice(lanes, count)])}
        side.speakers = set(side.voices)
        side.heard = [PAST] * received
        known = finished.get(place)
        if known is not None:
            received_far = known["answer"]
            side.finished, side.peer_finished, side.askers = known["own"], known["peer"], known["askers"]
            if received_far is not None:
                side.answer = tuple((one["writer"], one["counter"]) for one in received_far)
        yield side, consumed


def _place(fold: SecondFold, side: Side, consumed: int) -> None:
    side.consumed = [(-1, PAST)] * consumed
    if side.ended:
        side.thrown_away = side.heard[consumed:]
    else:
        del side.heard[consumed:]  # the section WAITING brings them
    if side.peer_failed:  # the snapshot does not say whether this partition or the peer raised the Error
        fold.given_up.add(side.key[1])
    fold.sides.append(side)
    fold.living[side.key] = fold.table[side.index] = side


def _wait(fold: SecondFold, entry: dict[str, Any]) -> None:
    side = next(_known(fold, [entry["endpoint"]]), None)
    if side is None:
        return
    kind = Kind.ERROR if entry["overtakes"] else Kind.END if entry["type"] == END_DIALOG else Kind.MESSAGE
    body, origin = fold.brief(entry["body"] or b""), entry["origin"] and Origin(**entry["origin"])
    heard = AcceptedRecord(entry["offset"], entry["type"], body, b"", -1, kind, entry["timestamp_ms"], origin)
    if entry["type"] == DIALOG_TIMER and entry["overtakes"]:
        side.rang = heard._replace(kind=Kind.SET_TIMER)
    elif entry["overtakes"]:
        side.error = heard
    else:
        side.heard.append(heard)


def _expect(fold: SecondFold, clock: dict[str, Any]) -> None:
    """Restore timer and lifetime. One set by the last COMMIT is a duration, counted from that COMMIT's time."""
    side = fold.table[clock["place"]]
    times = [
        fold.journal_ms + clock[f"{name}_after_ms"] if clock[f"{name}_after_ms"] >= 0 else clock[f"{name}_ms"]
        for name in ("timer", "expires")
    ]
    side.timer_ms, side.expires_ms = (None if time_ms < 0 else time_ms for time_ms in times)
    side.end_of_stream = clock["end_of_stream"]
    fold.times.expecting[side.key] = None


def _keep(fold: SecondFold, item: dict[str, Any]) -> None:
    body = item["body"] or b""
    letter = BouncedRecord(
        item["session"],
        item["conversation"],
        item["sequence"],
        BounceReason(item["reason"]),
        item["type"],
        fold.brief(body),
        len(body),
    )
    fold.mailbox[BounceId(item["writer"], item["counter"], address_from_avro(item["at"]))] = letter
    fold.mailbox_bytes += len(body)


def _say_again(fold: SecondFold, address: Any, runs: list[dict[str, Any]]) -> None:
    said = fold.outputs[address]
    for run in runs:
        for at, body in enumerate(run["bodies"]):
            sequence = run["sequence"] if run["sequence"] < 0 else run["sequence"] + at
            header = run["prefix"] + varint(len(said)) + varint(sequence) + run["suffix"]
            envelope = decode_envelope(header)
            if envelope.kind is Kind.VOID:
                fold.cleanups.taken_back[address, len(said)] = None
            told = (body or b"") if envelope.kind in WHOLE else fold.brief(body or b"")
            said.append(as_said(envelope, told, -1))


def _clean(fold: SecondFold, item: dict[str, Any]) -> None:
    fold.cleanups.cleaned[item["conversation"]] = address_from_avro(item["home"]), item["at_ms"]


def _name(fold: SecondFold, item: dict[str, Any]) -> None:
    key = item["role"], item["conversation"]
    if item["how"] < 0:
        fold.named.living[key] = item["shared"]
    else:
        fold.named.over[key] = item["how"], item["at_ms"]


def _leave(fold: SecondFold, item: dict[str, Any]) -> None:
    fold.moves.leaving[item["group"]] = address_from_avro(item["to"])


_ENTRIES: Final[dict[str, Callable[[SecondFold, dict[str, Any]], None]]] = {
    WAITING: _wait,
    MAILBOX: _keep,
    CLEANED: _clean,
    NAMED: _name,
    LEAVING: _leave,
}
"""Section -> function that restores one entry of it."""
