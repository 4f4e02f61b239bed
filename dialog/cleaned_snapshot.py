"""Targets that were ended WITH CLEANUP, in a snapshot (protocol.md sections 6 and 7.5)."""

from __future__ import annotations

from typing import Any

from konverse.schemas.records import address_from_avro, address_to_avro
from konverse.schemas.snapshot import CLEANED

from .partition import Cleaned, Partition


def cleaned_of(state: Partition) -> tuple[str, dict[str, Any], str, list[dict[str, Any]]]:
    """Name, other fields and entries of the section; as nothing is written without entries, a state may be older."""
    entries = [
        {"conversation": conversation, "home": address_to_avro(cleaned.home), "at_ms": cleaned.at_ms}
        for conversation, cleaned in state.cleaned.items()
    ]
    return CLEANED, {}, "entries", entries


def restore_cleaned(state: Partition, entries: list[dict[str, Any]]) -> None:
    """What was kept."""
    for item in entries:
        state.cleaned[item["conversation"]] = Cleaned(address_from_avro(item["home"]), item["at_ms"])
