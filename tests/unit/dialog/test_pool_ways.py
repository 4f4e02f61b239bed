"""Pools behind redirecting routers: ways of their conversations, and messages without a receiver (behaviour 233)."""

from __future__ import annotations

from typing import Final

import pytest

from konverse.dialog.pool import pool as module
from konverse.dialog.pool.places import AskVerdict, Drop, EndSide, Forget, HomeSide, Resend, Stray, Way
from konverse.dialog.pool.pool import PoolState
from konverse.dialog.state.mailbox import Bounced
from konverse.schemas.errors import QueueFull
from konverse.schemas.limits import POOL_ASTRAY_MS
from konverse.schemas.wire.records import NO_SEQUENCE, Bounce, BounceReason
from tests.kit.placing import AGE_MS, HOME, OTHER_GROUP, begin, came_back, new_pooling
from tests.kit.pooled import awaited


@pytest.fixture
def pooling() -> PoolState:
    """A pool whose conversations are old after ten seconds. The body of a redirecting message names a service."""
    return new_pooling()


def note(conversation: bytes, service: str) -> Bounced:
    """A router's redirection of a conversation's messages (behaviour 233)."""
    bounce = Bounce(conversation, 0, HOME, BounceReason.REDIRECTED)
    return Bounced(bytes(16), bounce, conversation, NO_SEQUENCE, "RedirectTo", service.encode())


def services(way: Way) -> list[str]:
    return [target.service for target in way]


def test_a_redirected_place_goes_where_its_router_says_with_all_that_came_back(pooling: PoolState) -> None:
    one = begin(pooling)
    late = [came_back(one.conversation, number) for number in range(2)]
    said = note(one.conversation, "north")
    assert pooling.read_home([(one, HomeSide(ended=True))], [said, *late], 1) == [AskVerdict(one), AskVerdict(one)]
    assert (awaited(one.place), one.place.current) == (one, None), "nothing overtakes what came back"
    assert services(pooling.way_of(one.place, 2)) == ["north"]
    assert pooling.read_home([(one, HomeSide(ended=True, answered=True))], [said, *late], 3) == [
        Resend(one.place, late),
        Drop(one.place, [said]),
        EndSide(one),
        Forget(one),
    ]
    assert services(begin(pooling, now_ms=4, number=1).way) == ["north"]
    assert pooling.statistics.redirected == 1


SETTLED: Final = HomeSide(ended=True, answered=True)


def test_a_note_that_is_found_again_changes_nothing(pooling: PoolState) -> None:
    one = begin(pooling)
    said = note(one.conversation, "north")
    pooling.read_home([(one, SETTLED)], [said], 1)
    following = begin(pooling, number=1)
    further = note(following.conversation, "far north")
    pooling.read_home([(following, SETTLED)], [said, further], 2)
    assert pooling.read_home([], [said, further], 3) == [Drop(one.place, [said, further])]
    assert services(one.place.way) == ["north", "far north"]


def test_a_redirected_place_waits_for_the_routers_answer_on_its_other_conversation(
    pooling: PoolState,
) -> None:
    one = begin(pooling)
    pooling.recycled(one, 1)
    following = begin(pooling, number=1)
    late = [came_back(one.conversation), came_back(following.conversation, 1)]
    said = [note(one.conversation, "north"), note(following.conversation, "south")]
    assert pooling.read_home([], [said[0], late[0]], 2) == [AskVerdict(one), AskVerdict(following)]
    assert one.place.awaits == [one, following]
    unheard = HomeSide(finished=True, answered=True)
    assert pooling.read_home([(one, SETTLED), (following, unheard)], [said[0], late[0]], 3) == [
        EndSide(one),
        Forget(one),
    ]
    assert awaited(one.place) is following, "the router has not come to it yet"
    found = [said[0], late[0], said[1], late[1]]
    assert pooling.read_home([(following, SETTLED)], found, 4)[:2] == [Resend(one.place, late), Drop(one.place, said)]
    assert awaited(one.place) is None
    assert services(one.place.way) == ["north"], "the place has its way already"


