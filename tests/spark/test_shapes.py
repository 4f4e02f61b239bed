"""Types of a schema in Spark, their values, and schemas that have no type in Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from pyspark.sql.pandas.types import from_arrow_type

from konverse.bridge.validation.rules import SchemaRule, check_of
from konverse.schemas.catalog.objects import Validation
from konverse.spark.bodies import avro_shapes, json_shapes, shapes, xml_shapes
from konverse.spark.bodies.shapes import Parser, Unfit, Unmapped

XS: Final = 'xmlns:xs="http://www.w3.org/2001/XMLSchema"'
MADE: Final = {
    Validation.JSON_SCHEMA: json_shapes.parser_of,
    Validation.AVRO: avro_shapes.parser_of,
    Validation.VALID_XML: xml_shapes.parser_of,
}


def parser(validation: Validation, *documents: str, root: str | None = None) -> Parser:
    """The parser of a schema that the catalog would accept."""
    check_of(SchemaRule(validation, documents))
    return MADE[validation](documents, root)


def value_of(made: Parser, body: bytes) -> Any:
    """The value in a frame."""
    (value,) = pa.array([made.parse(body)], made.arrow).to_pylist()
    return value


def sql(made: Parser) -> str:
    return str(from_arrow_type(made.arrow).simpleString())


# ---------------------------------------------------------------------------------------------------------------- JSON


def by_json(schema: Any) -> Parser:
    return parser(Validation.JSON_SCHEMA, json.dumps(schema))


def properties(**parts: Any) -> dict[str, Any]:
    return {"type": "object", "properties": parts}


ORDER: Final = {
    **properties(
        number={"type": "integer", "minimum": 1},
        price={"type": ["number", "null"]},
        urgent={"type": "boolean"},
        state={"enum": ["new", "old"]},
        customer={"$ref": "#/$defs/customer"},
        lines={"type": "array", "items": properties(item={"type": "string"}, pieces={"type": "integer"})},
        labels={"type": "object", "additionalProperties": {"type": "string"}},
        note={"anyOf": [{"type": "string"}, {"type": "null"}]},
        never=False,
    ),
    "$defs": {"customer": {"properties": {"name": {"type": "string"}}}},
}


def test_a_json_schema_becomes_a_struct() -> None:
    made = by_json(ORDER)
    assert sql(made) == (
        "struct<number:bigint,price:double,urgent:boolean,state:string,customer:struct<name:string>,"
        "lines:array<struct<item:string,pieces:bigint>>,labels:map<string,string>,note:string>"
    )
    body = {
        "number": 7.0,
        "price": 3,
        "state": "new",
        "customer": {"name": "Ada", "age": 36},
        "lines": [{"item": "pen", "pieces": 2}, {}],
        "labels": {"colour": "red"},
        "other": 1,
    }
    assert value_of(made, json.dumps(body).encode()) == {
        "number": 7,
        "price": 3.0,
        "urgent": None,
        "state": "new",
        "customer": {"name": "Ada"},
        "lines": [{"item": "pen", "pieces": 2}, {"item": None, "pieces": None}],
        "labels": [("colour", "red")],
        "note": None,
    }
    assert value_of(made, b"{}")["lines"] is None


def test_a_document_need_not_be_an_object() -> None:
    assert value_of(by_json({"type": "array", "items": {"type": ["integer", "null"]}}), b"[1, null]") == [1, None]
    assert value_of(by_json({"type": ["string", "null"]}), b"null") is None


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (True, r"\$ may be anything"),
        (properties(a={}), r"\$\.a has no type"),
        (properties(a={"type": ["string", "integer"]}), r"\$\.a may be integer or string: a column has one type"),
        (properties(a={"enum": [1, "one"]}), r"\$\.a may be integer or string"),
        (properties(a={"oneOf": [{"type": "string"}, {"type": "number"}]}), r"\$\.a has oneOf with 2 branches"),
        (properties(a={"type": "object"}), r"\$\.a is an object without properties"),
        (
            properties(
                a={"type": "object", "patternProperties": {"^x": {"type": "string"}}, "additionalProperties": {}}
            ),
            r"\$\.a has patternProperties: a map has values of one type",
        ),
        (properties(a={"type": "array"}), r"\$\.a is an array whose items have no common type"),
        (properties(a={"type": "array", "items": {"type": "null"}}), r"\$\.a\[\] has no type"),
        (properties(a={"type": "array", "items": {"$ref": "#"}}), r"\$\.a\[\] contains itself, by #"),
        (properties(a={"$ref": "#/$defs/b", "properties": {}}) | {"$defs": {"b": {}}}, "ref and properties"),
        (properties(a={"$id": "other", "type": "string"}), r"\$\.a has an \$id of its own"),
    ],
)
def test_the_error_for_a_json_schema_without_a_spark_type_names_the_part_at_fault(schema: Any, words: str) -> None:
    with pytest.raises(Unmapped, match=words):
        by_json(schema)


@pytest.mark.parametrize(
    ("schema", "body", "words"),
    [
        ({"type": "integer"}, b"9223372036854775808", r"\$ is 9223372036854775808, which is too large for a bigint"),
        ({"type": "number"}, b"1" + b"0" * 400, "too large for a double"),
        ({"properties": {"a": {"type": "string"}}}, b"[]", r"\$ is not of type object"),
        ({"items": {"type": "string"}}, b"{}", r"\$ is not of type array"),
    ],
)
def test_valid_json_that_does_not_fit_the_spark_type_is_refused_with_the_reason(
    schema: Any, body: bytes, words: str
) -> None:
    with pytest.raises(Unfit, match=words):
        by_json(schema).parse(body)


# ---------------------------------------------------------------------------------------------------------------- Avro


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}


def logical(kind: str, of: str, **more: Any) -> dict[str, Any]:
    return {"type": of, "logicalType": kind, **more}


def test_an_avro_schema_becomes_a_struct() -> None:
    schema = record(
        ("number", "long"),
        ("small", "int"),
        ("ratio", "float"),
        ("price", logical("decimal", "bytes", precision=10, scale=2)),
        ("note", ["null", "string"]),
        ("day", logical("date", "int")),
        ("at", logical("timestamp-millis", "long")),
        ("there", logical("local-timestamp-micros", "long")),
        ("id", logical("uuid", "string")),
        ("nanos", logical("timestamp-nanos-of-somebody", "long")),
        ("colour", {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}),
        ("second", ["null", "Colour"]),
        ("raw", {"type": "fixed", "name": "Raw", "size": 2}),
        ("tags", {"type": "map", "values": "boolean"}),
        ("lines", {"type": "array", "items": record(("item", "string"), name="Line")}),
    )
    made = parser(Validation.AVRO, json.dumps(schema))
    assert sql(made) == (
        "struct<number:bigint,small:int,ratio:float,price:decimal(10,2),note:string,day:date,at:timestamp,"
        "there:timestamp_ntz,id:string,nanos:bigint,colour:string,second:string,raw:binary,tags:map<string,boolean>,"
        "lines:array<struct<item:string>>>"
    )
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    value = {
        "number": 1 << 40,
        "small": -3,
        "ratio": 0.5,
        "price": Decimal("12.50"),
        "note": None,
        "day": date(2026, 1, 31),
        "at": moment,
        "there": moment.replace(tzinfo=None),
        "id": UUID(int=7),
        "nanos": 5,
        "colour": "BLUE",
        "second": "RED",
        "raw": b"ab",
        "tags": {"new": True},
        "lines": [{"item": "pen"}],
    }
    body = BytesIO()
    schemaless_writer(body, parse_schema(schema), value)
    assert value_of(made, body.getvalue()) == {**value, "id": str(UUID(int=7)), "tags": [("new", True)]}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (["string", "long"], "the datum is a union of 2 types beside null"),
        ("null", "the datum is null"),
        (record(("next", ["null", "R"])), r"the datum\.next contains itself, by record 'R'"),
        (record(("at", logical("time-millis", "int"))), r"the datum\.at is a time-millis, which has no type in Spark"),
        (record(("a", logical("decimal", "bytes", precision=39))), "a decimal of 39 digits: Spark has 38"),
        (
            record(("a", {"type": "array", "items": record(name="Empty")})),
            r"\.a\[\] is of record 'Empty', which has no",
        ),
    ],
)
def test_the_error_for_an_avro_schema_without_a_spark_type_names_the_part_at_fault(schema: Any, words: str) -> None:
    with pytest.raises(Unmapped, match=words):
        parser(Validation.AVRO, json.dumps(schema))


# ----------------------------------------------------------------------------------------------------------------- XML


def xsd(*content: str, attributes: str = "") -> str:
    return f"<xs:schema {XS} {attributes}>{''.join(content)}</xs:schema>"


def element(name: str, *content: str, attributes: str = "") -> str:
    """An element with a complex type of these parts."""
    return f'<xs:element name="{name}" {attributes}><xs:complexType>{"".join(content)}</xs:complexType></xs:element>'


def sequence(*parts: str) -> str:
    return f"<xs:sequence>{''.join(parts)}</xs:sequence>"


def simple(name: str, kind: str, more: str = "") -> str:
    return f'<xs:element name="{name}" type="{kind}" {more}/>'


def by_xml(*documents: str, root: str | None = None) -> Parser:
    return parser(Validation.VALID_XML, *documents, root=root)


def test_an_xml_schema_becomes_a_struct() -> None:
    made = by_xml(
        xsd(
            element(
                "order",
                sequence(
                    simple("pieces", "xs:positiveInteger"),
                    simple("price", "xs:decimal", 'minOccurs="0"'),
                    simple("at", "xs:dateTime"),
                    simple("day", "xs:date", 'nillable="true"'),
                    simple("seal", "xs:hexBinary", 'default="00ff"'),
                    simple("line", "Line", 'minOccurs="0" maxOccurs="unbounded"'),
                    '<xs:choice maxOccurs="2"><xs:element ref="red"/><xs:element ref="blue"/></xs:choice>',
                ),
                '<xs:attribute name="number" type="xs:int"/><xs:attribute name="state" default="new"/>',
            ),
            simple("red", "xs:boolean"),
            element("blue"),
            '<xs:complexType name="Line"><xs:simpleContent><xs:extension base="Words">'
            '<xs:attribute name="lang"/></xs:extension></xs:simpleContent></xs:complexType>',
            '<xs:simpleType name="Words"><xs:list itemType="xs:token"/></xs:simpleType>',
        ),
        root="order",
    )
    assert sql(made) == (
        "struct<pieces:decimal(38,0),price:decimal(38,18),at:timestamp,day:date,seal:binary,"
        "line:array<struct<_VALUE:array<string>,_lang:string>>,red:array<boolean>,blue:array<boolean>,"
        "_number:bigint,_state:string>"
    )
    body = b"""<order number="12"><pieces> 3 </pieces><at>2026-01-31T12:00:00+01:00</at>
      <day xsi:nil="true" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"/><seal/><!-- two lines -->
      <line>a <!-- no --> b</line><line lang="en">c</line><blue/><red>1</red></order>"""
    assert value_of(made, body) == {
        "pieces": Decimal(3),
        "price": None,
        "at": datetime(2026, 1, 31, 11, tzinfo=UTC),
        "day": None,
        "seal": b"\x00\xff",
        "line": [{"_VALUE": ["a", "b"], "_lang": None}, {"_VALUE": ["c"], "_lang": "en"}],
        "red": [True],
        "blue": [True],
        "_number": 12,
        "_state": "new",
    }


def test_an_attribute_that_is_missing_has_the_default_of_the_definition_that_it_refers_to() -> None:
    made = by_xml(
        xsd(
            '<xs:attribute name="unit" type="xs:token" default="kg"/>',
            '<xs:attribute name="count" type="xs:int" fixed="1"/>',
            element("a", '<xs:attribute ref="unit"/><xs:attribute ref="count"/>'),
        ),
        root="a",
    )
    assert value_of(made, b"<a/>") == {"_unit": "kg", "_count": 1}
    assert value_of(made, b'<a unit="g"/>') == {"_unit": "g", "_count": 1}


def test_documents_of_several_namespaces_are_one_schema() -> None:
    person = xsd(
        '<xs:complexType name="Person"><xs:sequence><xs:element name="name" type="xs:string"/></xs:sequence>'
        "</xs:complexType>",
        '<xs:complexType name="Customer"><xs:complexContent><xs:extension xmlns:p="urn:p" base="p:Person">'
        '<xs:sequence><xs:element name="since" type="xs:int" form="unqualified"/></xs:sequence></xs:extension>'
        "</xs:complexContent></xs:complexType>",
        attributes='targetNamespace="urn:p" elementFormDefault="qualified"',
    )
    order = xsd(
        '<xs:import namespace="urn:p"/>',
        element("order", sequence('<xs:element name="by" xmlns:q="urn:p" type="q:Customer"/>')),
        attributes='targetNamespace="urn:o"',
    )
    made = by_xml(order, person)
    assert sql(made) == "struct<by:struct<name:string,since:bigint>>"
    body = b'<o:order xmlns:o="urn:o"><by><name xmlns="urn:p">Ada &amp; Co</name><since>1843</since></by></o:order>'
    assert value_of(made, body) == {"by": {"name": "Ada & Co", "since": 1843}}


TREE: Final = (
    '<xs:complexType name="Tree"><xs:sequence><xs:element name="tree" type="Tree"/></xs:sequence></xs:complexType>'
)


GROUP: Final = (
    '<xs:group name="G"><xs:sequence><xs:element name="b"><xs:complexType><xs:sequence>'
    '<xs:group ref="G" minOccurs="0"/></xs:sequence></xs:complexType></xs:element></xs:sequence></xs:group>'
)


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([xsd(simple("a", "xs:int"), simple("b", "xs:int"))], "may have a, b as its root: choose root="),
        ([xsd(simple("a", "xs:anyType"))], "a may be anything: give it a type"),
        ([xsd('<xs:element name="a"/>')], "a may be anything: give it a type"),
        ([xsd(simple("a", "Tree"), TREE)], r"a\.tree contains itself, by type Tree"),
        (
            [xsd(element("a", '<xs:sequence><xs:group ref="G"/></xs:sequence>'), GROUP)],
            r"a\.b contains itself, by group G",
        ),
        ([xsd(element("a", sequence('<xs:element ref="a" minOccurs="0"/>')))], r"a\.a contains itself, by element a"),
        ([xsd('<xs:element name="a"><xs:complexType mixed="true"/></xs:element>')], r"text between its elements"),
    ],
)
def test_an_xml_schema_without_a_spark_type_is_refused_with_the_offending_part(
    documents: Sequence[str], words: str
) -> None:
    with pytest.raises(Unmapped, match=words):
        by_xml(*documents)


def test_elements_that_may_be_replaced_are_no_type() -> None:
    head = simple("head", "xs:string") + simple("other", "xs:string", 'substitutionGroup="head"')
    with pytest.raises(Unmapped, match=r"a\.head may be replaced by elements of the substitution group of 'head'"):
        by_xml(xsd(head, element("a", sequence('<xs:element ref="head"/>'))), root="a")


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("xs:integer", "1" + "0" * 38, r"a is 10{38}, which does not fit decimal\(38,0\)"),
        ("xs:decimal", "0.0000000000000000001", "does not fit decimal"),
        ("xs:dateTime", "-0044-03-15T12:00:00", "is not a time in the years 1 to 9999"),
        ("xs:dateTime", "9999-12-31T24:00:00", "is not a time in the years 1 to 9999"),
        ("xs:date", "12026-01-01", "is not a date in the years 1 to 9999"),
    ],
)
def test_a_valid_xml_value_that_does_not_fit_its_type_raises_unfit(kind: str, text: str, words: str) -> None:
    made = by_xml(xsd(simple("a", kind)))
    with pytest.raises(Unfit, match=words):
        made.parse(f"<a>{text}</a>".encode())


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("xs:decimal", "1.5000000000000000000000", Decimal("1.5")),
        ("xs:integer", "-" + "9" * 38, Decimal("-" + "9" * 38)),
        ("xs:integer", "0", Decimal(0)),
        ("xs:double", "-INF", float("-inf")),
        ("xs:date", "2026-01-31Z", date(2026, 1, 31)),
        ("xs:dateTime", "2026-01-31T12:00:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("xs:dateTime", "2026-12-31T24:00:00", datetime(2027, 1, 1, tzinfo=UTC)),
        ("xs:dateTime", "2026-01-31T24:00:00.00+01:00", datetime(2026, 1, 31, 23, tzinfo=UTC)),
        ("xs:string", " a\nb ", " a\nb "),
        ("xs:token", " a\nb ", "a b"),
        ("xs:token", " 10\u00a0000\tm ", "10\u00a0000 m"),
        ("xs:NMTOKENS", "a\tb", "a b"),
        ("xs:base64Binary", "YWI=", b"ab"),
    ],
)
def test_words_in_xml_become_values(kind: str, text: str, value: object) -> None:
    assert value_of(by_xml(xsd(simple("a", kind))), f"<a>{text}</a>".encode()) == value


def test_items_of_a_list_in_xml_are_divided_by_white_space_of_xml_alone() -> None:
    made = by_xml(
        xsd(simple("a", "Words"), '<xs:simpleType name="Words"><xs:list itemType="xs:token"/></xs:simpleType>')
    )
    assert value_of(made, "<a> 1\u00a0kg\n2\u00a0kg </a>".encode()) == ["1\u00a0kg", "2\u00a0kg"]


def test_a_document_with_another_root_has_no_value() -> None:
    made = by_xml(xsd(simple("a", "xs:int"), simple("b", "xs:int")), root="a")
    with pytest.raises(Unfit, match="its root is 'b', not 'a'"):
        made.parse(b"<b>1</b>")


DEEP: Final = 40


def avro_that_multiplies() -> str:
    schema: dict[str, Any] = record(("a", "int"), name=f"R{DEEP}")
    for level in reversed(range(DEEP)):
        schema = record(("a", schema), ("b", f"R{level + 1}"), name=f"R{level}")
    return json.dumps(schema)


def json_that_multiplies() -> str:
    places = [{"$ref": f"#/$defs/{level}"} for level in range(DEEP + 1)]
    defined = {str(level): properties(a=places[level + 1], b=places[level + 1]) for level in range(DEEP)}
    return json.dumps(places[0] | {"$defs": defined | {str(DEEP): {"type": "integer"}}})


def xml_that_multiplies() -> str:
    levels = []
    for level in range(DEEP):
        inner = sequence(*(simple(name, f"T{level + 1}") for name in "ab"))
        levels.append(f'<xs:complexType name="T{level}">{inner}</xs:complexType>')
    return xsd(simple("root", "T0"), *levels, f'<xs:complexType name="T{DEEP}"/>')


def xml_of_groups_that_multiply() -> str:
    uses = [f'<xs:group ref="G{level}"/>' for level in range(DEEP + 1)]
    insides = [*(use * 2 for use in uses[1:]), ""]
    groups = [f'<xs:group name="G{level}">{sequence(inside)}</xs:group>' for level, inside in enumerate(insides)]
    return xsd(element("root", uses[0]), *groups)


@pytest.mark.parametrize(
    ("made", "schema"),
    [
        (avro_shapes.parser_of, avro_that_multiplies()),
        (json_shapes.parser_of, json_that_multiplies()),
        (xml_shapes.parser_of, xml_that_multiplies()),
        (xml_shapes.parser_of, xml_of_groups_that_multiply()),
    ],
    ids=["avro", "json", "xml", "groups"],
)
def test_a_short_schema_with_a_trillion_parts_is_refused(
    made: Callable[[Sequence[str], str | None], Parser], schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "PARTS_MAX", 1_000)
    with pytest.raises(Unmapped, match="comes after 1000 other parts, the most that a column has"):
        made([schema], None)
