"""The id of a conversation contains the number of routers that it has passed."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konverse.routing.loops import hops_of, with_hops
from konverse.schemas.limits import ROUTER_HOPS_MAX

IDS = st.uuids(version=4).map(lambda one: one.bytes)


@given(IDS, st.integers(1, ROUTER_HOPS_MAX))
def test_an_id_says_how_many_routers_it_has_come_through_and_is_a_uuid(identifier: bytes, hops: int) -> None:
    made = with_hops(identifier, hops)
    assert hops_of(made) == hops
    assert UUID(bytes=made).version == 8
    rest = [*range(6), 7, 8, *range(12, 16)]
    assert [made[at] for at in rest] == [identifier[at] for at in rest], "the rest is random"


@given(IDS)
def test_an_id_that_no_router_has_made_has_come_through_none(identifier: bytes) -> None:
    assert hops_of(identifier) == 0


@given(IDS, st.integers(0, 15))
def test_another_ones_ids_of_version_8_are_not_taken_for_a_routers(identifier: bytes, count: int) -> None:
    """By chance one of 16 million is."""
    assert hops_of(identifier[:6] + bytes((0x80 | count,)) + identifier[7:]) == 0
    assert hops_of(UUID("00000000-0000-8f5b-8000-000000000000").bytes) == 0


@pytest.mark.parametrize("hops", [0, ROUTER_HOPS_MAX + 1])
def test_a_hop_count_out_of_range_is_an_assertion_error(hops: int) -> None:
    with pytest.raises(AssertionError, match="cannot be counted"):
        with_hops(bytes(16), hops)
