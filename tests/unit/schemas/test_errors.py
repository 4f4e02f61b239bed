"""The tree of exceptions is the drawn one, and each error tells its reader what to do."""

from __future__ import annotations

import pickle
import re
from typing import Final

import pytest

from konverse.schemas import errors, stack_errors
from konverse.schemas.errors import (
    BAD_INPUT_CHARACTERS_MAX,
    ERROR_CHARACTERS_MAX,
    BadInput,
    KafkaUnavailable,
    KonverseError,
    QueueNotFound,
)

ALL: Final[dict[str, type[KonverseError]]] = {
    name: value
    for name, value in {**vars(errors), **vars(stack_errors)}.items()
    if isinstance(value, type) and issubclass(value, KonverseError)
}
DRAWN: Final = (errors.__doc__ or "").partition("`retriable`")[0]


def test_every_exception_is_in_the_drawing_and_nothing_else() -> None:
    assert {*re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", DRAWN)} <= {*ALL}
    assert [name for name in ALL if len(re.findall(rf"\b{name}\b", DRAWN)) != 1] == []


def test_every_exception_stands_under_its_base() -> None:
    groups = {"BadInput", "UnknownObject", "Unavailable", "KafkaUnavailable", "StackError", "ConversationEnded"}
    lines = DRAWN.splitlines()
    for name, exception in ALL.items():
        if exception is KonverseError:
            continue
        (line,) = (text for text in lines if re.search(rf"\b{name}\b", text))
        base = exception.__mro__[1].__name__
        assert base in groups | {"KonverseError"}, name
        nested = line.lstrip(" ").startswith("│") or bool(re.match(r"\s{8}", line))
        assert nested == (base in groups), f"{name} is drawn at another depth than {base} says"


def test_all_are_konverse_errors_and_none_escapes_an_except_exception() -> None:
    defined = [value for value in {**vars(errors), **vars(stack_errors)}.values() if isinstance(value, type)]
    assert {*defined} == {*ALL.values()}
    assert KonverseError.__mro__[1] is Exception


def test_exactly_the_temporary_errors_are_retriable() -> None:
    assert {name for name, exception in ALL.items() if exception.retriable} == {
        "GroupLocked",
        "Unavailable",
        "AccessDenied",  # a right may be granted meanwhile
        "KafkaUnavailable",
        "NoPartition",
        "RedisUnavailable",
        "ValidatorUnavailable",
        "QueueDisabled",
        "QueueFull",
        "SteppedDown",
    }


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_number_is_one_of_the_originals(name: str) -> None:
    number = ALL[name].number
    assert number is None or number in {1222, 2714, 6401, 15138, 15151, 33302, 33303} or 8400 <= number < 9800


@pytest.mark.parametrize(
    ("kind", "most"), [(QueueNotFound, BAD_INPUT_CHARACTERS_MAX), (KafkaUnavailable, ERROR_CHARACTERS_MAX)]
)
def test_a_text_that_echoes_something_long_keeps_object_and_remedy(kind: type[KonverseError], most: int) -> None:
    error = kind(f"the queue {'x' * 10_000!r} does not exist; create it")
    text = str(error)
    assert len(text) <= most
    assert text.startswith("the queue 'xxx")
    assert text.endswith("xxx' does not exist; create it")
    assert "characters more) …" in text
    assert str(pickle.loads(pickle.dumps(error))) == text  # our own data


def test_a_text_of_the_largest_size_is_whole() -> None:
    assert str(BadInput("x" * BAD_INPUT_CHARACTERS_MAX)) == "x" * BAD_INPUT_CHARACTERS_MAX
