"""Errors that a router passes on: the service that raised each, and its description (behaviour 231)."""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

from .errors import MalformedRecord
from .system_messages import read_error, shortened

PASSED_ON_ERROR: Final = 10001
"""Code of an Error that a router has passed on; the description names the service that raised it."""

_PASSED_ON: Final = re.compile(r"Error (-?[0-9]{1,10}) from service (?=\")")
"""A code has up to ten digits. Longer numbers, which Python may refuse to read, can be written only by a stranger."""


class ErrorOrigin(NamedTuple):
    """Service, code and description of an Error that a router has passed on."""

    service: str
    code: int
    """Above 0 the application's, below 0 Service Broker's."""
    description: str


def passed_on(service: str, body: bytes) -> str:
    """Description under which a router passes on the Error of a service; `origin_of` reads it."""
    try:
        code, text = read_error(body)
    except MalformedRecord:
        code, text = 0, body.decode("utf-8", "replace")
    return shortened(f"Error {code} from service {json.dumps(service, ensure_ascii=False)}: {text}")


def origin_of(description: str) -> ErrorOrigin | None:
    """The original Error in the description of one that a router has passed on; None for any other description.

    If several routers passed it on, the result names the last of them, and its description has an origin again.
    """
    match = _PASSED_ON.match(description)
    if match is None:
        return None
    try:
        service, end = json.JSONDecoder().raw_decode(description, match.end())
    except ValueError:
        return None
    if not description.startswith(": ", end):
        return None
    return ErrorOrigin(service, int(match[1]), description[end + 2 :])


def first_code(code: int, description: str) -> int:
    """Code of the original Error: the given code, unless routers have passed the Error on."""
    while code == PASSED_ON_ERROR and (origin := origin_of(description)) is not None:
        _, code, description = origin
    return code
