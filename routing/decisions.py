"""A classifier's decision about a conversation's first message: its service, or why no service is known.

Source: behaviours 230 to 233, data-dependent routing.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidRoute

__all__ = ["Decision", "Target", "Unclassifiable", "unknown"]


class Unclassifiable(NamedTuple):
    """No service is known. The conversation ends with Error 1 and `reason`, or a text that names the message type."""

    reason: str = ""


Decision = Target | Unclassifiable

Answer = Decision | str | None
"""The return value of a classifier: a decision, the name of a service, or None when it cannot classify the message."""


def decision_of(answer: object) -> Decision:
    """The decision in a classifier's answer. Raises InvalidRoute for any other answer."""
    if isinstance(answer, Target | Unclassifiable):
        decision: Decision = answer
    elif answer is None:
        decision = Unclassifiable()
    elif isinstance(answer, str):
        decision = Target(answer)
    else:
        raise InvalidRoute(
            f"the classifier answered with {answer!r}, of type {type(answer).__name__}; let it answer with a Target, "
            "the name of a service, or None for a message that it cannot classify"
        )
    if isinstance(decision, Target) and not decision.service:
        raise InvalidRoute(
            f"the classifier answered with {decision.service!r} as the name of a service; let it answer with a name, "
            "or None for a message that it cannot classify"
        )
    if isinstance(decision, Target) and decision.broker_instance is not None:
        return Target(decision.service, _instance(decision.broker_instance))
    return decision


def _instance(given: object) -> str:
    """The id of a broker instance in its canonical form."""
    try:
        return str(UUID(str(given)))
    except ValueError:
        raise InvalidRoute(
            f"the classifier answered with {given!r} as a broker instance; let it answer with the id of a database, or "
            "with None to let routes choose the database"
        ) from None


def unknown(message_type: str) -> str:
    """The reason for a message that is unclassifiable, when the classifier gives none."""
    return f"No service is known for this message of type {message_type!r}."
