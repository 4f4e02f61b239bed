"""Checks of message bodies that need no schema (behaviours 3, 4, 6). A body may be hostile.

Each check takes time proportional to the body. A check against a schema may take any time: see `bridge.validation`.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable
from typing import Any, Final
from xml.parsers.expat import ExpatError, ParserCreate

from konverse.schemas.catalog.objects import Validation

from .limits import XML_DEPTH_ENTRIES_MAX

_VERSION: Final = re.compile(r"1\.[0-9]+")
"""VersionNum of XML 1.0, fifth edition, section 2.8."""
_NO_CHARSETS: Final = frozenset(
    {
        "charmap",
        "idna",
        "mbcs",
        "oem",
        "punycode",
        "raw_unicode_escape",
        "rot13",
        "rot_13",
        "undefined",
        "unicode_escape",
    }
)
"""Codecs of Python that are no character sets. The parser takes any codec for the encoding of a document."""


class ForbiddenXml(Exception):
    """The document may be well-formed, but has something that is not allowed."""


def fault_of(validation: Validation, body: bytes | None) -> str:
    """What is wrong with a body, in words for a log; empty when nothing is.

    `validation` is one without a schema.
    """
    return _FAULTS[validation](body or b"")


def _nothing(_body: bytes) -> str:
    return ""


def _not_empty(body: bytes) -> str:
    return f"it has a body of {len(body)} bytes" if body else ""


def _not_well_formed(body: bytes) -> str:
    """A message without a body has nothing that could be malformed."""
    return document_fault(body) if body else ""


def document_fault(body: bytes) -> str:
    """Why this is not an XML document, in the parser's words; empty when it is one.

    A document type declaration is refused: it may bring entities, which grow without bound or name files. A prefix
    needs its declaration, as for the `xml` type of SQL Server. The encoding is UTF-8, UTF-16 or a character set of one
    byte for each character.
    """
    depth = 0

    def deeper(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > XML_DEPTH_ENTRIES_MAX:
            raise ForbiddenXml(f"more than {XML_DEPTH_ENTRIES_MAX} elements inside of each other")

    def higher(_name: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: object) -> None:
        raise ForbiddenXml("a document type of its own")

    def declared(version: str, encoding: str | None, _standalone: int) -> None:
        if not _VERSION.fullmatch(version):
            raise ForbiddenXml(f"version {version} in the XML declaration is none of XML 1.x")
        if encoding is not None and encoding.lower().replace("-", "_") in _NO_CHARSETS:
            raise ForbiddenXml(f"encoding {encoding} in the XML declaration is no character set")
        if encoding is not None and body.startswith(BOM_UTF8) and encoding.lower() not in ("utf-8", "utf8"):
            raise ForbiddenXml(
                f"encoding {encoding} in the XML declaration is incorrect, behind the byte order mark of UTF-8"
            )

    parser = ParserCreate(namespace_separator=" ")  # else it knows no namespaces and takes any prefix
    parser.XmlDeclHandler = declared
    parser.StartElementHandler, parser.EndElementHandler = deeper, higher
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(body, True)  # noqa: FBT003  # this is all of it
    except (ExpatError, ForbiddenXml, LookupError, ValueError) as error:  # LookupError: an unknown encoding
        return str(error)
    return ""


def with_mark(document: bytes) -> bytes:
    """Add the byte order mark to a document in UTF-16 that lacks it; lxml needs the mark."""
    if document.startswith(b"<\0"):
        return BOM_UTF16_LE + document
    return BOM_UTF16_BE + document if document.startswith(b"\0<") else document


def parser_of(etree: Any, **more: bool) -> Any:
    """An lxml parser that follows no reference in a document; `more` goes to lxml."""
    return etree.XMLParser(
        resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False, dtd_validation=False, **more
    )


_FAULTS: Final[dict[Validation, Callable[[bytes], str]]] = {
    Validation.NONE: _nothing,
    Validation.EMPTY: _not_empty,
    Validation.WELL_FORMED_XML: _not_well_formed,
}
