"""Which conversation a key has: the same one for all who plan alike, and the next of its line when one is over."""

from __future__ import annotations

from typing import Any, Final

from konverse.schemas.records import Begin
from konverse.spark.write_plan import VERSION, Plan
from tests.kit.builders import address_of, identifier

QUERY: Final = identifier("query")
NOBODY: Final[Any] = None


def dialog(*over: bytes, key: bytes = b"one", pool: str | None = "carts", query: bytes = QUERY) -> tuple[bytes, Begin]:
    """As a plan of its own has it, when these conversations were over before."""
    homes, targets = (tuple(address_of(topic, number) for number in range(8)) for topic in ("shop", "orders"))
    services = {"//sales/OrderService": targets}
    plan = Plan(
        identifier("run"), "sales", "//shop", "//ordering", NOBODY, homes, services, {}, {}, pool, over=frozenset(over)
    )
    return plan.dialog(query, "//sales/OrderService", key)


def test_a_key_has_the_next_conversation_of_its_line_when_one_is_over() -> None:
    line: list[bytes] = []
    for _ in range(4):
        line.append(dialog(*line)[0])
    assert len(set(line)) == len(line)
    assert {conversation[6] >> 4 for conversation in line} == {VERSION}
    assert dialog(*line[:2]) == dialog(*reversed(line[:2])), "whoever plans, and in whatever order they were said"
    conversation, begin = dialog(*line[:3])
    assert (conversation, begin.group, begin.key) == (line[3], line[3], b"one")
    assert begin.target == dialog()[1].target, "Kafka's partition of a key stays"


def test_what_is_over_in_one_line_changes_no_other() -> None:
    over, _ = dialog()
    for other in ({"key": b"two"}, {"pool": "others"}, {"pool": None}):
        assert dialog(over, **other) == dialog(**other)
    assert dialog(dialog(over)[0])[0] == over, "the first one of a line is over before the second is"
    assert dialog(query=identifier("another")) == dialog(), "a pool is for all queries"
