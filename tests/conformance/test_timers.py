"""Behaviours 39, 96 to 104, 123 and 124: conversation timers and lifetimes."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

import konverse
from konverse.bridge.broker import Broker
from konverse.bridge.reader.reader import Reader
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import ConversationEnded, InvalidTimeout, KonverseError, TimerBeyondLifetime, TimerRefused
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import DIALOG_TIMER, END_DIALOG, ERROR, read_error
from tests.kit.readme import readme
from tests.kit.servers import Servers
from tests.kit.shop import (
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    begin,
    connected,
    drain,
    end_at_target,
    handle,
    pumped,
    receive,
    send_orders,
    set_clock,
    until,
    work,
)

pytestmark = pytest.mark.stack


def types(messages: list[Message]) -> list[str]:
    return [message.type for message in messages]


def codes(messages: list[Message]) -> list[int]:
    """Codes of Errors."""
    return [read_error(message.body)[0] for message in messages]


@pytest.mark.parametrize("hours", [-48, 48])
def test_096_a_timer_counts_by_kafkas_clock_and_not_by_the_clients(broker: Broker, hours: int) -> None:
    dialog = begin(broker)
    set_clock(broker, hours)
    with broker.reader("Shop") as shop:
        shop.wait_for_partitions(1)
        before = time.monotonic()
        dialog.set_timer(1.0)
        with next(shop) as transaction:
            (message,) = transaction
        took_s = time.monotonic() - before
    assert message.type == DIALOG_TIMER
    assert took_s > 0.9
    assert took_s < 60


@pytest.mark.parametrize("hours", [-48, 48])
def test_123_a_lifetime_counts_by_kafkas_clock_and_not_by_the_clients(broker: Broker, hours: int) -> None:
    set_clock(broker, hours)
    before = time.monotonic()
    dialog = begin(broker, lifetime=2.0)
    dialog.send(ORDER, b"0")
    (told,) = receive(broker, "Shop", 1)
    took_s = time.monotonic() - before
    assert (told.type, read_error(told.body)[0]) == (ERROR, -8489)
    assert took_s > 1.9
    assert took_s < 60


def test_096_a_timer_puts_one_empty_message_on_the_local_queue_when_it_is_due(broker: Broker) -> None:
    """And 101: a waiting reader gets it like any message."""
    dialog = begin(broker)
    with broker.reader("Shop") as shop:
        shop.wait_for_partitions(1)
        dialog.set_timer(0.4)
        before = time.monotonic()
        with next(iter(shop)) as transaction:
            (message,) = transaction
        took_s = time.monotonic() - before
    assert (message.type, message.body, message.sequence, message.dialog.id) == (DIALOG_TIMER, b"", -1, dialog.id)
    assert 0.4 <= took_s < 0.4 + 1.0, "within a second of due"
    assert drain(broker, "Shop") == []


def test_096_a_dialog_can_send_after_its_timer_has_fired(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(ORDER, b"0")
    dialog.flush()
    dialog.set_timer(0.01)
    assert types(receive(broker, "Shop", 1)) == [DIALOG_TIMER]
    assert dialog.send(ORDER, b"1") == 1
    broker.flush()
    assert [message.body for message in receive(broker, "Orders", 2)] == [b"0", b"1"]


def test_097_the_far_side_never_receives_the_dialog_timer(broker: Broker) -> None:
    send_orders(broker, dialogs=1, messages=1)
    handle(broker, "Orders", lambda transaction: transaction.set_timer(next(iter(transaction)).dialog, 0.01))
    assert types(receive(broker, "Orders", 1)) == [DIALOG_TIMER]
    assert drain(broker, "Shop") == []


def test_098_setting_again_before_it_is_due_replaces_the_time_and_one_message_comes(broker: Broker) -> None:
    dialog = begin(broker)
    before = time.monotonic()
    dialog.set_timer(0.2)
    dialog.set_timer(0.9)
    (message,) = receive(broker, "Shop", 1)
    assert message.type == DIALOG_TIMER
    assert time.monotonic() - before > 0.9
    assert drain(broker, "Shop") == []


def test_099_each_side_has_its_own_timer(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.set_timer(0.01)
    dialog.send(ORDER, b"0")
    broker.flush()

    def rest(transaction: Transaction) -> None:
        list(transaction)
        transaction.set_timer(transaction.dialog, 0.01)

    handle(broker, "Orders", rest)
    received = [*receive(broker, "Orders", 1), *receive(broker, "Shop", 1)]
    assert [(message.type, message.dialog.role) for message in received] == [
        (DIALOG_TIMER, Role.TARGET),
        (DIALOG_TIMER, Role.INITIATOR),
    ]


def test_100_a_dialog_timer_is_received_before_any_other_message_including_an_error(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(ORDER, b"0")
    broker.flush()
    handle(broker, "Orders", lambda transaction: transaction.send(next(iter(transaction)).dialog, RECEIPT, b"1"))
    dialog.send(ORDER, b"2")
    dialog.set_timer(0.01)
    broker.flush()
    end_at_target(broker, error=5)
    with broker.reader("Shop") as shop:
        until(lambda: everything_waits(shop), "the receipt, the Error and the DialogTimer")
        with next(iter(shop)) as transaction:
            assert types(list(transaction)) == [DIALOG_TIMER, ERROR, RECEIPT]


def everything_waits(shop: Reader) -> bool:
    """Whether two urgent messages and the message that they overtake wait."""
    work(shop)
    endpoints = [endpoint for owner in shop.owners for endpoint in owner.fold.state.live()]
    return any(endpoint.rings and endpoint.error and endpoint.queue for endpoint in endpoints)


def test_102_a_timer_beyond_the_lifetime_or_of_an_ended_dialog_is_refused(broker: Broker) -> None:
    dialog = begin(broker, lifetime=60)
    dialog.send(ORDER, b"0")
    broker.flush()
    refusals: list[KonverseError] = []
    with pytest.raises(TimerBeyondLifetime) as refusal:
        dialog.set_timer(61)
    refusals.append(refusal.value)

    def rest(transaction: Transaction) -> None:
        (message,) = transaction
        transaction.set_timer(message.dialog, 30)
        with pytest.raises(TimerBeyondLifetime) as refusal:
            transaction.set_timer(message.dialog, 61)
        refusals.append(refusal.value)
        transaction.end(message.dialog)
        with pytest.raises(TimerRefused) as refused:
            transaction.set_timer(message.dialog, 30)
        refusals.append(refused.value)

    handle(broker, "Orders", rest)
    dialog.end()
    with pytest.raises(TimerRefused) as refused:
        dialog.set_timer(30)
    assert [error.number for error in (*refusals, refused.value)] == [8410, 8410, 8458, 8458]


def test_102_a_timer_must_be_due_within_what_is_left_of_the_lifetime(broker: Broker) -> None:
    dialog = begin(broker, lifetime=3)
    dialog.send(ORDER, b"0")
    broker.flush()
    until(lambda: dialog._staged.expires_ms, "the lifetime is measured")
    time.sleep(1.1)
    with broker.transaction() as staged:
        for set_timer in (dialog.set_timer, partial(staged.set_timer, dialog)):
            with pytest.raises(TimerBeyondLifetime) as refusal:
                set_timer(2.5)
            assert refusal.value.number == 8410


@pytest.mark.parametrize("error", [0, 5])
def test_102_a_timer_is_refused_in_all_ways_where_the_peer_has_ended(broker: Broker, error: int) -> None:
    dialog = begin(broker)
    dialog.send(ORDER, b"0")
    broker.flush()
    end_at_target(broker, error)
    with broker.reader("Shop") as shop, next(iter(shop)) as received, broker.transaction() as staged:
        list(received)
        calls: list[Callable[[], None]] = [
            lambda: dialog.set_timer(30),
            lambda: staged.set_timer(dialog, 30),
            lambda: received.set_timer(received.dialog, 30),
        ]
        for call in calls:
            with pytest.raises(TimerRefused) as refused:
                call()
            assert refused.value.number == 8458


def test_103_a_timer_of_a_transaction_that_is_rolled_back_does_not_fire(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(ORDER, b"0")
    with suppress(ZeroDivisionError), broker.transaction() as transaction:
        transaction.set_timer(dialog, 0.01)
        raise ZeroDivisionError
    with broker.transaction() as transaction:
        transaction.send(dialog, ORDER, b"1")
        transaction.set_timer(dialog, 0.05)
    broker.flush()
    with broker.reader("Orders") as orders, suppress(ZeroDivisionError), next(iter(orders)) as received:
        received.set_timer(next(iter(received)).dialog, 0.01)
        raise ZeroDivisionError
    assert types(drain(broker, "Orders")) == [ORDER, ORDER]
    assert types(drain(broker, "Shop")) == [DIALOG_TIMER], "that of the transaction which was committed"


def test_104_the_end_of_a_conversation_cancels_its_timer(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.set_timer(0.3)
    dialog.end()
    broker.flush()
    assert drain(broker, "Shop", quiet_s=1.0) == []


def test_098_a_timer_that_is_cancelled_does_not_ring(broker: Broker) -> None:
    """By its owner: on a dialog, in a client's transaction, by a handler."""
    one, other = begin(broker), begin(broker)
    for dialog in (one, other):
        dialog.send(ORDER, b"0")
        dialog.set_timer(1.5)
    broker.flush()

    def cancel(transaction: Transaction) -> None:
        list(transaction)
        transaction.set_timer(transaction.dialog, 1.5)
        transaction.cancel_timer(transaction.dialog)

    for _ in (one, other):
        handle(broker, "Orders", cancel)
    one.cancel_timer()
    with broker.transaction() as transaction:
        transaction.cancel_timer(other)
    broker.flush()
    assert drain(broker, "Shop", quiet_s=2.5) == []
    assert drain(broker, "Orders") == []


