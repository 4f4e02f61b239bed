"""Decodes the headers of consecutive records column by column.

`decode` comes to the same result as `konverse.schemas.wire.envelope.decode`, in a tenth of the time: numpy slices the
fixed part and reads both numbers of all headers at once, Arrow finds the different suffixes, and only those are parsed.
A header with anything unusual in it goes to the envelope's own decoder, whose result is final.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import NO_WRITER, Role
from konverse.schemas.limits import HEADER_BYTES_MAX, WRITER_RECORDS_MAX
from konverse.schemas.wire import envelope
from konverse.schemas.wire.envelope import CONVERSATION_AT, PREFIX_BYTES, WRITER_AT
from konverse.schemas.wire.records import NO_SEQUENCE, Kind

from .suffix import message_type

TAG_AT: Final = 3
TAG_BYTES: Final = 4
TAGGED_WRITER_BYTES: Final = CONVERSATION_AT - TAG_AT
"""Incarnation tag and writer stand side by side: counters are kept per pair (protocol.md section 2)."""

_ROOM: Final = bytes(64)
"""Padding after the last header, so that a truncated header can be sliced without a check of its length."""

_NUMBER_BYTES_FAST: Final = 9
"""Longer numbers (above 63 bits) are left to the envelope's decoder."""


class Frame(NamedTuple):
    """Decoded headers. The other columns are undefined in a row that is not `sound`."""

    sound: NDArray[np.bool_]
    kind: NDArray[np.uint8]
    flags: NDArray[np.uint8]
    role: NDArray[np.uint8]
    tagged_writer: NDArray[np.void]
    """20 bytes: incarnation tag and writer."""
    conversation: NDArray[np.void]
    """16 bytes."""
    counter: NDArray[np.int64]
    sequence: NDArray[np.int64]
    message_type: pa.StringArray

    def part(self, rows: slice) -> Frame:
        """Some consecutive rows."""
        return Frame(
            self.sound[rows],
            self.kind[rows],
            self.flags[rows],
            self.role[rows],
            self.tagged_writer[rows],
            self.conversation[rows],
            self.counter[rows],
            self.sequence[rows],
            self.message_type[rows],
        )


def decode(headers: Sequence[bytes | None]) -> Frame:
    """The envelopes in `headers`; None stands for a record without one. Raises nothing, whatever the bytes are."""
    count = len(headers)
    _, borders, joined = pa.array([*headers, _ROOM], pa.binary()).buffers()
    blob = np.frombuffer(joined, np.uint8)
    places = np.frombuffer(borders, np.int32, count + 1).astype(np.int64)
    starts, ends = places[:-1], places[1:]
    lengths = ends - starts
    sound = (lengths > PREFIX_BYTES) & (lengths <= HEADER_BYTES_MAX)
    kind = blob[starts]
    role = blob[starts + 2]
    sound &= ((kind | role) & 1 == 0) & (kind < 2 * Kind.LATER) & (role < 2 * len(Role))
    counter, at, short = read_longs(blob, starts + PREFIX_BYTES)
    sound &= short
    sequence, at, short = read_longs(blob, at)
    sound &= short & (at <= ends)
    sound &= (
        (counter >= 0) & (counter < WRITER_RECORDS_MAX) & (sequence >= NO_SEQUENCE) & (sequence < WRITER_RECORDS_MAX)
    )
    types, typed = _message_types(joined, starts, np.where(sound, at, ends), ends)
    sound &= typed & ~_is_zero(blob, starts + WRITER_AT)
    closes = kind == 2 * Kind.CLOSE_WRITER
    sound[closes] &= ~_is_zero(blob, starts[closes] + CONVERSATION_AT)
    frame = Frame(
        sound,
        np.right_shift(kind, 1, dtype=np.uint8),
        blob[starts + 1],
        np.right_shift(role, 1, dtype=np.uint8),
        _slices(blob, starts + TAG_AT, TAGGED_WRITER_BYTES),
        _slices(blob, starts + CONVERSATION_AT, PREFIX_BYTES - CONVERSATION_AT),
        counter,
        sequence,
        types,
    )
    return frame if sound.all() else _second_opinion(frame, headers)


def read_longs(
    blob: NDArray[np.uint8], at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """The Avro longs at `at`, the places after them, and a mask of those that are short enough to be read here."""
    byte = blob[at]
    at = at + 1
    more = byte >= 0x80
    number = (byte & 0x7F).astype(np.int64)
    for shift in range(7, 7 * _NUMBER_BYTES_FAST, 7):
        if not more.any():
            break
        byte = np.where(more, blob[at], 0)
        at += more
        number |= (byte & 0x7F).astype(np.int64) << shift
        more = byte >= 0x80
    return (number >> 1) ^ -(number & 1), at, ~more


def _slices(blob: NDArray[np.uint8], at: NDArray[np.int64], width: int) -> NDArray[np.void]:
    """`width` bytes from every place in `at`."""
    places: NDArray[np.void] = np.ndarray((len(blob) - width + 1,), np.dtype(f"V{width}"), blob, strides=(1,))
    return places[at]


def _is_zero(blob: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """A mask of the ids at `at` that are zero: they name no writer."""
    halves: NDArray[np.uint64] = _slices(blob, at, len(NO_WRITER)).view(np.uint64)
    zero: NDArray[np.bool_] = (halves[::2] | halves[1::2]) == 0
    return zero


def _message_types(
    joined: pa.Buffer, starts: NDArray[np.int64], at: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[pa.StringArray, NDArray[np.bool_]]:
    """Message types from the suffixes `joined[at:ends]`, and a mask of the suffixes that are valid."""
    count = len(at)
    borders = np.empty(2 * count + 1, np.int32)
    borders[0:-1:2], borders[1::2], borders[-1] = starts, at, ends[-1] if count else 0
    buffers = [None, pa.py_buffer(borders), joined]
    pieces: pa.BinaryArray = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    suffixes: Any = pieces.take(pa.array(np.arange(1, 2 * count, 2))).dictionary_encode()
    names = [message_type(suffix) for suffix in suffixes.dictionary.to_pylist()]
    types: pa.StringArray = pa.array(names, pa.string()).take(suffixes.indices)
    typed = np.array([name is not None for name in names], np.bool_)
    codes = suffixes.indices.to_numpy()
    return types, np.ones(count, np.bool_) if typed.all() else typed[codes]


def _second_opinion(frame: Frame, headers: Sequence[bytes | None]) -> Frame:
    """Decode every row that is not sound with the envelope's own decoder."""
    types = None
    for row in np.flatnonzero(~frame.sound).tolist():
        header = headers[row]
        if header is None:
            continue
        try:
            found = envelope.decode(header)
        except MalformedRecord:
            continue
        types = types or frame.message_type.to_pylist()
        types[row] = found.suffix.message_type
        frame.sound[row] = True
        frame.flags[row] = found.flags
        frame.kind[row] = found.kind  # a kind of a later version is Kind.LATER
        frame.counter[row], frame.sequence[row] = found.counter, found.sequence
    return frame if types is None else frame._replace(message_type=pa.array(types, pa.string()))
