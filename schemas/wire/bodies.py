"""Checks of message bodies that callers give."""

from __future__ import annotations

from typing import Final

from konverse.schemas.errors import BadInput, BodyTooLarge, NullBody
from konverse.schemas.limits import BODY_BYTES_MAX

TOO_LARGE: Final = f"bytes; at most {BODY_BYTES_MAX} fit into one message: send a reference, or its parts"
"""Error text that follows the size of a body that is too large, with the remedy."""


def as_bytes(body: object) -> bytes:
    """A body as bytes. Raises NullBody (8433) for None and BadInput for any other type (behaviour 48)."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    if body is None:
        raise NullBody('a message body must be bytes, not None; leave it out, or give b"", for an empty one')
    raise BadInput(f"a message body must be bytes, not {type(body).__name__}; encode it first")


def check_size(size_bytes: int) -> None:
    """Raise BodyTooLarge (8459) when a body of this size is too large."""
    if size_bytes > BODY_BYTES_MAX:
        raise BodyTooLarge(f"the body has {size_bytes} {TOO_LARGE}")
