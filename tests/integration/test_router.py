"""A router as a service on real servers: a classifier that may change, and all kinds of bad input."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.router.service import RoutingService
from konverse.bridge.worker.process import WorkerProcess
from konverse.dialog.transaction.received import Message
from konverse.routing.classifiers import regular_expression
from konverse.routing.decisions import Unclassifiable
from konverse.routing.routed import Routed
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import AlreadyExists, ContractNotFound, InvalidRoute, ServiceNotFound
from konverse.schemas.origins import origin_of
from konverse.schemas.system_messages import read_error
from tests.kit.readme import readme, whole_page
from tests.kit.regions import answer_in, heard, open_regions, service_of
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    NOTE,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    begin,
    connected,
    drain,
    living,
    open_shop,
    sent,
    until,
)

pytestmark = pytest.mark.stack

NORTH = service_of("north")
SOUTH = service_of("south")


@pytest.fixture
def regions(servers: Servers, database: str) -> Iterator[Broker]:
    """The shop with the regions' services behind the order service."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        open_regions(broker)
        yield broker


def by_first_word(message: Message) -> Any:
    """The service of an order."""
    word = message.body.decode().partition(" ")[0]
    if word == "broken":
        raise LookupError("no such region")
    return {"north": NORTH, "south": Target(SOUTH), "number": 7, "unknown": "//sales/NoSuchRegion"}.get(word)


