"""Service Broker conversations on Kafka: exactly once, in order, whatever dies.

`connect` is the one door; everything else is reached from the `Broker` that it returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from konverse.bridge.broker import Broker, connect

__all__ = ["Broker", "connect"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the door on first use, so that importing one pure module stays cheap."""
    if name in __all__:
        from konverse.bridge import broker  # noqa: PLC0415

        return getattr(broker, name)
    raise AttributeError(f"module 'konverse' has no attribute {name!r}")
