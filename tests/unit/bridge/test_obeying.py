"""What an operator of another process wants is done for the conversation, and the message, that he has seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from konverse.bridge.obeying import follow
from konverse.schemas.errors import BrokerClosed, DialogNotFound, InvalidState
from konverse.schemas.instruction import Action, Instruction

ONE, ANOTHER = UUID(int=1), UUID(int=2)


class Reader:
    """A reader with one suspended conversation, whose first message has the number 16."""

    def __init__(self, raises: Exception | None = None) -> None:
        self.queue = SimpleNamespace(name="Orders")
        self.done: list[Any] = []
        self._raises = raises

    @property
    def suspended(self) -> list[Any]:
        if isinstance(self._raises, BrokerClosed):
            raise self._raises
        return [SimpleNamespace(id=ONE, first=(7, "//sales/Order", b"", 0), rings=False)]

    def resume(self, conversation: UUID) -> None:
        self._do("resume", conversation)

    def skip(self, conversation: UUID) -> None:
        self._do("skip", conversation)

    def end(self, conversation: UUID, *, error: int = 0, description: str = "", cleanup: bool = False) -> None:
        self._do("end", conversation, "cleanup" if cleanup else error, description)

    def fail(self, conversation: UUID) -> None:
        self._do("fail", conversation)

    def _do(self, *what: Any) -> None:
        if self._raises:
            raise self._raises
        self.done.append(what)


def instruction(action: Action, **changed: Any) -> Instruction:
    return Instruction("sales", "Orders", ONE.bytes, 16, action)._replace(**changed)


@pytest.mark.parametrize(
    ("said", "done"),
    [
        (instruction(Action.RESUME), ("resume", ONE)),
        (instruction(Action.SKIP), ("skip", ONE)),
        (instruction(Action.END, error=4711, description="x"), ("end", ONE, 4711, "x")),
        (instruction(Action.CLEANUP, first=0), ("end", ONE, "cleanup", "")),
        (instruction(Action.FAIL, first=0), ("fail", ONE)),
    ],
)
def test_what_is_meant_for_a_conversation_here_is_done(said: Instruction, done: tuple[Any, ...]) -> None:
    reader: Any = Reader()
    assert follow(reader, said)
    assert reader.done == [done]


@pytest.mark.parametrize("changed", [{"queue": "Shop"}, {"conversation": ANOTHER.bytes}, {"first": 14}])
def test_what_is_meant_for_another_one_or_was_done_already_is_not(changed: dict[str, Any]) -> None:
    reader: Any = Reader()
    assert not follow(reader, instruction(Action.SKIP, **changed))
    assert reader.done == []


def test_what_has_changed_meanwhile_is_dropped_and_a_reader_that_was_closed_leaves_it_to_others() -> None:
    changed: Any = Reader(InvalidState("what waits first tells that it is over"))
    assert follow(changed, instruction(Action.SKIP))
    closed: Any = Reader(BrokerClosed("closed"))
    assert not follow(closed, instruction(Action.SKIP))


def test_an_end_from_above_of_what_lives_elsewhere_is_left_to_others() -> None:
    for error in (DialogNotFound("it lives elsewhere"), BrokerClosed("closed")):
        reader: Any = Reader(error)
        assert not follow(reader, instruction(Action.CLEANUP, first=0))
