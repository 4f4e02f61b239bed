"""Closing a pooled conversation: by its session, by its timer, and the home's part (behaviours 226 to 229)."""

from __future__ import annotations

from uuid import UUID

import pytest

from konverse.dialog.pool.recycling import (
    UNREADABLE,
    answer,
    ask_verdict,
    close_stream,
    is_pooled,
    left_behind,
    recycle,
    standing_of,
    stream_ended,
)
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import ConversationEnded, QueueFull
from konverse.schemas.identifiers import Role, conversation_in
from konverse.schemas.system_messages import END_DIALOG
from konverse.schemas.wire.records import BounceId
from tests.kit.builders import address_of, begin_block, identifier
from tests.kit.pooled import EOS, GROUP, Shop


@pytest.fixture
def shop() -> Shop:
    return Shop()


def types(endpoint: Endpoint) -> list[str]:
    return [entry[1] for entry in endpoint.queue]


def test_end_of_stream_and_fin_are_one_step(shop: Shop) -> None:
    dialog = shop.begin()
    shop.send(dialog, b"one")
    shop.arrive(recycle(shop.session, dialog, EOS))
    receiver = shop.pair.receiver(dialog.conversation)
    assert types(receiver) == ["order", EOS]
    assert receiver.finished is not None
    assert receiver.finished.peer
    with pytest.raises(ConversationEnded):
        shop.session.send(dialog, "order", b"behind")
    with pytest.raises(ConversationEnded):
        recycle(shop.session, dialog, EOS)


def test_a_conversation_on_which_nothing_was_sent_is_ended_and_its_target_learns_nothing(shop: Shop) -> None:
    used, unused = shop.begin(), shop.begin(2)
    shop.send(used, b"one")
    for dialog in (used, unused):
        shop.arrive(close_stream(shop.session, dialog, EOS))
        with pytest.raises(ConversationEnded):
            shop.session.send(dialog, "order", b"behind")
    assert types(shop.pair.receiver(used.conversation)) == ["order", EOS]
    assert shop.pair.target.state.endpoint(Role.TARGET, unused.conversation) is None


def test_a_beginning_conversation_is_recycled_after_its_waiting_messages(shop: Shop) -> None:
    conversation = conversation_in(GROUP, bytes(16))
    dialog, hands = shop.session.begin(conversation, begin_block(group=GROUP))
    shop.session.send(dialog, "order", b"one")
    assert recycle(shop.session, dialog, EOS) == []
    shop.arrive(hands)
    assert types(shop.pair.receiver(conversation)) == ["order", EOS]


def test_a_dialog_waiting_for_a_redirect_is_not_recycled_yet(shop: Shop) -> None:
    dialog = shop.begin()
    shop.session.redirect(dialog, BounceId(shop.session.writer, 7, address_of("elsewhere")))
    with pytest.raises(QueueFull, match="redirected"):
        recycle(shop.session, dialog, EOS)


def test_a_verdict_is_asked_for_once_and_not_where_nothing_was_sent(shop: Shop) -> None:
    dialog, silent = shop.begin(), shop.begin(2)
    shop.send(dialog, b"one")
    for one in (dialog, silent):
        shop.session.ended_by_peer(one.conversation)
    assert shop.arrive(ask_verdict(shop.session, dialog))
    assert ask_verdict(shop.session, dialog) == ask_verdict(shop.session, silent) == []
    shop.exchange()
    assert standing_of(shop.pair.home.state, shop.session, dialog).answered


def test_a_verdict_is_asked_for_where_all_that_was_sent_was_redirected(shop: Shop) -> None:
    """Otherwise a pool would wait long for a target that has ended messages redirected to it."""
    dialog = shop.begin()
    shop.session.redirect(dialog, BounceId(shop.session.writer, 7, address_of("elsewhere")))
    shop.session.ended_by_peer(dialog.conversation)
    assert ask_verdict(shop.session, dialog) == []  # before that has arrived
    dialog.held.clear()
    assert ask_verdict(shop.session, dialog) == []
    shop.session._redirecting.clear()
    assert dialog.redirects is not None
    dialog.redirects.opened = True
    shop.arrive(ask_verdict(shop.session, dialog))
    shop.exchange()
    assert standing_of(shop.pair.home.state, shop.session, dialog).answered


def test_a_message_sent_after_a_timer_has_no_verdict_before_its_own_fin_is_answered(shop: Shop) -> None:
    dialog = shop.begin()
    shop.send(dialog, b"one")
    shop.settle(shop.ring(dialog))
    shop.exchange()
    late = shop.session.send(dialog, "order", b"late")
    standing = standing_of(shop.pair.home.state, shop.session, dialog)
    assert (standing.finished, standing.answered) == (True, False)
    shop.arrive(late + ask_verdict(shop.session, dialog, EOS))
    shop.exchange()
    assert standing_of(shop.pair.home.state, shop.session, dialog).answered
    assert [one.body for one in shop.pair.home.state.mailbox.entries.values()] == [b"late", b""]
    assert types(shop.pair.receiver(dialog.conversation)) == ["order", EOS], "that of home"


