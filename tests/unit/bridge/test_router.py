"""Routers without servers: their clauses, the watch over their classifiers, and the form of their figures."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from rich.console import Console

import konverse
from konverse.bridge.cli.router import flow_of, line, picture
from konverse.bridge.router import figures
from konverse.bridge.router.figures import FRESH_MS, Figures, summed
from konverse.bridge.router.watchdog import Watched
from konverse.routing.routed import Failure, Routed
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import (
    AlreadyExists,
    BadInput,
    InvalidName,
    InvalidProcedure,
    InvalidRoute,
    InvalidSettings,
)
from konverse.schemas.limits import ERROR_DESCRIPTION_CHARACTERS_MAX

SCOPE = SimpleNamespace(now_ms=lambda: 0)
MESSAGE: Any = SimpleNamespace(id="an id", type="//sales/Order", dialog=SimpleNamespace(id=UUID(int=7)), context=SCOPE)


def classify(message: konverse.Message) -> str:
    """A classifier."""
    return message.type


def test_a_router_classifies_as_the_function_that_it_is_made_of() -> None:
    app = konverse.App("kafka://127.0.0.1:1")  # no server listens there
    router = app.router("//sales/Router", contracts=["//sales/Ordering"], max_readers=3)(classify)
    assert app.routers == [router]
    assert router(MESSAGE) == "//sales/Order"
    assert (router.service, router.clauses.max_readers) == ("//sales/Router", 3)
    assert router.routed == Routed()


def test_a_service_is_a_router_once() -> None:
    app = konverse.App()
    app.router("//sales/Router")(classify)
    with pytest.raises(AlreadyExists, match=r"is a router already; set its `classify`"):
        app.router("//sales/Router")


@pytest.mark.parametrize(
    ("service", "clauses", "error"),
    [
        ("", {}, InvalidName),
        ("router", {"mode": "sideways"}, InvalidSettings),
        ("router", {"max_readers": -1}, InvalidSettings),
        ("router", {"classify_timeout_s": 0.0}, InvalidSettings),
        ("router", {"batch": 0}, BadInput),
        ("router", {"contract": "a"}, BadInput),
    ],
)
def test_clauses_that_cannot_be_are_refused(service: str, clauses: dict[str, Any], error: type[BadInput]) -> None:
    with pytest.raises(error):
        konverse.App().router(service, **clauses)


async def later(message: konverse.Message) -> str:
    return message.type


def with_table(message: konverse.Message, table: dict[str, str]) -> str:
    return table[message.type]


@pytest.mark.parametrize(
    ("classifier", "says"),
    [
        (later, "later is async or a generator, and calling it with a message does nothing"),
        (partial(later), "is async or a generator"),
        (with_table, r"with_table\(message.* must take exactly one argument, the message"),
        ("//sales/North", "'//sales/North' cannot be called; give a function that takes a message"),
    ],
)
def test_an_invalid_classifier_is_refused_at_registration_and_on_assignment(classifier: Any, says: str) -> None:
    with pytest.raises(InvalidProcedure, match=says):
        konverse.App().router("router")(classifier)
    router = konverse.App().router("router")(classify)
    with pytest.raises(InvalidProcedure, match=says):
        router.classify = classifier
    assert router.classify is classify


def with_default(message: konverse.Message, targets: tuple[str, ...] = ("//sales/North",)) -> str:
    return targets[message.sequence % len(targets)]


def test_a_classifier_may_have_parameters_that_need_not_be_given() -> None:
    assert konverse.App().router("router")(with_default).classify is with_default


def test_a_classifier_that_raises_is_named_with_its_message() -> None:
    def broken(_message: object) -> str:
        raise LookupError("no such region")

    watched = Watched("router", None, lambda *_: None)
    with pytest.raises(InvalidRoute, match=r"message an id of type '//sales/Order'.*LookupError: no such region"):
        watched.ask(broken, MESSAGE)
    assert watched.ask(lambda _: "north", MESSAGE) == Target("north")


def test_a_slow_classifier_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    noted: list[tuple[object, str]] = []
    watched, over = Watched("router", 0.01, lambda *of: noted.append(of)), threading.Event()

    def hang(_message: object) -> str:
        over.wait(10)
        return "north"

    with watched.watching(alone=False):
        thread = threading.Thread(target=watched.ask, args=(hang, MESSAGE))
        thread.start()
        try:
            while not caplog.records:  # the tests' time-out ends it
                thread.join(0.01)
        finally:
            over.set()
            thread.join()
    (record,) = caplog.records
    ((message, late),) = noted
    assert message is MESSAGE
    assert late.endswith(f"conversation {UUID(int=7)}; the limit is 0.0 s (classify_timeout_s)")
    assert record.getMessage().startswith(f"{late}: its thread is blocked. Restart this process")


def written(at_ms: int, routed: Routed, *errors: Failure) -> bytes:
    """The bytes that a process writes to Redis."""
    plain = [{**one._asdict(), "at": one.at.isoformat(), "conversation": str(one.conversation)} for one in errors]
    return json.dumps({"at_ms": at_ms, **asdict(routed), "last_errors": plain}).encode()


EARLY = Failure(datetime(2026, 1, 1, tzinfo=UTC), UUID(int=1), "a", "order", "early")
LATE = Failure(datetime(2026, 1, 2, tzinfo=UTC), UUID(int=2), "b", "order", "late")


def test_the_figures_of_all_processes_are_summed_and_invalid_figures_are_ignored() -> None:
    values = [
        written(100_000, Routed(forwarded=1, targets={"north": 1}), EARLY),
        written(100_000 - FRESH_MS, Routed(forwarded=2, targets={"south": 2}), LATE),
        b"no JSON",
        b"[]",
        b"{}",
        b'{"at_ms": 1, "last_errors": [{}]}',
        written(100_000, Routed(), EARLY).replace(b"100000", b"Infinity"),
        written(100_000, Routed(), EARLY).replace(b"2026-01-01T00:00:00+00:00", b"0001-01-01T00:00:00+09:00"),
        b"[" * 100_000,
    ]
    assert summed(values, 100_000) == Figures(
        100_000, 1, Routed(forwarded=3, targets={"north": 1, "south": 2}), (LATE, EARLY)
    )


class Nonsense:
    """A Redis with answers that are none."""

    closed = False

    def hlen(self, _key: str) -> None:
        return None

    def pipeline(self, **_: Any) -> Any:
        raise ValueError("invalid literal for int() with base 10: b'nonsense'")

    def close(self) -> None:
        self.closed = True


def test_a_redis_that_answers_nonsense_does_not_stop_a_router(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = Nonsense()
    monkeypatch.setattr(figures, "connect_redis", lambda _url: answers)
    settings = SimpleNamespace(redis="redis://localhost:6379", instance="konverse")
    broker: Any = SimpleNamespace(settings=settings, database="sales")
    with figures.publishing(broker, konverse.App().router("//sales/Router")(classify)):
        pass
    assert answers.closed
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_message_rates_are_differences_of_two_readings_and_never_negative() -> None:
    before = Figures(1_000, 2, Routed(forwarded=10, targets={"north": 8, "south": 2}), ())
    after = Figures(3_000, 1, Routed(forwarded=13, replied=1, targets={"north": 14, "south": 0}), (LATE,))
    assert flow_of(None, before).per_s == {}
    flow = flow_of(before, after)
    assert flow.per_s == {"north": 3.0, "south": 0.0}
    assert flow.messages_per_s == 2.0
    assert line("router", flow) == (
        "router: 1 process, 14 messages (+2/s), 1 reply, 0 rejected, 0 failed; "
        "north 14 (+3/s), south 0 (+0/s); last error: late"
    )
    console = Console(width=100)
    with console.capture() as capture:
        console.print(picture("router", flow, 100))
    shown = capture.get()
    assert "north" in shown
    assert "━" in shown
    assert "late" in shown


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_name_of_a_target_is_cut_in_a_picture(width: int) -> None:
    names = {"//sales/" + "x" * 25: 1, "//倉庫/非常に長いサービスの名前": 2}
    console = Console(width=width)
    with console.capture() as capture:
        console.print(picture("router", flow_of(None, Figures(1_000, 1, Routed(targets=names), ())), width))
    assert all(name in capture.get() for name in names)


def test_the_stored_text_of_a_failure_is_limited_to_the_length_of_an_error_description() -> None:
    router = konverse.App().router("//sales/Router")(classify)
    received: Any = (MESSAGE,)
    router._note(received, "x" * 1_000_000, failed=1)
    assert [len(failure.text) for failure in router.last_errors] == [ERROR_DESCRIPTION_CHARACTERS_MAX]
