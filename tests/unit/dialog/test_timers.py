"""Conversation timers and lifetimes in the fold (protocol.md section 7.9)."""

from __future__ import annotations

from typing import Any

import pytest

from konverse.dialog.fold.fold import Fold
from konverse.dialog.fold.journal import JournalRecord
from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.owner.events import Append, Tick
from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.owner.staging import Staging
from konverse.dialog.owner.view import pack, unpack
from konverse.dialog.state.clocks import Clocks
from konverse.dialog.state.endpoint import NO_TIME, Clock, Endpoint
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.system_messages import DIALOG_TIMER, ERROR
from konverse.schemas.wire.journal import (
    GENESIS_HASH,
    TOOK_TIMER,
    Claim,
    Commit,
    CommitOperations,
    encode_claim,
    encode_commit,
)
from konverse.schemas.wire.operations import Resume, SetTimer, Skip, Suspend
from konverse.schemas.wire.records import Kind, Suffix, Timer
from tests.kit.builders import Pair, Side, anything, begin_block, identifier, log_of, of, record
from tests.kit.digests import digest
from tests.kit.driver import Driver
from tests.kit.moving import World, move


@pytest.fixture
def pair() -> Pair:
    return Pair()


def at(side: Side, time_ms: int, **columns: Any) -> None:
    """Commit, after a journal record of this time."""
    side.state.now_ms = time_ms
    side.commit(**columns)


def by_session(
    pair: Pair, conversation: bytes, timeout_ms: int, time_ms: int = 0, end_of_stream: str | None = None
) -> None:
    """The session sets the timer of its side; its record has this time."""
    suffix = Suffix(detail=Timer(timeout_ms, end_of_stream))
    header = pair.client.write(Kind.SET_TIMER, pair.home.address, conversation, suffix=suffix)
    pair.home.take_all([(header, record(time_ms=time_ms))])


def ringing(endpoint: Endpoint) -> list[int]:
    """Due times of the waiting DialogTimers."""
    return [entry[3] for entry in endpoint.urgent if entry[1] == DIALOG_TIMER]  # type: ignore[misc]  # not moved


# ---------------------------------------------------------------------------------------------------------------- when


def test_a_handlers_timer_counts_from_the_time_of_its_commit(pair: Pair) -> None:
    target = pair.receiver(pair.begin())
    at(pair.target, 1_000, rare=[SetTimer(target.index, 500)])  # written at 1,200, as the next commit knows
    at(pair.target, 1_200)
    assert target.clock == Clock(timer_ms=1_700)
    at(pair.target, 1_699)
    assert ringing(target) == []
    at(pair.target, 1_700)
    assert ringing(target) == [1_700]
    assert target.clock is None


def test_a_sessions_timer_counts_from_the_time_of_its_record(pair: Pair) -> None:
    conversation = pair.begin()
    by_session(pair, conversation, 500, time_ms=1_000)
    initiator = pair.initiator(conversation)
    at(pair.home, 1_499)
    assert ringing(initiator) == []
    at(pair.home, 1_500)
    assert ringing(initiator) == [1_500]
    assert pair.home.outputs(pair.target.address) == [], "the far side never sees it (behaviour 97)"


def test_a_lifetime_starts_at_the_time_of_its_commit_even_when_a_claim_follows() -> None:
    identity = log_of()
    ids = (identity.incarnation, identity.data_topic_id, identity.journal_topic_id)
    fold = Fold(identity)
    block = begin_block("orders", "replies", lifetime_ms=100)

    def hear(offset: int, time_ms: int, decision: Claim | Commit) -> None:
        data = encode_claim(decision) if isinstance(decision, Claim) else encode_commit(decision)
        fold.feed_journal([JournalRecord(offset, data, time_ms)])
        assert fold.advance() is None

    hear(0, 1_000, Claim(1, identifier("one"), 1, *ids, True))
    hear(
        1, 2_000, Commit(1, identifier("one"), 1, GENESIS_HASH, 0, CommitOperations(begins=[(identifier("a"), block)]))
    )
    hear(2, 9_000, Claim(2, identifier("two"), 1, *ids, False))
    (begun,) = fold.state.live()
    assert begun.clock == Clock(expires_ms=2_100)


