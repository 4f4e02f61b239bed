"""Behaviours 230 to 233: data-dependent routing, by forwarding and by redirection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest

from konverse.bridge.broker import Broker
from konverse.dialog.transaction.received import Message
from konverse.routing.decisions import Decision, Unclassifiable
from konverse.routing.documents import read_redirect
from konverse.routing.routed import Routed
from konverse.routing.router import Router
from konverse.routing.step import REDIRECT, REDIRECT_TO
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidRoute
from konverse.schemas.origins import ErrorOrigin, origin_of
from konverse.schemas.system_messages import END_DIALOG, ERROR, read_error
from tests.kit.pools import STREAM_END
from tests.kit.regions import answer_in, ends, heard, kinds, open_regions, service_of
from tests.kit.shop import ORDER, ORDER_SERVICE, ORDERING, RECEIPT, SHOP_SERVICE, drain, receive, sent

pytestmark = pytest.mark.stack

NORTH = service_of("north")
SOUTH = service_of("south")


@pytest.fixture
def regions(broker: Broker) -> Broker:
    """The shop with the regions' services behind the order service."""
    open_regions(broker)
    return broker


class Classifier:
    """Returns the region of an order, from its first word."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def __call__(self, message: Message) -> Decision:
        self.asked.append(message.body)
        word = message.body.decode().partition(" ")[0]
        service = {"north": NORTH, "south": SOUTH}.get(word)
        return Unclassifiable() if service is None else Target(service)


def route(broker: Broker, classifier: Callable[[Message], Decision], router: Router | None = None) -> Routed:
    """Route everything that waits for the order service, in a handler."""
    router, routed = router or Router(), Routed()
    with broker.reader("Orders", timeout=1.0) as reader:
        for transaction in reader:
            with transaction:
                routed = routed.plus(router.step(transaction, classifier))
    return routed


def test_230_the_first_message_is_classified_once_and_later_ones_follow(regions: Broker) -> None:
    classifier = Classifier()
    dialog = sent(regions, b"north 1", b"south, says the second")
    assert route(regions, classifier) == Routed(forwarded=1, followed=1, targets={NORTH: 2})
    dialog.send(ORDER, b"south, says the third")
    dialog.flush()
    assert route(regions, classifier) == Routed(followed=1, targets={NORTH: 1})
    assert classifier.asked == [b"north 1"]
    assert [message.body for message in drain(regions, "North")] == [
        b"north 1",
        b"south, says the second",
        b"south, says the third",
    ]


def test_230_replies_come_back_on_the_original_dialog(regions: Broker) -> None:
    classifier = Classifier()
    dialogs = [sent(regions, body) for body in (b"north 1", b"south 1", b"north 2")]
    assert route(regions, classifier).forwarded == 3
    assert answer_in(regions, "north", 2) + answer_in(regions, "south", 1) == Counter(classifier.asked)
    assert route(regions, classifier) == Routed(replied=3)
    answers = {message.dialog.id: message.body for message in heard(regions, 3)}
    bodies = [b"north has north 1", b"south has south 1", b"north has north 2"]
    assert answers == dict(zip([dialog.id for dialog in dialogs], bodies, strict=True))


def test_231_an_end_of_either_side_ends_the_mapped_dialog(regions: Broker) -> None:
    classifier = Classifier()
    leaving, left = sent(regions, b"north 1"), sent(regions, b"south 1")
    route(regions, classifier)
    leaving.end()
    regions.flush()
    assert drain(regions, "Shop") == []
    answer_in(regions, "south", 1, end=True)
    assert route(regions, classifier) == Routed(replied=1, ended=2)
    assert [message.type for message in drain(regions, "North")] == [ORDER, END_DIALOG]
    messages = heard(regions, 2)
    assert kinds(messages) == {"Receipt": 1, "EndDialog": 1}
    assert {message.dialog.id for message in messages} == {left.id}


def test_231_an_error_ends_the_mapped_dialog_with_one_that_wraps_it(regions: Broker) -> None:
    classifier = Classifier()
    failing, failed = sent(regions, b"north 1"), sent(regions, b"south 1")
    route(regions, classifier)
    failing.end(error=7, description="never mind")
    regions.flush()
    assert drain(regions, "Shop") == []
    answer_in(regions, "south", 1, error=404)
    assert route(regions, classifier) == Routed(ended=2)
    (error,) = ends(drain(regions, "North"))
    code, description = read_error(error.body)
    assert (code, origin_of(description)) == (10001, ErrorOrigin(SHOP_SERVICE, 7, "never mind"))
    (error,) = heard(regions, 1)
    code, description = read_error(error.body)
    assert (error.dialog.id, code) == (failed.id, 10001)
    assert origin_of(description) == ErrorOrigin(SOUTH, 404, "not in the south")


@pytest.mark.parametrize("reason", ["", "nobody is there"])
def test_232_an_unresolvable_message_ends_its_dialog_with_error_1(regions: Broker, reason: str) -> None:
    dialog = sent(regions, b"nowhere")
    assert route(regions, lambda _: Unclassifiable(reason)) == Routed(rejected=1)
    (error,) = heard(regions, 1)
    assert (error.dialog.id, error.type) == (dialog.id, ERROR)
    code, description = read_error(error.body)
    assert code == 1
    assert description == (reason or f"No service is known for this message of type {ORDER!r}.")


def test_233_the_initiator_is_redirected_and_talks_to_the_resolved_service_directly(regions: Broker) -> None:
    contract = "//sales/Redirected"
    regions.admin.create_message_type(REDIRECT_TO)
    regions.admin.create_contract(contract, {ORDER: "INITIATOR", RECEIPT: "TARGET", REDIRECT_TO: "TARGET"})
    for service in (ORDER_SERVICE, SOUTH):
        regions.admin.alter_service(service, add=[contract])
    dialog = regions.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, contract)
    dialog.send(ORDER, b"south 1")
    dialog.flush()
    assert route(regions, Classifier(), Router(REDIRECT)) == Routed(redirected=1, targets={SOUTH: 1})
    told, end = heard(regions, 2)
    assert (told.type, end.type) == (REDIRECT_TO, END_DIALOG)
    direct = regions.begin_dialog(SHOP_SERVICE, read_redirect(told.body).service, contract)
    direct.send(ORDER, b"south 1")
    direct.flush()
    assert answer_in(regions, "south", 1) == Counter([b"south 1"])
    (answer,) = heard(regions, 1)
    assert (answer.dialog.id, answer.body) == (direct.id, b"south has south 1")
    assert drain(regions, "Orders") == []


def test_230_a_routing_step_that_is_rolled_back_has_no_effect(regions: Broker) -> None:
    sent(regions, b"north 1")
    router, classifier = Router(), Classifier()
    with regions.reader("Orders", timeout=1.0) as reader:
        for transaction in reader:
            with suppress(LookupError), transaction:
                router.step(transaction, classifier)
                raise LookupError("the handler dies here")
            break
    assert drain(regions, "North") == []
    assert route(regions, classifier) == Routed(forwarded=1, targets={NORTH: 1})
    assert [message.body for message in drain(regions, "North")] == [b"north 1"]


def by_word(message: Message) -> str | None:
    """The same classifier as a function that returns names."""
    word = message.body.decode().partition(" ")[0]
    return {"north": NORTH, "south": SOUTH}.get(word)


def test_230_a_routing_service_follows_its_first_message_and_brings_replies_back(regions: Broker) -> None:
    router = regions.router(ORDER_SERVICE, contracts=[ORDERING])(by_word)
    dialog = sent(regions, b"north 1", b"south, says the second")
    router.run(timeout=1.0)
    assert router.routed == Routed(forwarded=1, followed=1, targets={NORTH: 2})
    answer_in(regions, "north", 2)
    router.run(timeout=1.0)
    assert router.routed.replied == 2
    assert {message.dialog.id for message in heard(regions, 2)} == {dialog.id}


def test_231_a_routing_service_passes_ends_and_errors_on(regions: Broker) -> None:
    router = regions.router(ORDER_SERVICE)(by_word)
    leaving, failed = sent(regions, b"north 1"), sent(regions, b"south 1")
    router.run(timeout=1.0)
    leaving.end()
    regions.flush()
    assert drain(regions, "Shop") == []
    answer_in(regions, "south", 1, error=404)
    router.run(timeout=1.0)
    assert [message.type for message in drain(regions, "North")] == [ORDER, END_DIALOG]
    (error,) = heard(regions, 1)
    assert error.dialog.id == failed.id
    assert origin_of(read_error(error.body)[1]) == ErrorOrigin(SOUTH, 404, "not in the south")


def test_232_a_routing_service_ends_the_dialog_of_an_unresolvable_message_with_error_1(regions: Broker) -> None:
    router = regions.router(ORDER_SERVICE)(by_word)
    dialog = sent(regions, b"nowhere")
    router.run(timeout=1.0)
    (error,) = heard(regions, 1)
    assert (error.dialog.id, read_error(error.body)[0]) == (dialog.id, 1)
    assert [failure.conversation for failure in router.last_errors] == [dialog.id]


def test_233_a_routing_service_redirects_under_contracts_that_let_it(regions: Broker) -> None:
    router = regions.router(ORDER_SERVICE, mode=REDIRECT)(by_word)
    with pytest.raises(InvalidRoute, match=r"contract '//sales/Ordering', which does not let the target send"):
        router.run(timeout=1.0)
    contract = "//sales/Redirected"
    regions.admin.create_message_type(REDIRECT_TO)
    regions.admin.create_contract(contract, {ORDER: "INITIATOR", REDIRECT_TO: "TARGET"})
    regions.admin.alter_service(ORDER_SERVICE, add=[contract], drop=[ORDERING])
    dialog = regions.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, contract)
    dialog.send(ORDER, b"south 1")
    dialog.flush()
    router.run(timeout=1.0)
    told, end = heard(regions, 2)
    assert (told.type, end.type, read_redirect(told.body)) == (REDIRECT_TO, END_DIALOG, Target(SOUTH))
    assert router.routed == Routed(redirected=1, targets={SOUTH: 1})


def test_233_a_pool_that_is_redirected_sends_to_the_resolved_service_directly(regions: Broker) -> None:
    router = regions.router(ORDER_SERVICE, mode=REDIRECT)(by_word)
    contract = "//sales/Streamed"
    for message_type in (REDIRECT_TO, STREAM_END):
        regions.admin.create_message_type(message_type)
    regions.admin.create_contract(contract, {ORDER: "INITIATOR", STREAM_END: "INITIATOR", REDIRECT_TO: "TARGET"})
    regions.admin.alter_service(ORDER_SERVICE, add=[contract], drop=[ORDERING])
    regions.admin.alter_service(SOUTH, add=[contract])
    with regions.pool(SHOP_SERVICE, ORDER_SERVICE, contract) as pool:
        for number in (1, 2):
            pool.send(ORDER, b"south %d" % number, "a customer")
        pool.flush()
        router.run(timeout=1.0)
        pool.send(ORDER, b"south 3", "a customer")
        found = receive(regions, "South", 3)
        assert [message.body for message in found] == [b"south 1", b"south 2", b"south 3"]
        assert {message.dialog.far_service for message in found} == {SHOP_SERVICE}
        assert router.routed == Routed(redirected=1, targets={SOUTH: 1})
        pool.close(timeout=0.0)
