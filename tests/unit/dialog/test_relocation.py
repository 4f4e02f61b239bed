"""An endpoint moves to another partition, and all later records for it follow (protocol.md section 7.3)."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from konverse.dialog.rules import relocation
from konverse.dialog.rules.relocation import moved_of
from konverse.dialog.state.endpoint import FarStamp, Finished
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import END_DIALOG, ERROR
from konverse.schemas.wire import moved as moved_state
from konverse.schemas.wire.envelope import encode_envelope
from konverse.schemas.wire.operations import Finish, Relocate
from konverse.schemas.wire.records import Begin, BounceReason, Forwarded, Kind, Origin, Suffix
from tests.kit.batches import QUERY, Query
from tests.kit.builders import GROUP, Scribe, begin_block, identifier, of, record
from tests.kit.moving import World, bodies, leaving, living, move, relocate


@pytest.fixture
def world() -> World:
    return World()


def fin(world: World, conversation: bytes) -> bytes:
    """The session's FIN."""
    suffix = Suffix(home=world.home.address)
    return world.client.write(Kind.FIN, world.target.address, conversation, suffix=suffix)


# ------------------------------------------------------------------------------------------------------------ leaving


def test_an_endpoint_moves_with_everything_that_it_is(world: World) -> None:
    conversation = world.begin(messages=5, key=b"the key")
    before = world.receiver(conversation)
    world.target.commit(receive_endpoints=[before.index], receive_positions=[2 << 2])
    world.target.send(before, b"a", b"b")
    after = move(world, world.target, before, world.second)
    for name in ("conversation", "role", "state", "opener", "key", "received", "consumed", "sent"):
        assert getattr(after, name) == getattr(before, name), name
    assert (after.terms.service, after.terms.contract) == (before.service, before.contract)
    assert after.stream.address == before.stream.address
    assert bodies(after) == [b"2", b"3", b"4"]
    assert [(lane.writer.id, lane.last) for lane in after.lanes()] == [(world.client.id, 4)]
    assert (world.target.state.unread, world.second.state.unread) == (0, 3)
    assert world.target.state.endpoint(Role.TARGET, conversation) is None
    assert list(world.second.state.ready) == [after]


def test_an_endpoint_moves_with_its_finished_state(world: World) -> None:
    conversation = world.begin(messages=2)
    world.target.take(fin(world, conversation))
    world.target.commit(rare=[Finish(world.receiver(conversation).index)])
    world.settle()
    before = world.receiver(conversation)
    after = move(world, world.target, before, world.second)
    assert (
        after.finished
        == before.finished
        == Finished(own=True, peer=True, answer=(), askers=(world.target.state.writer_id,))
    )
    world.send(conversation, b"late", sequence=2)
    world.settle()
    (bounced,) = world.home.state.mailbox.entries.values()
    assert bounced.bounce.reason is BounceReason.FINISHED


def test_the_bytes_that_wait_are_counted_where_they_are(world: World) -> None:
    conversation = world.begin(messages=3)
    relocate(world.target, world.receiver(conversation), world.second)
    assert (world.target.state.unread, world.target.state.unread_bytes) == (0, 0)
    world.send(conversation, b"four")
    world.settle()
    assert (world.second.state.unread, world.second.state.unread_bytes) == (4, 3 + 4)


def test_an_error_that_waits_moves_too(world: World) -> None:
    conversation = world.begin()
    world.end_call(conversation, error=(5, "enough"))
    world.home.deliver(world.target)
    after = move(world, world.target, world.receiver(conversation), world.second)
    assert after.state is State.ERROR
    assert after.error is not None
    assert after.error[1] == ERROR
    assert world.second.receive(after) == [ERROR, "order"]


def test_the_state_leaves_after_all_messages_to_the_peer_have_arrived(world: World) -> None:
    conversation = world.begin()
    world.target.send(world.receiver(conversation), b"answer")
    relocate(world.target, world.receiver(conversation), world.second)
    assert leaving(world.target) == [world.home.address], "the answer has not arrived yet"
    world.target.deliver(world.home)
    assert leaving(world.target) == [world.second.address]


