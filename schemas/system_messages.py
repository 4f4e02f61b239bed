"""Bodies of system messages: the Error document, written and read (service-broker.md section 4)."""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape

ERROR_NAMESPACE: Final = "http://schemas.microsoft.com/SQL/ServiceBroker/Error"

_INVALID: Final = {code: "\ufffd" for code in range(0x20) if code not in (0x09, 0x0A, 0x0D)} | {
    0xFFFE: "\ufffd",
    0xFFFF: "\ufffd",
}


def error_body(code: int, description: str) -> bytes:
    """The Error document with this code (positive: an application's) and description, UTF-8."""
    text = escape(description.translate(_INVALID))
    return (
        f'<?xml version="1.0"?><Error xmlns="{ERROR_NAMESPACE}"><Code>{code}</Code>'
        f"<Description>{text}</Description></Error>"
    ).encode("utf-8", "replace")
