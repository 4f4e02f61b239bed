"""Fast encoding and decoding of header endings that differ only in a few bytes from an earlier one.

The endings of BEGINs differ only in the group, those of ENDs only in the counter that was received. Each conversation
has one of both, and Avro takes ten times as long for them as a look-up. So all other bytes of these endings are
remembered. Any sixteen bytes are a valid group; the counter is checked when it is read. `tests/properties` compares
both directions with Avro.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from konverse.schemas.limits import SUFFIX_CACHE_ENTRIES_MAX, SUFFIX_SHAPE_ENTRIES_MAX

from .records import End, Suffix
from .varint import read_varint, varint

_IDENTIFIER_BYTES: Final = 16
_NUMBER_BYTES_MAX: Final = 5
"""Length up to which a counter is read here; a longer one takes the slow path."""

_NOBODY: Final = bytes(_IDENTIFIER_BYTES)

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(dict[Key, Value], Generic[Key, Value]):
    """A cache that empties itself when it is full."""

    def put(self, key: Key, value: Value) -> None:
        """Add an entry."""
        if len(self) >= SUFFIX_CACHE_ENTRIES_MAX:
            self.clear()
        self[key] = value


class Readings:
    """Decodes header endings that are like one that was read before."""

    def __init__(self) -> None:
        self._begins: Remembered[tuple[int, bytes], Suffix] = Remembered()
        """Position of the group and the bytes around it -> suffix."""
        self._shapes: Remembered[int, tuple[int, ...]] = Remembered()
        """Length of an ending -> positions where the group may be."""
        self._ends: Remembered[bytes, Suffix] = Remembered()
        """Bytes before the counter -> suffix."""

    def learn(self, data: bytes, suffix: Suffix) -> None:
        """Remember that `data`, which is canonical, decodes to `suffix`."""
        begin, detail = suffix.begin, suffix.detail
        if begin is not None:
            at = data.find(begin.group)
            shapes = self._shapes.get(len(data), ())
            if begin.key is not None or at != data.rfind(begin.group):
                return  # no other is like it, or the position of the group is ambiguous
            if at not in shapes:
                if len(shapes) >= SUFFIX_SHAPE_ENTRIES_MAX:
                    return
                self._shapes.put(len(data), (*shapes, at))
            self._begins.put((at, data[:at] + data[at + _IDENTIFIER_BYTES :]), suffix)
        elif isinstance(detail, End) and len(detail.received) == 1:
            self._ends.put(data[: -1 - len(varint(detail.received[0][1]))], suffix)

    def find(self, data: bytes) -> Suffix | None:
        """The suffix in `data`, if one like it was learned; else None."""
        for at in self._shapes.get(len(data), ()):
            behind = at + _IDENTIFIER_BYTES
            suffix = self._begins.get((at, data[:at] + data[behind:]))
            if suffix is not None:
                assert suffix.begin is not None
                return suffix._replace(begin=suffix.begin._replace(group=data[at:behind]))
        if data[-1:] == b"\0":
            for at in range(len(data) - 2, len(data) - 2 - _NUMBER_BYTES_MAX, -1):
                suffix = self._ends.get(data[:at])
                if suffix is not None:
                    return _received(suffix, data, at)
        return None


def _received(suffix: Suffix, data: bytes, at: int) -> Suffix | None:
    """The END whose counter is at `at`, just before the end of the list; None when there is no counter."""
    counter, end = read_varint(data, at)
    if end != len(data) - 1 or counter < 0 or data[at:end] != varint(counter):
        return None
    assert isinstance(suffix.detail, End)
    ((writer, _),) = suffix.detail.received
    return suffix._replace(detail=suffix.detail._replace(received=((writer, counter),)))


class Layings:
    """Encodes header endings that are like one that was encoded before."""

    def __init__(self, lay: Callable[[Suffix], bytes]) -> None:
        self._lay = lay
        self._begins: Remembered[Suffix, tuple[bytes, bytes]] = Remembered()
        """Suffix with an empty group -> bytes before the group and after it."""
        self._ends: Remembered[Suffix, bytes] = Remembered()
        """Suffix with the counter 0 -> bytes before the counter."""

    def lay(self, suffix: Suffix) -> bytes:
        """The bytes of `suffix`."""
        begin, detail = suffix.begin, suffix.detail
        if begin is not None and begin.key is None:
            like = suffix._replace(begin=begin._replace(group=_NOBODY))
            around = self._begins.get(like) or self._around(like)
            return around[0] + begin.group + around[1]
        if type(detail) is End and len(detail.received) == 1 and begin is None:
            ((writer, counter),) = detail.received
            like = suffix._replace(detail=detail._replace(received=((writer, 0),)))
            before = self._ends.get(like) or self._before(like)
            return before + varint(counter) + b"\0"
        return self._lay(suffix)

    def _around(self, like: Suffix) -> tuple[bytes, bytes]:
        """Find the bytes around the group: encode two groups that differ in every byte, and compare."""
        assert like.begin is not None
        one = self._lay(like)
        another = self._lay(like._replace(begin=like.begin._replace(group=b"\xff" * _IDENTIFIER_BYTES)))
        at = next(n for n, (a, b) in enumerate(zip(one, another, strict=True)) if a != b)
        around = one[:at], one[at + _IDENTIFIER_BYTES :]
        self._begins.put(like, around)
        return around

    def _before(self, like: Suffix) -> bytes:
        before = self._lay(like)[:-2]  # without the counter, and the end of the list
        self._ends.put(like, before)
        return before
