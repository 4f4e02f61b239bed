"""Which conversation each place of a pool has, and what becomes of those that ended (behaviours 224 to 229)."""

from __future__ import annotations

from typing import Final

import pytest

from konverse.dialog import pooling as module
from konverse.dialog.mailbox import Bounced
from konverse.dialog.pooled import (
    AskVerdict,
    Drop,
    End,
    Forget,
    GiveUp,
    MakeRoom,
    Place,
    Pooled,
    Recycle,
    Resend,
    Stage,
    Standing,
    Stray,
    Way,
)
from konverse.dialog.pooling import Pooling
from konverse.dialog.recycling import RESENT
from konverse.schemas.errors import InvalidRoute, QueueFull
from konverse.schemas.identifiers import Address, conversation_in, mark_of
from konverse.schemas.limits import POOL_ASTRAY_MS, POOL_VERDICT_MS_MAX
from konverse.schemas.records import NO_SEQUENCE, Bounce, BounceReason
from konverse.schemas.table_entries import Target

AGE_MS: Final = 10_000
HOME: Final = Address("home", 0, b"tag.")
GROUP: Final = bytes(range(16))
OTHER_GROUP: Final = bytes(range(16, 32))


@pytest.fixture
def pooling() -> Pooling:
    """Conversations are old after ten seconds, and notes that redirect them name a service."""
    return Pooling(max_age_ms=AGE_MS, timer_ms=3 * AGE_MS, end_of_stream="EndOfStream", follow=follow)


def follow(way: Way, body: bytes) -> Way:
    """Nobody goes in a circle."""
    target = Target(body.decode())
    if target in way:
        raise InvalidRoute("in a circle")
    return (*way, target)


def begin(pooling: Pooling, group: bytes = GROUP, now_ms: int = 0, number: int = 0) -> Pooled:
    """A place of the group with a conversation."""
    place, _ = pooling.place(group, now_ms)
    return pooling.begun(place, conversation_in(group, number.to_bytes(16, "big")), now_ms)


def came_back(conversation: bytes, number: int = 0, message_type: str = "Order") -> Bounced:
    """A message of a conversation."""
    bounce = Bounce(bytes(16), number, HOME, BounceReason.ENDED)
    return Bounced(bytes(16), bounce, conversation, number, message_type, b"")


def test_a_group_has_one_place_and_that_one_open_conversation(pooling: Pooling) -> None:
    one = begin(pooling)
    assert pooling.place(GROUP, 5) == (one.place, [])
    assert one.place.current is one
    assert begin(pooling, OTHER_GROUP).place is not one.place
    with pytest.raises(AssertionError, match="one open conversation"):
        pooling.begun(one.place, bytes(16), 0)


def test_an_old_conversation_is_recycled_and_over_when_its_target_has_ended_it(pooling: Pooling) -> None:
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


def test_an_end_under_its_senders_is_followed_by_a_verdict_what_came_back_and_the_end_of_this_side(
    pooling: Pooling,
) -> None:
    one = begin(pooling)
    assert pooling.broken(one.conversation, RESENT[0], 5) == [AskVerdict(one)]
    assert pooling.broken(one.conversation, RESENT[0], 5) == []
    assert one.place.awaited is one
    late = [came_back(one.conversation, number) for number in range(2)]
    assert pooling.home_says([(one, Standing(ended=True))], late[:1], 6) == [
        Resend(one.place, late[:1]),
        AskVerdict(one),  # once more: something may have had to go before FIN
    ]
    assert one.place.awaited is one
    said = pooling.home_says([(one, Standing(ended=True, answered=True))], late[1:], 7)
    assert said == [Resend(one.place, late[1:]), End(one), Forget(one)]
    assert one.place.awaited is None
    assert pooling.home_says([(one, Standing(over=True))], [], 8) == []


