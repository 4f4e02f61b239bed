"""Behaviours 230 and 232: the classifier of the original's sample, which reads the service's name in the message."""

from __future__ import annotations

import pytest

from konverse.bridge.broker import Broker
from konverse.routing.classifiers import to_service_name
from konverse.routing.routed import Routed
from konverse.routing.router import Router
from konverse.schemas.system_messages import read_error
from tests.kit.regions import answer_in, heard, open_regions, service_of
from tests.kit.shop import sent

pytestmark = pytest.mark.stack

NORTH = service_of("north")


def named(service: str) -> bytes:
    """A message that names its service in the sample's form."""
    return f"<message><toServiceName>{service}</toServiceName><body>an order</body></message>".encode()


def route(broker: Broker) -> Routed:
    """Route everything that waits for the order service, in a handler."""
    router, routed, classify = Router(), Routed(), broker.classifier(to_service_name())
    with broker.reader("Orders", timeout=1.0) as reader:
        for transaction in reader:
            with transaction:
                routed = routed.plus(router.step(transaction, classify))
    return routed


def test_230_the_samples_classifier_reads_the_service_in_the_message(broker: Broker) -> None:
    open_regions(broker)
    sent(broker, named(NORTH), b"no XML, and nobody looks at it")
    assert route(broker) == Routed(forwarded=1, followed=1, targets={NORTH: 2})
    assert {*answer_in(broker, "north", 2)} == {named(NORTH), b"no XML, and nobody looks at it"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (named("//nowhere"), "There is no service '//nowhere'."),
        (b"<message/>", "The body has no element /message/toServiceName."),
        (b"<message", "The body is not an XML document: "),
    ],
)
def test_232_a_body_that_names_no_service_ends_its_dialog_with_error_1(
    broker: Broker, body: bytes, reason: str
) -> None:
    open_regions(broker)
    dialog = sent(broker, body)
    assert route(broker) == Routed(rejected=1)
    (message,) = heard(broker, 1)
    code, text = read_error(message.body)
    assert (message.dialog.id, code) == (dialog.id, 1)
    assert text.startswith(reason)
