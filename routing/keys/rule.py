"""What finds the key of a conversation in its first message; the modules beside this one do it for one format each.

A rule says of a message its key, a text, or raises `NoKey` with the reason. Bodies are a stranger's: a rule takes time
and memory in proportion to one, and whatever stands in it, the answer is a key or that there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from konverse.schemas.catalog.routing_tables import RoutingTable
from konverse.schemas.errors import NotInstalled
from konverse.schemas.limits import FAULT_CHARACTERS_MAX, ROUTING_KEY_BYTES_MAX

KIND: Final = "kind"
"""Of a description: which rule it is."""


class NoKey(Exception):
    """The message has no key, and why."""


class Lookup(NamedTuple):
    """What rules and classifiers ask of a catalog."""

    routing_table: Callable[[str], RoutingTable]
    """The table of that name as it is now; raises RoutingTableNotFound."""
    has_service: Callable[[str], bool]
    avro_schema: Callable[[str], str]
    """The schema of a message type that is AVRO, a JSON document; empty for another type."""


class Rule(Protocol):
    """Finds keys in one way. It does not change, and two with the same description find the same."""

    kind: str

    def key_of(self, message: Any, lookup: Lookup | None) -> str:
        """The key of a message; raises NoKey."""
        ...

    def described(self) -> Mapping[str, Any]:
        """Its arguments by their names, as JSON has them."""
        ...


def checked(key: str) -> str:
    """The key, unless it cannot be one: NoKey."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise NoKey("The key has half of a surrogate pair, which is no character.") from None
    if not size:
        raise NoKey("The key is empty.")
    if size > ROUTING_KEY_BYTES_MAX:
        raise NoKey(f"The key has {size} bytes; at most {ROUTING_KEY_BYTES_MAX} are allowed.")
    return key


def text_of(value: object, place: str) -> str:
    """The key that a value is which was read from `place`: a text, a whole number, or true and false. NoKey."""
    if isinstance(value, bytes):
        try:
            return checked(value.decode())
        except UnicodeDecodeError:
            raise NoKey(f"What is at {place} is bytes that are no UTF-8.") from None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return checked(str(value))
    if isinstance(value, str):
        return checked(value)
    kind = "null" if value is None else type(value).__name__
    raise NoKey(f"What is at {place} is {kind}, and a key is a text, a whole number or a truth value.")


def said(what: str, error: object) -> NoKey:
    """The same as a reason, as much of it as a log takes: a part of it may be a stranger's."""
    return NoKey(f"{what}: {error}"[:FAULT_CHARACTERS_MAX])


def missing(what: str, distribution: str) -> NotInstalled:
    """What a rule raises when it is made without its library."""
    return NotInstalled(f"{what} need {distribution}, which is not installed: pip install 'konverse[routing]'")
