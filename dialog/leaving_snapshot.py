"""Groups that go to other partitions, in a snapshot (protocol.md sections 7.2 and 7.5)."""

from __future__ import annotations

from typing import Any

from konverse.schemas.records import address_from_avro, address_to_avro
from konverse.schemas.snapshot import LEAVING

from .partition import Partition


def leaving_of(state: Partition) -> tuple[str, dict[str, Any], str, list[dict[str, Any]]]:
    """Name, other fields and entries of the section; as nothing is written without entries, a state may be older."""
    entries = [{"group": group, "to": address_to_avro(to)} for group, to in state.moves.leaving.items()]
    return LEAVING, {}, "entries", entries


def restore_leaving(state: Partition, entries: list[dict[str, Any]]) -> None:
    """What was kept."""
    state.moves.leaving.update((item["group"], address_from_avro(item["to"])) for item in entries)