def test_the_service_of_a_pool_is_asked_again_when_a_way_is_as_old_as_a_conversation_gets(pooling: PoolState) -> None:
    one = begin(pooling)
    pooling.read_home([], [note(one.conversation, "north")], 5)
    assert services(pooling.way_of(one.place, 4 + AGE_MS)) == ["north"]
    assert services(pooling.way_of(one.place, 5 + AGE_MS)) == []


def test_messages_redirected_in_a_circle_wait_at_their_place_and_are_resent_later(pooling: PoolState) -> None:
    one = begin(pooling)
    pooling.read_home([(one, SETTLED)], [note(one.conversation, "north")], 1)
    following = begin(pooling, number=1)
    said, late = note(following.conversation, "north"), [came_back(following.conversation)]
    assert pooling.read_home([], [said, *late], 2) == [Stray(one.place), AskVerdict(following)]
    assert one.place.astray == "in a circle"
    assert pooling.read_home([], [said, *late], 3) == [], "it waits"
    assert pooling.read_home([(following, SETTLED)], [said, *late], 3) == [EndSide(following), Forget(following)]
    assert one.place.again_ms == 2 + POOL_ASTRAY_MS
    pooling.try_again(one.place)
    assert not pooling.astray
    assert pooling.read_home([], [said, *late], 4) == [Resend(one.place, late), Drop(one.place, [said])]
    assert services(one.place.way) == [], "from its own service on"


def test_a_way_that_leads_nowhere_any_more_is_asked_for_anew(pooling: PoolState) -> None:
    one = begin(pooling)
    pooling.read_home([], [note(one.conversation, "north")], 5)
    assert not one.place.forget_way(4 + POOL_ASTRAY_MS), "its router says so just now"
    assert services(one.place.way) == ["north"]
    assert one.place.forget_way(5 + POOL_ASTRAY_MS)
    assert services(one.place.way) == []


def test_undeliverable_messages_are_resent_even_after_their_place_was_evicted(
    pooling: PoolState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POOL_KEY_ENTRIES_MAX", 1)
    monkeypatch.setattr(module, "POOL_EVICTED_ENTRIES", 1)
    one = begin(pooling)
    pooling.stray(one.place, "nobody takes it", 1)
    pooling.ended(one.conversation)
    begin(pooling, OTHER_GROUP)
    late = [came_back(one.conversation)]
    assert pooling.read_home([], late, 2) == [], "it waits"
    pooling.allow_sends(one.place)
    assert [*pooling.evicted.values()] == [*pooling.astray.values()] == [one.place]
    monkeypatch.setattr(module, "POOL_CLOSING_ENTRIES_MAX", 1)
    with pytest.raises(QueueFull, match=r"1 key whose messages wait; see `pool\.undelivered`"):
        pooling.place(bytes(16), 2)
    pooling.try_again(one.place)
    assert pooling.read_home([], late, 3) == [Resend(one.place, late)]
    pooling.allow_sends(one.place)
    assert not pooling.evicted
    assert not pooling.astray


def test_nothing_of_a_redirected_place_goes_again_before_all_has_come_back(pooling: PoolState) -> None:
    one = begin(pooling)
    said, late = note(one.conversation, "north"), [came_back(one.conversation, number) for number in range(2)]
    assert pooling.read_home([(one, HomeSide(ended=True))], [said, late[0]], 1) == [
        AskVerdict(one),
        AskVerdict(one),
    ]
    assert pooling.read_home([(one, HomeSide(ended=True, answered=True))], [said, *late], 2) == [
        Resend(one.place, late),
        Drop(one.place, [said]),
        EndSide(one),
        Forget(one),
    ]


def test_the_way_of_a_conversation_that_is_over_is_known_when_its_note_comes(pooling: PoolState) -> None:
    one = begin(pooling)
    pooling.read_home([(one, HomeSide(ended=True, answered=True))], [note(one.conversation, "north")], 1)
    two = begin(pooling, now_ms=1, number=1)
    pooling.recycled(two, 2)
    three = begin(pooling, now_ms=2, number=2)
    pooling.ended(two.conversation)
    assert pooling.read_home([], [note(two.conversation, "far north")], 3) == [AskVerdict(three)]
    assert services(one.place.way) == ["north", "far north"]
