"""The common parts of all rules. The modules beside this one hold the rules, one module for each format.

A rule returns the key of a message, a string, or raises `NoKey` with the reason. Bodies are foreign input: a rule takes
time and memory in proportion to a body, and whatever that contains, the result is a key or `NoKey`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from konverse.schemas.catalog.routing_tables import RoutingTable
from konverse.schemas.errors import NotInstalled
from konverse.schemas.limits import FAULT_CHARACTERS_MAX, ROUTING_KEY_BYTES_MAX

KIND: Final = "kind"
"""Key of a description: the kind of rule."""


class NoKey(Exception):
    """The message has no key; the text says why."""


class Lookup(NamedTuple):
    """Look-ups of rules and classifiers in a catalog."""

    routing_table: Callable[[str], RoutingTable]
    """The present table of that name; raises RoutingTableNotFound."""
    has_service: Callable[[str], bool]
    avro_schema: Callable[[str], str]
    """The schema of an AVRO message type, as a JSON document; empty for any other type."""


class Rule(Protocol):
    """Finds keys. Immutable; two rules with the same description find the same keys."""

    kind: str

    def key_of(self, message: Any, lookup: Lookup | None) -> str:
        """The key of a message; raises NoKey."""
        ...

    def described(self) -> Mapping[str, Any]:
        """Its arguments by name, as JSON values."""
        ...


def checked(key: str) -> str:
    """Return the key; NoKey if it is empty, too long, or not encodable."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise NoKey("The key has half of a surrogate pair, which is not a character.") from None
    if not size:
        raise NoKey("The key is empty.")
    if size > ROUTING_KEY_BYTES_MAX:
        raise NoKey(f"The key has {size} bytes; at most {ROUTING_KEY_BYTES_MAX} are allowed.")
    return key


def text_of(value: object, place: str) -> str:
    """The key for a value read from `place`: a string, an integer or a boolean. Raises NoKey for any other."""
    if isinstance(value, bytes):
        try:
            return checked(value.decode())
        except UnicodeDecodeError:
            raise NoKey(f"The value at {place} is bytes that are not UTF-8.") from None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return checked(str(value))
    if isinstance(value, str):
        return checked(value)
    kind = "null" if value is None else type(value).__name__
    raise NoKey(f"The value at {place} is {kind}, and a key is a string, an integer or a boolean.")


def no_key_for(what: str, error: object) -> NoKey:
    """NoKey for an error. The text is cut for logs, since it may contain parts of a body."""
    return NoKey(f"{what}: {error}"[:FAULT_CHARACTERS_MAX])


def missing(what: str, distribution: str) -> NotInstalled:
    """The error for a rule whose library is not installed."""
    return NotInstalled(f"{what} need {distribution}, which is not installed: pip install 'konverse[routing]'")
