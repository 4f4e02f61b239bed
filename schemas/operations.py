"""Operations of a COMMIT that are rare: each a record of its own, in one list that is applied last, in order.

What repeats per message stands in the columns of `konverse.schemas.journal`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Prune(NamedTuple):
    """Writers that are older than the floor and closed are forgotten (protocol.md section 5, rule 4)."""

    floor_ms: int
    """Milliseconds since 1970, by the partition's time."""


class Attempt(NamedTuple):
    """A handler failed on these endpoints, which are of one conversation group (section 7.1)."""

    endpoints: list[int]


class Try(NamedTuple):
    """The groups of these endpoints, and no others, are with handlers from here on; those before have come back."""

    endpoints: list[int]
    """None: the owner is careful no longer."""


class Suspend(NamedTuple):
    """The conversation group of this endpoint is not handed out until an operator says so."""

    endpoint: int


class Resume(NamedTuple):
    """The conversation group of this endpoint is handed out again, its attempts forgotten."""

    endpoint: int


class Skip(NamedTuple):
    """The first message of this endpoint is dropped, and its group resumed."""

    endpoint: int


Rare = Prune | Attempt | Try | Suspend | Resume | Skip

_KINDS: Final[tuple[type[Rare], ...]] = (Prune, Attempt, Try, Suspend, Resume, Skip)
_NAMES: Final[dict[type, str]] = {kind: f"konverse.{kind.__name__}" for kind in _KINDS}
_FROM_AVRO: Final[dict[str, Any]] = {name: lambda value, kind=kind: kind(**value) for kind, name in _NAMES.items()}


def rare_to_avro(operation: Rare) -> tuple[str, dict[str, Any]]:
    """The Avro form: full name and fields."""
    return _NAMES[type(operation)], operation._asdict()


def rare_from_avro(value: tuple[str, dict[str, Any]]) -> Rare:
    """An operation from its Avro form."""
    name, fields = value
    operation: Rare = _FROM_AVRO[name](fields)
    return operation
