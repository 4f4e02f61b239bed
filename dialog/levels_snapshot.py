"""The priorities of endpoints, in a snapshot (protocol.md section 7.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from konverse.schemas.columns import pack, unpack
from konverse.schemas.priorities import DEFAULT_LEVEL
from konverse.schemas.snapshot import LEVELS, encode_section

from .partition import Partition
from .priorities import set_level


def levels_of(levels: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """The section of those, by place, that are not the default; none without any, so that a state may be older."""
    known = {place: level for place, level in levels if level != DEFAULT_LEVEL}
    if known:
        yield encode_section(LEVELS, {"places": pack("Q", [*known]), "levels": bytes(known.values())})


def restore_levels(state: Partition, value: dict[str, Any]) -> None:
    """What was kept."""
    for place, level in zip(unpack("Q", value["places"]), value["levels"], strict=True):
        endpoint = state.table[place]
        assert endpoint is not None
        set_level(state, endpoint, level)
