"""Checks of message bodies that need no schema (behaviours 3, 4, 6). A body may be hostile.

Each check takes time proportional to the body. A check against a schema may take any time: see `bridge.validation`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from xml.parsers.expat import ExpatError, ParserCreate

from konverse.schemas.catalog.objects import Validation

from .counting import counted
from .limits import JSON_DEPTH_ENTRIES_MAX, XML_DEPTH_ENTRIES_MAX
from .xml_encoding import MalformedXml, utf8_of

_SEPARATOR: Final = "\x01"
"""Stands between namespace and name: expat refuses a namespace that has it, and no document can have this character."""


def fault_of(validation: Validation, body: bytes | None) -> str:
    """The fault of a body, worded for a log; empty when it has none.

    `validation` must be one that needs no schema.
    """
    return _FAULTS[validation](body or b"")


def _nothing(_body: bytes) -> str:
    return ""


def _not_empty(body: bytes) -> str:
    return f"it has a body of {counted(len(body), 'byte')}" if body else ""


def _not_well_formed(body: bytes) -> str:
    """A message without a body has nothing that could be malformed."""
    return document_fault(body) if body else ""


def document_fault(body: bytes) -> str:
    """Why this is not an XML document, in the parser's words; empty when it is one.

    A document type declaration is refused: it may bring entities, which grow without bound or name files. A prefix
    needs its declaration, as for the `xml` type of SQL Server. The version is 1.0, the encoding one of `XML_CODECS` or
    UTF-16.
    """
    depth = 0

    def deeper(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > XML_DEPTH_ENTRIES_MAX:
            raise MalformedXml(f"elements nested deeper than {XML_DEPTH_ENTRIES_MAX}")

    def higher(_name: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: object) -> None:
        raise MalformedXml("a document type declaration, which is not allowed")

    # Without a separator expat knows no namespaces and takes any prefix.
    parser = ParserCreate("utf-8", namespace_separator=_SEPARATOR)
    parser.StartElementHandler, parser.EndElementHandler = deeper, higher
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(utf8_of(body), True)  # noqa: FBT003  # this is all of it
    except (ExpatError, MalformedXml) as error:
        return str(error)
    return ""


def parser_of(etree: Any, **more: bool) -> Any:
    """An lxml parser for `tree_of`, which follows no reference in a document; `more` goes to lxml.

    `document_fault` has checked the document before, so this parser has no bounds of its own, does not check `xml:id`,
    and continues after an error.
    """
    options = {
        "encoding": "utf-8",
        "resolve_entities": False,
        "load_dtd": False,
        "no_network": True,
        "dtd_validation": False,
        "huge_tree": True,
        "collect_ids": False,
        "recover": True,
    }
    return etree.XMLParser(**(options | more))


def tree_of(etree: Any, parser: Any, body: bytes) -> Any:
    """The root of a document in which `document_fault` finds no fault, read by a parser that `parser_of` made.

    Raises MalformedXml for a fault that only lxml sees. A namespace that is not a URI is not a fault: Namespaces in XML
    asks for no such check, and expat makes none.
    """
    try:
        root = etree.fromstring(utf8_of(body), parser)
    except etree.XMLSyntaxError as error:
        raise MalformedXml(str(error.msg)) from None
    for entry in parser.error_log:
        if entry.level >= etree.ErrorLevels.ERROR and entry.type != etree.ErrorTypes.WAR_NS_URI:
            raise MalformedXml(f"{entry.message.strip()}, line {entry.line}, column {entry.column}")
    return root


_FAULTS: Final[dict[Validation, Callable[[bytes], str]]] = {
    Validation.NONE: _nothing,
    Validation.EMPTY: _not_empty,
    Validation.WELL_FORMED_XML: _not_well_formed,
}


def is_too_deep(document: Any, text: bytes) -> bool:
    """Whether JSON nests more than JSON_DEPTH_ENTRIES_MAX objects and arrays. `text` is the encoded document."""
    if text.count(b"[") + text.count(b"{") <= JSON_DEPTH_ENTRIES_MAX:  # most documents: nothing to visit
        return False
    level = [document]
    for _ in range(JSON_DEPTH_ENTRIES_MAX):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return any(isinstance(one, dict | list) for one in level)
