"""What a partition remembers of batches, as the parts of a snapshot, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from konverse.schemas.records import Role, address_from_avro, address_to_avro

from .batches import Attempt, Judgement, Row
from .endpoint import Stamp
from .partition import Partition


def base_of(state: Partition) -> dict[str, Any]:
    """Fields of the base: all but the rows."""
    pending = state.pending
    places = {track: at for at, track in enumerate(pending.decided)}
    return {
        "tracks": [
            {"query": query, "begins": begins, "decided": decided}
            for (query, begins), decided in pending.decided.items()
        ],
        "attempts": [
            {"track": places[track], "batch": batch, "id": attempt, "judge": address_to_avro(judge)}
            for (track, batch, attempt), judge in ((key, pending.live.get(key)) for key in pending.attempts)
        ],
        "judgements": [
            {
                "query": query,
                "decided": judgement.decided,
                "by": judgement.by,
                "vetoed": [{"batch": batch, "id": attempt} for attempt, batch in judgement.vetoed.items()],
            }
            for query, judgement in state.judgements.items()
        ],
    }


def pending_rows(state: Partition) -> Iterator[dict[str, Any]]:
    """The rows as they are now; the state may change before they are asked for."""
    return _rows([rows.copy() for rows in state.pending.attempts.values()])


def _rows(attempts: list[dict[int, Row]]) -> Iterator[dict[str, Any]]:
    for at, rows in enumerate(attempts):
        for number, row in rows.items():
            timestamp_ms, headers = (row.stamp, []) if isinstance(row.stamp, int) else row.stamp[:2]
            yield {
                "attempt": at,
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


def restore_batches(state: Partition, base: dict[str, Any]) -> None:
    """What stands in the base."""
    for item in base["tracks"]:
        state.pending.decided[item["query"], item["begins"]] = item["decided"]
    for attempt in _attempts(base):
        state.pending.attempts[attempt] = {}
    for attempt, item in zip(_attempts(base), base["attempts"], strict=True):
        if item["judge"] is not None:
            state.pending.live[attempt] = address_from_avro(item["judge"])
    for item in base["judgements"]:
        judgement = state.judgements[item["query"]] = Judgement()
        judgement.decided, judgement.by = item["decided"], item["by"]
        judgement.vetoed = {attempt["id"]: attempt["batch"] for attempt in item["vetoed"]}


def _attempts(base: dict[str, Any]) -> list[Attempt]:
    tracks = [(item["query"], item["begins"]) for item in base["tracks"]]
    return [(tracks[item["track"]], item["batch"], item["id"]) for item in base["attempts"]]


def restore_rows(state: Partition, rows: list[dict[str, Any]]) -> None:
    """Some rows of the attempts that stood in the base."""
    attempts = [*state.pending.attempts]
    for item in rows:
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
        state.pending.put(attempts[item["attempt"]], item["number"], row)