# ------------------------------------------------------------------------------------------------------ one at a time


def test_a_timer_that_is_set_takes_the_place_of_the_one_before_it_behaviour_98(pair: Pair) -> None:
    conversation = pair.begin()
    by_session(pair, conversation, 500)
    by_session(pair, conversation, 2_000)
    at(pair.home, 1_000)
    assert ringing(pair.initiator(conversation)) == []
    at(pair.home, 2_000)
    assert ringing(pair.initiator(conversation)) == [2_000]


def test_a_timer_set_by_a_handler_replaces_a_timer_that_expires_at_the_same_commit(pair: Pair) -> None:
    conversation = pair.begin()
    by_session(pair, conversation, 500)
    initiator = pair.initiator(conversation)
    at(pair.home, 1_000, rare=[SetTimer(initiator.index, 400)])
    assert ringing(initiator) == []
    at(pair.home, 1_000)
    at(pair.home, 1_400)
    assert ringing(initiator) == [1_400]


def test_each_side_has_its_own_timer_behaviour_99(pair: Pair) -> None:
    conversation = pair.begin()
    by_session(pair, conversation, 500)
    at(pair.target, 0, rare=[SetTimer(pair.receiver(conversation).index, 700)])
    at(pair.target, 0)
    at(pair.home, 600)
    at(pair.target, 600)
    assert (ringing(pair.initiator(conversation)), ringing(pair.receiver(conversation))) == ([500], [])


def test_a_timer_that_comes_due_while_another_waits_rings_after_that_one_is_received(pair: Pair) -> None:
    conversation = pair.begin()
    initiator = pair.initiator(conversation)
    by_session(pair, conversation, 100)
    at(pair.home, 100)
    by_session(pair, conversation, 100, time_ms=200)
    at(pair.home, 400)
    assert ringing(initiator) == [100]
    at(pair.home, 500, receive_endpoints=[initiator.index], receive_positions=[TOOK_TIMER])
    assert ringing(initiator) == [300]
    assert pair.home.receive(initiator) == [DIALOG_TIMER]
    at(pair.home, 9_000)
    assert ringing(initiator) == []


