"""Which sides of conversations were forgotten, judged by the sides alone."""

from __future__ import annotations

import pytest

from konverse.dialog.queries.leaks import Cause, SideFacts, cause_of, explained, side_of, worked_on
from konverse.dialog.state.endpoint import Clock
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.journal import CommitOperations, EndOperation
from konverse.schemas.wire.operations import Attempt, Prune, Rare, SetTimer
from tests.kit.builders import Pair

SO, SI, CO, DI, DO, ER, _ = State


def side(state: State, role: Role = Role.TARGET, **said: object) -> SideFacts:
    one = SideFacts(b"c" * 16, role, "//near", "//far", "//contract", state)
    return one._replace(**said)  # type: ignore[arg-type]  # fields of Side


def initiator(state: State, **said: object) -> SideFacts:
    return side(state, Role.INITIATOR, **{"sent": -1, **said})


@pytest.mark.parametrize(
    ("one", "peer", "expected"),
    [
        (side(DI), initiator(DO), Cause.FIRE_AND_FORGET),
        (side(DI, sent=2), initiator(DO), Cause.NOT_ENDED),
        (initiator(DI), side(DO), Cause.NOT_ENDED),
        (initiator(ER), side(DO), Cause.NOT_ENDED),
        (side(ER), initiator(ER), Cause.NOT_ENDED),
        (initiator(DI, end_waits=True), side(DO), Cause.END_UNREAD),
        (initiator(DI, end_waits=True, unread=3), side(DO), Cause.END_UNREAD),
        (initiator(ER, end_waits=True), side(DO), Cause.END_UNREAD),
        (side(DI), None, Cause.FIRE_AND_FORGET),
        (initiator(DO), None, Cause.PEER_GONE),
        (initiator(CO), None, Cause.PEER_GONE),
        (side(CO), None, Cause.PEER_GONE),
        (initiator(SO), None, Cause.NEVER_ANSWERED),
        (side(CO), initiator(DO), Cause.END_NOT_PASSED_ON),
        (side(CO), initiator(SO), Cause.SILENT),
        (initiator(SO), side(CO), Cause.SILENT),
        (initiator(CO), side(CO), Cause.SILENT),
    ],
)
def test_a_side_is_forgotten_by_its_own_state_and_that_of_its_peer(
    one: SideFacts, peer: SideFacts | None, expected: Cause
) -> None:
    assert cause_of(one, peer) is expected


@pytest.mark.parametrize(
    ("one", "peer"),
    [
        (side(CO, unread=1), initiator(SO)),
        (initiator(CO), side(CO, unread=1)),
        (side(CO, timer_ms=1), initiator(CO)),
        (initiator(CO), side(CO, timer_ms=1)),
        (initiator(CO, expires_ms=1), side(CO)),
        (side(CO), initiator(CO, expires_ms=1)),
        (initiator(SO, expires_ms=1), None),
        (initiator(DI, timer_ms=1), side(DO)),
        (initiator(DI, unread=1), side(DO)),
        (initiator(DO), side(DI)),
        (initiator(DO), side(CO)),
        (initiator(DO, expires_ms=1), None),
        (initiator(CO), side(DI)),
        (initiator(CO), side(ER)),
        (initiator(ER, end_waits=True, suspended=True), side(DO)),
        (side(CO, suspended=True), None),
    ],
)
def test_a_side_that_awaits_an_event_or_an_action_of_another_party_is_not_forgotten(
    one: SideFacts, peer: SideFacts | None
) -> None:
    assert cause_of(one, peer) is None


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_a_sentence_with_the_reason_and_a_sentence_with_the_remedy(cause: Cause) -> None:
    why, remedy = explained(side(DI), cause)
    assert why.endswith(".")
    assert remedy.endswith(".")
    assert "{" not in why + remedy


def test_an_ended_side_whose_peer_is_gone_may_need_a_reader_on_either_side() -> None:
    why, remedy = explained(initiator(DO), Cause.PEER_GONE)
    assert why.startswith("This side has ended, and the other side is gone: service '//far' has ended too")
    assert remedy == (
        "Start readers of the queues of services '//near' and '//far': the end of the other side may wait in either. "
        "If the conversation stays, end it WITH CLEANUP."
    )
    assert "gone for good" in explained(initiator(CO), Cause.PEER_GONE)[0]


def test_the_explanation_counts_the_messages_waiting_before_the_end() -> None:
    why, remedy = explained(initiator(DI, end_waits=True, unread=1), Cause.END_UNREAD)
    assert why == (
        "The other side has ended, and its EndDialog waits for service '//near', which has no active reader, after 1 "
        "message."
    )
    assert remedy == "Start a reader of the queue of service '//near' whose handler ends conversations on EndDialog."
    why, _ = explained(initiator(ER, end_waits=True), Cause.END_UNREAD)
    assert why.startswith("It has failed, and its Error waits")


def test_a_target_that_ended_leaves_an_end_to_read_and_then_one_to_end() -> None:
    pair = Pair()
    (initiator,) = pair.answered("a", messages=2)
    pair.target.end(pair.receiver(initiator.conversation))
    pair.target.deliver(pair.home)
    one, peer = side_of(initiator), side_of(pair.receiver(initiator.conversation))
    assert (one.unread, one.end_waits, one.waits) == (2, True, True)
    assert cause_of(one, peer) is Cause.END_UNREAD
    pair.home.receive(initiator)
    one = side_of(initiator)
    assert (one.unread, one.end_waits, one.waits) == (0, False, False)
    assert cause_of(one, peer) is Cause.NOT_ENDED
    assert cause_of(peer, one) is None


def test_a_target_whose_initiator_sent_and_ended_is_left_alone_with_it() -> None:
    pair = Pair()
    conversation = pair.begin()
    pair.end_call(conversation)
    home, target = pair.initiator(conversation), pair.receiver(conversation)
    pair.target.receive(target)
    assert cause_of(side_of(target), side_of(home)) is Cause.END_NOT_PASSED_ON
    pair.home.deliver(pair.target)
    assert cause_of(side_of(target), side_of(home)) is Cause.END_UNREAD
    pair.target.receive(target)
    assert cause_of(side_of(target), side_of(home)) is Cause.FIRE_AND_FORGET


def test_a_timer_and_a_lifetime_count_from_the_commit_that_sets_them() -> None:
    pair = Pair()
    target = pair.receiver(pair.begin())
    target.clock = Clock(timer_after_ms=500, expires_after_ms=900)
    assert (side_of(target).timer_ms, side_of(target).expires_ms) == (500, 900)


def test_endpoints_with_receives_sends_ends_attempts_or_timers_count_as_worked_on_by_a_commit() -> None:
    assert worked_on(CommitOperations()) == set()
    rare: list[Rare] = [Attempt([4, 5]), SetTimer(6, 1_000), Prune(7)]
    operations = CommitOperations([], [1], [4], [(2, "reply", [b""])], [EndOperation(3)], rare)
    assert worked_on(operations) == {1, 2, 3, 4, 5, 6}
