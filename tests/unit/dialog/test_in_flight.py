"""A group that has left a partition and not reached the next one is found on its way (protocol.md section 7.2)."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from konverse.dialog.queries.in_flight import InFlight, arriving, newest, sent
from konverse.dialog.transaction.received import GroupPlace
from konverse.schemas.groups import own_group
from konverse.schemas.identifiers import Role
from konverse.schemas.wire import moved as moved_state
from konverse.schemas.wire.envelope import encode_envelope
from konverse.schemas.wire.operations import Move
from konverse.schemas.wire.records import Kind, Suffix
from tests.kit.builders import GROUP, Scribe, Side, columns_of, record
from tests.kit.moving import World, living, relocate


@pytest.fixture
def world() -> World:
    return World()


def ahead(source: Side, to: Side, group: bytes) -> list[InFlight]:
    """The groups in flight in the log of `to`, not ingested there."""
    rows = [(encode_envelope(one.envelope), record(one.body)) for one in source.outputs(to.address)]
    return [*arriving(columns_of(rows), to.address, group)]


@pytest.mark.parametrize("related", [False, True])
def test_a_group_is_in_the_outbox_then_in_the_log_then_there(world: World, related: bool) -> None:
    one = world.receiver(world.begin("one"))
    if related:
        world.target.commit(rare=[Move(one.index, GROUP)])
    group, there = one.group_id, GroupPlace(world.second.address, one.service)
    assert (group == GROUP) is related
    assert [*sent(world.target.state, group)] == []
    relocate(world.target, one, world.second)
    assert [*sent(world.target.state, group)] == [InFlight(1, there)]
    assert ahead(world.target, world.second, group) == [InFlight(1, there)]
    assert [*sent(world.target.state, b"another group..."), *ahead(world.target, world.second, bytes(16))] == []
    world.settle()
    assert living(world.second, Role.TARGET, one.conversation).group_id == group


def test_a_group_that_moved_twice_is_found_at_its_last_destination(world: World) -> None:
    one = world.receiver(world.begin("one"))
    group = one.group_id
    relocate(world.target, one, world.second)
    for output in world.target.outputs(world.second.address):  # without an acknowledgement
        world.second.take(encode_envelope(output.envelope), output.body)
    relocate(world.second, living(world.second, Role.TARGET, one.conversation), world.third)
    ways = [*sent(world.target.state, group), *sent(world.second.state, group)]
    assert [way.generation for way in ways] == [1, 2]
    for several in (ways, ways[::-1]):
        assert newest(several) == (world.third.address, one.service)
    assert newest([]) is None


def test_a_state_of_which_the_first_piece_has_arrived_is_found_where_that_is(world: World) -> None:
    one = world.receiver(world.begin("one", messages=9))
    world.target.commit(rare=[Move(one.index, GROUP)])
    with patch.object(moved_state, "BODY_BYTES_MAX", 300):
        relocate(world.target, one, world.second)
        pieces = world.target.outputs(world.second.address)
        assert len(pieces) > 1
        world.second.take(encode_envelope(pieces[0].envelope), pieces[0].body)
    assert [way.found for way in sent(world.second.state, GROUP)] == [GroupPlace(world.second.address, one.service)]


def test_records_that_do_not_begin_an_arriving_state_locate_no_group(world: World) -> None:
    """Nor records for an earlier partition of this name."""
    one = world.receiver(world.begin("one"))
    relocate(world.target, one, world.second)
    (whole,) = world.target.outputs(world.second.address)
    header = encode_envelope(whole.envelope)
    stranger = Scribe("stranger").write(
        Kind.INSTALL, world.second.address, one.conversation, role=Role.TARGET, suffix=Suffix(fragment=(1, 2))
    )
    rows = [
        (None, record(b"")),
        (b"\x26", record(whole.body)),
        (header, record(b"short")),
        (stranger, record(whole.body)),
    ]
    group = own_group(Role.TARGET, one.conversation)
    assert [*arriving(columns_of(rows), world.second.address, group)] == []
    before = replace(world.second.address, tag=b"then")
    assert [*arriving(columns_of([(header, record(whole.body))]), before, group)] == []
