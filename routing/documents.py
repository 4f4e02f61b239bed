"""Documents of a router: RedirectTo, and the code for unclassifiable conversations (behaviours 232, 233)."""

from __future__ import annotations

from typing import Final
from xml.parsers.expat import ExpatError, ParserCreate
from xml.sax.saxutils import escape

from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import BadInput, MalformedRecord

UNCLASSIFIABLE_ERROR: Final = 1
"""Code of the Error that ends a conversation for which no service is known (behaviour 232)."""


def redirect_body(target: Target) -> bytes:
    """The RedirectTo document for this service, in UTF-8."""
    instance = f"<BrokerInstance>{escape(target.broker_instance)}</BrokerInstance>" if target.broker_instance else ""
    return f"<RedirectTo><ServiceName>{escape(target.service)}</ServiceName>{instance}</RedirectTo>".encode()


def read_redirect(body: bytes) -> Target:
    """The service named by a received RedirectTo, as `begin_dialog` takes it. Raises MalformedRecord, BadInput."""
    if not isinstance(body, bytes | bytearray | memoryview):
        raise BadInput(f"the body of a RedirectTo is bytes, not {type(body).__name__}: give `message.body`")
    found: dict[str, list[str]] = {}
    path: list[str] = []

    def begin(name: str, _attributes: object) -> None:
        path.append(name)
        if len(path) == 2 and path[0] == "RedirectTo":
            found.setdefault(name, [])

    def text(data: str) -> None:
        if len(path) == 2 and path[0] == "RedirectTo":
            found[path[1]].append(data)  # joined at the end: the parser gives each line by itself

    def refuse(*_: object) -> None:  # entities of a document type can grow without bound
        raise MalformedRecord("a RedirectTo with a document type declaration, which is not allowed")

    parser = ParserCreate()
    parser.StartElementHandler, parser.CharacterDataHandler = begin, text
    parser.EndElementHandler = lambda _: path.pop()
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(bytes(body), True)  # noqa: FBT003  # this is all of it
    except (ExpatError, LookupError, ValueError) as error:  # a LookupError for an unknown encoding
        raise MalformedRecord(f"the body of a RedirectTo is not a valid RedirectTo document: {error}") from None
    service, instance = ("".join(found.get(name, ())).strip() for name in ("ServiceName", "BrokerInstance"))
    if not service:
        raise MalformedRecord("the body of a RedirectTo names no service: it lacks ServiceName")
    return Target(service, instance or None)
