"""Warnings of fire and forget, from the knowledge of a process's readers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.client.fire_and_forget import FireAndForget
from konverse.bridge.reader import fire_and_forget
from konverse.bridge.reader.readers import Readers
from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.session.session import Session
from konverse.schemas.system_messages import ERROR
from tests.kit.builders import Pair, Side, address_of, begin_block, identifier, record

C = identifier("a conversation")


@pytest.fixture(autouse=True)
def _nobody_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fire_and_forget, "_warned", set())


def dialog(messages: int = 1, **changes: Any) -> SessionDialog:
    session = Session(b"w" * 16)
    begun, _ = session.begin(C, begin_block(group=C)._replace(**changes))
    for _ in range(messages):
        session.send(begun, "order", b"")
    return begun


def reader_of(side: Side | None, topic: str = "replies") -> Any:
    """A reader of the dialogs' homes; with None, it does not have their partition."""
    ask: Callable[..., Any] = lambda _partition, question: None if side is None else question(side.state)  # noqa: E731
    return SimpleNamespace(queue=SimpleNamespace(topic=topic), closed=False, ask=ask)


def told(caplog: pytest.LogCaptureFixture, one: SessionDialog, *readers: Any, read: str = "", **look: Any) -> int:
    known = Readers()
    for reader in readers:
        known.add(reader)
    looking = FireAndForget(known)
    looking.reads(read)
    looking.examine(one, **look)
    return len(caplog.messages)


def test_a_dialog_ended_without_any_received_message_is_warned_about_once_per_home_and_contract(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert told(caplog, dialog()) == 1
    assert "from service 'shop' to service 'store' under contract 'orders'" in caplog.messages[0]
    assert told(caplog, dialog()) == 1, "once for a way"
    assert told(caplog, dialog(contract="others")) == 2
    assert told(caplog, dialog(home=address_of("elsewhere"))) == 3
    assert told(caplog, dialog(contract="with a lifetime", lifetime_ms=1_000)) == 4, "it saves no message"


def test_ways_are_forgotten_when_there_are_too_many(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fire_and_forget, "WAY_ENTRIES_MAX", 1)
    for contract in ("a", "b", "a"):
        told(caplog, dialog(contract=contract))
    assert len(caplog.messages) == 3


def test_no_warning_is_logged_when_nothing_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, dialog(messages=0)) == 0
    assert told(caplog, dialog(messages=0), sends=True) == 1


def test_no_warning_is_logged_for_a_dialog_that_has_already_ended(caplog: pytest.LogCaptureFixture) -> None:
    session = Session(b"w" * 16)
    ours, theirs = (session.begin(identifier(name), begin_block())[0] for name in ("ours", "theirs"))
    for begun in (ours, theirs):
        session.send(begun, "order", b"")
    session.end(ours)
    session.ended_by_peer(theirs.conversation)
    assert told(caplog, ours) == told(caplog, theirs) == 0


def test_a_reader_of_its_home_says_whether_something_came(caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair()
    pair.answered("a conversation", messages=1)
    assert told(caplog, dialog(), reader_of(pair.home)) == 0
    pair = Pair()
    initiator = pair.initiator(pair.begin())
    initiator.urgent = ((0, ERROR, *record(b"")),)
    assert told(caplog, dialog(), reader_of(pair.home)) == 0
    initiator.urgent = ()
    assert told(caplog, dialog(), reader_of(pair.home)) == 1


def test_no_warning_is_logged_when_a_reply_may_have_been_received(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, dialog(), reader_of(None)) == 0, "its partition is another process's"
    assert told(caplog, dialog(), read="replies") == 0, "a reader that was closed may have received something"
    assert told(caplog, dialog(), reader_of(Side("orders"), "orders"), read="orders") == 1
