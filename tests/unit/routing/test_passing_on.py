"""A router forwards more than messages: the number of hops, lifetimes, half-closes."""

from __future__ import annotations

from konverse.routing.loops import hops_of, with_hops
from konverse.routing.routed import Routed
from konverse.schemas.limits import ROUTER_HOPS_MAX
from konverse.schemas.wire.records import Kind, Suffix
from tests.kit.builders import begin_block, identifier
from tests.kit.office import Office, error


def hopping(hops: int) -> tuple[Office, bytes]:
    """A conversation that has passed `hops` routers."""
    office, conversation = Office(), with_hops(identifier("an order"), hops)
    pair, block = office.pair, begin_block(group=conversation)
    pair.home.take(pair.client.begin(conversation, block))
    pair.target.take(pair.client.first(pair.target.address, conversation, block), b"0")
    return office, conversation


def test_each_router_increments_the_hop_count_in_the_ids_of_its_dialogs() -> None:
    office = Office()
    office.pair.begin()
    office.route()
    assert hops_of(office.outer().conversation) == 1
    office, _ = hopping(ROUTER_HOPS_MAX - 1)
    office.route()
    assert hops_of(office.outer().conversation) == ROUTER_HOPS_MAX


def test_a_conversation_that_has_come_through_too_many_routers_ends_with_error_1_that_names_the_last_ones() -> None:
    office, conversation = hopping(ROUTER_HOPS_MAX)
    assert office.route() == Routed(rejected=1)
    code, description = error(office.home(conversation))
    assert code == 1
    assert "8 routers, from 'shop' to 'store' last, which would pass it on to 'depot'" in description


def test_the_rest_of_a_lifetime_is_that_of_the_other_dialog() -> None:
    office = Office()
    office.pair.begin(lifetime_ms=60_000)
    office.route()
    clock = office.outer().clock
    assert clock is not None
    assert 0 < clock.expires_ms <= 60_000


def test_a_half_close_is_passed_on_when_all_before_it_was() -> None:
    office = Office()
    conversation = office.pair.begin(messages=2)
    pair = office.pair
    pair.target.take(
        pair.client.write(Kind.FIN, pair.target.address, conversation, suffix=Suffix(home=pair.home.address))
    )
    assert office.route() == Routed(forwarded=1, followed=1, targets={"depot": 2})
    outer = office.outer()
    assert outer.finished is not None
    assert outer.finished.peer
    office.reply(b"still heard")
    assert office.route() == Routed(replied=1)
