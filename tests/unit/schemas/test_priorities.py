"""The level of an endpoint (behaviour 217)."""

from __future__ import annotations

from itertools import product

import pytest

from konverse.schemas.catalog.priorities import ANY, BrokerPriority, level_of
from konverse.schemas.errors import InvalidName, InvalidPriority

ROWS = (
    ("contract", "local", "remote"),
    ("contract", "local", ANY),
    ("contract", ANY, "remote"),
    ("contract", ANY, ANY),
    (ANY, "local", "remote"),
    (ANY, "local", ANY),
    (ANY, ANY, "remote"),
    (ANY, ANY, ANY),
)
"""The original's table, the nearest match first."""


def priorities(*rows: tuple[str, str, str]) -> list[BrokerPriority]:
    """A priority for each row of the table, with level 10 for the first, 9 for the second and so on."""
    return [BrokerPriority(f"row {ROWS.index(row)}", *row, level=10 - ROWS.index(row)) for row in rows]


@pytest.mark.parametrize("first", range(len(ROWS)))
def test_the_first_row_of_the_table_that_there_is_decides(first: int) -> None:
    assert level_of(priorities(*ROWS[first:]), "contract", "local", "remote") == 10 - first
    assert level_of(priorities(*reversed(ROWS[first:])), "contract", "local", "remote") == 10 - first


def test_without_a_match_the_level_is_five() -> None:
    assert level_of([], "contract", "local", "remote") == 5
    assert level_of(priorities(*ROWS[:-1]), "another", "service", "altogether") == 5


@pytest.mark.parametrize("given", list(product(("contract", "x"), ("local", "x"), ("remote", "x"))))
def test_a_criterion_that_is_not_met_leaves_a_priority_out(given: tuple[str, str, str]) -> None:
    rows = [row for row in ROWS if all(own in (ANY, other) for own, other in zip(row, given, strict=True))]
    assert level_of(priorities(*ROWS), *given) == 10 - ROWS.index(rows[0])


def test_names_are_compared_byte_by_byte() -> None:
    assert level_of([BrokerPriority("p", remote_service="Remote", level=9)], "c", "l", "remote") == 5


@pytest.mark.parametrize("level", [-1, 0, 11])
def test_a_level_is_one_to_ten(level: int) -> None:
    with pytest.raises(InvalidPriority, match="1 \\(low\\) to 10"):
        BrokerPriority.of(BrokerPriority("p", level=level))
    for allowed in (1, 10):
        BrokerPriority.of(BrokerPriority("p", level=allowed))


def test_names_of_priorities_and_remote_services_are_names() -> None:
    for wrong in (BrokerPriority(""), BrokerPriority("p", remote_service="x" * 257)):
        with pytest.raises(InvalidName):
            BrokerPriority.of(wrong)
