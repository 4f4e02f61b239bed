"""The conversation of each place of a pool, and the fate of those that ended (behaviours 224 to 229)."""

from __future__ import annotations

import pytest

from konverse.dialog.pool import pool as module
from konverse.dialog.pool.places import (
    AskVerdict,
    Drop,
    EndSide,
    Forget,
    GiveUp,
    HomeSide,
    MakeRoom,
    PoolPlace,
    Recycle,
    Resend,
    Stage,
)
from konverse.dialog.pool.pool import PoolState
from konverse.dialog.pool.recycling import RESENT
from konverse.schemas.errors import QueueFull
from konverse.schemas.identifiers import conversation_in, mark_of
from konverse.schemas.limits import POOL_VERDICT_MS_MAX
from tests.kit.placing import AGE_MS, GROUP, OTHER_GROUP, begin, came_back, new_pooling
from tests.kit.pooled import awaited


@pytest.fixture
def pooling() -> PoolState:
    """A pool whose conversations are old after ten seconds. The body of a redirecting message names a service."""
    return new_pooling()


def test_a_group_has_one_place_and_that_one_open_conversation(pooling: PoolState) -> None:
    one = begin(pooling)
    assert pooling.place(GROUP, 5) == (one.place, [])
    assert one.place.current is one
    assert begin(pooling, OTHER_GROUP).place is not one.place
    with pytest.raises(AssertionError, match="one open conversation"):
        pooling.begun(one.place, bytes(16), 0)


def test_an_old_conversation_is_recycled_and_over_when_its_target_has_ended_it(pooling: PoolState) -> None:
    one = begin(pooling, now_ms=1)
    assert pooling.tick(AGE_MS) == []
    assert pooling.tick(AGE_MS + 1) == [Recycle(one)]
    pooling.recycled(one, AGE_MS + 1)
    assert (one.stage, one.place.current, pooling.closing) == (Stage.CLOSING, None, 1)
    assert pooling.tick(AGE_MS + 2) == []
    following = begin(pooling, now_ms=AGE_MS + 2, number=1)
    assert pooling.ended(one.conversation) == [Forget(one)]
    assert pooling.ended(one.conversation) == []
    assert list(pooling.known.values()) == [following]
    assert pooling.closing == 0
    assert pooling.statistics == (2, 1, 0, 0, 0, 0)


def test_a_conversation_ended_during_use_gets_a_verdict_resends_its_bounces_and_ends_its_own_side(
    pooling: PoolState,
) -> None:
    one = begin(pooling)
    assert pooling.broken(one.conversation, RESENT[0], 5) == [AskVerdict(one)]
    assert pooling.broken(one.conversation, RESENT[0], 5) == []
    assert awaited(one.place) is one
    late = [came_back(one.conversation, number) for number in range(2)]
    assert pooling.read_home([(one, HomeSide(ended=True))], late[:1], 6) == [
        Resend(one.place, late[:1]),
        AskVerdict(one),  # repeated, because messages may have had to go before FIN
    ]
    assert awaited(one.place) is one
    said = pooling.read_home([(one, HomeSide(ended=True, answered=True))], late[1:], 7)
    assert said == [Resend(one.place, late[1:]), EndSide(one), Forget(one)]
    assert awaited(one.place) is None
    assert pooling.read_home([(one, HomeSide(over=True))], [], 8) == []


def test_the_four_codes_are_those_of_the_behaviour() -> None:
    assert RESENT == (-8489, -8462, -9719, -28052), "behaviour 228"


@pytest.mark.parametrize("code", [*RESENT, -8494, -9615, 4711, None])
def test_returned_messages_are_resent_after_only_four_error_codes(pooling: PoolState, code: int | None) -> None:
    one = begin(pooling)
    late = [came_back(one.conversation)]
    again = code is None or code in RESENT
    expected = Resend(one.place, late) if again else GiveUp(one.place, late, code or 0)
    standing = HomeSide(ended=True, code=code)
    assert pooling.read_home([(one, standing)], late, 1) == [expected, AskVerdict(one)]
    pooling.read_home([(one, standing._replace(answered=True))], [], 2)
    assert not pooling.known
    assert pooling.read_home([], late, 3) == [expected]


