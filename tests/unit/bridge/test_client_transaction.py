"""A client's transaction is entered once, and a sender refuses messages to a destination that is gone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from konverse.bridge.catalog.destinations import Destinations, destination_of
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.client.sender import Sender
from konverse.bridge.client.transaction import ClientTransaction
from konverse.dialog.session.dialogs import DialogState
from konverse.dialog.session.session import Session
from konverse.schemas.errors import BadInput, InvalidState, TopicMismatch
from konverse.schemas.wire.records import Timer
from tests.kit.builders import address_of, begin_block, identifier


def transaction_of(decided: list[str]) -> ClientTransaction:
    """A transaction whose sender records that it was committed."""
    sender = SimpleNamespace(
        session=Session(identifier("session")),
        check=lambda _dialogs: None,
        decide_with_room=lambda _dialog, _call: decided.append("committed"),
    )
    return ClientTransaction(cast("Any", sender), cast("Any", None), cast("Any", None), cast("Any", None))


def test_a_second_block_inside_of_the_first_is_refused_and_nothing_of_it_happens() -> None:
    decided: list[str] = []
    transaction = transaction_of(decided)
    with pytest.raises(InvalidState, match="use `savepoint` and `rollback`"), transaction, transaction:
        raise AssertionError
    assert decided == []


def test_a_block_behind_the_one_that_has_ended_is_refused() -> None:
    decided: list[str] = []
    transaction = transaction_of(decided)
    with transaction:
        pass
    assert decided == ["committed"]
    transaction._transaction.over = True
    with pytest.raises(InvalidState, match="the transaction is over"), transaction:
        raise AssertionError


def test_ctrl_c_behind_the_commit_leaves_the_transaction_committed() -> None:
    """The session has it, and its records are handed over when Ctrl-C comes."""
    transaction = transaction_of([])
    transaction._sender.session.transmit_to(address_of("transmission"))

    def interrupted(_dialog: object, call: Callable[[], object]) -> None:
        call()
        raise KeyboardInterrupt

    cast("Any", transaction._sender).decide_with_room = interrupted
    begun = []
    with pytest.raises(KeyboardInterrupt), transaction:
        begun.append(transaction._transaction.begin(identifier("a"), begin_block()))
    assert transaction._transaction.over
    assert [dialog.state for dialog in begun] == [DialogState.OPEN]


def test_a_dialog_of_another_broker_is_refused_and_not_changed() -> None:
    """Its own broker's `flush` would not wait for the transaction, which may even go to another Kafka."""
    transaction, other = transaction_of([]), transaction_of([])
    staged, _ = other._sender.session.begin(identifier("a"), begin_block())
    foreign = Dialog(other._sender, staged, cast("Any", None), cast("Any", None), 0)
    with transaction, pytest.raises(BadInput, match="was begun by another broker of this process"):
        transaction.finish(foreign)
    assert transaction._transaction.steps == []
    with other:
        other.finish(foreign)
    assert [step.dialog for step in other._transaction.steps] == [staged]


def test_an_end_and_a_timer_are_refused_as_a_send_is_where_a_topic_is_gone() -> None:
    session = Session(identifier("session"))
    dialog, _ = session.begin(identifier("a"), begin_block())
    sender = object.__new__(Sender)
    sender._destinations = Destinations(cast("Any", None))
    sender._destinations.gone[destination_of(dialog.target.address)] = "was deleted"
    with pytest.raises(TopicMismatch, match="was deleted"):
        sender.end(dialog)
    with pytest.raises(TopicMismatch, match="was deleted"):
        sender.set_timer(dialog, Timer(5))
    assert dialog.waiting_end is None


def test_an_end_after_the_peer_has_ended_succeeds_although_the_peer_topic_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session(identifier("session"))
    dialog, _ = session.begin(identifier("a"), begin_block())
    session.ended_by_peer(dialog.conversation)
    sender = object.__new__(Sender)
    sender._destinations = Destinations(cast("Any", None))
    sender._destinations.gone[destination_of(dialog.target.address)] = "was deleted"
    monkeypatch.setattr(sender, "decide", lambda call: call(session))
    sender.end(dialog)
    assert dialog.waiting_end == b""
