"""Builders for tests of a pool's decisions and of bounced messages."""

from __future__ import annotations

from typing import Final

from konverse.dialog.pool.places import Pooled, Way
from konverse.dialog.pool.pool import PoolState
from konverse.dialog.state.mailbox import Bounced
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidRoute
from konverse.schemas.identifiers import Address, conversation_in
from konverse.schemas.wire.records import Bounce, BounceReason

AGE_MS: Final = 10_000
HOME: Final = Address("home", 0, b"tag.")
GROUP: Final = bytes(range(16))
OTHER_GROUP: Final = bytes(range(16, 32))


def new_pooling() -> PoolState:
    """A pool whose conversations are old after ten seconds. The body of a redirecting message names a service."""
    return PoolState(max_age_ms=AGE_MS, timer_ms=3 * AGE_MS, end_of_stream="EndOfStream", follow=follow)


def follow(way: Way, body: bytes) -> Way:
    """Extend the way by the service that the body names. InvalidRoute for a service that it contains already."""
    target = Target(body.decode())
    if target in way:
        raise InvalidRoute("in a circle")
    return (*way, target)


def begin(pooling: PoolState, group: bytes = GROUP, now_ms: int = 0, number: int = 0) -> Pooled:
    """Take a place of the group and begin a conversation there."""
    place, _ = pooling.place(group, now_ms)
    return pooling.begun(place, conversation_in(group, number.to_bytes(16, "big")), now_ms)


def came_back(conversation: bytes, number: int = 0, message_type: str = "Order") -> Bounced:
    """A bounced message of a conversation."""
    bounce = Bounce(bytes(16), number, HOME, BounceReason.ENDED)
    return Bounced(bytes(16), bounce, conversation, number, message_type, b"")
