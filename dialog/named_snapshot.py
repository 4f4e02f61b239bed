"""Conversations whose id the caller has chosen, in a snapshot (protocol.md sections 6 and 7.5)."""

from __future__ import annotations

from typing import Any, Final

from konverse.schemas.records import Role
from konverse.schemas.snapshot import NAMED

from .named import How, Key, Over
from .partition import Partition

LIVES: Final = -1
"""In place of how a side has ended."""


def named_of(state: Partition) -> tuple[str, dict[str, Any], str, list[dict[str, Any]]]:
    """Name, other fields and entries of the section; as nothing is written without entries, a state may be older."""

    def heard(key: Key) -> bool:
        return key[0] is Role.INITIATOR and key[1] in state.named.heard

    entries = [
        {"role": role, "conversation": conversation, "how": LIVES, "at_ms": 0, "heard": heard((role, conversation))}
        for role, conversation in state.named.living
    ]
    entries += [
        {"role": key[0], "conversation": key[1], "how": int(over.how), "at_ms": over.at_ms, "heard": heard(key)}
        for key, over in state.named.over.items()
    ]
    return NAMED, {}, "entries", entries


def restore_named(state: Partition, entries: list[dict[str, Any]]) -> None:
    """What was kept."""
    for item in entries:
        key = Role(item["role"]), item["conversation"]
        if item["how"] == LIVES:
            state.named.living[key] = None
        else:
            state.named.over[key] = Over(How(item["how"]), item["at_ms"])
        if item["heard"]:
            state.named.heard.add(item["conversation"])
