"""Arguments of public calls: the annotated types are accepted, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from pydantic import TypeAdapter, ValidationError

from konverse.bridge.runtime.arguments import Partitions, checked
from konverse.schemas.catalog.objects import SentByClause
from konverse.schemas.errors import BadInput


@checked
def read(partitions: Partitions | None = None) -> list[int]:
    """A call of the public API."""
    return [*(partitions or ())]


@pytest.mark.parametrize("given", [[0, 1], (0, 1), range(2)], ids=repr)
def test_partitions_are_any_sequence_of_numbers(given: Sequence[int]) -> None:
    assert read(partitions=given) == [0, 1]


@checked
def create(sent_by: SentByClause, group: UUID | None = None) -> None:
    """A second call of the public API."""


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("//sales/Order", "give a mapping or a sequence of pairs, not '//sales/Order'"),
        (5, "give a mapping or a sequence of pairs, not 5"),
        (["//sales/Order"], "give a pair, not '//sales/Order'"),
        ({"//sales/Order": 1}, "give a str or a value of type SentBy, not 1"),
    ],
)
def test_all_that_an_argument_may_be_is_named(given: Any, text: str) -> None:
    with pytest.raises(BadInput, match=f"create: argument 'sent_by': {text}$"):
        create(given)


def test_other_things_than_numbers_are_no_partitions() -> None:
    for wrong in ("01", ["0"], [0.5], 1):
        with pytest.raises(BadInput, match="argument 'partitions'"):
            read(partitions=wrong)  # type: ignore[arg-type]


ENDS = """
import threading, time
from konverse.bridge.runtime.arguments import checked

@checked
def wait(seconds: float) -> None:
    time.sleep(seconds)

class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(1)

threading.slow = Slow()
threading.Thread(target=wait, args=(0.5,), daemon=True).start()
"""


def test_a_program_may_end_while_a_daemon_thread_is_in_a_call() -> None:
    """The call ends while Python clears its modules, so the thread is unwound when it asks for Python's lock."""
    done = subprocess.run([sys.executable, "-c", ENDS], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_validation_error_of_the_function_itself_is_no_bad_input() -> None:
    @checked
    def parse(text: str) -> int:
        return TypeAdapter(int).validate_python(text)

    with pytest.raises(ValidationError):
        parse("five")
