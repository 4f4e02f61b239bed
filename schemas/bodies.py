"""Message bodies as callers give them."""

from __future__ import annotations

from .errors import BadInput


def as_bytes(body: object) -> bytes:
    """A body as bytes; BadInput for what is none."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise BadInput(f"a message body is bytes, not {type(body).__name__}; encode it first")
