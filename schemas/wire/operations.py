"""Rare operations of a COMMIT: each is a record, in one list that is applied last, in order.

Frequent operations are in the columns of `konverse.schemas.wire.journal`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address
from konverse.schemas.levels import HIGHEST, LOWEST

from .records import address_from_avro, address_to_avro


class Prune(NamedTuple):
    """Closes and forgets old writers (protocol.md section 5, rule 4)."""

    floor_ms: int
    """Writers silent since this time are closed, those closed before it forgotten. Milliseconds since 1970."""


class Attempt(NamedTuple):
    """A handler failed on these endpoints, all of one conversation group (section 7.1)."""

    endpoints: list[int]


class Try(NamedTuple):
    """From here on only the groups of these endpoints are with handlers; the groups of an earlier TRY are back."""

    endpoints: list[int]
    """Empty: the owner delivers without a TRY again."""


class Suspend(NamedTuple):
    """The conversation group of this endpoint is not delivered until an operator resumes it."""

    endpoint: int
    reason: str
    """The handler's failure, or the operator's words."""
    ordered: bool
    """Whether an operator ordered it; else the handler failed too often."""


class Resume(NamedTuple):
    """The conversation group of this endpoint is delivered again, and its attempts are forgotten."""

    endpoint: int


class Skip(NamedTuple):
    """The first message of this endpoint is dropped, and its group is resumed."""

    endpoint: int


class Abandon(NamedTuple):
    """A query is given up: its undecided rows are dropped everywhere, and no later batch counts (section 9b)."""

    query: bytes
    homes: tuple[Address, ...]
    """Partitions that may hold its BEGINs."""
    targets: tuple[Address, ...]
    """Partitions that may hold its messages."""


class Exclude(NamedTuple):
    """The partition has no room for the rows of an attempt: it asks the query's judge to let the attempt lose (9b)."""

    query: bytes
    batch: int
    begins: bool
    attempt: bytes


class Finish(NamedTuple):
    """FIN of a handler: this side of the conversation sends nothing more (protocol.md section 6)."""

    endpoint: int


class Relocate(NamedTuple):
    """An endpoint moves to another partition and leaves a stub (protocol.md section 7.3)."""

    endpoint: int
    to: Address
    generation: int
    """Number of moves before this one."""
    pieces: int
    """Number of records into which its state is cut."""


class Lost(NamedTuple):
    """Data was deleted unread; this COMMIT ingests up to `end` (protocol.md section 7.7)."""

    start: int
    """Data offset below which everything was ingested."""
    end: int
    """First data offset after the lost range."""


class SetTimer(NamedTuple):
    """BEGIN CONVERSATION TIMER of a handler: due this long after the time of its COMMIT; NO_TIMER cancels it."""

    endpoint: int
    timeout_ms: int


class Cleanup(NamedTuple):
    """END CONVERSATION WITH CLEANUP: drops the endpoint without notifying its peer (protocol.md section 6)."""

    endpoint: int


class Fail(NamedTuple):
    """The broker fails an open conversation: each side gets an Error (protocol.md section 6)."""

    endpoint: int
    code: int
    """Below 0: the negated number of Service Broker's error."""
    description: str


class Withdraw(NamedTuple):
    """After END WITH ERROR: outputs of this side that may not have arrived become VOID, except the Error."""

    endpoint: int


class Move(NamedTuple):
    """MOVE CONVERSATION: from here on the endpoint belongs to another conversation group (protocol.md section 7.2)."""

    endpoint: int
    group: bytes


class Prioritize(NamedTuple):
    """Levels of sides that begin with this COMMIT and do not have the default level.

    Sides that the same COMMIT ends are skipped.
    """

    endpoints: list[int]
    levels: bytes
    """One level, a byte, for each endpoint."""


class MoveAway(NamedTuple):
    """MOVE CONVERSATION to a group of another partition: the endpoint belongs to it and will go there (section 7.2)."""

    endpoint: int
    group: bytes
    to: Address


class GiveBack(NamedTuple):
    """A target ends and returns its unreceived messages, after a note that names their recipient (section 7.11)."""

    endpoint: int
    message_type: str
    """Message type of the note."""
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
