"""The end of a program: each sender gets its turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.client.sender import deliver_at_exit
from konverse.bridge.runtime import exits
from konverse.bridge.runtime.exits import leave_at_exit
from konverse.schemas.errors import OutcomeUnknown, TopicMismatch


class Sender:
    """A sender that may raise."""

    def __init__(self, left: list[Sender]) -> None:
        self._left = left

    def at_exit(self, timeout_s: float) -> None:
        self._left.append(self)
        if len(self._left) == 1:
            raise RuntimeError("a thread was gone")


def test_a_sender_that_raises_does_not_keep_the_others_from_leaving(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known: Any = set()
    monkeypatch.setattr(exits, "_OPEN", known)
    left: list[Sender] = []
    for _ in range(3):
        leave_at_exit(Sender(left))
    exits._leave_all()
    assert len(left) == 3
    assert "a thread was gone" in caplog.text


@pytest.mark.parametrize(
    ("error", "is_unverified", "said"),
    [
        (TopicMismatch("topic a was deleted and created again"), False, ["topic a was deleted and created again"]),
        (OutcomeUnknown("not confirmed"), True, ["not confirmed"]),
        (OutcomeUnknown("the goodbye was given up"), False, []),
    ],
)
def test_messages_that_a_topic_has_lost_are_reported_at_the_end_of_a_program(
    error: Exception, is_unverified: bool, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka has acknowledged everything, and the topic is another one."""

    def close(_timeout_s: float) -> None:
        raise error

    sender: Any = SimpleNamespace(settle=lambda _timeout_s: None, close=close, is_unverified=is_unverified)
    deliver_at_exit(sender, 1.0, None)
    assert caplog.messages == [f"the program ends: {text}" for text in said]