def test_an_endpoint_continues_its_numbering_after_a_move(world: World) -> None:
    conversation = world.begin()
    world.target.send(world.receiver(conversation), b"0", b"1")
    after = move(world, world.target, world.receiver(conversation), world.second)
    world.second.send(after, b"2")
    world.settle()
    assert bodies(world.initiator(conversation)) == [b"0", b"1", b"2"]
    assert world.home.state.statistics.misnumbered == 0


def test_an_endpoint_may_move_to_where_its_peer_lives(world: World) -> None:
    conversation = world.begin()
    world.target.send(world.receiver(conversation), b"0")
    after = move(world, world.target, world.receiver(conversation), world.home)
    world.home.send(after, b"1")
    (sent,) = world.home.outputs(world.home.address)
    assert (sent.kind, sent.body, sent.envelope.sequence) == (Kind.MESSAGE, b"1", 1)


def test_a_large_state_comes_in_pieces_and_is_installed_when_it_is_whole(world: World) -> None:
    conversation = world.begin(messages=9)
    with patch.object(moved_state, "BODY_BYTES_MAX", 100):
        relocate(world.target, world.receiver(conversation), world.second)
    sent = world.target.outputs(world.second.address)
    assert len(sent) == 5
    assert {one.kind for one in sent} == {Kind.INSTALL}
    with patch.object(relocation, "INSTALL_PIECES_MAX", len(sent)):
        for number, one in enumerate(sent):
            assert world.second.state.endpoint(Role.TARGET, conversation) is None, f"installed from {number} pieces"
            world.second.take(encode_envelope(one.envelope), one.body)
    assert len(living(world.second, Role.TARGET, conversation).queue) == 9
    assert not world.second.state.moves.installing


@pytest.mark.parametrize("fragment", [None, (1, 2), (0, 0), (0, 33), (2, 1)])
def test_pieces_that_do_not_follow_each_other_come_to_nothing(world: World, fragment: tuple[int, int] | None) -> None:
    scribe = Scribe("an owner")
    world.second.take(scribe.write(Kind.INSTALL, world.second.address, b"c" * 16, suffix=Suffix(fragment=fragment)))
    assert not world.second.state.moves.installing
    assert world.second.state.statistics.malformed == 1


@pytest.mark.parametrize("body", [None, b"", b"garbage"])
def test_a_state_that_is_none_is_not_installed(world: World, body: bytes | None) -> None:
    scribe = Scribe("an owner")
    header = scribe.write(Kind.INSTALL, world.second.address, b"c" * 16, suffix=Suffix(fragment=(0, 1)))
    world.second.take(header, body)
    assert world.second.state.live() == []
    assert world.second.state.statistics.malformed == 1


@pytest.mark.parametrize("changes", [{"generation": 1}, {"pieces": 2}, {"endpoint": 7}, {"endpoint": -1}])
def test_a_move_that_is_not_as_the_commit_says_halts(world: World, changes: dict[str, int]) -> None:
    conversation = world.begin()
    with pytest.raises(PartitionHalted, match="orders/0 moves endpoint"):
        relocate(world.target, world.receiver(conversation), world.second, **changes)


def test_a_group_that_moves_as_a_whole_is_a_group_again(world: World) -> None:
    ids = [world.begin(name, group=GROUP) for name in ("one", "two")]
    to, members = world.second, [world.initiator(each) for each in ids]
    world.home.commit(rare=[Relocate(one.index, to.address, 0, 1) for one in members])
    assert world.home.state.groups == {}
    world.settle()
    moved = [living(to, Role.INITIATOR, each) for each in ids]
    assert {one.group_id for one in moved} == {GROUP}
    assert moved[0].members == moved


def test_a_group_of_one_moves_with_its_member_and_comes_back_with_it(world: World) -> None:
    one = world.begin("one", group=GROUP)
    after = move(world, world.home, world.initiator(one), world.second)
    assert after.group_id == GROUP
    assert world.home.state.groups == {}
    two = world.begin("two", group=GROUP)
    back = move(world, world.second, after, world.home)
    assert back.members == [world.initiator(two), back], "who comes home finds its group again"


