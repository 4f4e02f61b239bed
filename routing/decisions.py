"""What a classifier says of a conversation's first message: which service it is for, or why none is known.

Source: behaviours 230 to 233, data-dependent routing.
"""

from __future__ import annotations

from typing import NamedTuple

from konverse.schemas.errors import InvalidRoute


class Target(NamedTuple):
    """The service that a conversation is for."""

    service: str
    broker_instance: str | None = None
    """Id of the database in which it is, as `begin_dialog` takes it; None: wherever routes lead."""


class Unclassifiable(NamedTuple):
    """No service is known. The conversation ends with Error 1 and this text; empty: one that names the type."""

    reason: str = ""


Decision = Target | Unclassifiable


def unknown(message_type: str) -> str:
    """Why a message is unclassifiable when the classifier gives no reason."""
    return f"No service is known for this message of type {message_type!r}."


def decision_of(answer: object) -> Decision:
    """What a classifier's answer means: a service's name, None for unclassifiable, or a decision as it is.

    Raises InvalidRoute for anything else.
    """
    if isinstance(answer, str):
        answer = Target(answer)
    if isinstance(answer, Target):
        service: object = answer.service
        if not isinstance(service, str) or not service:
            raise InvalidRoute(
                f"a classifier answers with the name of a service, not with {service!r}; for a message that "
                "cannot be classified it answers with null (None)"
            )
        return answer
    if answer is None:
        return Unclassifiable()
    if isinstance(answer, Unclassifiable):
        return answer
    raise InvalidRoute(
        f"a classifier answers with the name of a service as a text, not with {type(answer).__name__}; for a message "
        "that cannot be classified it answers with null (None)"
    )
