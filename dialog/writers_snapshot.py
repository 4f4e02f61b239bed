"""What a partition remembers of writers, as the parts of a snapshot, and back."""

from __future__ import annotations

from typing import Any, Final

from konverse.schemas.columns import identifiers, pack, unpack
from konverse.schemas.records import Notice, NoticeReason, WriterClosed, address_from_avro, address_to_avro

from .endpoint import NOBODY, Hole, Writer
from .partition import Partition

OPEN: Final = -1
CLOSED: Final = -1
"""In place of a notice's reason."""


def writers_of(state: Partition) -> dict[str, Any]:
    """Fields of the base."""
    writers = state.writers.values()
    return {
        "now_ms": state.now_ms,
        "floor_ms": state.floor_ms,
        "lost_from": state.lost_from,
        "lost_to": state.lost_to,
        "writers": b"".join(state.writers),
        "next": pack("Q", [writer.next for writer in writers]),
        "closed_at": pack("q", [OPEN if writer.closed_at is None else writer.closed_at for writer in writers]),
        "noted": pack("q", [writer.noted for writer in writers]),
        "noted_ms": pack("Q", [writer.noted_ms for writer in writers]),
        "heirs": [
            {"writer": place, "heir": writer.heir[0], "at": writer.heir[1]}
            for place, writer in enumerate(writers)
            if writer.heir is not None
        ],
        "holes": [
            {"writer": place, "start": hole.start, "end": hole.end, "told": hole.told}
            for place, writer in enumerate(writers)
            for hole in writer.holes
        ],
        "noticed": [{"writer": writer, "of": of} for writer, of in state.noticed.items()],
        "answers": [_answer(said) for said in state.answers.values()],
    }


def _answer(said: Notice | WriterClosed) -> dict[str, Any]:
    value = {"writer": said.writer, "at": address_to_avro(said.at)}
    if isinstance(said, WriterClosed):
        return {**value, "code": CLOSED, "number": said.closed_at, "heir": said.heir}
    return {**value, "code": said.reason, "number": said.next, "heir": None}


def restore_writers(state: Partition, base: dict[str, Any]) -> None:
    """Make the writers of an empty state those that were frozen."""
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
        writer.closed_at = None if closed_at == OPEN else closed_at
        writer.noted, writer.noted_ms = noted, noted_ms
        writer.carry()
    known = list(state.writers.values())
    for item in base["heirs"]:
        heir = (item["heir"], item["at"])
        known[item["writer"]].heir = NOBODY if heir == NOBODY else heir
    for item in base["holes"]:
        writer = known[item["writer"]]
        writer.holes = (*writer.holes, Hole(item["start"], item["end"], item["told"]))
    state.noticed = {item["writer"]: item["of"] for item in base["noticed"]}
    for item in base["answers"]:
        at = address_from_avro(item["at"])
        if item["code"] == CLOSED:
            state.keep_answer(WriterClosed(item["writer"], item["number"], at, item["heir"]))
        else:
            state.keep_answer(Notice(item["writer"], item["number"], at, NoticeReason(item["code"])))
