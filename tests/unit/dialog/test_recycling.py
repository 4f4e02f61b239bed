"""How a pooled conversation is closed: by its session, by its timer, and what its home says (behaviours 226 to 229)."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import pytest

from konverse.dialog.endpoint import Endpoint
from konverse.dialog.lane import SessionDialog
from konverse.dialog.received import Rule
from konverse.dialog.recycling import (
    UNREADABLE,
    Farewell,
    answer,
    ask_verdict,
    is_pooled,
    left_behind,
    recycle,
    standing_of,
    stream_ended,
)
from konverse.dialog.session import Session
from konverse.dialog.staging import OwnerSettings, Staging
from konverse.dialog.states import State
from konverse.dialog.transaction import Transaction
from konverse.dialog.writing import Hand
from konverse.schemas.catalog import DIALOG_TIMER, END_DIALOG
from konverse.schemas.errors import ConversationEnded, NotInContract, QueueFull, UnknownObject, WrongDirection
from konverse.schemas.identifiers import conversation_in, pool_group, pool_namespace, session_writer
from konverse.schemas.journal import EndOperation
from konverse.schemas.limits import POOL_PATIENCE_MS
from konverse.schemas.operations import Finish, SetTimer
from konverse.schemas.records import BounceId, Role, Timer
from tests.kit.builders import Pair, address_of, anything, begin_block, identifier, record

EOS: Final = "EndOfStream"
GROUP: Final = pool_group(pool_namespace("database", "pool"), "key")
NOW_MS: Final = 1_800_000_000_000
TIMER_MS: Final = 3_600_000


class Shop:
    """A session with a pooled conversation, and the two partitions."""

    def __init__(self) -> None:
        self.pair = Pair()
        for side in (self.pair.home, self.pair.target):
            side.state.now_ms = NOW_MS
        self.session = Session(session_writer(NOW_MS, 1))
        self.rule: Rule = anything

    def begin(self, number: int = 1) -> SessionDialog:
        conversation = conversation_in(GROUP, bytes(15) + bytes((number,)))
        dialog, hands = self.session.begin(conversation, begin_block(group=GROUP), returning=True)
        self.arrive(hands)
        self.arrive(self.session.set_timer(dialog, Timer(TIMER_MS, EOS)))
        return dialog

    def send(self, dialog: SessionDialog, body: bytes) -> None:
        self.arrive(self.session.send(dialog, "order", body))

    def arrive(self, hands: list[Hand]) -> list[bytes]:
        """All of it arrives and counts; the kinds of the records."""
        kinds: list[bytes] = []
        while hands:
            for hand in hands:
                side = self.pair.home if hand.address == self.pair.home.address else self.pair.target
                side.take_all([(header, record(body)) for header, _, body in hand.records])
                kinds += [header[:1] for header, _, _ in hand.records]
            hands = self.session.drained()
        return kinds

    def exchange(self) -> None:
        self.pair.home.deliver(self.pair.target)
        self.pair.target.deliver(self.pair.home)

    def transaction(self) -> Transaction:
        """The group at home, in a `with` block that has begun."""
        transaction = Staging(self.pair.home.state, self.rule, OwnerSettings()).take()
        assert transaction is not None, "the group is ready"
        return transaction.__enter__()

    def ring(self, dialog: SessionDialog) -> Transaction:
        """Its timer rings."""
        self.pair.home.commit(rare=[SetTimer(self.pair.initiator(dialog.conversation).index, 1)])
        for _ in range(2):  # the first tells when the timer was set
            self.pair.home.state.now_ms += 2
            self.pair.home.commit()
        return self.transaction()

    def settle(self, transaction: Transaction) -> None:
        """What the handler of the pool says of it is committed."""
        answered(transaction)
        self.pair.home.commit(sends=transaction.sends, rare=[*transaction.finishes, *transaction.timers])


@pytest.fixture
def shop() -> Shop:
    return Shop()


def answered(transaction: Transaction, *, keeps: bool = False) -> list[Farewell]:
    rest, farewells = answer(transaction, transaction, lambda _: keeps)
    assert rest == []
    return farewells


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


def test_a_conversation_that_has_not_begun_yet_is_recycled_behind_what_waits(shop: Shop) -> None:
    conversation = conversation_in(GROUP, bytes(16))
    dialog, hands = shop.session.begin(conversation, begin_block(group=GROUP))
    shop.session.send(dialog, "order", b"one")
    assert recycle(shop.session, dialog, EOS) == []
    shop.arrive(hands)
    assert types(shop.pair.receiver(conversation)) == ["order", EOS]


def test_what_waits_for_a_redirect_is_not_recycled_yet(shop: Shop) -> None:
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
    """Else a pool waits for long for a target that has ended what came back of another one."""
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


def test_what_a_session_sends_behind_a_timer_has_no_verdict_before_its_own_fin_is_answered(shop: Shop) -> None:
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
    """The session's own, when home's is late: else the target would never hear that nothing more comes."""
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


def test_the_timer_says_end_of_stream_and_is_set_again(shop: Shop) -> None:
    dialog = shop.begin()
    shop.send(dialog, b"one")
    transaction = shop.ring(dialog)
    assert answered(transaction) == []
    index = shop.pair.initiator(dialog.conversation).index
    assert transaction.sends == [(index, EOS, [b""])]
    assert transaction.finishes == [Finish(index)]
    assert transaction.timers == [SetTimer(index, POOL_PATIENCE_MS)]


def test_the_timer_of_what_was_recycled_waits_on_and_of_what_was_never_received_ends(shop: Shop) -> None:
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
    again = Transaction([(endpoint, [])], [], 0, transaction._scope).__enter__()
    endpoint.urgent = ((0, DIALOG_TIMER, None, 0),)
    answered(again)
    assert again.ends == [EndOperation(endpoint.index, 0, "")]


def test_a_timer_whose_type_is_in_the_contract_no_more_ends_it(shop: Shop) -> None:
    def rule(_contract: str, _role: Role, message_type: str) -> None:
        if message_type == EOS:
            raise NotInContract("it has none")

    dialog = shop.begin()
    shop.rule = rule
    transaction = shop.ring(dialog)
    answered(transaction)
    assert not transaction.sends
    assert not transaction.timers
    assert [end.endpoint for end in transaction.ends] == [shop.pair.initiator(dialog.conversation).index]


@pytest.mark.parametrize("error", [NotInContract, WrongDirection, UnknownObject])
def test_a_type_that_cannot_be_sent_any_more_does_not_end_what_its_sender_keeps(
    shop: Shop, error: type[Exception]
) -> None:
    def rule(_contract: str, _role: Role, message_type: str) -> None:
        if message_type == EOS:
            raise error("not now")

    dialog = shop.begin()
    shop.rule = rule
    transaction = shop.ring(dialog)
    answered(transaction, keeps=True)
    assert not transaction.ends
    assert not transaction.sends
    assert transaction.timers


def test_a_timer_of_whom_no_pool_has_told_the_type_ends_it(shop: Shop) -> None:
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
def test_a_timer_ends_what_its_target_has_ended_unless_its_sender_keeps_it(shop: Shop, *, keeps: bool) -> None:
    """What the sender waits for may come back later, and goes before what is new."""
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


def test_an_error_that_is_no_document_has_a_code_that_forbids_to_send_again(shop: Shop) -> None:
    dialog = shop.begin()
    endpoint = shop.pair.initiator(dialog.conversation)
    endpoint.urgent, endpoint.state = ((0, "http://error", b"garbage", 0),), State.ERROR
    assert standing_of(shop.pair.home.state, shop.session, dialog).code == UNREADABLE


def test_replies_and_what_no_pool_began_are_left(shop: Shop) -> None:
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


def test_a_successor_finds_what_was_left_of_a_group(shop: Shop) -> None:
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
