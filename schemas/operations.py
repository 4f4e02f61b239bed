"""Operations of a COMMIT that are rare: each a record of its own, in one list that is applied last, in order.

What repeats per message stands in the columns of `konverse.schemas.journal`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Prune(NamedTuple):
    """Writers that are older than the floor and closed are forgotten (protocol.md section 5, rule 4)."""

    floor_ms: int
    """Milliseconds since 1970, by the partition's time."""


Rare = Prune

_NAMES: Final[dict[type, str]] = {Prune: "konverse.Prune"}
_FROM_AVRO: Final[dict[str, Any]] = {"konverse.Prune": lambda value: Prune(**value)}


def rare_to_avro(operation: Rare) -> tuple[str, dict[str, Any]]:
    """The Avro form: full name and fields."""
    return _NAMES[type(operation)], operation._asdict()


def rare_from_avro(value: tuple[str, dict[str, Any]]) -> Rare:
    """An operation from its Avro form."""
    name, fields = value
    operation: Rare = _FROM_AVRO[name](fields)
    return operation