def test_recycling_after_the_timer_may_be_due_waits_for_late_bounces(pooling: PoolState) -> None:
    one = begin(pooling)
    pooling.recycled(one, 2 * AGE_MS - 1)
    assert awaited(one.place) is None, "its home has not closed it before"
    two = begin(pooling, number=1)
    pooling.recycled(two, 2 * AGE_MS)
    assert awaited(one.place) is two
    late = [came_back(two.conversation)]
    assert pooling.read_home([(two, HomeSide(finished=True))], [], 2 * AGE_MS) == []
    assert awaited(one.place) is two, "its own FIN was not answered"
    assert pooling.read_home([(two, HomeSide(finished=True, answered=True))], late, 3 * AGE_MS) == [
        Resend(one.place, late)
    ]
    assert (two.stage, awaited(one.place)) == (Stage.CLOSING, None)


def test_recycling_an_adopted_conversation_waits_because_the_due_time_of_its_timer_is_unknown(
    pooling: PoolState,
) -> None:
    place, _ = pooling.place(GROUP, 0)
    one = pooling.begun(place, conversation_in(GROUP, bytes(16)), 0, adopted=True)
    pooling.recycled(one, 1)
    assert awaited(place) is one
    assert pooling.tick(POOL_VERDICT_MS_MAX) == []
    pooling.tick(1 + POOL_VERDICT_MS_MAX)
    assert awaited(place) is None, "and not for ever"


def test_a_conversation_that_could_not_be_recycled_when_due_is_recycled_later(pooling: PoolState) -> None:
    one = begin(pooling)
    assert pooling.tick(1) == []
    one.due = True
    assert pooling.tick(1) == [Recycle(one)]


def test_a_silent_target_is_waited_for_so_long(pooling: PoolState) -> None:
    one = begin(pooling)
    pooling.broken(one.conversation, None, 5)
    assert pooling.tick(4 + POOL_VERDICT_MS_MAX) == []
    assert pooling.tick(5 + POOL_VERDICT_MS_MAX) == [EndSide(one), Forget(one)]
    assert awaited(one.place) is None


def test_a_conversation_that_its_home_has_finished_is_replaced_and_closes(pooling: PoolState) -> None:
    """The timer of a sender that was considered dead."""
    one = begin(pooling)
    late = [came_back(one.conversation), came_back(one.conversation, 1, "EndOfStream")]
    assert pooling.read_home([(one, HomeSide(finished=True))], late, 1) == [
        Resend(one.place, late[:1]),
        Drop(one.place, late[1:]),
        AskVerdict(one),
    ]
    assert pooling.read_home([(one, HomeSide(finished=True, answered=True))], [], 2) == []
    assert (one.stage, awaited(one.place)) == (Stage.CLOSING, None)
    assert pooling.read_home([(one, HomeSide(over=True))], [], 3) == [Forget(one)]


def test_an_error_after_end_of_stream_is_followed_by_a_verdict_and_blocks_no_sender(pooling: PoolState) -> None:
    one = begin(pooling)
    pooling.recycled(one, 1)
    assert pooling.broken(one.conversation, 4711, 2) == [AskVerdict(one)]
    assert awaited(one.place) is None
    assert pooling.statistics.replaced == 0
    assert pooling.read_home([(one, HomeSide(ended=True, answered=True))], [], 3) == [EndSide(one), Forget(one)]
    assert pooling.closing == 0


def test_a_side_is_not_ended_before_its_application_has_received_all_waiting_messages(pooling: PoolState) -> None:
    one = begin(pooling)
    waits = HomeSide(ended=True, answered=True, unread=True)
    assert pooling.read_home([(one, waits)], [], 1) == [AskVerdict(one)]
    assert awaited(one.place) is None
    assert pooling.tick(2 * POOL_VERDICT_MS_MAX) == []
    assert pooling.read_home([(one, waits._replace(unread=False))], [], 2) == [EndSide(one), Forget(one)]


