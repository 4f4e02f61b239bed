"""A router accepts exactly the contracts that the services behind it accept together."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from konverse.routing.contracts import check_accepts, check_declared, check_union
from konverse.schemas.errors import InvalidRoute


@pytest.mark.parametrize(
    ("listed", "targets"),
    [
        (["a", "b"], {"north": ["a"], "south": ["b"]}),
        (["b", "a"], {"north": ["a", "b"], "south": ["b"]}),
        ([], {}),
        ([], {"north": []}),
    ],
)
def test_the_union_is_accepted_in_any_order(listed: Collection[str], targets: Mapping[str, Collection[str]]) -> None:
    check_union("router", listed, targets)


def test_a_contract_that_the_router_lacks_is_named_with_its_target_and_the_remedy() -> None:
    with pytest.raises(InvalidRoute, match=r"not list contract 'b', which its target 'south' accepts.*alter_service\("):
        check_union("router", ["a"], {"north": ["a"], "south": ["a", "b"]})


def test_a_contract_that_no_target_accepts_is_named() -> None:
    with pytest.raises(InvalidRoute, match=r"lists contracts 'b', 'c', which none of its targets accepts \('north'\)"):
        check_union("router", ["c", "a", "b"], {"north": ["a"]})


def test_a_router_must_be_declared_with_exactly_the_contracts_of_its_service() -> None:
    check_declared("router", ["b", "a"], ("a", "b"))
    with pytest.raises(InvalidRoute, match=r"declared with contract 'b', which its service does not list.*add=\['b'\]"):
        check_declared("router", ["a", "b"], ("a",))
    with pytest.raises(InvalidRoute, match=r"lists contract 'b', with which its router is not declared.*drop=\['b'\]"):
        check_declared("router", ["a"], ("a", "b"))


def test_a_target_that_does_not_accept_the_contract_of_a_conversation_is_named() -> None:
    check_accepts("a", "north", ("a",))
    with pytest.raises(InvalidRoute, match=r"under contract 'b' was classified as one for 'north'"):
        check_accepts("b", "north", ("a",))
