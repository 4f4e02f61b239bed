"""An initiator follows redirections, and notices circles."""

from __future__ import annotations

import pytest

from konverse.routing.loops import followed
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidRoute
from konverse.schemas.limits import ROUTER_HOPS_MAX

ASKED: tuple[Target, ...] = (Target("router"),)


def test_redirections_are_followed_one_after_the_other() -> None:
    way = followed(followed(ASKED, Target("north")), Target("north", "another instance"))
    assert [one.service for one in way] == ["router", "north", "north"]


def test_a_circle_is_refused_with_its_way() -> None:
    way = followed(ASKED, Target("north"))
    with pytest.raises(InvalidRoute, match="redirected from 'router' to 'north' to 'router': routers redirect in a"):
        followed(way, Target("router"))


def test_more_redirections_than_there_can_be_are_refused() -> None:
    way = ASKED
    for number in range(ROUTER_HOPS_MAX):
        way = followed(way, Target(f"service {number}"))
    with pytest.raises(InvalidRoute, match="8 redirections are the most"):
        followed(way, Target("one more"))
