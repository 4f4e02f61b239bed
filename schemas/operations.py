"""Operations of a COMMIT that are rare: each a record of its own, in one list that is applied last, in order.

What repeats per message stands in the columns of `konverse.schemas.journal`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from .identifiers import Address
from .records import address_from_avro, address_to_avro


class Prune(NamedTuple):
    """Writers that are older than the floor and closed are forgotten (protocol.md section 5, rule 4)."""

    floor_ms: int
    """Milliseconds since 1970, by the partition's time."""


class Relocate(NamedTuple):
    """An endpoint moves to another partition and leaves a stub (protocol.md section 7.3)."""

    endpoint: int
    to: Address
    generation: int
    """Of the endpoint that leaves: how often it had moved before."""
    pieces: int
    """Records that its state is cut into."""


Rare = Prune | Relocate

_NAMES: Final[dict[type, str]] = {Prune: "konverse.Prune", Relocate: "konverse.Relocate"}
_FROM_AVRO: Final[dict[str, Any]] = {
    "konverse.Prune": lambda value: Prune(**value),
    "konverse.Relocate": lambda value: Relocate(**{**value, "to": address_from_avro(value["to"])}),
}


def rare_to_avro(operation: Rare) -> tuple[str, dict[str, Any]]:
    """The Avro form: full name and fields."""
    fields = operation._asdict()
    if isinstance(operation, Relocate):
        fields["to"] = address_to_avro(operation.to)
    return _NAMES[type(operation)], fields


def rare_from_avro(value: tuple[str, dict[str, Any]]) -> Rare:
    """An operation from its Avro form."""
    name, fields = value
    operation: Rare = _FROM_AVRO[name](fields)
    return operation
