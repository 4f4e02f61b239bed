"""Through how many routers a conversation has come, said by its id.

Routers that forward to each other would hand a conversation around for ever, each time under another id. So a router
begins its dialogs under ids of version 8, which RFC 9562 leaves to whoever makes them: four bits count the routers, 110
are random. The count costs no byte in any record, and survives whatever the conversation survives.
"""

from __future__ import annotations

from typing import Final

from konverse.schemas.limits import ROUTER_HOPS_MAX

_VERSION_AT: Final = 6
_VERSION_8: Final = 0x80
_COUNT: Final = 0x0F
_MARK_AT: Final = 7
_MARK: Final = 0x5B
"""Of an id of version 8 that is a router's: others may make such ids too."""

assert ROUTER_HOPS_MAX <= _COUNT, "four bits hold the count"


def hops_of(conversation: bytes) -> int:
    """Through how many routers a conversation has come to whoever receives it; 0 for one that no router has begun."""
    if conversation[_VERSION_AT] & 0xF0 != _VERSION_8 or conversation[_MARK_AT] != _MARK:
        return 0
    return conversation[_VERSION_AT] & _COUNT


def with_hops(identifier: bytes, hops: int) -> bytes:
    """A random id (16 bytes) as that of a conversation behind so many routers, 1 to ROUTER_HOPS_MAX."""
    assert 0 < hops <= ROUTER_HOPS_MAX, f"{hops} routers cannot be counted"
    return identifier[:_VERSION_AT] + bytes((_VERSION_8 | hops, _MARK)) + identifier[_MARK_AT + 1 :]
