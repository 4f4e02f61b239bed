"""Ready classifiers: a rule finds a key in a conversation's first message, and the key names the service.

With a routing table the key is looked up there; without one the key is the name of the service. The router service asks
a classifier message by message, Spark in bulk; so both decide alike. Each classifier can be written as data:
`{"kind": "xpath", "expression": "/order/region", "table": "Regions"}`.

Source: behaviours 230 to 233. `to_service_name` decides like the original's sample.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any, Final, NamedTuple

from konverse.routing.keys.avro import AvroField
from konverse.routing.keys.hash import KeyHash
from konverse.routing.keys.json_path import JsonPath
from konverse.routing.keys.regex import RegularExpression
from konverse.routing.keys.rule import KIND, Lookup, NoKey, Rule
from konverse.routing.keys.xml import ToServiceName, XPath
from konverse.schemas.catalog.routing_tables import RoutingTable
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidName, InvalidSettings
from konverse.schemas.identifiers import check_name

from .decisions import Decision, Unclassifiable

TABLE: Final = "table"
"""Key of a description: the name of the routing table."""

Table = str | RoutingTable
"""The name of a table in the catalog, read whenever a message is classified; or a table that stays as given."""


class Explanation(NamedTuple):
    """How a classifier came to its decision."""

    decision: Decision
    key: str | None = None
    """The key that the rule found; None without a key."""
    table: str | None = None
    """Name of the routing table in which the key was looked up."""
    version: int | None = None
    by_default: bool = False
    """Whether the table does not have the key, so that its default applied."""


class Classifier:
    """Decides for which service a message is. Immutable; the functions of this module make one."""

    def __init__(self, rule: Rule, table: Table | None = None, lookup: Lookup | None = None) -> None:
        """Raises InvalidName for an impossible table name."""
        self._rule = rule
        self._table = check_name("routing table", table) if isinstance(table, str) else table
        self._lookup = lookup

    def __call__(self, message: Any) -> Decision:
        """The decision on a received message. Raises the same errors as `explain`."""
        return self.explain(message).decision

    def explain(self, message: Any) -> Explanation:
        """The decision on a received message, and how it came about.

        Raises RoutingTableNotFound, and InvalidSettings when the classifier names a table of the catalog and is not
        `bound` to a catalog. These are not faults of the message, so they do not end its conversation.
        """
        try:
            key = self._rule.key_of(message, self._lookup)
        except NoKey as error:
            return Explanation(Unclassifiable(str(error)))
        if self._table is None:
            return Explanation(self._service(key), key)
        table = self._current(self._table)
        target = table.find(key)
        if target is None:
            reason = f"Routing table {table.name!r} (version {table.version}) has no service for key {key!r}."
            return Explanation(Unclassifiable(reason), key, table.name, table.version)
        return Explanation(target, key, table.name, table.version, key not in table.entries)

    def targets(self) -> frozenset[str] | None:
        """Names of all services that it may choose at present; None when bodies name them, or without a catalog."""
        if isinstance(self._rule, KeyHash) and self._table is None:
            return frozenset(self._rule.services)
        if self._table is None or (isinstance(self._table, str) and self._lookup is None):
            return None
        return frozenset(target.service for target in self._current(self._table).targets())

    def bound(self, lookup: Lookup) -> Classifier:
        """The same classifier, with a catalog for its tables, services and schemas."""
        return Classifier(self._rule, self._table, lookup)

    def with_table(self, table: Table | None) -> Classifier:
        """The same classifier with this routing table; None: without one. Raises InvalidName."""
        return Classifier(self._rule, table, self._lookup)

    def described(self) -> dict[str, Any]:
        """The classifier as data for `parse`."""
        table = self._table.name if isinstance(self._table, RoutingTable) else self._table
        return {KIND: self._rule.kind, **self._rule.described(), **({} if table is None else {TABLE: table})}

    def _service(self, key: str) -> Decision:
        """The service that a key names. A body may name a service that does not exist."""
        try:
            check_name("service", key)
        except InvalidName as error:
            return Unclassifiable(f"The key is not a valid name of a service: {error}.")
        if self._lookup is not None and not self._lookup.has_service(key):
            return Unclassifiable(f"There is no service {key!r}.")
        return Target(key)

    def _current(self, table: Table) -> RoutingTable:
        if isinstance(table, RoutingTable):
            return table
        if self._lookup is None:
            raise InvalidSettings(
                f"a classifier names routing table {table!r} and has no catalog to find it in; `broker.classifier` "
                "gives it one"
            )
        return self._lookup.routing_table(table)

    def __repr__(self) -> str:
        return f"<Classifier {json.dumps(self.described(), ensure_ascii=False)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the description and the table; the catalog is left out."""
        return _made_again, ({KIND: self._rule.kind, **self._rule.described()}, self._table)


