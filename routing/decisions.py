"""What a classifier says of a conversation's first message: which service it is for, or why none is known.

Source: behaviours 230 to 233, data-dependent routing.
"""

from __future__ import annotations

from typing import NamedTuple

from konverse.schemas.table_entries import Target

__all__ = ["Decision", "Target", "Unclassifiable", "unknown"]


class Unclassifiable(NamedTuple):
    """No service is known. The conversation ends with Error 1 and this text; empty: one that names the type."""

    reason: str = ""


Decision = Target | Unclassifiable


def unknown(message_type: str) -> str:
    """Why a message is unclassifiable when the classifier gives no reason."""
    return f"No service is known for this message of type {message_type!r}."
