"""The error of a handler is logged with its messages, and the work goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Self
from uuid import UUID

import pytest

from konverse.bridge.reader.handlers import PAUSE_MAX_S, Crew, HandlerRunner, failure
from konverse.schemas.errors import InvalidProcedure, TransactionTooLarge


class Emptied:
    """A transaction whose only message, an Error, was withdrawn while its handler ran."""

    dialog = SimpleNamespace(id=UUID(int=7), attempts=3, service="//shop")
    members = (dialog,)
    begins = ()

    def __init__(self) -> None:
        self.rolled_back = False

    def __iter__(self) -> Any:
        return iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.rolled_back = kind is not None


def fail(_transaction: object) -> None:
    raise LookupError("no such order")


def test_a_failure_on_messages_that_were_taken_away_meanwhile_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    transactions: list[Any] = [Emptied(), Emptied()]
    HandlerRunner("Orders", fail).work(transactions)
    assert [transaction.rolled_back for transaction in transactions] == [True, True]
    for record in caplog.records:
        said = f"attempt 4 of 5 at conversation {UUID(int=7)} of service '//shop', no message left"
        assert said in record.getMessage()
        assert record.exc_info is None, "the traceback stands at the first attempt"
    assert len(caplog.records) == 2


def test_the_notes_of_an_exception_appear_in_the_log_line_of_each_attempt(caplog: pytest.LogCaptureFixture) -> None:
    def fail_with_note(_transaction: object) -> None:
        error = LookupError("no such order")
        error.add_note("router '//sales/Router' failed on a message of type '//sales/Order'")
        raise error

    transactions: list[Any] = [Emptied()]
    HandlerRunner("Orders", fail_with_note).work(transactions)
    said = (
        "LookupError: no such order; router '//sales/Router' failed on a message of type '//sales/Order'; "
        "the messages are received again"
    )
    assert said in caplog.text


class TooLarge(Emptied):
    """A transaction on several groups whose messages together exceed a commit."""

    def __exit__(self, kind: object, *_: object) -> None:
        raise TransactionTooLarge("the groups of the transaction send more than fits")


def test_groups_that_do_not_fit_into_one_commit_stop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    transactions: list[Any] = [TooLarge(), TooLarge()]
    HandlerRunner("Orders", lambda transaction: None).work(transactions)  # the function that calls the handler
    assert len(caplog.records) == 2
    for record in caplog.records:
        assert f"began at conversation {UUID(int=7)} was rolled back: the groups" in record.getMessage()


async def waits(_transaction: object) -> None:
    """Calling it has no effect."""


def yields(_transaction: object) -> Any:
    yield


def takes_two(_transaction: object, _other: object) -> None:
    """It cannot be called with a transaction alone."""


@pytest.mark.parametrize("handler", [waits, yields, takes_two, lambda: None])
def test_a_handler_that_cannot_be_called_with_a_transaction_alone_is_refused_behaviour_29(handler: Any) -> None:
    with pytest.raises(InvalidProcedure) as refused:
        HandlerRunner("Orders", handler)
    assert refused.value.number == 9653


def test_repeated_failures_of_a_handler_lengthen_its_pause_up_to_a_limit(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a backlog would be suspended during a short outage of something that the handler needs."""
    pauses: list[float] = []
    monkeypatch.setattr(
        "konverse.bridge.reader.handlers.time", SimpleNamespace(sleep=pauses.append, monotonic=lambda: 0.0)
    )
    calls = iter([True] * 12 + [False] + [True] * 2)

    def handler(_transaction: object) -> None:
        if next(calls):
            raise LookupError

    transactions: list[Any] = [Emptied() for _ in range(15)]
    HandlerRunner("Orders", handler).work(transactions)
    assert pauses[:11] == sorted(pauses[:11])
    assert (pauses[0] < 0.02, max(pauses), len(pauses)) == (True, PAUSE_MAX_S, 12)
    assert pauses[11] == pauses[0], "one has succeeded in between"
    said = [record for record in caplog.records if "times in a row" in record.getMessage()]
    assert len(said) == 1


