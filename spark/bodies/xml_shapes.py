"""XML documents as values of Spark, by the XML Schema documents of a collection.

Fields are named as by Spark's own reader of XML: child elements by their local names, attributes `_name`, and text
beside attributes `_VALUE`. Content that `xs:any` and `xs:anyAttribute` allow is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from konverse.bridge.validation.xml_schemas import read
from konverse.schemas.validation import parser_of as parser_for
from konverse.schemas.validation import tree_of

from .shapes import Parser, PartCount, Shape, Unfit, Unmapped, listed, struct
from .xml_values import builtin, present, text_of, words_of

XSD: Final = "{http://www.w3.org/2001/XMLSchema}"
NIL: Final = "{http://www.w3.org/2001/XMLSchema-instance}nil"
TEXT: Final = "_VALUE"

_GLOBAL: Final = ("element", "complexType", "simpleType", "attribute", "group", "attributeGroup")


def parser_of(documents: Sequence[str], root: str | None) -> Parser:
    """The parser for documents whose root is the element `root`, or the only global element. Raises Unmapped."""
    from lxml import etree  # noqa: PLC0415  # it may be absent; then `schema_of` has raised

    known = _Known([read(etree, number, document) for number, document in enumerate(documents)])
    name = known.root(root)
    shape = _XmlMapping(known).element(known.of["element", name], _local(name), (f"element {name}",))
    reader = parser_for(etree, remove_comments=True, remove_pis=True)

    def parse(body: bytes) -> Any:
        element = tree_of(etree, reader, body)
        if element.tag != name:
            raise Unfit(f"its root is {_local(element.tag)!r}, not {_local(name)!r}")
        return shape.make(element)

    return Parser(shape.arrow, parse)


def _local(name: str) -> str:
    return name.rpartition("}")[2]


class _Known:
    """The global definitions of the documents, by kind and name."""

    def __init__(self, roots: Sequence[Any]) -> None:
        self.of: dict[tuple[str, str], Any] = {}
        self.heads: set[str] = set()
        """Elements that others may replace: heads of substitution groups."""
        for root in roots:
            for node in root:
                kind = _local(node.tag) if isinstance(node.tag, str) else ""
                if kind in _GLOBAL:
                    self.of[kind, _qualified(root.get("targetNamespace"), node.get("name"))] = node
                if node.get("substitutionGroup"):
                    self.heads.add(resolved(node, node.get("substitutionGroup")))

    def root(self, wanted: str | None) -> str:
        """Full name of the root element. `wanted` may leave out the namespace; None: the only global element."""
        names = [name for kind, name in self.of if kind == "element"]
        found = [name for name in names if wanted is None or wanted in (name, _local(name))]
        if len(found) != 1:
            raise Unmapped(
                "the document",
                f"may have {', '.join(sorted(found or names)) or 'no element'} as its root: choose root=",
            )
        return found[0]

    def find(self, kind: str, name: str, at: str) -> Any:
        """The definition of that kind and name. Raises Unmapped."""
        if (kind, name) not in self.of:
            raise Unmapped(at, f"needs {kind} {name!r}, which the collection does not define")
        return self.of[kind, name]


def _qualified(namespace: str | None, name: str) -> str:
    return f"{{{namespace}}}{name}" if namespace else name


def resolved(node: Any, name: str) -> str:
    """The full name for a name that is written at this node of a schema; without a prefix, in the default namespace."""
    prefix, _, local = name.rpartition(":")
    return _qualified(node.nsmap.get(prefix or None), local)


class _Field(NamedTuple):
    """A child element or an attribute of an element."""

    tag: str
    shape: Shape
    is_many: bool = False
    is_attribute: bool = False
    default: str | None = None


class _XmlMapping:
    """Maps one collection."""

    def __init__(self, known: _Known) -> None:
        self._known = known
        self._parts = PartCount()

    def element(self, node: Any, at: str, inside: tuple[str, ...]) -> Shape:
        """The shape of an element, from its declaration."""
        self._parts.add(at)
        if node.get("ref"):
            name = resolved(node, node.get("ref"))
            if name in self._known.heads:
                raise Unmapped(at, f"may be replaced by elements of the substitution group of {_local(name)!r}")
            self._check_end(f"element {name}", at, inside)
            return self.element(self._known.find("element", name, at), at, (*inside, f"element {name}"))
        default = node.get("default", node.get("fixed"))
        complex_type = self._complex_type(node, at)
        if complex_type is not None:
            kind, name = complex_type
            self._check_end(f"type {name}", at, inside)
            shape = self._complex(kind, at, (*inside, f"type {name}") if name else inside)
        else:
            simple = self._simple(node, at)
            shape = Shape(simple.arrow, lambda element: simple.make(text_of(element) or default or ""))
        return Shape(shape.arrow, lambda one: None if one.get(NIL, "").strip() in ("true", "1") else shape.make(one))

    def _check_end(self, what: str, at: str, inside: tuple[str, ...]) -> None:
        if what in inside:
            raise Unmapped(at, f"contains itself, by {what}: Spark has no recursive types")

    def _complex_type(self, node: Any, at: str) -> tuple[Any, str] | None:
        """The complex type of an element, and its name; None for an element with a simple type."""
        inner = node.find(f"{XSD}complexType")
        if inner is not None:
            return inner, ""
        name = node.get("type")
        if name is None:
            if node.find(f"{XSD}simpleType") is None:
                raise Unmapped(at, "may be anything: give it a type")
            return None
        full = resolved(node, name)
        return None if ("complexType", full) not in self._known.of else (self._known.of["complexType", full], full)

    # -------------------------------------------------------------------------------------------------- simple types

    def _simple(self, node: Any, at: str) -> Shape:
        """The shape of the text of an element, attribute or restriction with a simple type."""
        name = node.get("type", node.get("base"))
        if name is not None:
            return self._named(resolved(node, name), at)
        inner = node.find(f"{XSD}simpleType")
        return builtin("string", at) if inner is None else self._derived(inner, at)

    def _named(self, name: str, at: str) -> Shape:
        if name.startswith(XSD):
            if _local(name) == "anyType":
                raise Unmapped(at, "may be anything: give it a type")
            return builtin(_local(name), at)
        return self._derived(self._known.find("simpleType", name, at), at)

    def _derived(self, node: Any, at: str) -> Shape:
        restriction = node.find(f"{XSD}restriction")
        if restriction is not None:
            return self._simple(restriction, at)
        items = node.find(f"{XSD}list")
        if items is None:
            return builtin("string", at)  # a union
        name = items.get("itemType")
        item = self._simple(items, at) if name is None else self._named(resolved(items, name), at)
        words = listed(item)
        return Shape(words.arrow, lambda text: words.make(words_of(text)))

    # ------------------------------------------------------------------------------------------------- complex types

    def _complex(self, node: Any, at: str, inside: tuple[str, ...]) -> Shape:
        if node.get("mixed", "").strip() in ("true", "1"):
            raise Unmapped(at, "has text between its elements (mixed)")
        fields: dict[str, _Field] = {}
        for name, field in self._fields(node, at, inside):
            before = fields.get(name)
            if before is not None and before.tag != field.tag:
                raise Unmapped(at, f"has {name!r} twice, with different meanings")
            fields[name] = field if before is None else field._replace(is_many=True)
        if not fields:
            return present(at)
        return _structured(fields)

    def _fields(self, node: Any, at: str, inside: tuple[str, ...]) -> Iterator[tuple[str, _Field]]:
        simple = node.find(f"{XSD}simpleContent")
        content = node.find(f"{XSD}complexContent") if simple is None else simple
        if content is None:
            yield from self._content(node, at, inside, many=False)
            return
        extension = content.find(f"{XSD}extension")
        if extension is None:
            raise Unmapped(at, "restricts another complex type")
        base = resolved(extension, extension.get("base"))
        found = self._known.of.get(("complexType", base))
        if found is None:
            yield TEXT, _Field(TEXT, self._named(base, at))
        else:
            self._check_end(f"type {base}", at, inside)
            yield from self._fields(found, at, (*inside, f"type {base}"))
        yield from self._content(extension, at, inside, many=False)

    def _content(self, node: Any, at: str, inside: tuple[str, ...], *, many: bool) -> Iterator[tuple[str, _Field]]:
        """The fields for the elements and attributes in a type, group, sequence or choice."""
        self._parts.add(at)
        for each in node.iterchildren(f"{XSD}*"):
            kind, often = _local(each.tag), many or each.get("maxOccurs", "1").strip() not in ("0", "1")
            if kind == "element" and each.get("maxOccurs", "1").strip() != "0":
                tag = self._tag(each)
                name = _local(tag)
                yield name, _Field(tag, self.element(each, f"{at}.{name}", inside), often)
            elif kind in ("sequence", "choice", "all"):
                yield from self._content(each, at, inside, many=often)
            elif kind in ("group", "attributeGroup"):
                ref = resolved(each, each.get("ref"))
                self._check_end(f"{kind} {ref}", at, inside)
                yield from self._content(self._known.find(kind, ref, at), at, (*inside, f"{kind} {ref}"), many=often)
            elif kind == "attribute" and each.get("use") != "prohibited":
                yield self._attribute(each, at)

    def _tag(self, node: Any) -> str:
        """The full name of an element in a document."""
        if node.get("ref"):
            return resolved(node, node.get("ref"))
        root = node.getroottree().getroot()
        form = node.get("form", root.get("elementFormDefault", "unqualified"))
        return _qualified(root.get("targetNamespace") if form == "qualified" else None, node.get("name"))

    def _attribute(self, node: Any, at: str) -> tuple[str, _Field]:
        tag = node.get("name")
        default = node.get("default", node.get("fixed"))
        if node.get("ref"):
            tag = resolved(node, node.get("ref"))
            found = self._known.of.get(("attribute", tag))
            name = _local(tag)
            if default is None and found is not None:
                default = found.get("default", found.get("fixed"))
            shape = builtin("string", at) if found is None else self._simple(found, f"{at}.@{name}")
            return f"_{name}", _Field(tag, shape, is_attribute=True, default=default)
        root = node.getroottree().getroot()
        if node.get("form", root.get("attributeFormDefault")) == "qualified":
            tag = _qualified(root.get("targetNamespace"), tag)
        shape = self._simple(node, f"{at}.@{node.get('name')}")
        return f"_{node.get('name')}", _Field(tag, shape, is_attribute=True, default=default)


def _structured(fields: dict[str, _Field]) -> Shape:
    """The shape of an element with these children and attributes."""
    whole = struct({name: listed(field.shape) if field.is_many else field.shape for name, field in fields.items()})
    children = {field.tag: name for name, field in fields.items() if not field.is_attribute}
    attributes = {name: field for name, field in fields.items() if field.is_attribute}

    def make(element: Any) -> Any:
        found: dict[str, Any] = {name: element.get(one.tag, one.default) for name, one in attributes.items()}
        if TEXT in children:
            found[TEXT] = text_of(element)
        for child in element:
            name = children.get(child.tag)
            if name is not None and fields[name].is_many:
                found.setdefault(name, []).append(child)
            elif name is not None:
                found[name] = child
        return whole.make(found)

    return Shape(whole.arrow, make)
