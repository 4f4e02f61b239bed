"""Keys of XML documents: the element that the original's sample reads, and the result of an XPath expression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from xml.parsers.expat import ExpatError, ParserCreate

from konverse.schemas.errors import InvalidSettings
from konverse.schemas.limits import XML_DEPTH_ENTRIES_MAX
from konverse.schemas.validation import document_fault, parser_of, tree_of
from konverse.schemas.xml_encoding import MalformedXml, utf8_of

from .rule import Lookup, NoKey, checked, missing, no_key_for

_PATH: Final = ("message", "toServiceName")


class ToServiceName:
    """The name in `/message/toServiceName`, as the classifier of the original's sample reads it."""

    kind = "to_service_name"

    def key_of(self, message: Any, _lookup: Lookup | None = None) -> str:
        """The text of the first such element, without the white space around it."""
        found = _PathText()
        parser = ParserCreate("utf-8")
        parser.StartElementHandler, parser.EndElementHandler = found.begin, found.end
        parser.CharacterDataHandler = found.text
        parser.StartDoctypeDeclHandler = found.refuse
        try:
            parser.Parse(utf8_of(message.body or b""), True)  # noqa: FBT003  # this is all of it
        except (ExpatError, MalformedXml) as error:
            raise no_key_for("The body is not an XML document", error) from None
        if found.count == 0:
            raise NoKey("The body has no element /message/toServiceName.")
        return checked("".join(found.parts).strip())

    def described(self) -> Mapping[str, Any]:
        """It has no arguments."""
        return {}


class _PathText:
    """Collects the text of the first element at the path, while a document is parsed."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.count = 0
        self._depth = 0
        self._matched = 0
        """How many of the enclosing elements match the path, from the root."""

    def begin(self, name: str, _attributes: object) -> None:
        if self._depth == self._matched < len(_PATH) and name == _PATH[self._matched]:
            self._matched += 1
            self.count += self._matched == len(_PATH)
        self._depth += 1
        if self._depth > XML_DEPTH_ENTRIES_MAX:
            raise NoKey(f"The body has elements nested deeper than {XML_DEPTH_ENTRIES_MAX}.")

    def end(self, _name: str) -> None:
        self._depth -= 1
        self._matched = min(self._matched, self._depth)

    def text(self, data: str) -> None:
        if self._matched == len(_PATH) and self.count == 1:
            self.parts.append(data)

    def refuse(self, *_: object) -> None:  # entities of a document type can grow without bound
        raise NoKey("The body is an XML document with a document type declaration, which is not allowed.")


class XPath:
    """The result of an XPath 1.0 expression, as text; of several nodes, that of the first."""

    kind = "xpath"

    def __init__(self, expression: str, namespaces: Mapping[str, str] | None = None) -> None:
        """`namespaces` maps its prefixes to URIs. Raises InvalidSettings, and NotInstalled without lxml."""
        try:
            from lxml import etree  # noqa: PLC0415  # it comes with an extra
        except ImportError:
            raise missing("classifiers by XPath", "lxml") from None
        self._etree: Any = etree
        self._expression = expression
        self._namespaces = dict(namespaces or {})
        self._parser = parser_of(self._etree, collect_ids=True)  # for id()
        self._compiled(expression)  # alone, since `a) + string(b` would compile within `string(…)`
        self._find = self._compiled(f"string({expression})")

    def _compiled(self, text: str) -> Any:
        try:
            find = self._etree.XPath(text, namespaces=self._namespaces or None, regexp=False, smart_strings=False)
            find(self._etree.Element("any"))  # unknown functions and prefixes raise here
        except (self._etree.XPathError, TypeError, ValueError) as error:
            raise InvalidSettings(f"{self._expression!r} is not a valid expression of XPath 1.0: {error}") from None
        return find

    def key_of(self, message: Any, _lookup: Lookup | None = None) -> str:
        """The result, without the white space around it."""
        body = message.body or b""
        fault = document_fault(body)  # a document type counts as a fault
        if fault:
            raise no_key_for("The body is not an XML document", fault)
        try:
            found = str(self._find(tree_of(self._etree, self._parser, body))).strip()
        except (MalformedXml, self._etree.XPathError, ValueError) as error:
            raise no_key_for("The body is not an XML document", error) from None
        if not found:
            raise NoKey(f"The body has nothing at {self._expression}.")
        return checked(found)

    def described(self) -> Mapping[str, Any]:
        """The expression, and the namespaces if there are any."""
        return {"expression": self._expression} | ({"namespaces": self._namespaces} if self._namespaces else {})
