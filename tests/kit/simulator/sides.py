"""One side's state in the product's fold and in the reference fold, in a common form."""

from __future__ import annotations

from typing import Any

from konverse.bridge.verifier.fold.state import Side
from konverse.dialog.state.endpoint import NO_TIME, NOTHING_EXPECTED, Endpoint
from konverse.dialog.state.mailbox import Bounced


def of_product(endpoint: Endpoint, now_ms: int) -> tuple[Any, ...]:
    """The product's state of a side. Times set by the last commit count from `now_ms`."""
    clock = (endpoint.clock or NOTHING_EXPECTED).settled(now_ms)
    return (
        endpoint.index, endpoint.state.code, endpoint.received, endpoint.consumed, endpoint.sent,
        [entry[0] for entry in endpoint.queue], endpoint.error is not None, endpoint.opener, endpoint.level,
        endpoint.rings, *clock.times, clock.end_of_stream,
    )  # fmt: skip


def letter_of(bounced: Bounced) -> tuple[Any, ...]:
    """The product's form of a bounced message."""
    body, reason = bounced.body or b"", bounced.bounce.reason
    return bounced.session, bounced.conversation, bounced.sequence, reason, bounced.message_type, body, len(body)


def of_reference(side: Side) -> tuple[Any, ...]:
    """The reference's state of a side."""
    consumed = len(side.consumed)
    return (
        side.index, side.code, len(side.heard), consumed, side.numbering,
        [h.offset for h in side.heard[consumed:]] if not side.ended else [], side.error is not None, side.opener,
        side.level, side.rang is not None, NO_TIME if side.timer_ms is None else side.timer_ms,
        NO_TIME if side.expires_ms is None else side.expires_ms, side.end_of_stream,
    )  # fmt: skip
