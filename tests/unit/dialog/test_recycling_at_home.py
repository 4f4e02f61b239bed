"""The home of a pooled conversation: its timer, and the end of its target (behaviours 226 to 229)."""

from __future__ import annotations

import pytest

from konverse.dialog.pool.recycling import Farewell, recycle
from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import NotInContract, UnknownObject, WrongDirection
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import POOL_PATIENCE_MS
from konverse.schemas.system_messages import DIALOG_TIMER, END_DIALOG
from konverse.schemas.wire.journal import EndOperation
from konverse.schemas.wire.operations import Finish, SetTimer
from konverse.schemas.wire.records import Timer
from tests.kit.pooled import EOS, Shop, answered


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_the_timer_says_end_of_stream_and_is_set_again(shop: Shop) -> None:
    dialog = shop.begin()
    shop.send(dialog, b"one")
    transaction = shop.ring(dialog)
    assert answered(transaction) == []
    index = shop.pair.initiator(dialog.conversation).index
    assert transaction.sends == [(index, EOS, [b""])]
    assert transaction.finishes == [Finish(index)]
    assert transaction.timers == [SetTimer(index, POOL_PATIENCE_MS)]


def test_the_timer_of_a_recycled_conversation_is_set_again_or_ends_it_if_its_target_received_nothing(
    shop: Shop,
) -> None:
    dialog = shop.begin()
    shop.send(dialog, b"one")
    shop.arrive(recycle(shop.session, dialog, EOS))
    shop.exchange()
    transaction = shop.ring(dialog)
    answered(transaction)
    assert not transaction.sends
    assert transaction.timers
    endpoint = shop.pair.initiator(dialog.conversation)
    assert endpoint.finished is not None
    endpoint.finished = endpoint.finished._replace(answer=())
    shop.pair.home.state.table[endpoint.index] = endpoint
    again = Transaction([(endpoint, [])], [], 0, transaction._shared).__enter__()
    endpoint.urgent = ((0, DIALOG_TIMER, None, 0),)
    answered(again)
    assert again.ends == [EndOperation(endpoint.index, 0, "")]


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("error", [NotInContract, WrongDirection, UnknownObject])
def test_a_timer_whose_type_cannot_be_sent_any_more_ends_it_unless_its_sender_keeps_it(
    shop: Shop, error: type[Exception], *, keeps: bool
) -> None:
    def rule(_contract: str, _role: Role, message_type: str) -> None:
        if message_type == EOS:
            raise error("not now")

    dialog = shop.begin()
    shop.rule = rule
    transaction = shop.ring(dialog)
    answered(transaction, keeps=keeps)
    assert not transaction.sends
    assert not transaction.finishes
    index = shop.pair.initiator(dialog.conversation).index
    assert [end.endpoint for end in transaction.ends] == ([] if keeps else [index])
    assert bool(transaction.timers) is keeps


def test_a_timer_without_a_known_end_of_stream_type_ends_its_conversation(shop: Shop) -> None:
    dialog = shop.begin()
    shop.arrive(shop.session.set_timer(dialog, Timer(1)))
    transaction = shop.ring(dialog)
    answered(transaction)
    assert transaction.ends
    assert not transaction.sends


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("error", [0, 4711])
def test_an_end_of_the_target_is_answered_unless_it_is_kept(shop: Shop, *, keeps: bool, error: int) -> None:
    dialog = shop.begin()
    shop.send(dialog, b"one")
    shop.arrive(shop.session.finish(dialog))
    shop.pair.target.end(shop.pair.receiver(dialog.conversation), error, "no more" if error else "")
    shop.exchange()
    transaction = shop.transaction()
    expected = Farewell(dialog.conversation, error, "no more" if error else "", (shop.session.writer,), keeps)
    assert answered(transaction, keeps=keeps) == [expected]
    assert bool(transaction.ends) is not keeps


def test_an_end_behind_which_something_may_come_back_is_left_to_a_sender_elsewhere_for_a_minute(shop: Shop) -> None:
    dialog = shop.begin()
    shop.send(dialog, b"one")
    shop.pair.target.end(shop.pair.receiver(dialog.conversation))
    shop.exchange()
    transaction = shop.transaction()
    answered(transaction)
    assert not transaction.ends
    assert transaction.timers == [SetTimer(shop.pair.initiator(dialog.conversation).index, POOL_PATIENCE_MS)]


def test_it_is_ended_when_that_is_over(shop: Shop) -> None:
    dialog = shop.begin()
    shop.send(dialog, b"one")
    shop.pair.target.end(shop.pair.receiver(dialog.conversation))
    shop.exchange()
    assert shop.pair.home.receive(shop.pair.initiator(dialog.conversation)) == [END_DIALOG]
    assert [end.code for end in shop_ends(shop, dialog)] == [0]


def shop_ends(shop: Shop, dialog: SessionDialog) -> list[EndOperation]:
    transaction = shop.ring(dialog)
    assert answered(transaction) == []
    return transaction.ends


def test_a_timer_and_an_error_at_once_end_it_once(shop: Shop) -> None:
    dialog = shop.begin()
    shop.send(dialog, b"one")
    shop.pair.target.end(shop.pair.receiver(dialog.conversation), 4711, "no more")
    shop.exchange()
    transaction = shop.ring(dialog)
    assert [one.code for one in answered(transaction)] == [4711]
    assert not transaction.ends, "the Error decides, and it is left to a sender elsewhere for a minute"
    assert len(transaction.timers) == 1


@pytest.mark.parametrize("keeps", [True, False])
def test_a_timer_leaves_it_to_the_end_that_waits(shop: Shop, *, keeps: bool) -> None:
    dialog = shop.begin()
    shop.send(dialog, b"one")
    shop.pair.target.end(shop.pair.receiver(dialog.conversation))
    shop.exchange()
    transaction = shop.ring(dialog)
    assert [one.kept for one in answered(transaction, keeps=keeps)] == [keeps]
    assert not transaction.ends
    assert bool(transaction.timers) is not keeps, "it is left for a minute to a sender who is elsewhere"


@pytest.mark.parametrize("keeps", [True, False])
def test_a_timer_ends_a_conversation_ended_by_its_target_unless_its_sender_keeps_it(shop: Shop, *, keeps: bool) -> None:
    """Messages that the sender waits for may come back later, and go before new ones."""
    dialog = shop.begin()
    shop.send(dialog, b"one")
    shop.pair.target.end(shop.pair.receiver(dialog.conversation))
    shop.exchange()
    assert shop.pair.home.receive(shop.pair.initiator(dialog.conversation)) == [END_DIALOG]
    transaction = shop.ring(dialog)
    answered(transaction, keeps=keeps)
    assert bool(transaction.ends) is not keeps
    index = shop.pair.initiator(dialog.conversation).index
    assert transaction.timers == ([SetTimer(index, POOL_PATIENCE_MS)] if keeps else [])
