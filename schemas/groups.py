"""Conversation groups of sides that were not put into another group."""

from __future__ import annotations

from .identifiers import Role


def own_group(role: Role, conversation: bytes) -> bytes:
    """The group that a side has from its beginning: each side is alone in its own group."""
    return conversation if role is Role.INITIATOR else _of_target(conversation)


def founders(group: bytes) -> tuple[tuple[Role, bytes], tuple[Role, bytes]]:
    """Role and conversation of the two sides whose own group this may be."""
    return (Role.INITIATOR, group), (Role.TARGET, _of_target(group))


def _of_target(identifier: bytes) -> bytes:
    """The id with its last bit flipped; applied twice, it gives the same id."""
    return identifier[:-1] + bytes((identifier[-1] ^ 1,))
