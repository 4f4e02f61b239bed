"""An endpoint that moves again makes a chain of stubs, and its end walks back along it (protocol.md section 7.3)."""

from __future__ import annotations

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.state.endpoint import Endpoint
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.records import BounceReason, Closed, End, FinAnswer, Forwarded, Kind, Origin, Suffix
from tests.kit.builders import Scribe, Side, begin_block
from tests.kit.digests import digest
from tests.kit.moving import World, bodies, move


@pytest.fixture
def world() -> World:
    return World()


# ----------------------------------------------------------------------------------------------- chains and their end


def finish(world: World, target: Endpoint, side: Side) -> None:
    """Both sides end and hear of it."""
    world.end_call(target.conversation)
    world.settle()
    side.end(target)
    world.settle()


def test_an_endpoint_that_moves_again_makes_a_chain(world: World) -> None:
    conversation = world.begin()
    second = move(world, world.target, world.receiver(conversation), world.second)
    world.send(conversation, b"1")
    world.settle()
    third = move(world, world.second, second, world.third)
    world.send(conversation, b"2")
    world.settle()
    assert bodies(third) == [b"0", b"1", b"2"]
    assert world.third.state.moves.generation_of(third.index) == 2
    ((_, forwarded),) = next(iter(world.second.state.moves.stubs.values())).items()
    assert forwarded.to == world.third.address


def test_an_endpoint_that_comes_back_is_not_mistaken_for_its_stub(world: World) -> None:
    conversation = world.begin()
    second = move(world, world.target, world.receiver(conversation), world.second)
    back = move(world, world.second, second, world.target)
    world.send(conversation, b"1")
    assert bodies(back) == [b"0"], "it goes the whole way round, behind everything before it"
    world.settle()
    assert bodies(back) == [b"0", b"1"]
    third = move(world, world.target, back, world.third)
    world.send(conversation, b"2")
    world.settle()
    assert bodies(third) == [b"0", b"1", b"2"]
    assert list(world.target.state.moves.stubs[Role.TARGET, conversation]) == [0, 2]


def test_when_the_last_place_forgets_the_stubs_go_one_after_the_other(world: World) -> None:
    conversation = world.begin()
    second = move(world, world.target, world.receiver(conversation), world.second)
    third = move(world, world.second, second, world.third)
    world.end_call(conversation)
    world.settle()
    assert world.target.state.moves.stubs, "the last place has not forgotten"
    world.third.end(third)
    (closed,) = world.third.outputs(world.second.address)
    assert (closed.kind, closed.detail) == (Kind.CLOSED, Closed(1))
    world.third.deliver(world.second)
    assert not world.second.state.moves.stubs
    assert world.target.state.moves.stubs
    world.settle()
    for side in (world.home, world.target, world.second, world.third):
        assert side.state.live() == []
        assert not side.state.moves.stubs
        assert not side.state.moves.arrivals


def test_both_sides_of_a_conversation_may_move(world: World) -> None:
    conversation = world.begin()
    target = move(world, world.target, world.receiver(conversation), world.second)
    initiator = move(world, world.home, world.initiator(conversation), world.second)
    world.second.send(target, b"reply")
    world.second.commit()
    (sent,) = world.second.outputs(world.home.address)
    assert sent.body == b"reply"
    world.settle()
    assert bodies(initiator) == [b"reply"]
    finish(world, target, world.second)
    assert world.second.state.live() == []
    assert not world.home.state.moves.stubs
    assert not world.target.state.moves.stubs


def test_a_record_that_comes_when_the_conversation_is_over_is_answered_and_begins_nothing(world: World) -> None:
    conversation = world.begin()
    second = move(world, world.target, world.receiver(conversation), world.second)
    world.end_call(conversation)
    world.settle()
    world.second.end(second)
    world.second.deliver(world.home)  # and CLOSED is on its way
    late = Scribe("late")
    block = begin_block(group=conversation)
    world.target.take(late.first(world.target.address, conversation, block), b"again")
    world.settle()
    assert world.second.state.live() == world.target.state.live() == []
    assert not world.second.state.tombstones
    (bounced,) = world.home.state.mailbox.entries.values()
    bounce = bounced.bounce
    assert (bounce.writer, bounce.at, bounce.reason) == (late.id, world.target.address, BounceReason.NO_ENDPOINT)


def test_a_begin_that_comes_when_the_conversation_is_over_is_refused(world: World) -> None:
    conversation = world.begin()
    second = move(world, world.home, world.initiator(conversation), world.second)
    world.target.end(world.receiver(conversation))
    world.settle()
    world.second.end(second)
    world.second.deliver(world.target)
    late = Scribe("late")
    world.home.take(late.begin(conversation, begin_block(group=conversation)))
    world.home.deliver(world.second)
    (end,) = world.second.outputs(world.target.address)
    assert (end.kind, end.detail.opener) == (Kind.END, late.id)
    assert world.second.state.live() == []