def test_096_a_timer_survives_all_processes_and_fires_late_when_no_process_was_running(
    servers: Servers, broker: Broker, database: str
) -> None:
    dialog = begin(broker)
    dialog.send(ORDER, b"0")
    dialog.set_timer(0.2)
    broker.flush()

    def rest(transaction: Transaction) -> None:
        list(transaction)
        transaction.set_timer(transaction.dialog, 0.2)

    handle(broker, "Orders", rest)
    broker.close()
    with connected(servers.bootstrap, database) as another:
        assert types(receive(another, "Orders", 1)) == [DIALOG_TIMER]
        assert types(receive(another, "Shop", 1)) == [DIALOG_TIMER]
        assert drain(another, "Shop") == []


@pytest.mark.parametrize("lifetime", [0, -1, 2**31, float("nan"), float("inf"), "x", True, timedelta(1)])
def test_039_an_invalid_lifetime_is_refused(broker: Broker, lifetime: Any) -> None:
    """In part: LIFETIME NULL is no error (8406), because None means no LIFETIME."""

    def in_transaction() -> None:
        with broker.transaction() as transaction:
            transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING, lifetime=lifetime)

    for call in (lambda: begin(broker, lifetime=lifetime), in_transaction, lambda: begin(broker).set_timer(lifetime)):
        with pytest.raises(InvalidTimeout, match="seconds above 0, at most 2147483647, not") as refusal:
            call()
        assert refusal.value.number == 8411


