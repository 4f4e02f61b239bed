"""Conversations whose id the caller has chosen, in a snapshot (protocol.md sections 6 and 7.5)."""

from __future__ import annotations

from typing import Any, Final

from konverse.schemas.columns import identifiers
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

    def entry(key: Key, how: int, at_ms: int) -> dict[str, Any]:
        openers, former = (b"".join(one.get(key, ())) for one in (state.named.openers, state.named.former))
        what = {"role": key[0], "conversation": key[1], "how": how, "at_ms": at_ms, "heard": heard(key)}
        return what | {"openers": openers, "former": former}

    entries = [entry(key, LIVES, 0) for key in state.named.living]
    entries += [entry(key, int(over.how), over.at_ms) for key, over in state.named.over.items()]
    return NAMED, {}, "entries", entries


def restore_named(state: Partition, entries: list[dict[str, Any]]) -> None:
    """What was kept."""
    for item in entries:
        key = Role(item["role"]), item["conversation"]
        if item["how"] == LIVES:
            state.named.living[key] = None
        else:
            state.named.over[key] = Over(How(item["how"]), item["at_ms"])
        for known, name in ((state.named.openers, "openers"), (state.named.former, "former")):
            if item[name]:
                known[key] = tuple(identifiers(item[name]))
        if item["heard"]:
            state.named.heard.add(item["conversation"])
