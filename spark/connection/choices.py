"""Options that choose partitions and conversations of a batch read.

Filters are not pushed down. Spark 4.3 keeps the reader of a frame with the filters of one use, and takes that reader
for every other use of the frame, in the same plan and in later ones. An option applies to all uses of a frame.
"""

from __future__ import annotations

from uuid import UUID

from konverse.schemas.errors import InvalidSettings

from .values import PARTITION_MAX, quoted, whole_number


def conversations_of(value: str | None) -> frozenset[bytes] | None:
    """Option `conversations`, ids separated by commas, as 16 bytes each; None: all. Raises InvalidSettings."""
    if value is None:
        return None
    try:
        return frozenset(UUID(one.strip()).bytes for one in value.split(","))
    except ValueError:
        raise InvalidSettings(
            f"option 'conversations' is {quoted(value)}; give ids of conversations (UUIDs), separated by commas"
        ) from None


def partitions_of(value: str | None) -> frozenset[int] | None:
    """Option `partitions`, numbers separated by commas; None: all. Raises InvalidSettings."""
    if value is None:
        return None
    numbers = [whole_number(one.strip(), PARTITION_MAX) for one in value.split(",")]
    chosen = frozenset(number for number in numbers if number is not None)
    if None in numbers:
        raise InvalidSettings(
            f"option 'partitions' is {quoted(value)}; give numbers of partitions, separated by commas"
        )
    return chosen
