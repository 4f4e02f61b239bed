"""Errors that a router passes on: whose they were, and what they said (behaviour 231)."""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

from .errors import MalformedRecord
from .system_messages import read_error, shortened

PASSED_ON_ERROR: Final = 10001
"""Code of an Error that a router has passed on; whose it was says its description."""

_PASSED_ON: Final = re.compile(r"Error (-?\d+) from service (?=\")")


class Origin(NamedTuple):
    """Where an Error came from that a router has passed on."""

    service: str
    code: int
    """Of the application above 0, of Service Broker below."""
    description: str


def passed_on(service: str, body: bytes) -> str:
    """The description under which a router passes an Error on that a service has said. `origin_of` reads it."""
    try:
        code, text = read_error(body)
    except MalformedRecord:
        code, text = 0, body.decode("utf-8", "replace")
    return shortened(f"Error {code} from service {json.dumps(service, ensure_ascii=False)}: {text}")


def origin_of(description: str) -> Origin | None:
    """Who said the Error that a router has passed on, and what; None when it is another kind of description.

    One that has come through several routers names the last service first: its description has an origin again.
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
    return Origin(service, int(match[1]), description[end + 2 :])


def first_code(code: int, description: str) -> int:
    """The code of whoever said an Error first: its own, unless routers have passed it on."""
    while code == PASSED_ON_ERROR and (origin := origin_of(description)) is not None:
        _, code, description = origin
    return code
