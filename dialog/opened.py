"""How the records of a session say which conversation they mean, when a caller has chosen its id (protocol.md 9e).

Another conversation may have that id by the time they arrive. So they name the writer of the BEGIN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from konverse.schemas.catalog import END_DIALOG
from konverse.schemas.envelope import decode_suffix, encode_suffix
from konverse.schemas.records import NAMED, Begin, BounceId, Opened, Suffix, Timer

if TYPE_CHECKING:
    from .lane import SessionDialog


def opened(dialog: SessionDialog) -> Opened | None:
    """Of its messages, FIN and END_CALL; None when nobody else can have its id."""
    return Opened(dialog.opener) if dialog.flags & NAMED else None


def control(dialog: SessionDialog, detail: Timer | BounceId, begin: Begin | None = None) -> bytes:
    """The end of the header of SET_TIMER and REDIRECT, in which `origin` says so."""
    return encode_suffix(Suffix(begin=begin, origin=dialog.opener if dialog.flags & NAMED else None, detail=detail))


def end_call(dialog: SessionDialog) -> bytes:
    """The end of the header of END_CALL."""
    return encode_suffix(Suffix(END_DIALOG, detail=opened(dialog))) if dialog.flags & NAMED else _END_SUFFIX


def first_under(suffix: bytes, writer: bytes) -> bytes:
    """The end of a FIRST that another writer sends than the one that began."""
    value = decode_suffix(suffix)
    return suffix if value.detail is not None else encode_suffix(value._replace(detail=Opened(writer)))


def control_under(suffix: bytes, writer: bytes) -> bytes:
    """As `control`, of a dialog whose BEGIN goes under another id."""
    value = decode_suffix(suffix)
    return suffix if value.origin is None else encode_suffix(value._replace(origin=writer))


_END_SUFFIX: Final = encode_suffix(Suffix(END_DIALOG))