@contextmanager
def running(router: RoutingService, **options: Any) -> Iterator[RoutingService]:
    """Run the router while the block runs."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(router.run, **options)
        try:
            yield router
        finally:
            router.stop()
            done.result(DEADLINE_S)


def router_of(broker: Broker, **clauses: Any) -> RoutingService:
    """The order service as a router by the first word."""
    return broker.router(ORDER_SERVICE, contracts=[ORDERING], **clauses)(by_first_word)


def test_a_router_passes_orders_on_and_replies_back_and_counts_them(regions: Broker) -> None:
    router = router_of(regions, max_readers=2)
    dialogs = [sent(regions, b"north 1", b"north 2"), sent(regions, b"south 1")]
    with running(router):
        answer_in(regions, "north", 2)
        answer_in(regions, "south", 1)
        messages = heard(regions, 3)
        assert {message.dialog.id for message in messages} == {dialog.id for dialog in dialogs}
    assert router.routed == Routed(forwarded=2, followed=1, replied=3, targets={NORTH: 2, SOUTH: 1})
    assert router.last_errors == []


def test_the_classifier_is_changed_while_the_router_runs(regions: Broker) -> None:
    router = router_of(regions)
    with running(router):
        dialog = sent(regions, b"north 1")
        answer_in(regions, "north", 1)
        router.classify = lambda _: SOUTH
        dialog.send(ORDER, b"north 2")
        sent(regions, b"north 3")
        regions.flush()
        assert answer_in(regions, "south", 1).total() == 1
        assert [*answer_in(regions, "north", 1)] == [b"north 2"], "it follows the first message"
    assert router.routed.targets == {NORTH: 2, SOUTH: 1}


def test_a_ready_classifier_goes_by_a_table_of_the_catalog_that_may_change(regions: Broker) -> None:
    regions.admin.create_routing_table("Regions", {"north": NORTH})
    router = regions.router(ORDER_SERVICE, contracts=[ORDERING])(regular_expression(r"^\w+", table="Regions"))
    with running(router):
        sent(regions, b"north 1")
        regions.flush()
        assert answer_in(regions, "north", 1).total() == 1
        version = regions.admin.alter_routing_table("Regions", set={"north": SOUTH}).version
        assert version == 2
        sent(regions, b"north 2")
        regions.flush()
        assert [*answer_in(regions, "south", 1)] == [b"north 2"]
        router.classify = regular_expression(r"\w+$", table="Regions")
        sent(regions, b"to the north")
        regions.flush()
        assert [*answer_in(regions, "south", 1)] == [b"to the north"]
    assert router.routed.targets == {NORTH: 1, SOUTH: 2}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"broken", r"failed on message .* of type '//sales/Order'.*LookupError: no such region"),
        (b"number", r"answered with 7, of type int"),
        (b"unknown", r"there is no service '//sales/NoSuchRegion'"),
    ],
)
def test_a_failing_classifier_suspends_only_its_conversation_and_loses_nothing(
    regions: Broker, caplog: pytest.LogCaptureFixture, body: bytes, words: str
) -> None:
    router = router_of(regions)
    dialog = sent(regions, body)
    with running(router):
        until(lambda: router.routed.failed == 5, "five attempts")
        sent(regions, b"north 1")
        answer_in(regions, "north", 1)
        assert router._reader is not None
        (suspended,) = router._reader.operations.suspended
        assert suspended.id == dialog.id
        failure = router.last_errors[0]
        assert (failure.conversation, failure.message_type) == (dialog.id, ORDER)
        assert re.search(words, failure.text)
        lines = [
            record.getMessage() for record in caplog.records if "a handler of queue 'Orders'" in record.getMessage()
        ]
        assert len(lines) == 5
        assert all(re.search(words, line) for line in lines)
        assert all(f"router {ORDER_SERVICE!r} failed on a message of type {ORDER!r}; " in line for line in lines)
        router.classify = lambda _: SOUTH
        router._reader.operations.resume(dialog.id)
        assert [*answer_in(regions, "south", 1)] == [body], "nothing was lost"


def test_operators_in_any_process_resume_and_skip_conversations_suspended_by_a_running_router(
    regions: Broker,
) -> None:
    router = router_of(regions)
    resumed, skipped = sent(regions, b"broken"), sent(regions, b"broken", b"north 2")
    with running(router):
        until(lambda: sum(len(found) for found in regions.operations.suspended()) == 2, "both are suspended")
        regions.operations.skip(skipped.id)
        assert [*answer_in(regions, "north", 1)] == [b"north 2"]
        router.classify = lambda _: SOUTH
        regions.operations.resume(resumed.id)
        assert [*answer_in(regions, "south", 1)] == [b"broken"]
        assert not any(regions.operations.suspended())


def test_the_sender_of_an_unclassifiable_message_gets_an_error_and_the_router_records_the_failure(
    regions: Broker,
) -> None:
    router = regions.router(ORDER_SERVICE)(lambda _: Unclassifiable("nobody is there"))
    dialog = sent(regions, b"nowhere")
    with running(router):
        (error,) = heard(regions, 1)
    assert read_error(error.body) == (1, "nobody is there")
    (failure,) = router.last_errors
    assert (failure.conversation, failure.text) == (dialog.id, "nobody is there")
    assert router.routed == Routed(rejected=1)


def test_a_message_of_a_type_outside_of_the_contract_is_an_error_for_both_sides_and_not_routed(regions: Broker) -> None:
    regions.admin.create_message_type("//sales/Secret")
    regions.admin.create_contract("//sales/Wide", {ORDER: "INITIATOR", "//sales/Secret": "INITIATOR"})
    router = router_of(regions)
    dialog = regions.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, "//sales/Wide")
    dialog.send("//sales/Secret", b"under a contract that the router does not list")
    dialog.flush()
    with running(router):
        (error,) = heard(regions, 1)
    assert (error.dialog.id, read_error(error.body)[0]) == (dialog.id, -8408)
    assert router.routed.messages == 0


def test_two_routers_that_route_to_each_other_end_with_an_error_that_names_the_way(regions: Broker) -> None:
    there = "//sales/Detour"
    regions.admin.create_queue("Detour")
    regions.admin.create_service(there, queue="Detour", contracts=[ORDERING])
    back = regions.router(there)(lambda _: ORDER_SERVICE)
    forth = regions.router(ORDER_SERVICE)(lambda _: there)
    dialog = sent(regions, b"round and round")
    with running(back), running(forth):
        (error,) = heard(regions, 1)
    assert error.dialog.id == dialog.id
    way, (code, text) = [], read_error(error.body)
    while (origin := origin_of(text)) is not None:
        way.append(origin.service)
        code, text = origin.code, origin.description
    assert way == [there, ORDER_SERVICE] * 4
    assert code == 1
    assert "come through 8 routers" in text
    assert back.routed.forwarded + forth.routed.forwarded == 8


def test_a_router_must_accept_exactly_the_union_of_the_contracts_of_its_targets(regions: Broker) -> None:
    regions.admin.create_contract("//sales/Noting", {NOTE: "ANY"})
    classifier = Known({NORTH})
    router = regions.router(ORDER_SERVICE)(classifier)
    router.run(timeout=0)
    regions.admin.alter_service(NORTH, add=["//sales/Noting"])
    with pytest.raises(
        InvalidRoute, match=r"does not list contract '//sales/Noting', which its target '//sales/North'"
    ):
        router.run()
    with pytest.raises(InvalidRoute, match="does not list contract"):
        router.classify = Known({NORTH, SOUTH})
    assert router.classify is classifier
    regions.admin.alter_service(ORDER_SERVICE, add=["//sales/Noting"])
    router.run(timeout=0)
    router.classify = Known({NORTH, SOUTH})
    with pytest.raises(InvalidRoute, match=r"lists contract '//sales/Noting', which none of its targets accepts"):
        router.classify = Known({SOUTH})
    with pytest.raises(ServiceNotFound):
        router.classify = Known({"//sales/NoSuchRegion"})


class Known:
    """A classifier with known targets."""

    def __init__(self, services: set[str]) -> None:
        self._services = services

    def targets(self) -> set[str]:
        """The targets."""
        return self._services

    def __call__(self, message: Message) -> str:
        """The first target."""
        return min(self._services)


def test_a_target_that_does_not_accept_the_contract_is_an_error_until_it_does(regions: Broker) -> None:
    regions.admin.alter_service(NORTH, drop=[ORDERING])
    router = router_of(regions)
    sent(regions, b"north 1")
    with running(router):
        until(lambda: router.routed.failed, "a failure")
        assert "does not accept that contract" in router.last_errors[0].text
        regions.admin.alter_service(NORTH, add=[ORDERING])
        answer_in(regions, "north", 1)


def test_a_router_has_its_queue_for_itself(regions: Broker) -> None:
    regions.activate("Orders")(lambda transaction: None)
    router_of(regions)
    with pytest.raises(AlreadyExists, match=r"a router needs a queue of its own"):
        regions.answering(regions)


def test_a_router_that_was_refused_is_declared_again(regions: Broker) -> None:
    regions.admin.create_contract("//sales/Other", {ORDER: "INITIATOR"})
    for name, error in (("//sales/Other", InvalidRoute), ("//sales/Nothing", ContractNotFound)):
        with pytest.raises(error, match=name):
            regions.router(ORDER_SERVICE, contracts=[name])(by_first_word).run(timeout=0)
    router = router_of(regions)
    sent(regions, b"north 1")
    with running(router):
        assert [*answer_in(regions, "north", 1)] == [b"north 1"]
    with pytest.raises(AlreadyExists, match="is a router already"):
        router_of(regions)


def test_a_hanging_classifier_is_logged_and_other_conversations_are_routed(
    regions: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    def classify(message: Message) -> str:
        if message.body == b"slow":
            release.wait(DEADLINE_S)
        return NORTH

    router = regions.router(ORDER_SERVICE, max_readers=2, classify_timeout_s=0.2)(classify)
    dialog = sent(regions, b"slow")
    with running(router):
        try:
            until(lambda: f"first one of conversation {dialog.id}" in caplog.text, "the failure is logged")
            (late,) = router.last_errors
            assert (late.conversation, late.text.split(" has run for ")[0][:14]) == (dialog.id, "the classifier")
            assert router.routed.failed == 0, "it may come back"
            sent(regions, b"north 1")
            assert [*answer_in(regions, "north", 1)] == [b"north 1"]
        finally:
            release.set()
        assert [*answer_in(regions, "north", 1)] == [b"slow"]
    assert caplog.text.count("first one of conversation") == 1


def test_a_thread_that_ends_beside_a_classifier_that_hangs_ends_the_router_and_nothing_is_lost(
    regions: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.bridge.reader.handlers.HANDLER_LEAVING_MS_MAX", 200)
    hangs, release = threading.Event(), threading.Event()

    def classify(message: Message) -> str:
        if message.body == b"hang":
            hangs.set()
            release.wait(DEADLINE_S)
        elif message.body == b"exit":
            raise SystemExit("no more of this")
        return NORTH

    router = regions.router(ORDER_SERVICE, max_readers=2, classify_timeout_s=0.2)(classify)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(router.run)
        try:
            hanging = sent(regions, b"hang")
            assert hangs.wait(DEADLINE_S)
            sent(regions, b"exit")
            with pytest.raises(SystemExit, match="no more of this"):
                done.result(DEADLINE_S)
            assert "a thread of queue 'Orders' ended with SystemExit: no more of this" in caplog.text
            assert f"0 s to finish: conversation {hanging.id} of service {ORDER_SERVICE!r}" in caplog.text
            until(
                lambda: "the classifier of router '//sales/OrderService' has run for" in caplog.text,
                "the failure is logged",
            )
            assert f"of type {ORDER!r}, the first one of conversation {hanging.id}" in caplog.text
            router.classify = lambda _: SOUTH
            with running(router):
                assert {*answer_in(regions, "south", 2)} == {b"hang", b"exit"}
        finally:
            router.stop()
            release.set()


def test_a_stop_that_comes_before_the_run_is_not_forgotten(regions: Broker) -> None:
    router = router_of(regions)
    sent(regions, b"north 1")
    router.stop()
    router.run()
    assert router.routed == Routed()
    with running(router):
        assert [*answer_in(regions, "north", 1)] == [b"north 1"]


def test_the_rest_of_a_lifetime_and_a_half_close_are_passed_on(regions: Broker) -> None:
    router = router_of(regions)
    dialog = begin(regions, lifetime=3_600)
    dialog.send(ORDER, b"north 1")
    dialog.finish()
    dialog.flush()
    with running(router), regions.reader("North", timeout=DEADLINE_S) as reader:
        with next(iter(reader)) as transaction:
            (message,) = transaction
            assert message.lifetime_left is not None
            assert 3_000 < message.lifetime_left <= 3_600
            arrived = transaction.dialog
            transaction.send(arrived, RECEIPT, b"north has it")
        until(lambda: living(reader) and arrived.finished is not None, "the half-close arrives")
        assert arrived.finished is not None
        assert arrived.finished.peer
    assert [message.body for message in heard(regions, 1)] == [b"north has it"]
    assert drain(regions, "North") == []


def test_the_router_of_its_page_routes(servers: Servers, database: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(whole_page("docs/routing.md", servers, database), "docs/routing.md", "exec"), {})
    targets, failure = capsys.readouterr().out.splitlines()
    assert sorted(targets.strip("{}").split(", ")) == ["'//sales/North': 1", "'//sales/South': 1"]
    assert failure.endswith("No service is known for this message of type '//sales/Order'.")


def test_the_router_of_the_readme_routes(servers: Servers, regions: Broker, database: str) -> None:
    names: dict[str, Any] = {}
    head = 'import konverse\n\napp = konverse.App("kafka://localhost:9092", database="sales")\n\n\n@app.router'
    program = readme(head, servers, database)
    exec(compile(program, "README.md", "exec"), names)
    sent(regions, b"north 1")
    with names["app"].connect() as connection:
        WorkerProcess(connection, names["app"], until_drained=True).run()
    assert [*answer_in(regions, "north", 1)] == [b"north 1"]