def test_of_two_ends_of_the_stream_the_first_one_is_received(shop: Shop) -> None:
    """The session's own, when home's is late. Otherwise the target would never learn of the end."""
    dialog = shop.begin()
    shop.send(dialog, b"one")
    transaction = shop.ring(dialog)
    shop.arrive(ask_verdict(shop.session, dialog, EOS))
    shop.settle(transaction)
    shop.exchange()
    assert types(shop.pair.receiver(dialog.conversation)) == ["order", EOS]


def test_home_says_how_a_conversation_stands(shop: Shop) -> None:
    dialog = shop.begin()
    home = shop.pair.home.state
    assert standing_of(home, shop.session, dialog) == (False, False, False, False, None, False)
    shop.send(dialog, b"one")
    shop.pair.target.end(shop.pair.receiver(dialog.conversation), 4711, "no more")
    shop.exchange()
    assert standing_of(home, shop.session, dialog) == (False, True, False, False, 4711, True)
    shop.pair.home.end(shop.pair.initiator(dialog.conversation))
    assert standing_of(home, shop.session, dialog).over


def test_a_begin_that_home_has_not_heard_is_not_over(shop: Shop) -> None:
    dialog, _ = shop.session.begin(conversation_in(GROUP, bytes(16)), begin_block(group=GROUP))
    assert not standing_of(shop.pair.home.state, shop.session, dialog).over


def test_an_error_that_is_no_document_has_a_code_that_forbids_to_send_again(shop: Shop) -> None:
    dialog = shop.begin()
    endpoint = shop.pair.initiator(dialog.conversation)
    endpoint.urgent, endpoint.committed = ((0, "http://error", b"garbage", 0),), State.ERROR
    assert standing_of(shop.pair.home.state, shop.session, dialog).code == UNREADABLE


def test_replies_and_conversations_without_a_pool_are_left_to_the_application(shop: Shop) -> None:
    own = shop.pair.begin("an application's own")
    shop.pair.target.send(shop.pair.receiver(own), b"reply")
    shop.pair.target.end(shop.pair.receiver(own))
    shop.exchange()
    assert not is_pooled(shop.pair.initiator(own))
    transaction = shop.transaction()
    rest, farewells = answer(transaction, transaction, lambda _: False)
    assert [message.type for message in rest] == ["reply", END_DIALOG]
    assert farewells == []
    dialog = shop.begin()
    assert is_pooled(shop.pair.initiator(dialog.conversation))


@pytest.mark.parametrize(
    ("group", "conversation"),
    [
        (UUID(int=5), UUID(int=17)),
        (UUID("01932c07-209c-7a3f-8f1e-000000000001"), UUID("01932c07-209c-7a3f-8f1e-000000000002")),
    ],
)
def test_ids_of_an_application_that_begin_alike_are_no_pools(shop: Shop, group: UUID, conversation: UUID) -> None:
    """A counter, or two ids of version 7 of one millisecond."""
    dialog, hands = shop.session.begin(conversation.bytes, begin_block(group=group.bytes))
    shop.arrive(hands)
    assert not is_pooled(shop.pair.initiator(dialog.conversation))


def test_a_successor_finds_the_remains_of_a_group(shop: Shop) -> None:
    dialog, other = shop.begin(), shop.begin(2)
    for one in (dialog, other):
        shop.send(one, b"one")
    target = shop.pair.receiver(other.conversation)
    shop.pair.target.end(target, 4711, "no more")
    shop.exchange()
    shop.send(other, b"late")
    shop.exchange()
    left = left_behind(shop.pair.home.state, [GROUP])
    assert left.conversations == [dialog.conversation, other.conversation]
    assert left.writers == [shop.session.writer]
    assert left.codes == {other.conversation: 4711}
    assert left.services == dict.fromkeys(left.conversations, "store")
    assert left_behind(shop.pair.home.state, [identifier("another")]) == ([], [], {}, {})


def test_end_of_stream_without_fin_is_seen_at_the_target(shop: Shop) -> None:
    dialog = shop.begin()
    shop.send(dialog, b"one")
    state = shop.pair.target.state
    assert not stream_ended(state, dialog.conversation, EOS)
    shop.arrive(shop.session.send(dialog, EOS, b""))
    assert stream_ended(state, dialog.conversation, EOS)
    assert stream_ended(state, identifier("nobody"), EOS)
