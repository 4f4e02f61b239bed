"""An application's handlers and their queues, without servers. Invalid clauses are refused at the decorator."""

from __future__ import annotations

import functools
import json
import logging
from pathlib import Path
from typing import Any

import pytest

import konverse
from konverse.bridge.runtime.logs import FIELDS, JsonLines
from konverse.bridge.worker.app import load
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import AlreadyExists, BadInput, InvalidName, InvalidProcedure, InvalidSettings

QUEUE = Queue("Orders", "orders", "queue", 4, b"i" * 16, b"d" * 16, b"j" * 16)


def handle(_transaction: konverse.Transaction) -> None: ...


def test_a_decorated_function_is_unchanged_and_listed_with_its_clauses() -> None:
    app = konverse.App("kafka://127.0.0.1:1")  # no server listens there
    assert app.activate("Orders", max_readers=3, batch=7, max_messages=2)(handle) is handle
    (activation,) = app.activations
    assert (activation.queue, activation.handler) == ("Orders", handle)
    assert (activation.max_readers, activation.batch, activation.max_messages) == (3, 7, 2)


def test_a_queue_is_activated_once() -> None:
    app = konverse.App()
    app.activate("Orders")(handle)
    with pytest.raises(AlreadyExists, match=r"activated already, by handle"):
        app.activate("Orders")


@pytest.mark.parametrize(
    ("queue", "clauses", "error"),
    [
        ("", {}, InvalidName),
        ("Orders", {"batch": 0}, BadInput),
        ("Orders", {"max_messages": 0}, BadInput),
        ("Orders", {"max_readers": "4"}, BadInput),
        ("Orders", {"readers": 4}, BadInput),
    ],
)
def test_clauses_that_cannot_be_are_refused(queue: str, clauses: dict[str, Any], error: type[BadInput]) -> None:
    with pytest.raises(error):
        konverse.App().activate(queue, **clauses)


class Service:
    def answer(self, transaction: konverse.Transaction) -> None: ...

    def __call__(self, transaction: konverse.Transaction) -> None: ...


def with_connection(transaction: konverse.Transaction, connection: str) -> None: ...


print_it = [].append  # type: ignore[var-annotated]


def wrapped(*arguments: Any, **options: Any) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [Service().answer, Service(), wrapped, functools.partial(with_connection, connection="orders.db"), print_it],
    ids=["a method", "an object", "a wrapper", "what else it needs was given", "a built-in"],
)
def test_any_callable_that_accepts_a_transaction_can_be_a_handler(handler: Any) -> None:
    konverse.App().activate("Orders")(handler)


async def later(transaction: konverse.Transaction) -> None: ...


def in_parts(transaction: konverse.Transaction) -> Any:
    yield transaction


async def later_in_parts(transaction: konverse.Transaction) -> Any:
    yield transaction


class LaterService:
    async def __call__(self, transaction: konverse.Transaction) -> None: ...


@pytest.mark.parametrize("handler", [later, in_parts, later_in_parts, LaterService(), "answer"])
def test_an_async_generator_or_uncallable_handler_is_refused(handler: Any) -> None:
    with pytest.raises(InvalidProcedure):
        konverse.App().activate("Orders")(handler)


def test_processes_are_no_more_than_partitions_and_threads_no_more_than_a_process_can_use() -> None:
    app = konverse.App()
    app.activate("Orders", max_readers=4)(handle)
    app.activate("Many", max_readers=1_001)(handle)
    orders, many = app.activations
    orders.check(QUEUE, processes=True)
    with pytest.raises(InvalidSettings, match=r"4 partitions.*997 would have nothing to do.*--readers threads"):
        many.check(QUEUE, processes=True)
    with pytest.raises(InvalidSettings, match=r"1000 handler threads.*--readers processes"):
        many.check(QUEUE, processes=False)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shop", "write module:name"),
        ("no_such_module:app", "No module named 'no_such_module'.*PYTHONPATH"),
        ("broken_shop:app", "ZeroDivisionError"),
        ("good_shop:ap", "did you mean 'app'.*it has app"),
        ("good_shop:handle", "is not a konverse.App"),
    ],
)
def test_the_error_for_an_application_that_cannot_be_loaded_names_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # and removed afterwards
    (tmp_path / "broken_shop.py").write_text("1 / 0", "utf-8")
    (tmp_path / "good_shop.py").write_text("import konverse\napp = konverse.App()\ndef handle(t): ...", "utf-8")
    assert isinstance(load("good_shop:app"), konverse.App)
    with pytest.raises(InvalidSettings, match=words):
        load(name)


