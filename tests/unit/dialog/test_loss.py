"""LOST: the conversations that fail when data is deleted before it is ingested (protocol.md section 7.7)."""

from __future__ import annotations

import pytest

from konverse.dialog.rules.loss import lost_by
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import END_DIALOG, ERROR, lost_body, read_error
from konverse.schemas.wire.journal import GENESIS_HASH, Commit, CommitOperations
from konverse.schemas.wire.operations import Lost, Prune
from konverse.schemas.wire.records import Kind, Suffix
from tests.kit.builders import GROUP, Scribe, Side, begin_block, identifier
from tests.kit.moving import World, living, move, relocate


@pytest.fixture
def world() -> World:
    return World()


def lose(side: Side, count: int = 3) -> Lost:
    """The next `count` records are gone, and a COMMIT reports that."""
    lost = Lost(side.state.ingest_to, side.state.ingest_to + count)
    side.state.ingest_to = lost.end
    side.commit(rare=[lost])
    return lost


def failed_by(endpoint: Endpoint, lost: Lost) -> bool:
    """Whether an Error waits that names the loss."""
    return endpoint.state is State.ERROR and endpoint.error is not None and endpoint.error[2] == lost_body(*lost)


# ---------------------------------------------------------------------------------------------------------- failures


def test_a_conversation_that_talks_fails_on_both_sides(world: World) -> None:
    conversation = world.begin(messages=2)
    lost = lose(world.target)
    target = world.receiver(conversation)
    assert failed_by(target, lost)
    assert target.error is not None
    assert target.error[0] == lost.start, "it stands where the hole does"
    (sent,) = world.target.deliver(world.home)
    assert (sent.kind, sent.body) == (Kind.ERROR, lost_body(*lost))
    assert sent.detail.received == ((world.client.id, 1),), "the peer learns what was received before"
    assert failed_by(world.initiator(conversation), lost)


def test_messages_accepted_before_a_loss_are_received_after_its_error(world: World) -> None:
    conversation = world.begin(messages=2)
    lose(world.target)
    target = world.receiver(conversation)
    assert target in world.target.state.ready
    assert world.target.receive(target) == [ERROR, "order", "order"]
    world.target.end(target)
    assert world.target.state.live() == []


def test_the_error_of_a_loss_makes_an_endpoint_without_unread_messages_ready(world: World) -> None:
    conversation = world.begin()
    target = world.receiver(conversation)
    world.target.receive(target)
    world.target.state.ready.clear()
    lose(world.target)
    assert list(world.target.state.ready) == [target]


def test_a_conversation_that_a_session_began_fails_although_nothing_was_sent_on_it(world: World) -> None:
    conversation = world.begin(messages=0)
    assert world.initiator(conversation).state is State.STARTED_OUTBOUND
    lost = lose(world.home)
    assert failed_by(world.initiator(conversation), lost)
    (sent,) = world.home.outputs(world.target.address)
    assert sent.kind is Kind.ERROR


def test_a_loss_does_not_fail_a_conversation_that_has_sent_nothing_yet(world: World) -> None:
    conversation = identifier("begun by a handler")
    world.home.commit(begins=[(conversation, begin_block(group=conversation))])
    lose(world.home)
    initiator = world.initiator(conversation)
    assert (initiator.state, initiator.error) == (State.STARTED_OUTBOUND, None)
    assert world.home.outputs(world.target.address) == []
    world.home.send(initiator, b"first", message_type="order")
    world.home.deliver(world.target)
    assert world.target.waiting(world.receiver(conversation)) == ["order"]


def test_a_loss_after_the_end_of_the_peer_causes_no_error(world: World) -> None:
    conversation = world.begin()
    world.end_call(conversation)
    world.home.deliver(world.target)
    target = world.receiver(conversation)
    lose(world.target)
    assert (target.state, target.error) == (State.DISCONNECTED_INBOUND, None)
    assert world.target.waiting(target) == ["order", END_DIALOG]
    assert world.target.outputs(world.home.address) == []


def test_an_endpoint_that_failed_before_a_loss_keeps_its_error(world: World) -> None:
    conversation = world.begin()
    world.end_call(conversation, error=(5, "enough"))
    world.home.deliver(world.target)
    lose(world.target)
    target = world.receiver(conversation)
    assert target.error is not None
    assert read_error(target.error[2] or b"") == (5, "enough")
    assert world.target.outputs(world.home.address) == []


