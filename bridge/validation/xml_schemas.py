"""Validates XML bodies against a schema collection, with lxml (behaviour 5).

Imports between the documents are resolved by namespace; their schemaLocation is ignored. No document outside of the
collection is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from xml.sax.saxutils import quoteattr

from konverse.schemas.errors import InvalidSchema
from konverse.schemas.validation import document_fault, parser_of, tree_of
from konverse.schemas.xml_encoding import MalformedXml

from .rules import Check

_XSD: Final = "http://www.w3.org/2001/XMLSchema"
_OURS: Final = "urn:konverse:collection"
_REFUSED: Final = ("include", "redefine", "override")


def check_of(documents: Sequence[str]) -> Check:
    """Make the check of bodies against a collection. Raises InvalidSchema, also when a document is missing."""
    from lxml import etree  # noqa: PLC0415  # optional library: the caller checks that it is installed

    plain, resolving = parser_of(etree), parser_of(etree)
    places: dict[str, bytes] = {}
    namespaces: dict[str, list[str]] = {}
    for number, document in enumerate(documents):
        root = read(etree, number, document)
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
        found = document_fault(body)  # refuses a DOCTYPE, for example
        if found:
            return found
        try:
            schema.assertValid(tree_of(etree, plain, body))
        except (etree.DocumentInvalid, MalformedXml, _Elsewhere) as error:
            return _said(error)
        return ""

    return fault


class _Elsewhere(Exception):
    """lxml tried to open a document that the collection does not hold."""


def _resolver(etree: Any, places: dict[str, bytes]) -> Any:
    """An lxml resolver that opens the documents of the collection and nothing else."""

    class Places(etree.Resolver):  # type: ignore[misc]  # lxml has no type annotations
        def resolve(self, url: str, _public_id: str, context: object) -> object:
            if url not in places:
                raise _Elsewhere(f"{url!r} is not in the collection, and nothing is fetched")
            return self.resolve_string(places[url], context, base_url=url)

    return Places()


def read(etree: Any, number: int, document: str) -> Any:
    """Parse a schema document and strip the schemaLocation of its imports. Returns its root. Raises InvalidSchema."""
    data = document.encode()
    fault = document_fault(data)
    if fault:
        raise InvalidSchema(f"schema document {number} is not an XML document: {fault}")
    try:
        root = tree_of(etree, parser_of(etree, collect_ids=True), data)  # so that each xml:id is checked
    except MalformedXml as error:
        raise InvalidSchema(f"schema document {number} cannot be used: {error}") from None
    if root.tag != f"{{{_XSD}}}schema":
        raise InvalidSchema(f"schema document {number} is {root.tag!r}, not an XML Schema")
    for word in _REFUSED:
        if root.find(f"{{{_XSD}}}{word}") is not None:
            raise InvalidSchema(
                f"schema document {number} has an xs:{word}, and nothing is fetched: remove it, and put the "
                "definitions that it refers to into the collection"
            )
    for each in root.iterfind(f"{{{_XSD}}}import"):
        each.attrib.pop("schemaLocation", None)
    return root


def _whole(places: dict[str, bytes], namespaces: dict[str, list[str]]) -> bytes:
    """A schema that imports each namespace once: from its document, or from one that includes all its documents."""
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
    if isinstance(error, SyntaxError):  # its error_log is that of the thread, with faults of earlier bodies
        return str(error.msg)
    log = getattr(error, "error_log", None)
    return str(log[0].message) if log else str(error)