def test_123_each_side_that_is_open_gets_an_error_when_the_lifetime_is_over(broker: Broker) -> None:
    """And 124: each side separately; later sends fail."""
    dialog = begin(broker, lifetime=0.8)
    dialog.send(ORDER, b"0")
    broker.flush()
    orders = receive(broker, "Orders", 2)
    assert types(orders) in ([ORDER, ERROR], [ERROR, ORDER])
    errors = [message for message in orders if message.type == ERROR] + receive(broker, "Shop", 1)
    assert codes(errors) == [-8489, -8489]
    with pytest.raises(ConversationEnded):
        dialog.send(ORDER, b"late")


def test_124_a_side_without_readers_gets_its_lifetime_error_after_the_end_of_its_peer(broker: Broker) -> None:
    dialog = begin(broker, lifetime=0.3)
    dialog.send(ORDER, b"0")
    broker.flush()

    def end(transaction: Transaction) -> None:
        assert codes(list(transaction)) == [-8489]
        transaction.end(transaction.dialog)

    handle(broker, "Shop", end)
    received = receive(broker, "Orders", 3)
    assert sorted(types(received)) == sorted([ORDER, END_DIALOG, ERROR])
    assert codes([message for message in received if message.type == ERROR]) == [-8489]
    assert {message.dialog.state.code for message in received} == {"ER"}


def test_128_a_side_that_has_ended_is_removed_without_a_message_when_its_lifetime_is_over(broker: Broker) -> None:
    """And 122: the other side stays in ER until it is ended."""
    with broker.reader("Shop") as shop, pumped(shop):
        shop.wait_for_partitions(1)  # its owner sends EndDialog, before the lifetime is over
        dialog = begin(broker, lifetime=4.0)
        dialog.send(ORDER, b"0")
        dialog.end()
        broker.flush()
        received = receive(broker, "Orders", 3)
        assert sorted(types(received)) == sorted([ORDER, END_DIALOG, ERROR])
        until(
            lambda: not any(row.is_initiator for row in broker.views.conversation_endpoints()),
            "the side that has ended to go",
        )
    assert drain(broker, "Shop") == []
    (row,) = broker.views.conversation_endpoints()
    assert (row.is_initiator, row.state) == (False, "ER")


def test_123_a_handlers_dialog_has_a_lifetime_too(broker: Broker) -> None:
    send_orders(broker, dialogs=1, messages=1)
    broker.admin.create_service("//sales/Asking", queue="Orders")
    broker.admin.alter_service(SHOP_SERVICE, add=[ORDERING])

    def ask(transaction: Transaction) -> None:
        list(transaction)
        transaction.begin("//sales/Asking", SHOP_SERVICE, ORDERING, lifetime=0.2)

    handle(broker, "Orders", ask)
    (error,) = receive(broker, "Orders", 1)
    assert codes([error]) == [-8489]
    assert (error.dialog.service, error.dialog.far_service) == ("//sales/Asking", SHOP_SERVICE)


def test_096_the_program_of_the_readme_gives_up_waiting(servers: Servers, broker: Broker, database: str) -> None:
    output = io.StringIO()
    program = readme("dialog = broker.begin_dialog", servers, database, "docs/guide/timers.md").replace(
        "set_timer(2)", "set_timer(0.05)"
    )
    with redirect_stdout(output):
        exec(compile(program, "README.md", "exec"), {"broker": broker, "konverse": konverse})
    assert "no answer yet:" in output.getvalue()
    orders = receive(broker, "Orders", 2)
    assert codes([message for message in orders if message.type == ERROR]) == [1]