def test_a_log_record_is_formatted_as_json_with_its_fields() -> None:
    record = logging.LogRecord("konverse.reader", logging.ERROR, "x.py", 1, "failed %d", (7,), None)
    setattr(record, FIELDS, {"queue": "Orders", "attempt": 2})
    line = json.loads(JsonLines().format(record))
    assert (line["message"], line["level"], line["queue"], line["attempt"]) == ("failed 7", "ERROR", "Orders", 2)
    assert "exception" not in line


def test_fields_that_an_application_gives_as_extra_stand_in_the_line_and_replace_none_of_ours() -> None:
    record = logging.getLogger("shop").makeRecord(
        "shop",
        logging.INFO,
        "x.py",
        1,
        "sold",
        (),
        None,
        extra={"order": 7, "at": "noon", "queue": "none", "who": print},
    )
    setattr(record, FIELDS, {"queue": "Orders"})
    line = json.loads(JsonLines().format(record))
    assert (line["order"], line["queue"], line["message"]) == (7, "Orders", "sold")
    assert line["at"] != "noon"
    assert (line["extra_at"], line["extra_queue"]) == ("noon", "none")
    assert line["who"] == str(print)
    assert {*line} == {
        *("order", "at", "queue", "who", "level", "logger", "process", "message"),
        *("extra_at", "extra_queue"),
    }


@pytest.mark.parametrize("name", ["at", "level", "logger", "process", "message", "exception", "stack"])
def test_a_field_named_like_one_of_ours_reaches_the_line_under_another_name(name: str) -> None:
    record = logging.LogRecord("shop", logging.INFO, "x.py", 1, "sold", (), None)
    setattr(record, FIELDS, {name: "moved", f"extra_{name}": "stays"})
    line = json.loads(JsonLines().format(record))
    assert line.get(name) != "moved"
    assert (line[f"extra_{name}"], line[f"extra_extra_{name}"]) == ("stays", "moved")


class Unspeakable:
    """An object that cannot be converted to text."""

    def __repr__(self) -> str:
        raise RuntimeError


CIRCLE: list[object] = [1]
CIRCLE.append(CIRCLE)
DEEP: list[object] = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"x": {(1, 2): 3}}, {"x": {"(1, 2)": 3}}),
        ({"x": {1: {"a": (True, None)}}}, {"x": {"1": {"a": [True, None]}}}),
        ({"x": float("nan")}, {"x": "nan"}),
        ({"x": [1.5, float("inf"), {"y": float("-inf")}]}, {"x": [1.5, "inf", {"y": "-inf"}]}),
        ({"x": {float("nan"): 1}}, {"x": {"nan": 1}}),
        ({"x": {7}}, {"x": "{7}"}),
        ({"x": b"a"}, {"x": "b'a'"}),
        ({"x": Unspeakable()}, {"x": "<Unspeakable>"}),
        ({"x": [Unspeakable()], "y": 1}, {"x": ["<Unspeakable>"], "y": 1}),
        ({"x": CIRCLE}, {"x": "[1, [...]]"}),
        ({"x": DEEP}, {"x": "<list>"}),
        ({"x": 10**5000}, {"x": "<int>"}),
        ({FIELDS: "text"}, {FIELDS: "text"}),
        ({FIELDS: {1: 2}}, {"1": 2}),
        ({"exc_info": True}, {"message": "sold"}),
        ({"stack_info": "Stack:\n  here"}, {"stack": "Stack:\n  here"}),
        ({"msg": "sold %d", "args": ("none",)}, {"message": "sold %d ('none',)"}),
        ({"msg": Unspeakable()}, {"message": "<Unspeakable>"}),
        ({"created": float("inf")}, {"message": "sold", "at": "inf"}),
    ],
)
def test_every_log_record_becomes_one_line_of_json(given: dict[str, Any], written: dict[str, Any]) -> None:
    def no_json(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    text = JsonLines().format(logging.makeLogRecord({"msg": "sold", **given}))
    line = json.loads(text, parse_constant=no_json)
    assert "\n" not in text
    assert {name: line[name] for name in written} == written
