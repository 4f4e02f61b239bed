"""Operations of a COMMIT that are rare: each a record of its own, in one list that is applied last, in order.

What repeats per message stands in the columns of `konverse.schemas.journal`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Prune(NamedTuple):
    """Writers that are older than the floor and closed are forgotten (protocol.md section 5, rule 4)."""

    floor_ms: int
    """Milliseconds since 1970, by the partition's time."""


class Finish(NamedTuple):
    """FIN of a handler: nothing more comes from this side of the conversation (protocol.md section 6)."""

    endpoint: int


Rare = Prune | Finish

_NAMES: Final[dict[type, str]] = {Prune: "konverse.Prune", Finish: "konverse.Finish"}
_FROM_AVRO: Final[dict[str, Any]] = {
    "konverse.Prune": lambda value: Prune(**value),
    "konverse.Finish": lambda value: Finish(**value),
}


def rare_to_avro(operation: Rare) -> tuple[str, dict[str, Any]]:
    """The Avro form: full name and fields."""
    return _NAMES[type(operation)], operation._asdict()


def rare_from_avro(value: tuple[str, dict[str, Any]]) -> Rare:
    """An operation from its Avro form."""
    name, fields = value
    operation: Rare = _FROM_AVRO[name](fields)
    return operation
