"""What the second fold remembers of attempts and of time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from .records import Key


@dataclass(slots=True)
class Times:
    """What the second fold remembers of timers and lifetimes (protocol.md section 7.9)."""

    expecting: dict[Key, None] = field(default_factory=dict)
    """Sides that may have one."""
    next_ms: int = -1
    """Nothing happens before that."""

    def look(self, *times_ms: int | None) -> None:
        """Something may happen then."""
        self.next_ms = min([self.next_ms, *(time_ms for time_ms in times_ms if time_ms is not None)])


@dataclass(slots=True)
class Past:
    """Which sides failed, and which were with an owner that died (protocol.md section 7.1)."""

    failures: dict[Key, int] = field(default_factory=dict)
    """In a row."""
    suspended: dict[Key, str] = field(default_factory=dict)
    """And why."""
    handed: list[Key] = field(default_factory=list)
    """The open TRY."""
    accused: list[list[Key]] = field(default_factory=list)
    """For each death that nothing explains: those that may have caused it."""
    wary: bool = False
    tried: set[bytes | Key] | None = None
    """Circles of which a TRY of this owner was not heard again; None where it stands before the snapshot."""

    @property
    def busy(self) -> bool:
        """A COMMIT may change something."""
        return bool(self.failures or self.suspended or self.handed or self.accused)

    def forget(self, key: Key) -> None:
        """The side is known no more."""
        self.failures.pop(key, None)
        self.suspended.pop(key, None)
        self.handed = [other for other in self.handed if other != key]
        self.accused = without(self.accused, [key])


def without(accused: list[list[Key]], gone: Collection[Key]) -> list[list[Key]]:
    """The deaths of which somebody else is accused."""
    left = ([key for key in case if key not in gone] for case in accused)
    return [case for case in left if case]
