"""Behaviours 184 to 191: the broker configuration service is asked for routes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.server import requests
from konverse.dialog.transaction.received import Message
from konverse.schemas.catalog.broker_configuration import (
    MISSING_ROUTE,
    NOTICE,
    REQUESTING_SERVICE,
    MissingRoute,
    read_missing_route,
)
from konverse.schemas.catalog.routes import BROKER_CONFIGURATION
from tests.kit.delays import is_delayed, serving
from tests.kit.shop import DEADLINE_S, ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE, receive, until

pytestmark = pytest.mark.stack

LATER = "//later/Service"
QUIET_S = 2.0
"""A server would have asked by then: it looks at changes after 50 ms, and at everything after 2 s."""
AGAIN_S = 1.0

Asked = Callable[[], MissingRoute]


@pytest.fixture
def served(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A shop with a configuration service, without a route to it, and a server that asks again after a second."""
    monkeypatch.setattr(requests, "AGAIN_MS", round(AGAIN_S * 1000))
    broker.admin.create_queue("Configuration")
    broker.admin.create_service(BROKER_CONFIGURATION, queue="Configuration", contracts=[NOTICE])
    with serving(broker):
        yield broker


def ask_for_routes(broker: Broker) -> None:
    broker.admin.create_route("Ask", "LOCAL", service_name=BROKER_CONFIGURATION)


def begun(broker: Broker, service: str) -> Dialog:
    """A dialog with a message for the service."""
    dialog = broker.begin_dialog(SHOP_SERVICE, service, ORDERING)
    dialog.send(ORDER, b"waits")
    dialog.flush()
    return dialog


def delayed(broker: Broker, service: str) -> Dialog:
    """A delayed dialog with the service. Dialogs may begin by the old routes for two seconds."""

    def one() -> Dialog | None:
        dialog = begun(broker, service)
        return dialog if is_delayed(dialog) else None

    dialog = until(one, f"dialogs with {service} are delayed")
    assert dialog is not None
    return dialog


def arrives(broker: Broker, queue: str, dialog: Dialog) -> bool:
    """Whether a message of the dialog is received, behind those of others."""
    with broker.reader(queue, timeout=DEADLINE_S) as reader:
        for transaction in reader:
            with transaction:
                if any(message.dialog.id == dialog.id for message in transaction):
                    return True
    return False


def requested(broker: Broker, *, end: bool = True, lifetime: timedelta | None = None) -> MissingRoute:
    """Receive the next request. With a lifetime, create the route. End the dialog, or leave it open."""
    with broker.reader("Configuration", timeout=DEADLINE_S) as reader:
        for transaction in reader:
            with transaction:
                (request,) = transaction
                assert (request.type, request.dialog.far_service) == (MISSING_ROUTE, REQUESTING_SERVICE)
                wanted = read_missing_route(request.body)
                if lifetime is not None:
                    broker.admin.create_route("Found", "LOCAL", service_name=wanted.service, lifetime=lifetime)
                if end:
                    transaction.end(request.dialog)
            reader.settle()
            return wanted
    raise AssertionError("no request came")


def further(broker: Broker, quiet_s: float = QUIET_S) -> list[Message]:
    """Requests that come within a time in which they would have come."""
    with broker.reader("Configuration", timeout=quiet_s) as reader:
        return [message for transaction in reader for message in transaction]


def create_later(broker: Broker) -> None:
    broker.admin.create_queue("Later")
    broker.admin.create_service(LATER, queue="Later", contracts=[ORDERING])


def test_184_the_configuration_service_is_not_asked_without_a_route_to_it(served: Broker) -> None:
    dialog = begun(served, LATER)
    assert is_delayed(dialog)
    assert further(served) == []
    create_later(served)
    (message,) = receive(served, "Later", 1)
    assert message.dialog.id == dialog.id


def test_185_one_request_is_made_for_a_service_while_it_is_pending(served: Broker) -> None:
    """And 186: the route that the handler creates releases the messages."""
    ask_for_routes(served)
    create_later(served)
    dialogs = [begun(served, LATER) for _ in range(2)]
    assert requested(served, lifetime=timedelta(hours=1)) == MissingRoute(LATER)
    found = receive(served, "Later", 2)
    assert {message.dialog.id for message in found} == {dialog.id for dialog in dialogs}
    assert further(served) == []


def test_187_an_end_without_a_route_leaves_the_messages_and_is_followed_by_another_request(served: Broker) -> None:
    ask_for_routes(served)
    create_later(served)
    dialog = begun(served, LATER)
    requested(served)
    ended = time.monotonic()
    assert requested(served, lifetime=timedelta(hours=1)) == MissingRoute(LATER)
    assert time.monotonic() - ended > AGAIN_S / 2, "not at once"
    (message,) = receive(served, "Later", 1)
    assert message.dialog.id == dialog.id


def test_188_a_handler_that_does_not_end_the_dialog_blocks_requests_for_that_service(served: Broker) -> None:
    ask_for_routes(served)
    begun(served, LATER)
    requested(served, end=False)
    begun(served, LATER)
    assert further(served, AGAIN_S + QUIET_S) == []
    begun(served, "//another/Service")
    assert requested(served) == MissingRoute("//another/Service")


def test_189_when_the_created_route_has_expired_a_new_one_is_requested(served: Broker) -> None:
    ask_for_routes(served)
    create_later(served)
    lifetime = timedelta(seconds=5)
    begun(served, LATER)
    requested(served, lifetime=lifetime)
    receive(served, "Later", 1)
    assert not is_delayed(begun(served, LATER)), "the route lives"
    receive(served, "Later", 1)
    time.sleep(lifetime.total_seconds())
    dialog = delayed(served, LATER)
    with served.reader("Configuration", timeout=DEADLINE_S) as reader:
        with next(reader) as transaction:
            (request,) = transaction
            assert read_missing_route(request.body) == MissingRoute(LATER)
            served.admin.alter_route("Found", lifetime=timedelta(hours=1))
            transaction.end(request.dialog)
        reader.settle()
    assert arrives(served, "Later", dialog)


def test_191_a_service_that_only_the_first_route_finds_waits_for_an_explicit_one(served: Broker) -> None:
    """The route to the configuration service comes before the one that is for any service."""
    assert not is_delayed(begun(served, ORDER_SERVICE))
    ask_for_routes(served)
    dialog = delayed(served, ORDER_SERVICE)
    assert requested(served) == MissingRoute(ORDER_SERVICE)
    served.admin.create_route("Orders", "LOCAL", service_name=ORDER_SERVICE)
    assert arrives(served, "Orders", dialog)
