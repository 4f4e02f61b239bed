"""SEND on a dialog raises 8429 when its end is in the queue, received or not (behaviours 50 and 51)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from konverse.bridge.owner.sender_notifier import SenderNotifier
from konverse.dialog.queries.hearing import needs_another_id, on_id_news, on_peer_ended
from konverse.dialog.session.dialogs import DialogState, SessionDialog
from konverse.dialog.session.lanes import Produce
from konverse.dialog.session.session import Session
from konverse.dialog.session.transactions import StagedTransaction
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import ConversationEnded
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.records import Notice, WriterClosed
from tests.kit.builders import Pair, Scribe, address_of, begin_block, identifier, record

CONVERSATION = identifier("a conversation")


class World:
    """A session, and both sides of a dialog that it has begun and used."""

    def __init__(self) -> None:
        self.pair = Pair()
        self.doubted = False
        """The session is to take a new id."""
        self.session = Session(identifier("a session"))
        self.session.transmit_to(address_of("transmission"))
        self.dialog, hands = self.begun()
        self.arrive(hands)
        self.send()

    def begun(self) -> tuple[SessionDialog, list[Produce]]:
        """The dialog, and the records that have not arrived at its home."""
        return self.session.begin(CONVERSATION, begin_block(group=CONVERSATION))

    def send(self) -> None:
        """Send a message that arrives."""
        self.session.drained()
        self.arrive(self.session.send(self.dialog, "order", b"0"))
        self.session.drained()

    def arrive(self, hands: list[Produce]) -> None:
        """Append the records to the logs and ingest them."""
        for hand in hands:
            side = self.pair.home if hand.address == self.pair.home.address else self.pair.target
            side.take_all([(header, record(body)) for header, _, body in hand.records])

    @property
    def home(self) -> Partition:
        return self.pair.home.state

    @property
    def conversations(self) -> list[bytes]:
        return list(self.session.dialogs)

    def on_peer_ended(self, home: Partition, endpoint: Endpoint) -> None:
        on_peer_ended(self.session, home, endpoint)

    def on_id_news(self, said: Notice | WriterClosed | Bounced) -> None:
        self.doubted |= on_id_news(self.session, said)

    def on_home(self, home: Partition) -> None:
        self.doubted |= needs_another_id(self.session, home)

    def peer_ends(self, code: int) -> None:
        """The target ends, and its Error or EndDialog waits in the queue."""
        target = self.pair.receiver(CONVERSATION)
        self.pair.target.end(target, code, "it does not work" if code else "")
        self.pair.target.deliver(self.pair.home)
        expected = State.ERROR if code else State.DISCONNECTED_INBOUND
        assert self.pair.initiator(CONVERSATION).state is expected


@pytest.fixture
def world() -> World:
    return World()


def send_directly(world: World) -> None:
    world.session.send(world.dialog, "order", b"1")


def send_in_a_transaction(world: World) -> None:
    StagedTransaction(world.session).send(world.dialog, "order", b"1")


def commit_a_transaction(world: World) -> None:
    transaction = StagedTransaction(world.session)
    world.dialog.state, state = type(world.dialog.state).OPEN, world.dialog.state
    transaction.send(world.dialog, "order", b"1")
    world.dialog.state = state
    world.session.commit(transaction)


def finish(world: World) -> None:
    world.session.finish(world.dialog)


@pytest.mark.parametrize("code", [0, 5])
@pytest.mark.parametrize("way", [send_directly, send_in_a_transaction, commit_a_transaction, finish])
@pytest.mark.parametrize("heard", ["while it leads", "before it led"])
def test_a_send_after_an_end_in_the_queue_is_refused(
    world: World, way: Callable[[World], None], code: int, heard: str
) -> None:
    notifier = SenderNotifier(lambda: cast("Any", world))
    if heard == "while it leads":
        notifier.follow(world.home)
        world.peer_ends(code)
    else:
        world.peer_ends(code)
        notifier.follow(world.home)
    with pytest.raises(ConversationEnded) as refused:
        way(world)
    assert refused.value.number == 8429
    assert not world.dialog.open


@pytest.mark.parametrize("code", [0, 5])
def test_a_dialog_that_is_begun_again_hears_that_it_has_ended(world: World, code: int) -> None:
    SenderNotifier(lambda: cast("Any", world)).follow(world.home)
    world.peer_ends(code)
    world.dialog, hands = world.begun()
    assert world.dialog.state is DialogState.BEGINNING
    world.arrive(hands)
    with pytest.raises(ConversationEnded):
        send_directly(world)


@pytest.mark.parametrize("code", [0, 5])
def test_the_end_of_a_dialog_before_says_nothing_of_the_one_that_has_its_id_now(world: World, code: int) -> None:
    SenderNotifier(lambda: cast("Any", world)).follow(world.home)
    end = world.session.end(world.dialog)
    world.dialog, begin = world.begun()
    world.peer_ends(code)
    world.arrive([*end, *begin])
    world.send()
    assert world.dialog.open


def test_the_end_of_a_target_side_does_not_end_the_dialog_of_the_session(world: World) -> None:
    SenderNotifier(lambda: cast("Any", world)).follow(world.pair.target.state)
    world.pair.end_call(CONVERSATION)
    world.pair.home.deliver(world.pair.target)
    assert world.dialog.open


def test_an_end_is_ignored_while_the_process_has_no_sender(world: World) -> None:
    SenderNotifier(lambda: None).follow(world.home)
    world.peer_ends(5)


@pytest.mark.parametrize("leads_before", [True, False], ids=["while it leads", "before it led"])
@pytest.mark.parametrize("closed", [True, False], ids=["somebody has closed it", "nobody has"])
def test_a_session_is_marked_for_a_new_id_only_when_its_home_reports_its_writer_as_closed(
    world: World, leads_before: bool, closed: bool
) -> None:
    notifier = SenderNotifier(lambda: cast("Any", world))
    if leads_before:
        notifier.follow(world.home)
    target = world.pair.target
    if closed:
        target.take(Scribe("an asker").close(target.address, world.session.writer))
    world.send()
    target.deliver(world.pair.home)
    if not leads_before:
        notifier.follow(world.home)
    assert world.doubted is closed


@pytest.mark.parametrize("code", [0, 7])
def test_050_it_is_refused_too_when_home_was_ended_by_another_way_before_its_peer(world: World, code: int) -> None:
    """An operator or a handler has ended the initiator. With its peer's end it is over, and its id is free."""
    SenderNotifier(lambda: cast("Any", world)).follow(world.home)
    world.pair.home.end(world.pair.initiator(CONVERSATION))
    world.pair.home.deliver(world.pair.target)
    world.pair.target.end(world.pair.receiver(CONVERSATION), code, "it does not work" if code else "")
    world.pair.target.deliver(world.pair.home)
    assert world.home.endpoint(Role.INITIATOR, CONVERSATION) is None
    assert world.conversations == []
    with pytest.raises(ConversationEnded) as refused:
        world.send()
    assert refused.value.number == 8429
