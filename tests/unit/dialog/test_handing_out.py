"""Groups that a process hands out from its partitions, and groups that come back (`dialog.owner.handing_out`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from konverse.dialog.owner.events import Append, Drained
from konverse.dialog.owner.handing_out import REST_MS, HandingOut, can_take, let_others_pass, should_commit, take
from konverse.dialog.owner.owner import Owner
from konverse.dialog.transaction.transaction import Transaction
from tests.kit.builders import conversations
from tests.kit.driver import Driver

NAMES = ("a", "b", "c", "d")


class Process:
    """A process with partitions of its own; its appends wait for the test."""

    def __init__(self, partitions: int = 1, names: tuple[str, ...] = NAMES, **settings: Any) -> None:
        self.handing_out = HandingOut()
        self.drivers = [Driver(**settings) for _ in range(partitions)]
        for number, driver in enumerate(self.drivers):
            driver.owner.identity = replace(driver.owner.identity, partition=number)
            driver.lead()
            driver.arrive(*conversations(*names))
            self.handing_out.join(driver.owner)
        self.appends: list[Append] = []
        self.owner = self.drivers[0].owner

    def commit(self, owner: Owner) -> None:
        self.handing_out.served(owner)
        self.appends += owner.commit(0)  # type: ignore[arg-type]

    def take(self) -> Transaction:
        found = self.handing_out.next_group(self.commit)
        assert found is not None, "no group is handed out"
        return found[1]

    def ended(self, transaction: Transaction, *, commits: bool = True, now_ms: int = 0) -> int:
        owner = next(d.owner for d in self.drivers if d.owner.staging.context is transaction._shared)
        return self.handing_out.ended(owner, transaction, commits=commits, error="no", now_ms=now_ms)

    def worked(self, transaction: Transaction) -> None:
        list(transaction)
        self.ended(transaction)


def test_a_commit_that_is_full_is_made_before_another_group_is_handed_out() -> None:
    process = Process(batch=1)
    process.worked(process.take())
    assert (process.owner.staging.full, process.appends) == (True, [])
    process.worked(process.take())
    assert len(process.appends) == 1


def test_while_it_is_on_its_way_and_the_next_one_is_full_nothing_is_handed_out() -> None:
    process = Process(batch=1)
    process.worked(process.take())
    process.worked(process.take())
    assert process.handing_out.next_group(process.commit) is None
    assert (can_take(process.owner), process.handing_out.ready) == (False, False)
    assert take(process.owner, process.commit, process.owner.staging.ready[0]) is None, "not by name either"
    process.drivers[0].acknowledge(process.appends[0])
    assert process.handing_out.ready
    process.take()
    assert len(process.appends) == 2


def test_no_group_is_handed_out_while_finished_work_waits_for_the_commit_after_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("konverse.dialog.owner.staging.COMMIT_BYTES_TARGET", 1)
    process = Process()
    for transaction in (process.take(), process.take()):
        transaction.send(transaction.dialog, "reply", b"large")
        process.worked(transaction)
    assert process.handing_out.next_group(process.commit) is None, "one of two is on its way"
    assert len(process.appends) == 1


def test_a_full_outbox_hands_out_no_further_group_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("konverse.dialog.owner.owner.OUTBOX_RECORDS_MAX", 1)
    process = Process()
    at_work, driver = process.take(), process.drivers[0]
    driver.handle(b"1")
    driver.commit()
    assert process.owner.congested
    assert at_work.next_group() is None
    assert (process.handing_out.next_group(process.commit), process.handing_out.ready) == (None, False)
    driver.step(Drained([*driver.state.streams]))
    assert should_commit(process.owner, acknowledgements=False), "room for others is not waited for"
    driver.commit()
    assert at_work.next_group() is not None


def test_abandoned_work_is_handed_out_again_and_is_no_failed_attempt() -> None:
    process = Process(names=("a",))
    before = process.owner.staging.out
    transaction = process.take()
    process.handing_out.ended(process.owner, transaction, commits=False, error=None, now_ms=0)
    assert (process.owner.trial._failed, process.owner.trial.due, process.owner.staging.out) == ([], False, before)
    assert process.take().dialog is transaction.dialog


def test_partitions_take_turns() -> None:
    process = Process(partitions=3)
    for _ in range(6):
        process.ended(process.take(), commits=False)
    assert [driver.owner.staging.out for driver in process.drivers] == [0, 0, 0]
    assert [len(driver.owner.trial._failed) for driver in process.drivers] == [2, 2, 2]


def test_a_partition_that_was_committed_comes_behind_the_others() -> None:
    process = Process(partitions=2, batch=1)
    process.worked(process.take())
    process.take()
    assert process.handing_out.owners == [process.drivers[1].owner, process.drivers[0].owner]


def test_an_owner_that_has_left_has_no_turn() -> None:
    process = Process(partitions=2)
    process.handing_out.leave(process.owner)
    process.handing_out.served(process.owner)
    assert process.handing_out.owners == [process.drivers[1].owner]
    process.handing_out.join(process.owner)
    process.handing_out.join(another := Driver().owner)
    assert process.handing_out.owners == [process.drivers[1].owner, another], "of the same partition the last one"


def test_a_group_with_which_nothing_was_done_rests_and_comes_again() -> None:
    process = Process(names=("a",))
    transaction = process.take()
    assert process.ended(transaction) == 0
    assert (process.owner.staging.waiting, bool(process.handing_out.resting)) == (False, True)
    process.handing_out.hand_out_again(REST_MS - 1)
    assert process.handing_out.next_group(process.commit) is None
    process.handing_out.hand_out_again(REST_MS)
    assert process.take().dialog is transaction.dialog


def test_a_failed_group_is_passed_to_the_trial() -> None:
    process = Process(names=("a",))
    process.ended(process.take(), commits=False)
    assert process.owner.trial.due
    assert not process.handing_out.resting


def test_a_resting_group_is_not_handed_out_again_after_the_partition_is_lost() -> None:
    process = Process(names=("a",))
    rests = process.take()
    process.ended(rests)
    process.drivers[0].owner._stop("lost")
    process.handing_out.hand_out_again(REST_MS)
    assert process.owner.staging.out == 1
    assert process.handing_out.next_group(process.commit) is None


def test_more_is_fetched_when_little_waits_or_a_partition_has_nothing() -> None:
    process = Process(partitions=2)
    assert process.handing_out.unread == 2 * len(NAMES)
    assert process.handing_out.scarce(2 * len(NAMES) + 1)
    assert not process.handing_out.scarce(2 * len(NAMES))
    for _ in NAMES:
        assert take(process.owner, process.commit) is not None
    assert process.handing_out.scarce(2 * len(NAMES)), "nothing of one partition can be taken"


def test_acknowledgements_wait_for_a_commit_only_when_they_are_asked_for() -> None:
    process = Process()
    driver = process.drivers[0]
    driver.handle(b"1")
    driver.commit()
    driver.step(Drained([*driver.state.streams]))
    assert not should_commit(process.owner, acknowledgements=False)
    assert should_commit(process.owner, acknowledgements=True)
    process.commit(process.owner)
    assert not should_commit(process.owner, acknowledgements=True), "one is on its way"


def test_after_a_crash_an_unwanted_group_can_be_skipped_once() -> None:
    process = Process()
    driver = process.drivers[0]
    assert let_others_pass(process.owner) is None, "nothing crashed"
    again = Driver(driver.journal, driver.data, claim="next", handlers=1)
    again.lead()
    again.arrive()
    assert let_others_pass(again.owner) is None, "no TRY counts yet"
    again.try_groups()
    passed = let_others_pass(again.owner)
    assert passed is not None
    assert again.owner.staging.out == 0
    assert let_others_pass(again.owner) is None