@pytest.mark.parametrize("code", [*RESENT, -8494, -9615, 4711, None])
def test_what_came_back_goes_again_after_the_four_codes_alone(pooling: Pooling, code: int | None) -> None:
    one = begin(pooling)
    late = [came_back(one.conversation)]
    again = code is None or code in RESENT
    expected = Resend(one.place, late) if again else GiveUp(one.place, late, code or 0)
    standing = Standing(ended=True, code=code)
    assert pooling.home_says([(one, standing)], late, 1) == [expected, AskVerdict(one)]
    pooling.home_says([(one, standing._replace(answered=True))], [], 2)
    assert not pooling.known
    assert pooling.home_says([], late, 3) == [expected]


def test_who_recycles_when_the_timer_may_be_due_waits_for_what_came_too_late(pooling: Pooling) -> None:
    one = begin(pooling)
    pooling.recycled(one, 2 * AGE_MS - 1)
    assert one.place.awaited is None, "its home has not closed it before"
    two = begin(pooling, number=1)
    pooling.recycled(two, 2 * AGE_MS)
    assert one.place.awaited is two
    late = [came_back(two.conversation)]
    assert pooling.home_says([(two, Standing(finished=True))], [], 2 * AGE_MS) == []
    assert one.place.awaited is two, "its own FIN was not answered"
    assert pooling.home_says([(two, Standing(finished=True, answered=True))], late, 3 * AGE_MS) == [
        Resend(one.place, late)
    ]
    assert (two.stage, one.place.awaited) == (Stage.CLOSING, None)


def test_who_recycles_what_it_has_adopted_waits_too_as_nobody_knows_when_its_timer_is_due(pooling: Pooling) -> None:
    place, _ = pooling.place(GROUP, 0)
    one = pooling.begun(place, conversation_in(GROUP, bytes(16)), 0, adopted=True)
    pooling.recycled(one, 1)
    assert place.awaited is one
    assert pooling.tick(POOL_VERDICT_MS_MAX) == []
    pooling.tick(1 + POOL_VERDICT_MS_MAX)
    assert place.awaited is None, "and not for ever"


def test_what_could_not_be_recycled_when_it_was_asked_for_is_later(pooling: Pooling) -> None:
    one = begin(pooling)
    assert pooling.tick(1) == []
    one.due = True
    assert pooling.tick(1) == [Recycle(one)]


def test_a_silent_target_is_waited_for_so_long(pooling: Pooling) -> None:
    one = begin(pooling)
    pooling.broken(one.conversation, None, 5)
    assert pooling.tick(4 + POOL_VERDICT_MS_MAX) == []
    assert pooling.tick(5 + POOL_VERDICT_MS_MAX) == [End(one), Forget(one)]
    assert one.place.awaited is None


def test_a_conversation_that_its_home_has_finished_is_replaced_and_closes(pooling: Pooling) -> None:
    """The timer of a sender that was thought to be dead."""
    one = begin(pooling)
    late = [came_back(one.conversation), came_back(one.conversation, 1, "EndOfStream")]
    assert pooling.home_says([(one, Standing(finished=True))], late, 1) == [
        Resend(one.place, late[:1]),
        Drop(one.place, late[1:]),
        AskVerdict(one),
    ]
    assert pooling.home_says([(one, Standing(finished=True, answered=True))], [], 2) == []
    assert (one.stage, one.place.awaited) == (Stage.CLOSING, None)
    assert pooling.home_says([(one, Standing(over=True))], [], 3) == [Forget(one)]


def test_an_error_behind_end_of_stream_is_followed_by_a_verdict_and_keeps_nobody_waiting(pooling: Pooling) -> None:
    one = begin(pooling)
    pooling.recycled(one, 1)
    assert pooling.broken(one.conversation, 4711, 2) == [AskVerdict(one)]
    assert one.place.awaited is None
    assert pooling.statistics.replaced == 0
    assert pooling.home_says([(one, Standing(ended=True, answered=True))], [], 3) == [End(one), Forget(one)]
    assert pooling.closing == 0


