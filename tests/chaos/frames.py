"""Parses Kafka's requests: enough of the header to name them, and the topics and records of a Produce.

A frame is a size (4 bytes) and a request or response. Sources: kafka.apache.org/protocol, the message definitions
ProduceRequest.json and RequestHeader.json of Kafka 4.3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from konverse.schemas.errors import MalformedRecord

PRODUCE: Final = 0

SIZE_BYTES: Final = 4
_HEADER: Final = struct.Struct(">hhih")
_FLEXIBLE_PRODUCE: Final = 9
_PRODUCE_BY_ID: Final = 13


class Request(NamedTuple):
    """A request of a client."""

    api_key: int
    version: int
    correlation: int
    """The response has the same number."""
    data: bytes
    """The whole request, without its size."""


class Produced(NamedTuple):
    """The records of a Produce for one partition."""

    topic: str
    partition: int
    records: bytes
    """The batch, as Kafka stores it."""


def request_of(data: bytes) -> Request:
    """Parse the header of a request. `MalformedRecord` when the data is too short."""
    if len(data) < _HEADER.size:
        raise MalformedRecord(f"{len(data)} bytes are no request of Kafka")
    api_key, version, correlation, _ = _HEADER.unpack_from(data)
    return Request(api_key, version, correlation, data)


def correlation_of(data: bytes) -> int:
    """The number of the request that a response answers."""
    return int.from_bytes(data[:4], "big", signed=True)


def produced(request: Request) -> Iterator[Produced]:
    """Records of a Produce, partition by partition; nothing for other requests.

    Raises `MalformedRecord` for a truncated request, or a version that names topics by id.
    """
    if request.api_key != PRODUCE:
        return
    if request.version >= _PRODUCE_BY_ID:
        raise MalformedRecord(f"a Produce of version {request.version} does not name its topics")
    flexible = request.version >= _FLEXIBLE_PRODUCE
    fields = _Fields(request.data, flexible=flexible)
    fields.skip(8)
    fields.plain_text()  # the client id has the old encoding in every version
    fields.tags()
    fields.text()  # transactional id
    fields.skip(6)  # acks, time-out
    for _ in range(fields.count()):
        topic = fields.text()
        for _ in range(fields.count()):
            partition = fields.number(4)
            records = fields.data()
            fields.tags()
            yield Produced(topic, partition, records)
        fields.tags()


class _Fields:
    """Reads Kafka's primitive types one after the other."""

    def __init__(self, data: bytes, *, flexible: bool) -> None:
        self._data = data
        self._flexible = flexible
        self._at = 0

    def skip(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) != size:
            raise MalformedRecord(f"the request ends at {len(self._data)}, {size} bytes are missing at {self._at}")
        self._at += size
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.skip(size), "big", signed=True)

    def plain_text(self) -> str:
        return self.skip(max(0, self.number(2))).decode("utf-8", "replace")

    def text(self) -> str:
        return self.skip(self._length()).decode("utf-8", "replace") if self._flexible else self.plain_text()

    def data(self) -> bytes:
        return self.skip(self._length() if self._flexible else max(0, self.number(4)))

    def count(self) -> int:
        return self._varint() - 1 if self._flexible else self.number(4)

    def tags(self) -> None:
        for _ in range(self._varint() if self._flexible else 0):
            self._varint()
            self.skip(self._varint())

    def _length(self) -> int:
        return max(0, self._varint() - 1)  # 0 stands for null

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.skip(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
