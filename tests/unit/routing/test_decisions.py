"""Valid results of a classifier."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from konverse.routing.decisions import Decision, Unclassifiable, decision_of
from konverse.routing.routed import Routed, Tally
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidRoute

INSTANCE = "0b7e1a52-6b8e-4f0e-8f5e-2f7c9f4e3d10"


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ("north", Target("north")),
        (Target("north", INSTANCE), Target("north", INSTANCE)),
        (Target("north", INSTANCE.upper()), Target("north", INSTANCE)),
        (Target("north", UUID(INSTANCE)), Target("north", INSTANCE)),  # type: ignore[arg-type]  # a UUID as text, too
        (None, Unclassifiable()),
        (Unclassifiable("nobody"), Unclassifiable("nobody")),
    ],
)
def test_a_name_stands_for_a_target_and_none_for_unclassifiable(answer: Any, decision: Decision) -> None:
    assert decision_of(answer) == decision


@pytest.mark.parametrize("answer", [7, b"north", ("north", None), "", Target(""), Target("north", "here")])
def test_an_invalid_classifier_answer_is_refused(answer: Any) -> None:
    with pytest.raises(InvalidRoute, match="the classifier answered with"):
        decision_of(answer)


def test_a_tally_adds_up_as_routed_does() -> None:
    steps = [
        ({"forwarded": 1, "followed": 2}, "north", 3),
        ({"rejected": 1}, "", 0),
        ({}, "", 0),
        ({"followed": 1, "replied": 4, "failed": 1}, "south", 1),
    ]
    tally, added = Tally(), Routed()
    for counts, service, to in steps:
        tally.add(counts, service, to)
        added = added.plus(Routed(**counts, targets={service: to} if to else {}))
    assert tally.routed == added
    assert added.messages == 9
