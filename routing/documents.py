"""Bodies and texts that a router writes: RedirectTo, and the description of an Error that it passes on.

Source: behaviours 231 and 233.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple
from xml.parsers.expat import ExpatError, ParserCreate
from xml.sax.saxutils import escape

from konverse.schemas.errors import BadInput, MalformedRecord
from konverse.schemas.limits import ERROR_DESCRIPTION_CHARACTERS_MAX
from konverse.schemas.system_messages import read_error

from .decisions import Target

UNCLASSIFIABLE_ERROR: Final = 1
"""Code of the Error with which a conversation ends that no service is known for (behaviour 232)."""

PASSED_ON_ERROR: Final = 10001
"""Code of an Error that a router has passed on; whose it was says its description (behaviour 231)."""

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


def shortened(text: str) -> str:
    """As much of it as an Error can carry."""
    most = ERROR_DESCRIPTION_CHARACTERS_MAX
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def redirect_body(target: Target) -> bytes:
    """The RedirectTo document that names this service, UTF-8."""
    instance = f"<BrokerInstance>{escape(target.broker_instance)}</BrokerInstance>" if target.broker_instance else ""
    return f"<RedirectTo><ServiceName>{escape(target.service)}</ServiceName>{instance}</RedirectTo>".encode()


def read_redirect(body: bytes) -> Target:
    """The service that a received RedirectTo names, as `begin_dialog` takes it. MalformedRecord when it is none."""
    if not isinstance(body, bytes | bytearray | memoryview):
        raise BadInput(f"the body of a RedirectTo is bytes, not {type(body).__name__}: give `message.body`")
    found: dict[str, str] = {}
    path: list[str] = []

    def begin(name: str, _attributes: object) -> None:
        path.append(name)
        if len(path) == 2 and path[0] == "RedirectTo":
            found.setdefault(name, "")

    def text(data: str) -> None:
        if len(path) == 2 and path[0] == "RedirectTo":
            found[path[1]] += data

    def refuse(*_: object) -> None:  # a document type may bring entities, which grow without bound
        raise MalformedRecord("a RedirectTo with a document type of its own")

    parser = ParserCreate()
    parser.StartElementHandler, parser.CharacterDataHandler = begin, text
    parser.EndElementHandler = lambda _: path.pop()
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(bytes(body), True)  # noqa: FBT003  # this is all of it
    except (ExpatError, LookupError, ValueError) as error:  # a LookupError for an encoding that nobody knows
        raise MalformedRecord(f"the body of a RedirectTo is no such document: {error}") from None
    service = found.get("ServiceName", "").strip()
    if not service:
        raise MalformedRecord("the body of a RedirectTo names no service: it lacks ServiceName")
    return Target(service, found.get("BrokerInstance", "").strip() or None)