def test_nothing_rings_on_a_conversation_that_is_suspended(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    target = pair.receiver(conversation)
    at(pair.target, 0, rare=[SetTimer(target.index, 100), Suspend(target.index, "why", ordered=False)])
    at(pair.target, 0)
    at(pair.target, 200)
    assert ringing(target) == []
    at(pair.target, 200, rare=[Skip(target.index)])
    assert (target.consumed, ringing(target)) == (1, [100]), "what was skipped is what waited"
    assert pair.target.state.ready[-1] is target


def test_an_operator_skips_an_expired_timer_before_other_messages(pair: Pair) -> None:
    target = pair.receiver(pair.begin(messages=2))
    at(pair.target, 0, rare=[SetTimer(target.index, 100)])
    at(pair.target, 0)
    at(pair.target, 100)
    at(pair.target, 100, rare=[Suspend(target.index, "why", ordered=False), Skip(target.index)])
    assert (target.consumed, ringing(target)) == (0, [])
    at(pair.target, 100, rare=[Suspend(target.index, "why", ordered=False), Resume(target.index)])
    assert (target.consumed, len(target.queue)) == (0, 2)


# ----------------------------------------------------------------------------------------------------- order and ends


def test_a_timer_is_received_before_an_error_and_that_before_messages_behaviour_100(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    target = pair.receiver(conversation)
    at(pair.target, 0, rare=[SetTimer(target.index, 100)])
    at(pair.target, 0)
    pair.end_call(conversation, error=(5, "enough"))
    pair.home.deliver(pair.target)
    at(pair.target, 100)
    transaction = of(pair.target, target)
    assert len(transaction) == 4
    assert [message.type for message in transaction] == [DIALOG_TIMER, ERROR, "order", "order"]
    assert len({message.id for message in transaction}) == 4


@pytest.mark.parametrize("count", range(5))
def test_a_loop_left_early_receives_only_the_messages_that_it_yielded(pair: Pair, count: int) -> None:
    conversation = pair.begin(messages=2)
    target = pair.receiver(conversation)
    at(pair.target, 0, rare=[SetTimer(target.index, 100)])
    at(pair.target, 0)
    pair.end_call(conversation, error=(5, "enough"))
    pair.home.deliver(pair.target)
    at(pair.target, 100)
    expected = [DIALOG_TIMER, ERROR, "order", "order"]
    for receive in (False, True):
        transaction = of(pair.target, target)
        if receive:
            taken = [message for _ in range(count) for message in transaction.receive(1)]
        else:
            taken = [message for message, _ in zip(transaction, range(count), strict=False)] if count else []
        assert [message.type for message in taken] == expected[:count]
        if not receive:
            continue
        received = transaction.received
        pair.target.commit(receive_endpoints=[*received], receive_positions=[*received.values()])
    left = [entry[1] for entry in (*target.urgent, *target.queue)]
    assert left == expected[count:]


def test_the_end_of_a_side_cancels_its_timer_behaviour_104(pair: Pair) -> None:
    conversation = pair.begin()
    by_session(pair, conversation, 100)
    pair.end_call(conversation)
    at(pair.home, 500)
    assert pair.initiator(conversation).urgent == ()
    by_session(pair, conversation, 100)
    by_session(pair, identifier("nobody"), 100)
    assert pair.home.state.statistics.undeliverable == 2
    assert pair.home.state.clocks.next_ms(0) is None


def test_a_timer_for_a_nonexistent_endpoint_halts_the_partition(pair: Pair) -> None:
    with pytest.raises(PartitionHalted, match="timer of endpoint 7"):
        at(pair.target, 0, rare=[SetTimer(7, 100)])


def test_a_set_timer_without_a_timeout_is_malformed(pair: Pair) -> None:
    conversation = pair.begin()
    pair.home.take(pair.client.write(Kind.SET_TIMER, pair.home.address, conversation))
    assert pair.home.state.statistics.malformed == 1


# ---------------------------------------------------------------------------------------- snapshots, moves, the view


def test_a_snapshot_holds_timers_and_lifetimes_also_those_that_have_no_time_yet(pair: Pair) -> None:
    conversation = pair.begin(lifetime_ms=5_000)
    target = pair.receiver(conversation)
    at(pair.target, 0, rare=[SetTimer(target.index, 100)])
    at(pair.target, 0)
    at(pair.target, 100, rare=[SetTimer(target.index, 300)])
    other = Side("orders")
    restore(other.state, b"".join(Freeze(pair.target.state).pieces()))
    assert digest(other.state) == digest(pair.target.state)
    for time_ms in (200, 500, 5_000):
        for side in (pair.target, other):
            at(side, time_ms)
        assert digest(other.state) == digest(pair.target.state)
    (restored,) = other.state.live()
    assert restored.state is State.ERROR
    assert ringing(restored) == [500]


def test_an_endpoint_moves_with_its_timer_and_its_lifetime() -> None:
    world = World()
    conversation = world.begin(lifetime_ms=5_000)
    before = world.receiver(conversation)
    at(world.target, 0, rare=[SetTimer(before.index, 100)])
    at(world.target, 0)
    at(world.target, 100)
    world.target.commit(rare=[SetTimer(before.index, 800)])
    world.target.commit()
    after = move(world, world.target, before, world.second)
    assert [entry[1] for entry in after.urgent] == [DIALOG_TIMER]
    assert after.clock == Clock(900, 5_000)
    assert world.second.receive(after) == [DIALOG_TIMER, "order"]
    at(world.second, 900)
    assert after.rings


def test_an_endpoint_moves_when_its_times_are_known() -> None:
    world = World()
    endpoint = world.receiver(world.begin())
    staging = Staging(world.target.state, anything, OwnerSettings())
    world.target.commit(rare=[SetTimer(endpoint.index, 100)])
    assert staging.moving.take_along(endpoint, world.second.address)
    assert staging.moving.operations() == []
    world.target.commit()
    assert [operation.endpoint for operation in staging.moving.operations()] == [endpoint.index]


def test_a_timer_that_is_set_where_the_side_lived_before_follows_it() -> None:
    world = World()
    conversation = world.begin()
    after = move(world, world.home, world.initiator(conversation), world.second)
    by_session(world, conversation, 100, time_ms=50)
    world.settle()
    assert after.clock == Clock(timer_ms=150)


def test_the_end_of_stream_type_of_a_pool_timer_survives_firing_and_relocation() -> None:
    world = World()
    conversation = world.begin()
    endpoint = world.initiator(conversation)
    by_session(world, conversation, 100, end_of_stream="Bye")
    assert endpoint.clock == Clock(timer_ms=100, end_of_stream="Bye")
    at(world.home, 100)
    assert ringing(endpoint) == [100]
    world.home.commit(rare=[SetTimer(endpoint.index, 500)])
    at(world.home, 200)
    after = move(world, world.home, endpoint, world.second)
    assert after.clock == Clock(timer_ms=700, end_of_stream="Bye")
    by_session(world, conversation, 100, time_ms=50)
    world.settle()
    assert after.clock == Clock(timer_ms=150)


def test_the_view_shows_when_a_timer_is_due(pair: Pair) -> None:
    conversation = pair.begin()
    by_session(pair, conversation, 500, time_ms=1_000)
    value = bytes(8) + pack(pair.initiator(conversation))
    assert unpack(conversation + b"I", value).timer_due_ms == 1_500
    at(pair.home, 1_500)
    assert unpack(conversation + b"I", bytes(8) + pack(pair.initiator(conversation))).timer_due_ms == NO_TIME


# --------------------------------------------------------------------------------------------------------- the owner


def test_an_owner_commits_when_something_is_due_and_not_before() -> None:
    driver = Driver()
    driver.lead()
    pair = Pair()
    conversation = identifier("a conversation")
    block = begin_block("orders", "replies", lifetime_ms=60_000)
    header = pair.client.write(Kind.BEGIN, driver.state.address, conversation, suffix=Suffix(begin=block))
    driver.arrive((header, record(time_ms=0)))
    driver.commit()

    def written(now_ms: int) -> int:
        driver.now_ms = now_ms
        appends = [effect for effect in driver.step(Tick()) if isinstance(effect, Append)]
        for effect in appends:
            driver.acknowledge(effect)
        return len(appends)

    assert written(30_000) == 0
    assert written(61_000) == 1, "it tells the time"
    driver.owner.fold.head.now_ms = 61_000  # the clock of this driver's journal shows offsets
    assert written(61_001) == 1, "it fires"
    assert written(61_002) == 0
    (endpoint,) = driver.state.live()
    assert endpoint.state is State.ERROR


def test_replaced_timers_do_not_accumulate(pair: Pair) -> None:
    conversation = pair.begin()
    for number in range(10_000):
        by_session(pair, conversation, 1_000 + number)
    assert len(vars(pair.home.state.clocks)["_heap"]) < 200
    at(pair.home, 11_000)
    assert ringing(pair.initiator(conversation)) == [10_999]


def test_nothing_is_expected_of_endpoints_without_times() -> None:
    assert Clocks().next_ms(5) is None