def test_a_side_that_waits_for_the_end_of_its_peer_is_removed_by_a_loss(world: World) -> None:
    conversation = world.begin()
    world.end_call(conversation)
    sent = world.home.deliver(world.target)
    assert world.initiator(conversation).state is State.DISCONNECTED_OUTBOUND
    lose(world.home)
    assert world.home.state.live() == []
    assert world.home.outputs(world.target.address) == [], f"the peer was told by {sent[-1].kind.name}"


def test_an_initiator_that_ended_before_its_first_send_is_removed_by_a_loss(world: World) -> None:
    conversation = identifier("begun and ended by a handler")
    world.home.commit(begins=[(conversation, begin_block(group=conversation))])
    world.home.end(world.initiator(conversation), 5, "enough")
    assert world.initiator(conversation).state is State.DISCONNECTED_OUTBOUND
    lose(world.home)
    assert world.home.state.live() == []


def test_every_member_of_a_group_fails(world: World) -> None:
    members = world.answered("one", "two")
    lost = lose(world.home)
    assert [failed_by(member, lost) for member in members] == [True, True]
    assert {member.group_id for member in members} == {GROUP}


# -------------------------------------------------------------------------------------------------- moved endpoints


@pytest.mark.parametrize("role", Role)
def test_an_endpoint_that_moved_away_fails_at_its_new_partition(world: World, role: Role) -> None:
    conversation = world.begin()
    side, endpoint = (
        (world.home, world.initiator(conversation))
        if role is Role.INITIATOR
        else (world.target, world.receiver(conversation))
    )
    after = move(world, side, endpoint, world.second)
    lost = lose(side)
    (sent,) = side.outputs(world.second.address)
    assert sent.kind is Kind.FORWARD
    world.settle()
    assert failed_by(after, lost)
    assert after.error is not None
    assert (after.error[1], after.error[3].origin.offset) == (ERROR, lost.start)  # type: ignore[union-attr]


def test_an_error_of_a_loss_walks_along_the_whole_chain_of_places(world: World) -> None:
    conversation = world.begin()
    second = move(world, world.target, world.receiver(conversation), world.second)
    third = move(world, world.second, second, world.third)
    lost = lose(world.target)
    world.settle()
    assert failed_by(third, lost)


def test_the_error_of_a_loss_to_one_that_is_over_elsewhere_begins_nothing(world: World) -> None:
    conversation = world.begin()
    second = move(world, world.target, world.receiver(conversation), world.second)
    world.end_call(conversation)
    world.settle()
    world.second.end(second)  # and CLOSED is on its way
    lose(world.target)
    world.settle()
    for side in (world.home, world.target, world.second):
        assert side.state.live() == []
        assert not side.state.moves.stubs
        assert not side.state.tombstones


def test_of_a_state_whose_pieces_may_be_gone_nothing_is_installed(world: World) -> None:
    sender, conversation = Scribe("an owner"), identifier("moves")
    world.target.take(_piece(sender, world.target, conversation, 0), b"one half")
    assert world.target.state.moves.installing
    lose(world.target)
    assert not world.target.state.moves.installing
    world.target.take(_piece(sender, world.target, conversation, 1), b"the other half")
    assert world.target.state.statistics.malformed == 1
    assert not world.target.state.moves.installing


def _piece(sender: Scribe, to: Side, conversation: bytes, number: int) -> bytes:
    return sender.write(Kind.INSTALL, to.address, conversation, suffix=Suffix(fragment=(number, 2)))


def test_a_state_that_arrives_behind_a_loss_is_installed(world: World) -> None:
    conversation = world.begin()
    relocate(world.target, world.receiver(conversation), world.second)
    lose(world.second)
    world.settle()
    assert living(world.second, Role.TARGET, conversation).state is State.CONVERSING


# ------------------------------------------------------------------------------------------------------ counted, kept


def test_lost_records_are_counted(world: World) -> None:
    lose(world.target, 3)
    lose(world.target, 4)
    assert world.target.state.statistics.lost == 7
    assert (world.target.state.lost_from, world.target.state.lost_to) == (3, 7)


def test_the_loss_recorded_in_a_commit_is_found() -> None:
    def commit(*rare: Prune | Lost) -> Commit:
        return Commit(1, bytes(16), 1, GENESIS_HASH, 9, CommitOperations(rare=[*rare]))

    assert lost_by(commit(Prune(0), Lost(3, 9))) == Lost(3, 9)
    assert lost_by(commit(Prune(0))) is None
    assert lost_by(commit()) is None
