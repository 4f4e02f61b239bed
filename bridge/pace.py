"""How long a sender waits for what, and how often it looks."""

from __future__ import annotations

from typing import Final

from .kafka import PRODUCER_RECORDS_MAX

LINGER_MS: Final = 5
SERVE_MASK: Final = 255
"""A sending thread serves the client after every 256 messages to a destination."""

BUSY_SENDS: Final = 32
"""So many messages within POLL_S: the senders serve often enough."""

CATCH_UP_BELOW: Final = PRODUCER_RECORDS_MAX * 4 // 5
"""A producer that was full gets what waits when it has so few records left."""

POLL_S: Final = 0.01
PAUSE_AFTER_S: Final = 0.01
"""Something waits this long at most before senders make room for it."""

PAUSE_MAX_S: Final = 0.5
"""Senders pause this long at most, then go on for as long."""

RETRY_S: Final = 0.5
"""Between a failed producer and the next one."""

REFUSAL_PAUSE_S: Final = 1.0
REFUSAL_PAUSE_MAX_S: Final = 30.0
"""A destination that refused is left alone for so long, twice as long each time: while it is tried nothing counts."""