def test_those_that_were_received_together_are_paused_behind_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a thousand bad messages would delay the good ones for minutes."""
    done: list[object] = []
    monkeypatch.setattr(
        "konverse.bridge.reader.handlers.time", SimpleNamespace(sleep=done.append, monotonic=lambda: 0.0)
    )
    good: Any = Emptied()

    def handler(transaction: object) -> None:
        if transaction is not good:
            raise LookupError
        done.append(transaction)

    bad: list[Any] = [Emptied() for _ in range(1_000)]
    HandlerRunner("Orders", handler).work([*bad, good], together=True)
    assert done == [good, PAUSE_MAX_S]


class Received(Emptied):
    """A transaction of a router."""

    dialog = SimpleNamespace(id=UUID(int=7), attempts=0, service="//sales/Router")


DEADLINE_S = 30.0


def one_hangs_and_one_ends(crew: Crew, release: threading.Event, further: list[Any]) -> threading.Thread:
    """Start a crew: one thread hangs in its handler until `release`, and the other ends. Returns the hanging thread."""
    hangs = threading.Event()
    hanging: list[threading.Thread] = []

    def handler(transaction: object) -> None:
        further.remove(transaction)
        hanging.append(threading.current_thread())
        hangs.set()
        release.wait(DEADLINE_S)

    handling = HandlerRunner("Requests", handler)
    transactions: Iterator[Any] = iter(list(further))
    first = threading.Lock()

    def work() -> None:
        if first.acquire(blocking=False):
            handling.work(transactions)
        else:
            assert hangs.wait(DEADLINE_S)
            raise SystemError("the other thread is at an end")

    with pytest.raises(SystemError, match="at an end"):
        crew.work(work, 2, lambda: None, handling)
    return hanging[0]


def test_a_thread_that_ends_with_an_error_is_logged_at_once_together_with_a_hanging_thread(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the error would stay unknown as long as the other thread hangs, perhaps for ever."""
    monkeypatch.setattr("konverse.bridge.reader.handlers.HANDLER_LEAVING_MS_MAX", 100)
    crew, release, further = Crew(), threading.Event(), [Received(), Received()]
    hanging = one_hangs_and_one_ends(crew, release, further)
    try:
        assert hanging.is_alive(), "it is left behind"
        assert not crew.busy, "and nobody waits for it"
        said, left = [record.getMessage() for record in caplog.records]
        what = f"conversation {UUID(int=7)} of service '//sales/Router', for 0."
        assert "a thread of queue 'Requests' ended with SystemError: the other thread is at an end" in said
        assert "abandoned 1 thread of queue 'Requests'" in left
        assert what in said
        assert what in left
    finally:
        release.set()
        hanging.join(DEADLINE_S)
    assert not hanging.is_alive()
    assert len(further) == 1, "who was left takes nothing further"


def test_a_thread_that_comes_back_soon_is_waited_for_before_the_error_of_another_is_raised(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.bridge.reader.handlers.STOP_WITHIN_S", DEADLINE_S)
    crew, release, further = Crew(), threading.Event(), [Received()]
    release.set()
    hanging = one_hangs_and_one_ends(crew, release, further)
    assert not hanging.is_alive()
    assert not crew.busy
    assert not caplog.records


class Wordless(Exception):
    """Its text cannot be made: a common mistake in `__str__`."""

    def __str__(self) -> str:
        return self.args  # type: ignore[return-value]


def test_an_exception_without_a_text_is_a_failed_attempt_like_any_other(caplog: pytest.LogCaptureFixture) -> None:
    def fail_without_words(_transaction: object) -> None:
        error = Wordless()
        error.__notes__ = [7, "a note"]  # type: ignore[list-item]
        raise error

    transactions: list[Any] = [Emptied(), Emptied()]
    HandlerRunner("Orders", fail_without_words).work(transactions)
    assert [transaction.rolled_back for transaction in transactions] == [True, True]
    told = "Wordless: (str() of this exception raised TypeError); a note; the messages are received again"
    assert told in caplog.text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (LookupError("no such order"), "LookupError: no such order"),
        (Wordless(), "Wordless: (str() of this exception raised TypeError)"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), None),
        (GeneratorExit(), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_block_that_was_abandoned_has_not_failed(error: BaseException, said: str | None) -> None:
    found: list[str | None] = []
    try:
        raise error
    except BaseException:  # noqa: BLE001  # as the end of a `with` block sees it
        found.append(failure())
    assert found == [said]
