"""Routers whose tables lead to each other are found, with the path."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from konverse.routing.loops import find_cycle, targets_by_router
from konverse.schemas.catalog.table_entries import Target
from tests.kit.classifying import table_of

ELSEWHERE = "0f8fad5b-d9cb-469f-a165-70867728950e"


def test_a_way_back_is_named_from_router_to_router() -> None:
    leads = {"//a": ["//x", "//b"], "//b": ["//c"], "//c": ["//y", "//a"]}
    way = find_cycle(leads)
    assert (way[0], len(way)) == (way[-1], 4)
    assert all(service in leads[router] for router, service in pairwise(way))
    assert find_cycle({"//a": ["//a"]}) == ["//a", "//a"]
    assert find_cycle({"//a": ["//b", "//x"], "//b": ["//x"]}) == []


@given(st.dictionaries(st.sampled_from("abcd"), st.sets(st.sampled_from("abcdxy"))))
def test_a_circle_is_found_when_there_is_one(leads: dict[str, set[str]]) -> None:
    reached = {router: set(services) for router, services in leads.items()}
    for _ in leads:
        for services in reached.values():
            services |= {further for service in list(services) for further in reached.get(service, ())}
    way = find_cycle(leads)
    assert bool(way) == any(router in services for router, services in reached.items())
    assert all(service in leads[router] for router, service in pairwise(way))


def test_routers_lead_where_their_tables_do() -> None:
    one = table_of("One", {"k": Target("//x"), "e": Target("//e", ELSEWHERE)}, Target("//y"), ("//a", "//b"))
    two = table_of("Two", {"k": Target("//z")}, routers=("//b",))
    unused = table_of("Three", {"k": Target("//w")})
    assert targets_by_router([one, two, unused]) == {"//a": {"//x", "//y"}, "//b": {"//x", "//y", "//z"}}
    assert targets_by_router([one], (None, ELSEWHERE)) == {"//a": {"//e", "//x", "//y"}, "//b": {"//e", "//x", "//y"}}
