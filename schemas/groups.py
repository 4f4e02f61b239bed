"""Conversation groups: which one a side is in before anybody relates it to another."""

from __future__ import annotations

from .identifiers import Role


def own_group(role: Role, conversation: bytes) -> bytes:
    """Conversation group of a side that nobody has related to another: each side is in one of its own."""
    return conversation if role is Role.INITIATOR else _of_target(conversation)


def founders(group: bytes) -> tuple[tuple[Role, bytes], tuple[Role, bytes]]:
    """Whose own group that may be: role and conversation."""
    return (Role.INITIATOR, group), (Role.TARGET, _of_target(group))


def _of_target(identifier: bytes) -> bytes:
    """The id with its last bit changed; again, and it is the same as before."""
    return identifier[:-1] + bytes((identifier[-1] ^ 1,))
