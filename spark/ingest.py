"""Records of one partition, in log order, with what is known of each: the envelope, the verdict, the number."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, cast

import numpy as np
from confluent_kafka import Message
from numpy.typing import NDArray

from .acceptance import ACCEPTED, DUPLICATE, GAP, IS_SEQUENCED, Acceptance
from .frame import Frame, decode
from .headers import Headers, split


class Verdict(IntEnum):
    """What became of a record."""

    accepted = ACCEPTED
    duplicate = DUPLICATE
    gap = GAP
    malformed = 3
    foreign = 4
    """Without our header, or meant for another incarnation of the queue."""
    control = 5
    """Accepted, and of a kind that applications never see."""


class Rows(NamedTuple):
    """Consecutive records. Columns of `frame` mean nothing where the verdict is malformed or foreign."""

    messages: list[Message]
    offsets: NDArray[np.int64]
    headers: Headers
    frame: Frame
    verdict: NDArray[np.uint8]
    sequence: NDArray[np.int64]
    """-1 where a record has none."""
    decoded: NDArray[np.bool_]
    """Rows with an envelope that concerns this queue: those whose counter was judged."""


class Ingest:
    """One partition, from where the counters stand as `acceptance` says."""

    def __init__(self, acceptance: Acceptance, *, tag: bytes | None) -> None:
        self._tag = None if tag is None else np.frombuffer(tag, np.uint8)
        self._acceptance = acceptance

    def take(self, messages: list[Message]) -> Rows:
        """Judge the records that follow those of the last call."""
        offsets = np.fromiter(cast("Iterator[int]", map(Message.offset, messages)), np.int64, len(messages))
        headers = split(messages)
        frame = decode(headers.ours)
        verdict = self._concerned(headers, frame)
        decoded = verdict == ACCEPTED
        rows = _where(decoded)
        verdict[rows] = self._acceptance.judge(frame.tagged_writer[rows], frame.counter[rows])
        sequence = np.full(len(messages), -1, np.int64)
        taken = verdict == ACCEPTED
        in_sequence = taken & IS_SEQUENCED[frame.kind]
        verdict[taken & ~in_sequence] = Verdict.control
        rows = _where(in_sequence)
        sequence[rows] = self._acceptance.number(
            frame.conversation[rows], frame.role[rows], frame.kind[rows], frame.sequence[rows]
        )
        return Rows(messages, offsets, headers, frame, verdict, sequence, decoded)

    def _concerned(self, headers: Headers, frame: Frame) -> NDArray[np.uint8]:
        """ACCEPTED for every record whose counter is to be judged, else malformed or foreign."""
        verdict = np.where(frame.sound, np.uint8(ACCEPTED), np.uint8(Verdict.malformed))
        if headers.raw is not None:
            verdict[[header is None for header in headers.ours]] = Verdict.foreign
        if self._tag is not None:
            tags = frame.tagged_writer.view(np.uint8).reshape(len(verdict), -1)[:, : len(self._tag)]
            verdict[frame.sound & (tags != self._tag).any(axis=1)] = Verdict.foreign
        return verdict


def _where(mask: NDArray[np.bool_]) -> slice | NDArray[np.intp]:
    """The rows of a mask; all of them without copying."""
    return slice(None) if mask.all() else np.flatnonzero(mask)
