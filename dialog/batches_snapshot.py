"""What a partition remembers of batches, as the parts of a snapshot, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from konverse.schemas.records import Role

from .batches import Attempt, Judgement, Row, Track
from .endpoint import Stamp
from .partition import Partition


def base_of(state: Partition) -> dict[str, Any]:
    """Fields of the base: all but the rows."""
    return {
        "tracks": [
            {"query": query, "begins": begins, "decided": track.decided, "vetoed": _attempts(track.vetoed)}
            for (query, begins), track in state.pending.tracks.items()
        ],
        "judgements": [
            {
                "query": query,
                "decided": judgement.decided,
                "by": judgement.by,
                "vetoed": _attempts((batch, attempt) for attempt, batch in judgement.vetoed.items()),
            }
            for query, judgement in state.judgements.items()
        ],
    }


def pending_rows(state: Partition) -> list[Iterator[dict[str, Any]]]:
    """The rows of each track as they are now; the state may change before they are asked for."""
    tracks = state.pending.tracks.values()
    kept = [[(attempt, rows.copy()) for attempt, rows in track.attempts.items()] for track in tracks]
    return [_rows(attempts) for attempts in kept]


def _rows(attempts: list[tuple[Attempt, dict[int, Row]]]) -> Iterator[dict[str, Any]]:
    for (batch, attempt), rows in attempts:
        for number, row in rows.items():
            timestamp_ms, headers = (row.stamp, []) if isinstance(row.stamp, int) else row.stamp
            yield {
                "batch": batch,
                "attempt": attempt,
                "number": number,
                "offset": row.offset,
                "flags": row.flags,
                "role": row.role,
                "conversation": row.conversation,
                "suffix": row.suffix,
                "body": row.body,
                "timestamp_ms": timestamp_ms,
                "headers": [{"name": name, "value": value} for name, value in headers],
            }


def _attempts(attempts: Any) -> list[dict[str, Any]]:
    return [{"batch": batch, "id": attempt} for batch, attempt in attempts]


def restore_batches(state: Partition, base: dict[str, Any]) -> None:
    """What stands in the base."""
    for item in base["tracks"]:
        track = state.pending.tracks[item["query"], item["begins"]] = Track()
        track.decided = item["decided"]
        track.vetoed = {(attempt["batch"], attempt["id"]): None for attempt in item["vetoed"]}
    for item in base["judgements"]:
        judgement = state.judgements[item["query"]] = Judgement()
        judgement.decided, judgement.by = item["decided"], item["by"]
        judgement.vetoed = {attempt["id"]: attempt["batch"] for attempt in item["vetoed"]}


def restore_rows(state: Partition, value: dict[str, Any]) -> None:
    """Some rows of one track."""
    track = [*state.pending.tracks.values()][value["track"]]
    for item in value["rows"]:
        headers = [(header["name"], header["value"]) for header in item["headers"]]
        stamp: Stamp = (item["timestamp_ms"], headers) if headers else item["timestamp_ms"]
        row = Row(
            item["offset"],
            item["flags"],
            Role(item["role"]),
            item["conversation"],
            item["suffix"],
            item["body"],
            stamp,
        )
        state.pending.put(track, (item["batch"], item["attempt"]), item["number"], row)
