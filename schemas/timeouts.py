"""Timeouts of timers and lifetimes: seconds in, milliseconds out (behaviours 39 and 102)."""

from __future__ import annotations

from .errors import InvalidTimeout, TimerBeyondLifetime
from .limits import TIMEOUT_MS_MAX


def milliseconds(seconds: object, what: str) -> int:
    """Convert a timer or a lifetime from seconds to milliseconds. Raises InvalidTimeout (8411) for an invalid value.

    `what` names the argument in the error text.
    """
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds * 1000 <= TIMEOUT_MS_MAX:
        return max(1, round(seconds * 1000))
    raise InvalidTimeout(
        f"{what} must be a number of seconds above 0, at most {TIMEOUT_MS_MAX // 1000}, not {seconds!r}"
    )


def check_timer(timeout_ms: int, lifetime_ms: int, conversation: object) -> None:
    """Raise TimerBeyondLifetime (8410) when a timer would be due after the lifetime.

    `lifetime_ms` is the part of the lifetime that is left.
    """
    if timeout_ms > lifetime_ms:
        raise TimerBeyondLifetime(
            f"a timer of {timeout_ms / 1000:g} s would be due after the lifetime of conversation {conversation}, of "
            f"which {max(0, lifetime_ms) / 1000:g} s are left"
        )
