"""Numbers and names in texts for people: `1 record`, `2,345 records`, `a, b, c and 2 more`."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """The number with its noun: `1 record`, `2,345 records`.

    `plural` is the noun with an "s" unless it is given. Both may be longer than a noun: `record waits`, `records wait`.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def listed(names: Iterable[str], shown: int = 3) -> str:
    """The first names, and how many follow: `a, b, c and 2 more`."""
    every = [*names]
    more = f" and {len(every) - shown:,} more" if len(every) > shown else ""
    return ", ".join(every[:shown]) + more
