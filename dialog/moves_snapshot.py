"""Where endpoints moved, as the parts of a snapshot, and back."""

from __future__ import annotations

from typing import Any, Final

from konverse.schemas.columns import identifiers
from konverse.schemas.records import Role, address_from_avro, address_to_avro

from .endpoint import Writer
from .moves import Arrival, Stub
from .partition import Partition

_ROLES: Final = {int(role): role for role in Role}


def moves_of(state: Partition) -> dict[str, Any]:
    """Fields of the base."""
    moves = state.moves
    return {
        "stubs": [
            {
                "role": role,
                "conversation": conversation,
                "generation": generation,
                "to": address_to_avro(stub.to),
                "previous": address_to_avro(stub.previous),
                "key": stub.key,
                "opened": stub.opened,
            }
            for (role, conversation), chain in moves.stubs.items()
            for generation, stub in chain.items()
        ],
        "arrivals": [
            {"endpoint": place, "generation": arrival.generation, "previous": address_to_avro(arrival.previous)}
            for place, arrival in moves.arrivals.items()
        ],
        "far_writers": b"".join(far_writers(state)),
        "installing": [{"writer": writer, "pieces": pieces} for writer, pieces in moves.installing.items()],
    }


def far_writers(state: Partition) -> dict[bytes, int]:
    """Writers of endpoints that moved here, which count elsewhere, and a place for each."""
    far: dict[bytes, int] = {}
    for index in state.moves.arrivals:
        endpoint = state.table[index]
        assert endpoint is not None
        for lane in endpoint.lanes():
            far.setdefault(lane.writer.id, len(far))
    return far


def restore_moves(state: Partition, base: dict[str, Any]) -> list[Writer]:
    """Make the moves of an empty state those that were frozen; returns the writers that count elsewhere."""
    moves = state.moves
    for item in base["stubs"]:
        previous = item["previous"] and address_from_avro(item["previous"])
        stub = Stub(address_from_avro(item["to"]), previous, item["key"], item["opened"])
        moves.leave((_ROLES[item["role"]], item["conversation"]), item["generation"], stub)
    for item in base["arrivals"]:
        moves.arrivals[item["endpoint"]] = Arrival(item["generation"], address_from_avro(item["previous"]))
    moves.installing.update((item["writer"], item["pieces"]) for item in base["installing"])
    return [Writer(identifier) for identifier in identifiers(base["far_writers"])]