def test_bounces_of_groups_outside_the_pool_are_left_alone(pooling: PoolState) -> None:
    begin(pooling)
    assert pooling.read_home([], [came_back(OTHER_GROUP)], 1) == []
    assert pooling.broken(OTHER_GROUP, 1, 1) == []


def test_too_many_places_make_room_by_recycling_those_used_least(
    pooling: PoolState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POOL_KEY_ENTRIES_MAX", 3)
    monkeypatch.setattr(module, "POOL_EVICTED_ENTRIES", 1)
    groups = [bytes((number,)) * 16 for number in range(5)]
    opened = [begin(pooling, group, now_ms=number) for number, group in enumerate(groups[:3])]
    pooling.noticed(opened[0].place, 7, 10)
    place, effects = pooling.place(groups[3], 11)
    assert effects == [Recycle(opened[1]), MakeRoom(opened[1].place)]
    assert (len(pooling.places), [*pooling.evicted]) == (3, [mark_of(groups[1])])
    assert pooling.tick(12) == [Recycle(opened[1])]  # it failed, and is repeated
    pooling.recycled(opened[1], 12)
    late = [came_back(opened[1].conversation)]
    assert pooling.read_home([], late, 13) == [Resend(opened[1].place, late)]
    pooling.ended(opened[1].conversation)
    assert not pooling.evicted
    assert place is pooling.places[mark_of(groups[3])]


def test_a_place_that_made_room_and_is_needed_again_is_the_same_one(
    pooling: PoolState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POOL_KEY_ENTRIES_MAX", 1)
    monkeypatch.setattr(module, "POOL_EVICTED_ENTRIES", 1)
    one = begin(pooling)
    begin(pooling, OTHER_GROUP)
    assert pooling.place(GROUP, 1) == (one.place, [])
    assert not pooling.evicted


def test_a_place_that_made_room_meanwhile_is_found_for_as_long_as_its_conversation_is_not_over(
    pooling: PoolState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POOL_KEY_ENTRIES_MAX", 1)
    monkeypatch.setattr(module, "POOL_EVICTED_ENTRIES", 1)
    place, _ = pooling.place(GROUP, 0)
    assert pooling.place(OTHER_GROUP, 1)[1] == [MakeRoom(place)]
    assert not pooling.evicted
    opened = pooling.begun(place, conversation_in(GROUP, bytes(16)), 2)  # its sender had waited
    late = [came_back(opened.conversation)]
    assert pooling.read_home([], late, 3) == [Resend(place, late)]
    pooling.closes(place, conversation_in(GROUP, bytes((1,)) * 16), 4)
    pooling.ended(opened.conversation)
    assert pooling.evicted == {mark_of(GROUP): place}
    pooling.ended(conversation_in(GROUP, bytes((1,)) * 16))
    assert not pooling.evicted


def test_nothing_makes_room_before_targets_have_caught_up(pooling: PoolState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POOL_KEY_ENTRIES_MAX", 1)
    monkeypatch.setattr(module, "POOL_CLOSING_ENTRIES_MAX", 1)
    one = begin(pooling)
    assert isinstance(one.place, PoolPlace)
    pooling.recycled(one, 1)
    begin(pooling, number=1)
    with pytest.raises(QueueFull, match="the pool has 1 conversation, and 1 that its target has not ended yet"):
        pooling.place(OTHER_GROUP, 2)


def test_unfinished_returns_conversations_that_are_not_open_in_turn(pooling: PoolState) -> None:
    pooled = [begin(pooling, bytes((number,)) * 16) for number in range(4)]
    assert pooling.unfinished(2) == []
    for one in pooled[1:]:
        pooling.recycled(one, 1)
    assert pooling.unfinished(2) == pooled[1:3]
    assert pooling.unfinished(2) == [pooled[3], pooled[1]]
    assert pooling.unfinished(5) == [pooled[2], pooled[3], pooled[1]]
