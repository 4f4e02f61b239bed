"""Random ids for conversations: UUIDs of version 4, made from random bytes that are read for many ids at a time."""

from __future__ import annotations

import os
from typing import Final

_AT_ONCE: Final = 256
_VERSION: Final = bytes(0x40 | byte & 0x0F for byte in range(256))
_VARIANT: Final = bytes(0x80 | byte & 0x3F for byte in range(256))
_ready: Final[list[bytes]] = []
"""Ids not used yet. A forked child drops them, because it must not use the same ids as its parent."""

os.register_at_fork(after_in_child=_ready.clear)


def random_id() -> bytes:
    """The 16 bytes of a fresh UUID."""
    try:
        return _ready.pop()  # atomic: no two threads get the same id
    except IndexError:
        drawn = os.urandom(16 * _AT_ONCE)
        ids = [_version_4(drawn[at : at + 16]) for at in range(0, len(drawn), 16)]
        _ready.extend(ids[1:])
        return ids[0]


def _version_4(drawn: bytes) -> bytes:
    return drawn[:6] + _VERSION[drawn[6] : drawn[6] + 1] + drawn[7:8] + _VARIANT[drawn[8] : drawn[8] + 1] + drawn[9:]
