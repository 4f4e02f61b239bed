"""Messages that bounced from several conversations of a place are resent in their original order."""

from __future__ import annotations

from typing import Final

from konverse.dialog.pool.places import Pooled, PoolPlace
from konverse.dialog.pool.pool import in_order
from konverse.dialog.state.mailbox import Bounced
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.records import NO_SEQUENCE, Bounce, BounceReason

HOME: Final = Address("home", 0, b"tag.")
SESSION: Final = b"s" * 16
OWNER: Final = b"o" * 16


def conversations(*names: bytes) -> dict[bytes, Pooled | None]:
    """Living conversations of one place, oldest first."""
    place = PoolPlace(bytes(16))
    place.living = [Pooled(name, place, 0) for name in names]
    return {one.conversation: one for one in place.living}


def back(conversation: bytes, body: bytes, writer: bytes = SESSION) -> Bounced:
    """A message sent by its session, or by another writer for it."""
    bounce = Bounce(writer, 0, HOME, BounceReason.PEER_ENDED)
    return Bounced(SESSION, bounce, conversation, NO_SEQUENCE, "Order", body)


def bodies(found: list[Bounced]) -> list[bytes | None]:
    return [one.body for one in found]


def test_returned_messages_of_the_oldest_conversation_are_resent_first() -> None:
    senders = conversations(b"one", b"two") | {b"over": None}
    found = in_order([back(b"two", b"3"), back(b"one", b"2"), back(b"over", b"1"), back(b"two", b"4")], senders)
    assert bodies(found) == [b"1", b"2", b"3", b"4"]


def test_bounces_from_a_process_that_lost_the_pool_are_ordered_after_those_of_adopted_conversations() -> None:
    senders = conversations(b"adopted", b"ours") | {b"begun then": None, b"over": None}
    for name, adopted in ((b"adopted", True), (b"ours", False)):
        known = senders[name]
        assert known is not None
        known.adopted = adopted
    came_back = [back(b"over", b"1"), back(b"adopted", b"2"), back(b"begun then", b"4"), back(b"adopted", b"3")]
    found = in_order([*came_back, back(b"ours", b"5")], senders)
    assert bodies(found) == [b"1", b"2", b"3", b"4", b"5"]


def test_bounced_messages_resent_on_a_resumed_conversation_come_before_all_others() -> None:
    senders = conversations(b"one", b"two")
    two = senders[b"two"]
    assert two is not None
    two.resumed = True
    in_vain = back(b"one", b"3")
    given_back, returned = back(b"two", b"1", writer=b"two"), back(b"two", b"2", writer=OWNER)
    found = in_order([in_vain, given_back, returned, back(b"two", b"4")], senders)
    assert bodies(found) == [b"1", b"2", b"3", b"4"]


class Incomparable(Bounced):
    """Bounces are told apart by their position. Comparing each with each would take minutes for many."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared with another message")


def test_no_message_is_compared_with_another_one() -> None:
    senders = conversations(b"one", b"two")
    for pooled in senders.values():
        assert pooled is not None
        pooled.resumed = True
    came_back = [back(name, name + writer, writer) for writer in (OWNER, SESSION) for name in (b"one", b"two")]
    found = in_order([Incomparable(*one) for one in came_back], senders)
    assert bodies(found) == [b"two" + OWNER, b"one" + OWNER, b"one" + SESSION, b"two" + SESSION]