def over(world: World, role: Role) -> bytes:
    """A conversation whose side has moved and is over; its stub does not know yet."""
    conversation = world.begin()
    if role is Role.TARGET:
        side, after = world.home, move(world, world.target, world.receiver(conversation), world.second)
        world.end_call(conversation)
    else:
        side, after = world.target, move(world, world.home, world.initiator(conversation), world.second)
        world.target.end(world.receiver(conversation))
    world.settle()
    world.second.end(after)
    world.second.deliver(side)
    return conversation


def test_a_fin_that_comes_when_the_conversation_is_over_is_answered_with_nothing(world: World) -> None:
    conversation = over(world, Role.TARGET)
    suffix = Suffix(home=world.home.address)
    world.target.take(world.client.write(Kind.FIN, world.target.address, conversation, suffix=suffix))
    world.target.deliver(world.second)
    (answer,) = world.second.outputs(world.home.address)
    assert (answer.kind, answer.detail) == (Kind.FIN_ANSWER, FinAnswer(world.client.id))


@pytest.mark.parametrize("kind", [Kind.MESSAGE, Kind.END])
def test_a_target_that_sends_to_an_ended_conversation_through_a_stub_receives_a_no_peer_record(
    world: World, kind: Kind
) -> None:
    conversation = over(world, Role.INITIATOR)
    detail = End(b"o" * 16, world.home.address) if kind is Kind.END else None
    suffix = Suffix("reply", home=world.third.address, detail=detail)
    late = Scribe("a target").write(kind, world.home.address, conversation, role=Role.TARGET, sequence=7, suffix=suffix)
    world.home.take(late)
    world.home.deliver(world.second)
    (answer,) = world.second.outputs(world.third.address)
    assert answer.kind is Kind.NO_PEER


def test_an_answer_behind_a_move_is_not_answered(world: World) -> None:
    conversation = over(world, Role.INITIATOR)
    suffix = Suffix(detail=End(b"o" * 16, world.home.address))
    world.home.take(
        Scribe("a target").write(Kind.END, world.home.address, conversation, role=Role.TARGET, suffix=suffix)
    )
    world.home.deliver(world.second)
    assert world.second.state.statistics.undeliverable == 1


@pytest.mark.parametrize("detail", [None, Closed(1), Forwarded(1, Origin("t", 0, b"i" * 16, 0), 0, (), b"no header")])
def test_a_forwarded_record_that_holds_none_is_malformed(world: World, detail: Closed | Forwarded | None) -> None:
    scribe = Scribe("an owner")
    world.second.take(scribe.write(Kind.FORWARD, world.second.address, b"c" * 16, suffix=Suffix(detail=detail)))
    assert world.second.state.statistics.malformed == 1


# --------------------------------------------------------------------------------------------------------- snapshots


def test_moves_are_state(world: World) -> None:
    conversation = world.begin(messages=3, key=b"k")
    second = move(world, world.target, world.receiver(conversation), world.second)
    world.send(conversation)
    world.settle()
    third = move(world, world.second, second, world.third)
    world.third.state.moves.installing[b"w" * 16] = [b"a piece"]
    for side in (world.target, world.second, world.third):
        other = Side(side.queue).state
        restore(other, b"".join(Freeze(side.state).pieces()))
        assert digest(other) == digest(side.state)
        assert other.moves.stubs == side.state.moves.stubs
        assert other.moves.arrivals == side.state.moves.arrivals
        assert other.moves.installing == side.state.moves.installing
        assert [e.queue for e in other.live()] == [e.queue for e in side.state.live()]
    before = digest(world.third.state)
    third.lanes()[0].last += 1
    assert digest(world.third.state) != before


def test_a_snapshot_that_is_made_while_things_move_holds_how_they_were(world: World) -> None:
    second = move(world, world.target, world.receiver(world.begin(messages=2)), world.second)
    state = world.second.state
    before = digest(state)
    freeze = Freeze(state)
    freeze.follow()
    pieces = freeze.pieces()
    data = next(pieces)
    world.target.take(Scribe("another").message(world.target.address, second.conversation))
    world.settle()
    move(world, world.second, second, world.third)
    data += b"".join(pieces)
    other = Side("second").state
    restore(other, data)
    assert digest(other) == before


def test_a_stub_that_is_not_there_is_not_closed(world: World) -> None:
    header = Scribe("an owner").write(Kind.CLOSED, world.second.address, b"c" * 16, suffix=Suffix(detail=Closed(3)))
    world.second.take(header)
    world.second.take(Scribe("another").write(Kind.CLOSED, world.second.address, b"c" * 16))
    assert world.second.state.statistics.undeliverable == 1
    assert world.second.state.statistics.malformed == 1
    assert not world.second.state.streams
