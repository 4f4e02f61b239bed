"""Kafka headers of consecutive records: konverse's header, separated from the users' headers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from konverse.schemas.wire.envelope import HEADER

HEADERS_TYPE: Final = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
"""The type that Spark's own Kafka source gives to headers."""

KafkaHeaders = list[tuple[str, bytes | None]] | None


_headers: Final = cast("Callable[[Message], Any]", Message.headers)
"""Returns KafkaHeaders for a record that was read."""


class Headers(NamedTuple):
    """Headers of consecutive records."""

    ours: list[bytes | None]
    """The envelope of each record; None where a record carries none."""
    raw: list[KafkaHeaders] | None
    """All headers of each record; None when no record has another header than ours."""

    def part(self, rows: slice) -> Headers:
        """The headers of some consecutive records."""
        return Headers(self.ours[rows], None if self.raw is None else self.raw[rows])

    def others(self) -> pa.ListArray:
        """The users' headers, in their order."""
        rows = [[pair for pair in headers or () if pair[0] != HEADER] for headers in self.raw or ()]
        borders = np.zeros(len(self.ours) + 1, np.int32)
        if rows:
            np.cumsum(list(map(len, rows)), out=borders[1:])
        pairs = list(chain.from_iterable(rows))
        keys = pa.array([key for key, _ in pairs], pa.string())
        values = pa.array([value for _, value in pairs], pa.binary())
        structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
        return pa.ListArray.from_arrays(pa.array(borders), structs, type=HEADERS_TYPE)


def split(messages: list[Message]) -> Headers:
    """The headers of records. Fast in the usual case, in which each record has our header and no other."""
    try:
        ours = [
            found[0][1]
            for found in map(_headers, messages)
            if len(found) == 1 and found[0][0] == HEADER and found[0][1]
        ]
    except TypeError:  # a record without headers has None, which has no length
        ours = []
    if len(ours) == len(messages):
        return Headers(ours, None)
    raw = list(map(_headers, messages))
    return Headers([_ours(headers) for headers in raw], raw)


def _ours(headers: KafkaHeaders) -> bytes | None:
    """The first header of our name, as an owner takes it (M11); None when it is null or missing."""
    for name, value in headers or ():
        if name == HEADER:
            return value
    return None
