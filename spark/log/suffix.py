"""The message type at the head of an envelope's suffix, with a check that the rest is as an encoder writes it.

`konverse.schemas.wire.envelope.decode_suffix` answers the same question and also builds the values, in 20 to 60 µs. It
caches its results, but a suffix with a BEGIN block or the detail of an END differs for every conversation, and Spark
reads conversations by the million. So this module walks the usual forms in 1 to 4 µs, and leaves anything that is not
plainly well-formed to the real decoder. A property test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.limits import KEY_BYTES_MAX, NAME_BYTES_MAX, SUFFIX_CACHE_ENTRIES_MAX
from konverse.schemas.wire.envelope import decode_suffix
from konverse.schemas.wire.records import (
    FOR_EVER,
    LEGAL_TOPIC,
    PARTITION_MAX,
    BounceReason,
    NoticeReason,
    checked_timeout,
)
from konverse.schemas.wire.varint import read_varint

_TOPIC: Final = re.compile(LEGAL_TOPIC.pattern.encode())

_types: dict[bytes, str | None] = {}


def message_type(suffix: bytes) -> str | None:
    """The message type; None when the bytes are not a suffix."""
    if suffix in _types:
        return _types[suffix]
    found = _read(suffix)
    if len(_types) >= SUFFIX_CACHE_ENTRIES_MAX:
        _types.clear()
    _types[suffix] = found
    return found


def _read(suffix: bytes) -> str | None:
    try:
        return walk(suffix)
    except (LookupError, ValueError):
        pass
    try:
        return decode_suffix(suffix).message_type
    except MalformedRecord:
        return None


def walk(suffix: bytes) -> str:
    """The message type of a suffix in canonical form; LookupError or ValueError for bytes that may not be one."""
    size, at = _length(suffix, 0)
    if size > NAME_BYTES_MAX:
        raise ValueError("not a name")
    name = suffix[at : at + size].decode()
    at = _nothing(suffix, at + size)  # fragments are rare
    at = _optional(_address, suffix, at)
    at = _optional(_begin, suffix, at)
    at = _optional(_identifier, suffix, at)
    at = _DETAILS[suffix[at]](suffix, at + 1)
    if at != len(suffix):
        raise ValueError("bytes after the end")
    return name


def _length(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80 and not byte & 1:
        return byte >> 1, at + 1
    size, behind = read_varint(data, at)
    if size < 0 or not data[behind - 1]:
        raise ValueError("a length that is negative or not in its shortest form")
    return size, behind


def _name(data: bytes, at: int) -> int:
    size, at = _length(data, at)
    if size > NAME_BYTES_MAX:
        raise ValueError("not a name")
    data[at : at + size].decode()
    return at + size


def _key(data: bytes, at: int) -> int:
    size, at = _length(data, at)
    if size > KEY_BYTES_MAX:
        raise ValueError("not a key")
    return at + size


def _number(data: bytes, at: int) -> int:
    _, behind = read_varint(data, at)
    if behind > at + 1 and not data[behind - 1]:
        raise ValueError("a number that is not in its shortest form")
    return behind


def _identifier(_data: bytes, at: int) -> int:
    return at + 16


def _address(data: bytes, at: int) -> int:
    size, at = _length(data, at)
    behind = at + size
    if not _TOPIC.fullmatch(data[at:behind]):
        raise ValueError("not a topic")
    partition, at = _length(data, behind)
    if partition > PARTITION_MAX:
        raise ValueError("not a partition")
    return at + 4


def _begin(data: bytes, at: int) -> int:
    at = _name(data, _name(data, _name(data, at)))
    at = _address(data, _address(data, at)) + 16
    at = _optional(_key, data, at)
    at = _optional(_name, data, at)
    behind = _number(data, at)
    lifetime_ms, _ = read_varint(data, at)
    if lifetime_ms != FOR_EVER:
        checked_timeout(lifetime_ms)
    return behind


def _end(data: bytes, at: int) -> int:
    at = _address(data, at + 16)
    count, at = _length(data, at)
    if count:
        for _ in range(count):
            at = _number(data, at + 16)
        at = _nothing(data, at)
    return at


def _bounce(data: bytes, at: int) -> int:
    return _reason(data, _address(data, _number(data, at + 16)), len(BounceReason))


def _notice(data: bytes, at: int) -> int:
    return _reason(data, _address(data, _number(data, at + 16)), len(NoticeReason))


def _writer_closed(data: bytes, at: int) -> int:
    return _optional(_identifier, data, _address(data, _number(data, at + 16)))


def _pending(data: bytes, at: int) -> int:
    at = _number(data, at + 16)
    if data[at] > 1:
        raise ValueError("not a boolean")
    return _address(data, at + 1) + 16


def _reason(data: bytes, at: int, count: int) -> int:
    if data[at] & 1 or data[at] >= 2 * count:
        raise ValueError("not a reason")
    return at + 1


def _optional(read: Callable[[bytes, int], int], data: bytes, at: int) -> int:
    branch = data[at]
    if branch == 0:
        return at + 1
    if branch == 2:
        return read(data, at + 1)
    raise ValueError("not a branch of the union")


def _nothing(data: bytes, at: int) -> int:
    if data[at]:
        raise ValueError("not empty")
    return at + 1


def _no_detail(_data: bytes, at: int) -> int:
    return at


_DETAILS: Final = {0: _no_detail, 2: _end, 4: _bounce, 6: _notice, 8: _writer_closed, 10: _pending}
"""Tag of the union's branch -> the function that walks it. Missing branches are rare, and left to the decoder."""
