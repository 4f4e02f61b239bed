"""A side arrives where its id was begun anew while ALTER SERVICE moved it: both fail, and nothing stays (M290)."""

from __future__ import annotations

from typing import Final

import pytest

from konverse.bridge.verifier.fold.ingest import ingest
from konverse.bridge.verifier.fold.state import SecondState
from konverse.bridge.verifier.records import Record
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import BEGUN_TWICE_BODY, ERROR
from konverse.schemas.wire.envelope import encode_envelope
from konverse.schemas.wire.records import FIRST, NAMED, Kind
from tests.kit.builders import Scribe, Side, begin_block, identifier
from tests.kit.moving import World, bodies, living, relocate

ORDER: Final = identifier("an order")


def begin(scribe: Scribe, home: Side, target: Side) -> None:
    """A session begins the conversation of the order and sends its own name on it."""
    block = begin_block(group=ORDER)._replace(home=home.address, target=target.address)
    home.take(scribe.begin(ORDER, block, flags=NAMED))
    target.take(scribe.first(target.address, ORDER, block, flags=FIRST | NAMED), b"message")


def errors(side: Side, role: Role) -> list[tuple[str, bytes | None]]:
    endpoint = living(side, role, ORDER)
    assert endpoint.state is State.ERROR
    return [entry[1:3] for entry in endpoint.urgent]


def end_everywhere(world: World) -> None:
    """Applications end what failed, and nothing stays."""
    sides = (world.home, world.target, world.second, world.third)
    for side in sides:
        for endpoint in side.state.live():
            side.end(endpoint)
    world.settle()
    for side in sides:
        assert side.state.live() == []
        assert (side.state.moves.stubs, side.state.moves.arrivals) == ({}, {})


@pytest.fixture
def world() -> World:
    return World()


def test_a_target_that_meets_itself_fails_with_its_double_and_their_initiator(world: World) -> None:
    begin(world.client, world.home, world.target)
    relocate(world.target, world.receiver(ORDER), world.second)
    begin(Scribe("another"), world.home, world.second)
    world.settle()
    assert errors(world.second, Role.TARGET) == [(ERROR, BEGUN_TWICE_BODY)]
    assert bodies(living(world.second, Role.TARGET, ORDER)) == [b"message"], "what the double has can be received"
    assert errors(world.home, Role.INITIATOR) == [(ERROR, BEGUN_TWICE_BODY)]
    assert world.target.state.moves.stubs == {}
    end_everywhere(world)


def test_an_initiator_that_meets_itself_fails_with_its_double_and_their_targets(world: World) -> None:
    begin(world.client, world.home, world.target)
    relocate(world.home, world.initiator(ORDER), world.second)
    begin(Scribe("another"), world.second, world.third)
    world.settle()
    assert errors(world.second, Role.INITIATOR) == [(ERROR, BEGUN_TWICE_BODY)]
    for target in (world.target, world.third):
        assert errors(target, Role.TARGET) == [(ERROR, BEGUN_TWICE_BODY)]
    assert world.home.state.moves.stubs == {}
    end_everywhere(world)


def test_one_that_had_ended_is_over_with_the_side_that_arrives(world: World) -> None:
    begin(world.client, world.home, world.target)
    relocate(world.home, world.initiator(ORDER), world.second)
    begin(Scribe("another"), world.second, world.third)
    world.second.end(living(world.second, Role.INITIATOR, ORDER))
    world.home.deliver(world.second)
    assert world.second.state.live() == []
    world.settle()
    assert errors(world.target, Role.TARGET) == [(ERROR, BEGUN_TWICE_BODY)]
    end_everywhere(world)


@pytest.mark.parametrize("name", [NAMED, 0])
def test_the_second_fold_reads_it_alike_and_refutes_an_id_of_konverse(world: World, name: int) -> None:
    block = begin_block(group=ORDER)
    world.home.take(world.client.begin(ORDER, block, flags=name))
    relocate(world.home, world.initiator(ORDER), world.second)
    begun = Scribe("another").begin(ORDER, block._replace(home=world.second.address), flags=name)
    (installed,) = world.home.outputs(world.second.address)
    second = SecondState(world.second.address, world.second.state.writer_id)
    for offset, (header, body) in enumerate([(begun, None), (encode_envelope(installed.envelope), installed.body)]):
        world.second.take(header, body)
        ingest(second, Record(offset, header, body, 0, offset))
    for to in (world.home, world.target):
        read = [(one.kind, one.role, one.conversation) for one in second.outputs[to.address]]
        assert read == [(one.envelope.kind, one.envelope.role, ORDER) for one in world.second.outputs(to.address)]
    assert [one.kind for one in second.outputs[world.target.address]] == [Kind.NO_PEER]
    assert [one.kind for one in second.outputs[world.home.address]] == [Kind.CLOSED]
    (side,) = second.living.values()
    assert (side.peer_failed, second.problems != []) == (True, not name)
