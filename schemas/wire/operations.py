"""Operations of a COMMIT that are rare: each a record of its own, in one list that is applied last, in order.

What repeats per message stands in the columns of `konverse.schemas.wire.journal`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address
from konverse.schemas.levels import HIGHEST, LOWEST

from .records import address_from_avro, address_to_avro


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
    reason: str
    """What the handler failed with, or what the operator says."""
    ordered: bool
    """An operator wants it; else the handler has failed too often."""


class Resume(NamedTuple):
    """The conversation group of this endpoint is handed out again, its attempts forgotten."""

    endpoint: int


class Skip(NamedTuple):
    """The first message of this endpoint is dropped, and its group resumed."""

    endpoint: int


class Abandon(NamedTuple):
    """A query is given up: its undecided rows are dropped everywhere, and no later batch counts (section 9b)."""

    query: bytes
    homes: tuple[Address, ...]
    """Partitions that may hold its BEGINs."""
    targets: tuple[Address, ...]
    """Partitions that may hold its messages."""


class Exclude(NamedTuple):
    """There is no room for the rows of an attempt: the judge of its query is asked that it shall not win (9b)."""

    query: bytes
    batch: int
    begins: bool
    attempt: bytes


class Finish(NamedTuple):
    """FIN of a handler: nothing more comes from this side of the conversation (protocol.md section 6)."""

    endpoint: int


class Relocate(NamedTuple):
    """An endpoint moves to another partition and leaves a stub (protocol.md section 7.3)."""

    endpoint: int
    to: Address
    generation: int
    """Of the endpoint that leaves: how often it had moved before."""
    pieces: int
    """Records that its state is cut into."""


class Lost(NamedTuple):
    """Data was deleted before anybody ingested it; its COMMIT ingests up to `end` (protocol.md section 7.7)."""

    start: int
    """Data offset below which everything was ingested."""
    end: int
    """Where the data log goes on."""


class SetTimer(NamedTuple):
    """BEGIN CONVERSATION TIMER of a handler: it is due so long after the time of its COMMIT; NO_TIMER: none is."""

    endpoint: int
    timeout_ms: int


class Cleanup(NamedTuple):
    """END CONVERSATION WITH CLEANUP: the endpoint goes, and its peer is told nothing (protocol.md section 6)."""

    endpoint: int


class Fail(NamedTuple):
    """The broker gives an open conversation up: each side gets an Error (protocol.md section 6)."""

    endpoint: int
    code: int
    """Below 0: the negated number of Service Broker's error."""
    description: str


class Withdraw(NamedTuple):
    """Behind END WITH ERROR: what this side had said in vain so far is not said, but for the Error (section 6)."""

    endpoint: int


class Move(NamedTuple):
    """MOVE CONVERSATION: the endpoint belongs to another conversation group from here on (protocol.md section 7.2)."""

    endpoint: int
    group: bytes


class Prioritize(NamedTuple):
    """Sides that begin with this COMMIT have another level than the default; one that it ends too has none."""

    endpoints: list[int]
    levels: bytes
    """One for each."""


class MoveAway(NamedTuple):
    """MOVE CONVERSATION to a group of another partition: the endpoint is of it, and goes there (section 7.2)."""

    endpoint: int
    group: bytes
    to: Address


class GiveBack(NamedTuple):
    """A target ends and gives back what it has not received, behind a note that says for whom it is (section 7.11)."""

    endpoint: int
    message_type: str
    """Of the note."""
    body: bytes


Rare = (
    Prune
    | Attempt
    | Try
    | Suspend
    | Resume
    | Skip
    | Abandon
    | Exclude
    | Finish
    | Relocate
    | Lost
    | SetTimer
    | Cleanup
    | Fail
    | Withdraw
    | Move
    | Prioritize
    | MoveAway
    | GiveBack
)

_KINDS: Final[tuple[type[Rare], ...]] = (
    Prune,
    Attempt,
    Try,
    Suspend,
    Resume,
    Skip,
    Abandon,
    Exclude,
    Finish,
    Relocate,
    Lost,
    SetTimer,
    Cleanup,
    Fail,
    Withdraw,
    Move,
    Prioritize,
    MoveAway,
    GiveBack,
)
_NAMES: Final[dict[type, str]] = {kind: f"konverse.{kind.__name__}" for kind in _KINDS}
_FROM_AVRO: Final[dict[str, Any]] = {name: lambda value, kind=kind: kind(**value) for kind, name in _NAMES.items()} | {
    "konverse.Abandon": lambda value: Abandon(
        value["query"],
        tuple(map(address_from_avro, value["homes"])),
        tuple(map(address_from_avro, value["targets"])),
    ),
    "konverse.Relocate": lambda value: Relocate(**{**value, "to": address_from_avro(value["to"])}),
    "konverse.MoveAway": lambda value: MoveAway(**{**value, "to": address_from_avro(value["to"])}),
    "konverse.Prioritize": lambda value: _prioritize(**value),
}


def _prioritize(endpoints: list[int], levels: bytes) -> Prioritize:
    if len(endpoints) != len(levels) or not all(LOWEST <= level <= HIGHEST for level in levels):
        raise MalformedRecord("a COMMIT that gives endpoints levels which do not exist")
    return Prioritize(endpoints, levels)


def rare_to_avro(operation: Rare) -> tuple[str, dict[str, Any]]:
    """The Avro form: full name and fields."""
    fields = operation._asdict()
    if isinstance(operation, Abandon):
        fields["homes"] = [address_to_avro(address) for address in operation.homes]
        fields["targets"] = [address_to_avro(address) for address in operation.targets]
    elif isinstance(operation, Relocate | MoveAway):
        fields["to"] = address_to_avro(operation.to)
    return _NAMES[type(operation)], fields


def rare_from_avro(value: tuple[str, dict[str, Any]]) -> Rare:
    """An operation from its Avro form."""
    name, fields = value
    operation: Rare = _FROM_AVRO[name](fields)
    return operation
