"""The remains of a named pool in its home."""

from __future__ import annotations

from konverse.bridge.client.pool.takeover import _left_in
from konverse.dialog.state.mailbox import Bounced
from konverse.schemas.identifiers import conversation_in, mark_of, pool_group, pool_namespace
from konverse.schemas.wire.records import Bounce, BounceReason
from tests.kit.builders import Pair, address_of, identifier

GROUP = pool_group(pool_namespace("database", "pool"), "key")


def group_of(mark: bytes, key: bytes | None) -> bytes | None:
    """The group of a pool with one key."""
    return GROUP if mark == mark_of(GROUP) and key == b"customer" else None


def test_a_later_bounce_without_a_key_does_not_hide_the_key_of_an_earlier_bounce() -> None:
    home = Pair().home.state
    for number, key in enumerate([b"customer", None]):
        bounce = Bounce(identifier("dead"), number, address_of(), BounceReason.PEER_ENDED)
        conversation = conversation_in(GROUP, bytes(16))
        home.mailbox.keep(Bounced(identifier("dead"), bounce, conversation, number, "order", b"", key))
    keys, left, marks = _left_in(home, group_of)
    assert keys == {GROUP: b"customer"}
    assert left.writers == [identifier("dead")]
    assert set(marks) == {mark_of(GROUP)}


def test_bounces_with_a_key_of_another_pool_are_not_taken_over() -> None:
    home = Pair().home.state
    bounce = Bounce(identifier("dead"), 0, address_of(), BounceReason.PEER_ENDED)
    home.mailbox.keep(Bounced(identifier("dead"), bounce, conversation_in(GROUP, bytes(16)), 0, "order", b"", b"other"))
    keys, left, marks = _left_in(home, group_of)
    assert (keys, left.conversations, marks) == ({}, [], [mark_of(GROUP)])
