"""Message bodies as callers give them."""

from __future__ import annotations

from .errors import BadInput, NullBody


def as_bytes(body: object) -> bytes:
    """A body as bytes. Raises NullBody (8433) for None and BadInput for any other type (behaviour 48)."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    if body is None:
        raise NullBody('a message body is bytes, not None; leave it out, or give b"", for an empty one')
    raise BadInput(f"a message body is bytes, not {type(body).__name__}; encode it first")
