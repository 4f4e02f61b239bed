"""XML against the documents of a schema collection, by lxml (behaviour 5).

The documents are put together by their namespaces, whatever they say of places: nothing is opened but what the
collection holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from xml.sax.saxutils import quoteattr

from konverse.schemas.errors import InvalidSchema
from konverse.schemas.validation import document_fault, parser_of, with_mark

from .rules import Check

_XSD: Final = "http://www.w3.org/2001/XMLSchema"
_OURS: Final = "urn:konverse:collection"
_REFUSED: Final = ("include", "redefine", "override")


def check_of(documents: Sequence[str]) -> Check:
    """A check of bodies by these documents; InvalidSchema when they are none, or not all of it."""
    from lxml import etree  # noqa: PLC0415  # it may be absent, and then nobody comes here

    plain, resolving = parser_of(etree), parser_of(etree)
    places: dict[str, bytes] = {}
    namespaces: dict[str, list[str]] = {}
    for number, document in enumerate(documents):
        root = read(etree, plain, number, document)
        place = f"{_OURS}:{number}"
        places[place] = etree.tostring(root, encoding="utf-8")
        namespaces.setdefault(root.get("targetNamespace", ""), []).append(place)
    whole = _whole(places, namespaces)
    resolving.resolvers.add(_resolver(etree, places))
    try:
        schema = etree.XMLSchema(etree.fromstring(whole, resolving))
    except (etree.XMLSchemaParseError, etree.XMLSyntaxError, _Elsewhere) as error:
        raise InvalidSchema(f"the schemas cannot be used: {_said(error)}") from None

    def fault(body: bytes) -> str:
        found = document_fault(body)  # not a document type, for one
        if found:
            return found
        try:
            schema.assertValid(etree.fromstring(with_mark(body), plain))
        except (etree.DocumentInvalid, etree.XMLSyntaxError, _Elsewhere) as error:
            return _said(error)
        return ""

    return fault


class _Elsewhere(Exception):
    """Something was to be opened that the collection does not hold."""


def _resolver(etree: Any, places: dict[str, bytes]) -> Any:
    """What opens the documents of the collection, and nothing else."""

    class Places(etree.Resolver):  # type: ignore[misc]  # lxml brings no types
        def resolve(self, url: str, _public_id: str, context: object) -> object:
            if url not in places:
                raise _Elsewhere(f"{url!r} is not in the collection, and nothing is fetched")
            return self.resolve_string(places[url], context, base_url=url)

    return Places()


def read(etree: Any, parser: Any, number: int, document: str) -> Any:
    """The root of a schema document, with imports that name no place; InvalidSchema."""
    data = document.encode()
    fault = document_fault(data)
    if fault:
        raise InvalidSchema(f"schema document {number} is no XML document: {fault}")
    root = etree.fromstring(data, parser)
    if root.tag != f"{{{_XSD}}}schema":
        raise InvalidSchema(f"schema document {number} is {root.tag!r}, not an XML Schema")
    for word in _REFUSED:
        if root.find(f"{{{_XSD}}}{word}") is not None:
            raise InvalidSchema(
                f"schema document {number} has an xs:{word}, and nothing is fetched: put what it means "
                "into the collection"
            )
    for each in root.iterfind(f"{{{_XSD}}}import"):
        each.attrib.pop("schemaLocation", None)
    return root


def _whole(places: dict[str, bytes], namespaces: dict[str, list[str]]) -> bytes:
    """A schema that imports each namespace once: from its document, or from one that includes all of it."""
    imports = []
    for number, (namespace, found) in enumerate(namespaces.items()):
        place = found[0]
        target = f"namespace={quoteattr(namespace)}" if namespace else ""
        if len(found) > 1:
            place = f"{_OURS}:all:{number}"
            included = "".join(f"<xs:include schemaLocation={quoteattr(each)}/>" for each in found)
            places[place] = _schema(included, namespace)
        imports.append(f"<xs:import {target} schemaLocation={quoteattr(place)}/>")
    return _schema("".join(imports), _OURS)


def _schema(content: str, namespace: str) -> bytes:
    target = f" targetNamespace={quoteattr(namespace)}" if namespace else ""
    return f'<xs:schema xmlns:xs="{_XSD}"{target}>{content}</xs:schema>'.encode()


def _said(error: Exception) -> str:
    log = getattr(error, "error_log", None)
    return str(log[0].message) if log else str(error)
