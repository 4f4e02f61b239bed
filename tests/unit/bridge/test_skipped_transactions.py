"""When transactions come again that were handed out and not entered."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from konverse.bridge.reader.skipped_transactions import REQUESTS_MAX, SkippedTransactions

OWNER: Any = object()


def made(number: int = 0) -> Any:
    """A transaction that was handed out and not entered."""
    return SimpleNamespace(fresh=True, dialog=SimpleNamespace(id=UUID(int=number)))


def entered(transactions: Iterable[Any]) -> None:
    for transaction in transactions:
        transaction.fresh = False


def passed(skipped: SkippedTransactions, requests: int) -> list[list[Any]]:
    """What so many requests hand out again, where each request is answered and its transaction entered."""
    found: list[list[Any]] = []
    for _ in range(requests):
        found.append([transaction for _, transaction in skipped.requested()])
        skipped.handed(OWNER, answer := made())
        entered([answer])
    return found


def test_a_skipped_transaction_comes_again_after_a_bounded_number_of_requests_whatever_is_ready(
    caplog: pytest.LogCaptureFixture,
) -> None:
    skipped, first = SkippedTransactions("Orders"), made(7)
    skipped.requested()
    skipped.handed(OWNER, first)
    found = passed(skipped, REQUESTS_MAX)
    assert found[:-1] == [[]] * (REQUESTS_MAX - 1)
    assert found[-1] == [first]
    assert not first.fresh, "it cannot be entered any more"
    assert f"the transaction of conversation {UUID(int=7)} of queue 'Orders' was skipped" in caplog.text
    assert passed(skipped, 2 * REQUESTS_MAX) == [[]] * 2 * REQUESTS_MAX, "it comes again once"


def test_each_transaction_of_a_loop_that_enters_none_comes_again() -> None:
    skipped = SkippedTransactions("Orders")
    given = [made(number) for number in range(3 * REQUESTS_MAX)]
    found: list[Any] = []
    for transaction in given:
        found += [each for _, each in skipped.requested()]
        skipped.handed(OWNER, transaction)
    assert found == given[: 2 * REQUESTS_MAX]


def test_transactions_that_were_collected_and_then_entered_do_not_come_again() -> None:
    skipped = SkippedTransactions("Orders")
    for _ in range(3):
        collected = [made() for _ in range(REQUESTS_MAX)]
        for transaction in collected:
            assert skipped.requested() == []
            skipped.handed(OWNER, transaction)
        entered(reversed(collected))
    assert skipped.requested() == []


def test_a_list_of_transactions_is_one_request() -> None:
    skipped = SkippedTransactions("Orders")
    skipped.requested()
    batch = [made() for _ in range(10 * REQUESTS_MAX)]
    for transaction in batch:
        skipped.handed(OWNER, transaction)
    entered(batch[1:])
    assert passed(skipped, REQUESTS_MAX)[-1] == batch[:1]


def test_the_requests_of_other_threads_do_not_count_unless_the_thread_has_ended() -> None:
    skipped, left, kept = SkippedTransactions("Orders"), made(1), made(2)
    ends = threading.Event()

    def take(transaction: Any) -> None:
        skipped.requested()
        skipped.handed(OWNER, transaction)

    def take_and_work() -> None:
        take(kept)
        ends.wait(60)

    working = threading.Thread(target=take_and_work)
    working.start()
    ending = threading.Thread(target=take, args=(left,))
    ending.start()
    ending.join()
    try:
        found = [one for request in passed(skipped, 2 * REQUESTS_MAX) for one in request]
    finally:
        ends.set()
        working.join()
    assert found == [left]


def test_when_nothing_is_ready_each_transaction_that_was_not_entered_comes_again_at_once() -> None:
    skipped, first, second = SkippedTransactions("Orders"), made(1), made(2)
    for transaction in (first, second):
        skipped.requested()
        skipped.handed(OWNER, transaction)
    entered([second])
    assert skipped.requested() == []
    assert skipped.take_back() == [(OWNER, first)]
    assert skipped.take_back() == []