def test_a_conversation_that_has_sent_nothing_yet_moves_with_its_first(world: World) -> None:
    conversation = identifier("begun by a handler")
    block: Begin = begin_block(group=conversation)
    world.home.commit(begins=[(conversation, block)])
    after = move(world, world.home, living(world.home, Role.INITIATOR, conversation), world.second)
    world.second.send(after, b"first", message_type="order")
    (sent,) = world.second.outputs(world.target.address)
    assert sent.envelope.suffix.begin == block
    assert after.opener == sent.envelope.writer, "END names who sends FIRST"


# --------------------------------------------------------------------------------------------------------- forwarding


def test_every_record_that_comes_later_follows_in_order(world: World) -> None:
    conversation = world.begin(messages=2)
    relocate(world.target, world.receiver(conversation), world.second)
    world.send(conversation, b"2", sequence=2)
    world.send(conversation, b"3", sequence=3)
    world.end_call(conversation)
    world.home.deliver(world.target)
    assert [sent.kind for sent in world.target.outputs(world.second.address)] == [Kind.INSTALL, *[Kind.FORWARD] * 3]
    world.settle()
    after = living(world.second, Role.TARGET, conversation)
    assert bodies(after) == [b"0", b"1", b"2", b"3", None]
    assert after.queue[-1][1] == END_DIALOG
    assert after.state is State.DISCONNECTED_INBOUND
    assert world.second.state.statistics.misnumbered == 0
    assert world.target.state.statistics.forwarded == 3


def test_a_forwarded_record_carries_its_original_place_timestamp_and_headers(world: World) -> None:
    conversation = world.begin(messages=2)
    relocate(world.target, world.receiver(conversation), world.second)
    suffix = Suffix("order", home=world.home.address)
    header = world.client.message(world.target.address, conversation, suffix=suffix)
    world.target.take_all([(header, record(b"late", 77, [("trace", b"x")]))])
    forward = world.target.outputs(world.second.address)[-1]
    identity = world.target.state.identity
    origin = Origin(identity.data_topic, identity.partition, identity.incarnation, 2)
    assert forward.detail == Forwarded(1, origin, 77, (("trace", b"x"),), header)
    world.settle()
    entry = living(world.second, Role.TARGET, conversation).queue[-1]
    assert entry[3] == FarStamp(77, [("trace", b"x")], origin)


def test_user_headers_that_are_too_large_stay_behind(world: World) -> None:
    conversation = world.begin()
    relocate(world.target, world.receiver(conversation), world.second)
    header = world.client.message(world.target.address, conversation)
    world.target.take_all([(header, record(b"late", 77, [("trace", bytes(20_000))]))])
    assert world.target.outputs(world.second.address)[-1].detail.headers == ()


def test_a_message_keeps_its_id_wherever_it_is_received(world: World) -> None:
    conversation = world.begin(messages=2)
    before = [message.id for message in of(world.target, world.receiver(conversation))]
    world.receiver(conversation).held = False
    relocate(world.target, world.receiver(conversation), world.second)
    world.send(conversation, b"2")
    world.settle()
    there = [message.id for message in of(world.second, living(world.second, Role.TARGET, conversation))]
    assert there[:2] == before
    assert there[2] == before[0].removesuffix("0") + "2"


def test_the_end_call_of_a_session_finds_an_initiator_that_has_moved(world: World) -> None:
    conversation = world.begin()
    after = move(world, world.home, world.initiator(conversation), world.second)
    world.end_call(conversation)
    world.settle()
    assert after.state is State.DISCONNECTED_OUTBOUND
    assert world.target.waiting(world.receiver(conversation)) == ["order", END_DIALOG]


def test_a_second_begin_follows_and_changes_nothing(world: World) -> None:
    conversation = world.begin()
    move(world, world.home, world.initiator(conversation), world.second)
    world.home.take(Scribe("another").begin(conversation, begin_block(group=conversation)))
    world.settle()
    assert world.home.state.endpoint(Role.INITIATOR, conversation) is None
    assert len(world.second.state.live()) == 1


def test_a_fin_follows_and_is_answered_as_the_writers_count_at_the_first_address(world: World) -> None:
    conversation = world.begin(messages=2)
    after = move(world, world.target, world.receiver(conversation), world.second)
    world.target.take(fin(world, conversation))
    world.settle()
    assert after.finished == Finished(peer=True)
    assert world.initiator(conversation).finished == Finished(
        own=True, answer=((world.client.id, 1),), askers=(world.client.id,)
    )


