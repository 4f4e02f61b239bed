"""What the second fold remembers of attempts (protocol.md section 7.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .second_state import Key


@dataclass(slots=True)
class Past:
    """Which sides failed, and which were with an owner that died."""

    failures: dict[Key, int] = field(default_factory=dict)
    """In a row."""
    suspended: dict[Key, None] = field(default_factory=dict)
    handed: list[Key] = field(default_factory=list)
    """The open TRY."""
    accused: list[Key] = field(default_factory=list)
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
        self.accused = [other for other in self.accused if other != key]