def test_this_side_is_not_ended_before_its_application_has_received_what_waits(pooling: Pooling) -> None:
    one = begin(pooling)
    waits = Standing(ended=True, answered=True, unread=True)
    assert pooling.home_says([(one, waits)], [], 1) == [AskVerdict(one)]
    assert one.place.awaited is None
    assert pooling.tick(2 * POOL_VERDICT_MS_MAX) == []
    assert pooling.home_says([(one, waits._replace(unread=False))], [], 2) == [End(one), Forget(one)]


def test_what_is_no_place_of_the_pool_stays_where_it_is(pooling: Pooling) -> None:
    begin(pooling)
    assert pooling.home_says([], [came_back(OTHER_GROUP)], 1) == []
    assert pooling.broken(OTHER_GROUP, 1, 1) == []


def test_too_many_places_make_room_by_recycling_those_used_least(
    pooling: Pooling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POOL_KEY_ENTRIES_MAX", 3)
    monkeypatch.setattr(module, "POOL_EVICTED_ENTRIES", 1)
    groups = [bytes((number,)) * 16 for number in range(5)]
    opened = [begin(pooling, group, now_ms=number) for number, group in enumerate(groups[:3])]
    pooling.noticed(opened[0].place, 7, 10)
    place, effects = pooling.place(groups[3], 11)
    assert effects == [Recycle(opened[1]), MakeRoom(opened[1].place)]
    assert (len(pooling.places), [*pooling.evicted]) == (3, [mark_of(groups[1])])
    assert pooling.tick(12) == [Recycle(opened[1])]  # it failed, and is done again
    pooling.recycled(opened[1], 12)
    late = [came_back(opened[1].conversation)]
    assert pooling.home_says([], late, 13) == [Resend(opened[1].place, late)]
    pooling.ended(opened[1].conversation)
    assert not pooling.evicted
    assert place is pooling.places[mark_of(groups[3])]


def test_a_place_that_made_room_and_is_needed_again_is_the_same_one(
    pooling: Pooling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POOL_KEY_ENTRIES_MAX", 1)
    monkeypatch.setattr(module, "POOL_EVICTED_ENTRIES", 1)
    one = begin(pooling)
    begin(pooling, OTHER_GROUP)
    assert pooling.place(GROUP, 1) == (one.place, [])
    assert not pooling.evicted


def test_a_place_that_made_room_meanwhile_is_found_for_as_long_as_its_conversation_is_not_over(
    pooling: Pooling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POOL_KEY_ENTRIES_MAX", 1)
    monkeypatch.setattr(module, "POOL_EVICTED_ENTRIES", 1)
    place, _ = pooling.place(GROUP, 0)
    assert pooling.place(OTHER_GROUP, 1)[1] == [MakeRoom(place)]
    assert not pooling.evicted
    opened = pooling.begun(place, conversation_in(GROUP, bytes(16)), 2)  # its sender had waited
    late = [came_back(opened.conversation)]
    assert pooling.home_says([], late, 3) == [Resend(place, late)]
    pooling.closes(place, conversation_in(GROUP, bytes((1,)) * 16), 4)
    pooling.ended(opened.conversation)
    assert pooling.evicted == {mark_of(GROUP): place}
    pooling.ended(conversation_in(GROUP, bytes((1,)) * 16))
    assert not pooling.evicted


def test_nothing_makes_room_before_targets_have_caught_up(pooling: Pooling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POOL_KEY_ENTRIES_MAX", 1)
    monkeypatch.setattr(module, "POOL_CLOSING_ENTRIES_MAX", 1)
    one = begin(pooling)
    assert isinstance(one.place, Place)
    pooling.recycled(one, 1)
    begin(pooling, number=1)
    with pytest.raises(QueueFull, match="1 that their targets have not ended yet"):
        pooling.place(OTHER_GROUP, 2)


def test_who_is_asked_about_is_each_in_turn_that_is_not_open(pooling: Pooling) -> None:
    pooled = [begin(pooling, bytes((number,)) * 16) for number in range(4)]
    assert pooling.unfinished(2) == []
    for one in pooled[1:]:
        pooling.recycled(one, 1)
    assert pooling.unfinished(2) == pooled[1:3]
    assert pooling.unfinished(2) == [pooled[3], pooled[1]]
    assert pooling.unfinished(5) == [pooled[2], pooled[3], pooled[1]]


def note(conversation: bytes, service: str) -> Bounced:
    """A router says where the messages of a conversation go (behaviour 233)."""
    bounce = Bounce(conversation, 0, HOME, BounceReason.REDIRECTED)
    return Bounced(bytes(16), bounce, conversation, NO_SEQUENCE, "RedirectTo", service.encode())


def services(way: Way) -> list[str]:
    return [target.service for target in way]


def test_a_redirected_place_goes_where_its_router_says_with_all_that_came_back(pooling: Pooling) -> None:
    one = begin(pooling)
    late = [came_back(one.conversation, number) for number in range(2)]
    said = note(one.conversation, "north")
    assert pooling.home_says([(one, Standing(ended=True))], [said, *late], 1) == [AskVerdict(one), AskVerdict(one)]
    assert (one.place.awaited, one.place.current) == (one, None), "nothing overtakes what came back"
    assert services(pooling.way_of(one.place, 2)) == ["north"]
    assert pooling.home_says([(one, Standing(ended=True, answered=True))], [said, *late], 3) == [
        Resend(one.place, late),
        Drop(one.place, [said]),
        End(one),
        Forget(one),
    ]
    assert services(begin(pooling, now_ms=4, number=1).way) == ["north"]
    assert pooling.statistics.redirected == 1


SETTLED: Final = Standing(ended=True, answered=True)


def test_a_note_that_is_found_again_changes_nothing(pooling: Pooling) -> None:
    one = begin(pooling)
    said = note(one.conversation, "north")
    pooling.home_says([(one, SETTLED)], [said], 1)
    following = begin(pooling, number=1)
    further = note(following.conversation, "far north")
    pooling.home_says([(following, SETTLED)], [said, further], 2)
    assert pooling.home_says([], [said, further], 3) == [Drop(one.place, [said, further])]
    assert services(one.place.way) == ["north", "far north"]


def test_who_is_redirected_while_another_conversation_is_on_its_way_to_the_router_sends_nothing_more_there(
    pooling: Pooling,
) -> None:
    one = begin(pooling)
    pooling.recycled(one, 1)
    following = begin(pooling, number=1)
    late = [came_back(one.conversation), came_back(following.conversation, 1)]
    said = [note(one.conversation, "north"), note(following.conversation, "south")]
    assert pooling.home_says([], [said[0], late[0]], 2) == [AskVerdict(one), AskVerdict(following)]
    assert one.place.awaits == [one, following]
    unheard = Standing(finished=True, answered=True)
    assert pooling.home_says([(one, SETTLED), (following, unheard)], [said[0], late[0]], 3) == [End(one), Forget(one)]
    assert one.place.awaited is following, "the router has not come to it yet"
    found = [said[0], late[0], said[1], late[1]]
    assert pooling.home_says([(following, SETTLED)], found, 4)[:2] == [Resend(one.place, late), Drop(one.place, said)]
    assert one.place.awaited is None
    assert services(one.place.way) == ["north"], "the place has its way already"


def test_the_service_of_a_pool_is_asked_again_when_a_way_is_as_old_as_a_conversation_gets(pooling: Pooling) -> None:
    one = begin(pooling)
    pooling.home_says([], [note(one.conversation, "north")], 5)
    assert services(pooling.way_of(one.place, 4 + AGE_MS)) == ["north"]
    assert services(pooling.way_of(one.place, 5 + AGE_MS)) == []


def test_what_goes_in_a_circle_stays_where_it_came_back_to_and_is_tried_again(pooling: Pooling) -> None:
    one = begin(pooling)
    pooling.home_says([(one, SETTLED)], [note(one.conversation, "north")], 1)
    following = begin(pooling, number=1)
    said, late = note(following.conversation, "north"), [came_back(following.conversation)]
    assert pooling.home_says([], [said, *late], 2) == [Stray(one.place), AskVerdict(following)]
    assert one.place.astray == "in a circle"
    assert pooling.home_says([], [said, *late], 3) == [], "it waits"
    assert pooling.home_says([(following, SETTLED)], [said, *late], 3) == [End(following), Forget(following)]
    assert one.place.again_ms == 2 + POOL_ASTRAY_MS
    pooling.try_again(one.place)
    assert not pooling.astray
    assert pooling.home_says([], [said, *late], 4) == [Resend(one.place, late), Drop(one.place, [said])]
    assert services(one.place.way) == [], "from its own service on"


def test_a_way_that_leads_nowhere_any_more_is_asked_for_anew(pooling: Pooling) -> None:
    one = begin(pooling)
    pooling.home_says([], [note(one.conversation, "north")], 5)
    assert not one.place.forget_way(4 + POOL_ASTRAY_MS), "its router says so just now"
    assert services(one.place.way) == ["north"]
    assert one.place.forget_way(5 + POOL_ASTRAY_MS)
    assert services(one.place.way) == []


def test_what_waits_as_nobody_takes_it_is_tried_again_although_its_place_had_to_make_room(
    pooling: Pooling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POOL_KEY_ENTRIES_MAX", 1)
    monkeypatch.setattr(module, "POOL_EVICTED_ENTRIES", 1)
    one = begin(pooling)
    pooling.stray(one.place, "nobody takes it", 1)
    pooling.ended(one.conversation)
    begin(pooling, OTHER_GROUP)
    late = [came_back(one.conversation)]
    assert pooling.home_says([], late, 2) == [], "it waits"
    pooling.let_pass(one.place)
    assert [*pooling.evicted.values()] == [*pooling.astray.values()] == [one.place]
    monkeypatch.setattr(module, "POOL_CLOSING_ENTRIES_MAX", 1)
    with pytest.raises(QueueFull, match=r"1 keys whose messages wait; see `pool\.undelivered`"):
        pooling.place(bytes(16), 2)
    pooling.try_again(one.place)
    assert pooling.home_says([], late, 3) == [Resend(one.place, late)]
    pooling.let_pass(one.place)
    assert not pooling.evicted
    assert not pooling.astray


def test_nothing_of_a_redirected_place_goes_again_before_all_has_come_back(pooling: Pooling) -> None:
    one = begin(pooling)
    said, late = note(one.conversation, "north"), [came_back(one.conversation, number) for number in range(2)]
    assert pooling.home_says([(one, Standing(ended=True))], [said, late[0]], 1) == [AskVerdict(one), AskVerdict(one)]
    assert pooling.home_says([(one, Standing(ended=True, answered=True))], [said, *late], 2) == [
        Resend(one.place, late),
        Drop(one.place, [said]),
        End(one),
        Forget(one),
    ]


def test_the_way_of_a_conversation_that_is_over_is_known_when_its_note_comes(pooling: Pooling) -> None:
    one = begin(pooling)
    pooling.home_says([(one, Standing(ended=True, answered=True))], [note(one.conversation, "north")], 1)
    two = begin(pooling, now_ms=1, number=1)
    pooling.recycled(two, 2)
    three = begin(pooling, now_ms=2, number=2)
    pooling.ended(two.conversation)
    assert pooling.home_says([], [note(two.conversation, "far north")], 3) == [AskVerdict(three)]
    assert services(one.place.way) == ["north", "far north"]
