"""Ends of envelopes that differ from one that was read or laid in full in a few bytes only.

A BEGIN differs from the next one in its group, an END in how far its side had received. Both come once for each
conversation, and Avro takes ten times as long for them as for looking up what repeats. So the rest of them is
remembered: sixteen bytes of a fixed size can be any sixteen bytes, and a number is checked where it stands.
`tests/properties` holds both ways against Avro.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from konverse.schemas.limits import SUFFIX_CACHE_ENTRIES_MAX, SUFFIX_SHAPE_ENTRIES_MAX

from .records import End, Suffix
from .varint import read_varint, varint

_IDENTIFIER_BYTES: Final = 16
_NUMBER_BYTES_MAX: Final = 5
"""A counter of more bytes is read the long way."""

_NOBODY: Final = bytes(_IDENTIFIER_BYTES)

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(dict[Key, Value], Generic[Key, Value]):
    """What was seen; it forgets everything when it is full."""

    def put(self, key: Key, value: Value) -> None:
        """One more."""
        if len(self) >= SUFFIX_CACHE_ENTRIES_MAX:
            self.clear()
        self[key] = value


class Readings:
    """Ends of envelopes that were read, and those that are like them."""

    def __init__(self) -> None:
        self._begins: Remembered[tuple[int, bytes], Suffix] = Remembered()
        """Where the group stands, and everything around it."""
        self._shapes: Remembered[int, tuple[int, ...]] = Remembered()
        """Where it may stand in one of so many bytes."""
        self._ends: Remembered[bytes, Suffix] = Remembered()
        """Everything before the counter."""

    def learn(self, data: bytes, suffix: Suffix) -> None:
        """`data` is canonical, and means `suffix`."""
        begin, detail = suffix.begin, suffix.detail
        if begin is not None:
            at = data.find(begin.group)
            shapes = self._shapes.get(len(data), ())
            if begin.key is not None or at != data.rfind(begin.group):
                return  # no other is like it, or nobody knows which of them is the group
            if at not in shapes:
                if len(shapes) >= SUFFIX_SHAPE_ENTRIES_MAX:
                    return
                self._shapes.put(len(data), (*shapes, at))
            self._begins.put((at, data[:at] + data[at + _IDENTIFIER_BYTES :]), suffix)
        elif isinstance(detail, End) and len(detail.received) == 1:
            self._ends.put(data[: -1 - len(varint(detail.received[0][1]))], suffix)

    def find(self, data: bytes) -> Suffix | None:
        """What `data` means when one like it was learnt."""
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
    """The END with the counter at `at`, the last thing before the end of the list; None when that is no counter."""
    counter, end = read_varint(data, at)
    if end != len(data) - 1 or counter < 0 or data[at:end] != varint(counter):
        return None
    assert isinstance(suffix.detail, End)
    ((writer, _),) = suffix.detail.received
    return suffix._replace(detail=suffix.detail._replace(received=((writer, counter),)))


class Layings:
    """Ends of envelopes that were laid, and those that are like them."""

    def __init__(self, lay: Callable[[Suffix], bytes]) -> None:
        self._lay = lay
        self._begins: Remembered[Suffix, tuple[bytes, bytes]] = Remembered()
        """What stands before the group and behind it, by a suffix that has none."""
        self._ends: Remembered[Suffix, bytes] = Remembered()
        """What stands before the counter, by a suffix whose counter is 0."""

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
        """Where the two groups differ in which nothing is the same."""
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