def test_the_answer_to_a_fin_follows_a_relocated_initiator(world: World) -> None:
    conversation = world.begin()
    after = move(world, world.home, world.initiator(conversation), world.second)
    world.target.take(fin(world, conversation))
    world.settle()
    assert after.finished == Finished(own=True, answer=((world.client.id, 0),), askers=(world.client.id,))


def test_a_target_that_has_moved_learns_that_it_has_no_peer(world: World) -> None:
    conversation = identifier("without a home")
    world.target.take(world.client.first(world.target.address, conversation, begin_block(group=conversation)))
    world.target.send(world.receiver(conversation), b"is anybody there?")
    relocate(world.target, world.receiver(conversation), world.second)
    world.settle()
    after = living(world.second, Role.TARGET, conversation)
    assert after.state is State.ERROR
    assert world.target.state.statistics.forwarded == 1


def test_a_row_that_won_follows_a_conversation_that_has_moved(world: World) -> None:
    conversation, query = identifier("of a query"), Query()
    first, second = query.task(), query.task(batch=1)
    world.target.take(*query.first(first, conversation, b"0"))
    query.decide(world.target, [(first, 1)])
    relocate(world.target, world.receiver(conversation), world.second)
    world.target.take(*query.message(second, conversation, b"1"))
    query.decide(world.target, [(second, 1)], batch=1)
    world.settle()
    after = living(world.second, Role.TARGET, conversation)
    assert bodies(after) == [b"0", b"1"]
    assert [(lane.writer.id, lane.last) for lane in after.lanes()] == [(QUERY, 1)]


def test_a_reply_follows_an_initiator_that_has_moved(world: World) -> None:
    conversation = world.begin()
    after = move(world, world.home, world.initiator(conversation), world.second)
    world.target.send(world.receiver(conversation), b"reply")
    world.settle()
    assert bodies(after) == [b"reply"]


def test_an_end_names_the_writers_as_they_count_at_the_first_address(world: World) -> None:
    conversation = world.begin(messages=3)
    after = move(world, world.target, world.receiver(conversation), world.second)
    world.send(conversation)
    another = Scribe("another")
    world.target.take(another.message(world.target.address, conversation))
    world.settle()
    world.second.end(after)
    (end,) = world.second.outputs(world.home.address)
    assert end.detail.received == ((another.id, 0), (world.client.id, 3))


def test_a_bounce_names_the_place_where_its_writer_counts(world: World) -> None:
    conversation = world.begin()
    after = move(world, world.target, world.receiver(conversation), world.second)
    world.end_call(conversation)
    world.settle()
    assert after.state is State.DISCONNECTED_INBOUND
    world.send(conversation, b"too late")
    world.settle()
    (bounced,) = world.home.state.mailbox.entries.values()
    bounce = bounced.bounce
    assert (bounce.writer, bounce.counter, bounce.at) == (world.client.id, 1, world.target.address)
    assert bounce.reason is BounceReason.ENDED


def test_nothing_is_predicted_where_an_endpoint_has_moved_to(world: World) -> None:
    conversation = world.begin()
    move(world, world.target, world.receiver(conversation), world.second)
    for number in range(1, 4):
        world.send(conversation, sequence=number)
    world.settle()
    assert world.second.state.lanes == {}
    assert living(world.second, Role.TARGET, conversation).received == 4


@pytest.mark.parametrize("code", [State.STARTED_INBOUND, State.CLOSED])
def test_a_state_in_which_no_endpoint_stays_is_not_installed(world: World, code: State) -> None:
    conversation = world.begin()
    moved = moved_of(world.target.state, world.receiver(conversation))
    for state, lives in ((code, False), (State.CONVERSING, True)):
        header = Scribe(state.name).write(
            Kind.INSTALL, world.second.address, conversation, role=Role.TARGET, suffix=Suffix(fragment=(0, 1))
        )
        world.second.take(header, moved_state.encode_moved(moved._replace(state=state)))
        assert bool(world.second.state.live()) is lives
    assert world.second.state.statistics.malformed == 1