def to_service_name(*, table: Table | None = None) -> Classifier:
    """Classify by the element `/message/toServiceName` of an XML body, as Service Broker's own sample does."""
    return Classifier(ToServiceName(), table)


def xpath(expression: str, *, namespaces: Mapping[str, str] | None = None, table: Table | None = None) -> Classifier:
    """Classify by the result of an XPath 1.0 expression on an XML body; of several nodes, by the text of the first.

    `namespaces` maps its prefixes to URIs. White space around the text is ignored. Needs
    `pip install 'konverse[routing]'`. Raises InvalidSettings for an invalid expression, NotInstalled.
    """
    return Classifier(XPath(expression, namespaces), table)


def json_path(path: str, *, table: Table | None = None) -> Classifier:
    """Classify by the value at one place of a JSON body, such as `$.customer.region` or `$['ship to'][0]`.

    A string, an integer or a boolean is a key. `path` is a singular query of RFC 9535; any other raises
    InvalidSettings.
    """
    return Classifier(JsonPath(path), table)


def avro_field(field: str, schema: str | None = None, *, table: Table | None = None) -> Classifier:
    """Classify by a field of an Avro body, such as `customer.region`; values as for `json_path`, or enum symbols.

    `schema` is the writer's schema; without it, the schema of the message's type in the catalog is used. Raises
    InvalidSettings for an invalid schema, or one with which a body of a few bytes might take all memory.
    """
    return Classifier(AvroField(field, schema), table)


def regular_expression(pattern: str, *, table: Table | None = None) -> Classifier:
    """Classify by the first match in a text body: its group `key`, else its first group, else the whole match.

    The syntax is RE2's. Needs `pip install 'konverse[routing]'`. Raises InvalidSettings, NotInstalled.
    """
    return Classifier(RegularExpression(pattern), table)


def key_hash(services: Iterable[str]) -> Classifier:
    """Choose one of these services by the dialog's key, as Kafka's partitioner would; without one, by the dialog's id.

    The order of the services matters. Raises InvalidSettings for no service, or for one that is named twice.
    """
    return Classifier(KeyHash(services))


_KINDS: Final = {
    "to_service_name": (to_service_name, ""),
    "xpath": (xpath, "expression"),
    "json_path": (json_path, "path"),
    "avro_field": (avro_field, "field"),
    "regular_expression": (regular_expression, "pattern"),
    "key_hash": (key_hash, "services"),
}
"""Kind -> the function that makes it, and the argument that the short form gives."""


def parse(description: str | Mapping[str, Any]) -> Classifier:
    """The classifier for a description: data as `Classifier.described` returns them, or a string.

    A string is a JSON object, or in short the kind and its argument: `to_service_name`, `xpath:/order/region`,
    `json_path:$.region`, `avro_field:region`, `regular_expression:region=(.*)`, `key_hash://a,//b`. Raises
    InvalidSettings for an invalid description, and the errors of the function that makes this kind.
    """
    data = _data(description) if isinstance(description, str) else {**description}
    kind = data.pop(KIND, None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidSettings(f"{kind!r} is not a kind of classifier; there are {', '.join(_KINDS)}")
    make: Any = _KINDS[kind][0]
    known = signature(make).parameters
    for name, value in data.items():
        if name not in known:
            raise InvalidSettings(
                f"a classifier of kind {kind!r} takes no argument {name!r}; its arguments: {', '.join(known) or 'none'}"
            )
        _check(kind, name, value)
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in data:
            raise InvalidSettings(f"a classifier of kind {kind!r} needs {name!r}")
    made: Classifier = make(**data)
    return made


def _data(text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            data: dict[str, Any] = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidSettings(f"the description of a classifier is not a valid JSON document: {error}") from None
        return data
    kind, colon, argument = text.partition(":")
    name = _KINDS[kind][1] if kind in _KINDS else ""
    if not colon:
        return {KIND: kind}
    if not name and kind in _KINDS:
        raise InvalidSettings(f"a classifier of kind {kind!r} takes no argument after a colon")
    return {KIND: kind, name: argument.split(",") if kind == KeyHash.kind else argument}


_LISTS: Final = ("services",)
_MAPPINGS: Final = ("namespaces",)


def _check(kind: str, name: str, value: object) -> None:
    """Raise InvalidSettings for a value of the wrong type."""
    if name in _LISTS:
        fits = isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
    elif name in _MAPPINGS:
        fits = isinstance(value, Mapping) and all(isinstance(each, str) for pair in value.items() for each in pair)
    else:
        fits = isinstance(value, str)
    if not fits:
        wanted = "a list of strings" if name in _LISTS else "an object of strings" if name in _MAPPINGS else "a string"
        raise InvalidSettings(f"{name!r} of a classifier of kind {kind!r} is {wanted}, not {value!r}")


def _made_again(description: Mapping[str, Any], table: Table | None) -> Classifier:
    return parse(description).with_table(table)
