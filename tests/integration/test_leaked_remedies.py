"""The remedies that `leaked` names for forgotten sides, followed word by word."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Final

import pytest

from konverse.bridge.admin.leaks import ConversationSide, Leaked
from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import DialogNotFound
from konverse.schemas.system_messages import END_DIALOG, ERROR
from tests.conformance.test_cleanup import cleaned
from tests.integration.test_leaked import (
    ended_by_the_target,
    half_ended,
    only_begun,
    silent,
    without_target,
    working,
)
from tests.kit.oracle import verify
from tests.kit.pools import taking
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    ORDER_SERVICE,
    RECEIPT,
    SHOP_SERVICE,
    begin,
    connected,
    drain,
    end_at_target,
    handle,
    open_shop,
    pumped,
    queue_of,
    sent,
    until,
)

pytestmark = pytest.mark.stack

QUEUES: Final = {SHOP_SERVICE: "Shop", ORDER_SERVICE: "Orders"}
READER: Final = re.compile(
    r"Start (?:a reader of the queue of service|readers of the queues of services) '([^']+)'"
    r"(?: and '([^']+)')?(?: whose handler ends conversations on (EndDialog|Error))?"
)
TYPES: Final = {"EndDialog": END_DIALOG, "Error": ERROR}
CLEANUP_IF_IT_STAYS: Final = "the conversation stays, end it WITH CLEANUP"
STAYS_S: Final = 2.0
"""A conversation that a reader has not removed within this time stays."""
STEPS_MAX: Final = 4
SHORT_S: Final = 0.5


@pytest.fixture
def broker(servers: Servers, database: str) -> Iterator[Broker]:
    """The shop. Leaving verifies its logs."""
    with connected(servers.bootstrap, database) as opened:
        open_shop(opened)
        yield opened
        assert verify(servers.bootstrap, [queue_of(opened, "Orders"), queue_of(opened, "Shop")]) == []


def end_on(*types: str) -> Callable[[Transaction], None]:
    """A handler that ends conversations on these messages, each once, and receives others.

    An EndDialog may come with the Error of a lifetime (124), and a second END fails (118).
    """

    def handler(transaction: Transaction) -> None:
        for dialog in {message.dialog for message in transaction if message.type in types}:
            transaction.end(dialog)

    return handler


def answered(broker: Broker) -> Dialog:
    dialog = sent(broker, b"0")

    def answer(transaction: Transaction) -> None:
        (message,) = transaction
        transaction.send(message.dialog, RECEIPT)

    handle(broker, "Orders", answer)
    return dialog


def initiator_gone(broker: Broker) -> Dialog:
    dialog = answered(broker)
    cleaned(broker, "Shop")
    return dialog


def target_gone(broker: Broker) -> Dialog:
    dialog = answered(broker)
    assert len(drain(broker, "Shop")) == 1
    dialog.send(ORDER, b"1")
    dialog.flush()
    cleaned(broker, "Orders")
    return dialog


def ended_without_target(broker: Broker) -> Dialog:
    dialog = target_gone(broker)
    dialog.end()
    broker.flush()
    return dialog


def sides(broker: Broker) -> list[ConversationSide]:
    return [*broker.operations.conversations()]


def follow(broker: Broker, one: Leaked) -> None:
    """Do what the remedy says until the side is gone, or is not as it was."""

    def helped() -> bool:
        return not any((side.role, side.state) == (one.role, one.state) for side in sides(broker))

    found = READER.match(one.remedy)
    if found is not None:
        queues = [QUEUES[service] for service in found.groups()[:2] if service is not None]
        cleanup = CLEANUP_IF_IT_STAYS in one.remedy
        with ExitStack() as running:
            if found[3]:
                (queue,) = queues
                running.enter_context(taking(broker, end_on(TYPES[found[3]]), queue))
            else:
                running.enter_context(pumped(*[running.enter_context(broker.reader(queue)) for queue in queues]))
            deadline_s = STAYS_S if cleanup else DEADLINE_S
            with suppress(AssertionError) if cleanup else nullcontext():
                until(lambda: helped() or _judged_anew(broker, one), one.remedy, deadline_s)
        if not cleanup or helped():
            return
    else:
        assert one.remedy.startswith("End it WITH CLEANUP"), one.remedy
    with working(broker), suppress(DialogNotFound):  # the readers that carry it out may have removed it
        broker.operations.end(one.conversation, cleanup=True)
    assert helped(), one.remedy


def _judged_anew(broker: Broker, one: Leaked) -> bool:
    return (one.role, one.cause) not in {(side.role, side.cause) for side in broker.operations.leaked(older_than=0.0)}


@pytest.mark.parametrize(
    ("forget", "causes"),
    [
        (ended_by_the_target, ["end unread"]),
        (lambda broker: ended_by_the_target(broker, error=1), ["end unread"]),
        (half_ended, ["end not passed on", "end unread"]),
        (initiator_gone, ["peer gone"]),
        (target_gone, ["peer gone"]),
        (ended_without_target, ["peer gone"]),
        (without_target, ["never answered"]),
        (only_begun, ["never answered"]),
    ],
    ids=["unread end", "unread error", "not passed on", "no initiator", "no target", "ended alone", "lost", "unsent"],
)
def test_following_the_remedies_leaves_no_side(
    broker: Broker, forget: Callable[[Broker], Dialog], causes: list[str]
) -> None:
    forget(broker)
    followed: list[str] = []
    while found := [*broker.operations.leaked(older_than=0.0)]:
        followed.append(found[0].cause)
        assert len(followed) <= STEPS_MAX, followed
        follow(broker, found[0])
    assert (sides(broker), followed) == ([], causes)


def thrown(broker: Broker, **options: float) -> Dialog:
    """The shop sends and ends at once."""
    dialog = begin(broker, **options)
    dialog.send(ORDER, b"0")
    dialog.end()
    broker.flush()
    return dialog


def done(broker: Broker) -> Dialog:
    """One side ends when its work is done."""
    dialog = silent(broker)
    dialog.end()
    broker.flush()
    return dialog


def limited(broker: Broker) -> Dialog:
    """Both sides fall silent, and the conversation has a lifetime."""
    dialog = begin(broker, lifetime=SHORT_S)
    dialog.send(ORDER, b"0")
    dialog.flush()
    return dialog


def ended_by_the_order_service(broker: Broker) -> Dialog:
    dialog = sent(broker, b"0")
    end_at_target(broker)
    return dialog


@contextmanager
def ending(broker: Broker) -> Iterator[None]:
    """Run handlers of both services that end conversations on EndDialog and Error, as the remedies say."""
    handler = end_on(END_DIALOG, ERROR)
    with taking(broker, handler, "Orders"), taking(broker, handler, "Shop"):
        yield


@pytest.mark.parametrize(
    "begun",
    [
        ended_by_the_order_service,
        thrown,
        done,
        limited,
        lambda broker: begin(broker, lifetime=SHORT_S),
    ],
    ids=["not ended", "fire and forget", "silent: ended", "silent: lifetime", "never answered: lifetime"],
)
def test_handlers_that_are_as_the_remedies_say_forget_no_side(
    broker: Broker, begun: Callable[[Broker], Dialog]
) -> None:
    """Remedies for handlers help the next conversation: what a handler has received does not come again."""
    begun(broker)
    broker.flush()
    with ending(broker):
        until(lambda: sides(broker) == [], "no side is left")
