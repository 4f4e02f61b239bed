"""A classifier finds a key in a message. The key names the service, or a table maps it to one."""

from __future__ import annotations

import json
import pickle
import re
import sys
from io import BytesIO
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from konverse.routing.classifiers import (
    Classifier,
    Explanation,
    avro_field,
    json_path,
    key_hash,
    parse,
    regular_expression,
    to_service_name,
    xpath,
)
from konverse.routing.decisions import Unclassifiable
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidName, InvalidSettings, NotInstalled, RoutingTableNotFound
from konverse.schemas.limits import ROUTING_KEY_BYTES_MAX
from tests.kit.classifying import ORDER_SCHEMA, Dialog, Letter, lookup, table_of

REGIONS = table_of("Regions", {"north": Target("//n"), "7": Target("//seven"), "true": Target("//yes")})


def datum(region: object, share: float = 0.5) -> bytes:
    out = BytesIO()
    schemaless_writer(
        out, parse_schema(json.loads(ORDER_SCHEMA)), {"number": 7, "customer": {"region": region, "share": share}}
    )
    return out.getvalue()


def reason(classifier: Classifier, body: bytes) -> str:
    decision = classifier(Letter(body))
    assert isinstance(decision, Unclassifiable), decision
    return decision.reason


SHIFT_JIS = "<?xml version='1.0' encoding='Shift_JIS'?>"
TWO = b"<message><x><toServiceName>//x</toServiceName></x>%b%b</message>" % tuple(
    b"<toServiceName>%b</toServiceName>" % name for name in (b"//n", b"//z")
)
WIDE = "<?xml version='1.0' encoding='utf-16'?><message><toServiceName>//n</toServiceName></message>".encode("utf-16")
NOTHING = {"type": "record", "name": "r", "fields": [{"name": "f", "type": "null"}]}
DEEP = {"type": "record", "name": "r", "fields": [{"name": "f", "type": {"type": "map", "values": "r"}}]}


@pytest.mark.parametrize(
    ("classifier", "body"),
    [
        (to_service_name(), b"<message><toServiceName>\n //n </toServiceName></message>"),
        (to_service_name(), TWO),
        (to_service_name(), WIDE),
        (to_service_name(), b"<message><toServiceName>/<b>/</b><![CDATA[n]]></toServiceName></message>"),
        (
            to_service_name(),
            f"{SHIFT_JIS}<message>\u30bd<toServiceName>//n</toServiceName></message>".encode("shift_jis"),
        ),
        (xpath("/order/@to"), b"<order to='//n'/>"),
        (xpath("/order/@to"), " <order to='//n'/>".encode("utf-16-le")),
        (xpath("substring(/order, 2)"), f"{SHIFT_JIS}<order>\u30bd//n</order>".encode("shift_jis")),
        (xpath("//to[2] | //none"), b"<order><to>//x</to><to>//n</to></order>"),
        (xpath("/o:order/o:to", namespaces={"o": "urn:o"}), b"<order xmlns='urn:o'><to> //n</to></order>"),
        (xpath("concat('//', /order)"), b"<order>n</order>"),
        (json_path("$.order['the to'][-1]"), b'{"order": {"the to": ["//x", "//n"]}}'),
        (json_path("$"), b'"//n"'),
        (json_path("$.a"), b'{"a": "//n", "b": [' + b"[[" * 63 + b"]]" * 63 + b"]}"),
        (json_path("$.a"), b'{"b": "' + b"[" * 500 + b'", "a": "//n"}'),
        (json_path(r"""$["a\u0062"]['it\'s "so"']"""), b'{"ab": {"it\'s \\"so\\"": "//n"}}'),
        (avro_field("customer.region", ORDER_SCHEMA), datum("//n")),
        (regular_expression("to=(\\S+)"), b"x to=//n to=//z"),
        (regular_expression("(?P<a>t)o=(?P<key>\\S+)"), b"\xff to=//n"),
        (regular_expression("//[a-z]"), b"go //n //z"),
        (key_hash(["//n"]), b""),
    ],
)
def test_a_key_without_a_table_is_the_name_of_the_service(classifier: Classifier, body: bytes) -> None:
    assert classifier(Letter(body)) == Target("//n")


@pytest.mark.parametrize(
    ("classifier", "body", "service"),
    [
        (json_path("$.a", table=REGIONS), b'{"a": 7}', "//seven"),
        (json_path("$.a", table=REGIONS), b'{"a": true}', "//yes"),
        (xpath("count(//a)", table=REGIONS), b"<x>" + b"<a/>" * 7 + b"</x>", "//seven"),
        (xpath("//a = 1", table=REGIONS), b"<a>1</a>", "//yes"),
        (avro_field("number", ORDER_SCHEMA, table=REGIONS), datum(None), "//seven"),
        (to_service_name(table=REGIONS), b"<message><toServiceName>north</toServiceName></message>", "//n"),
        (regular_expression("^[a-z]+", table=REGIONS), b"north 5", "//n"),
    ],
)
def test_a_key_is_looked_up_in_the_table(classifier: Classifier, body: bytes, service: str) -> None:
    assert classifier(Letter(body)) == Target(service)


@pytest.mark.parametrize(
    ("classifier", "body", "why"),
    [
        (to_service_name(), b"<message/>", "no element /message/toServiceName"),
        (to_service_name(), b"", "not an XML document"),
        (to_service_name(), b"<message><toServiceName/></message>", "key is empty"),
        (to_service_name(), b"<!DOCTYPE m [<!ENTITY a 'b'>]><message/>", "document type"),
        (to_service_name(), b"<a>" * 200, "nested deeper than"),
        (to_service_name(), b"<?xml version='1.0' encoding='nobody knows'?><message/>", "not an XML document"),
        (to_service_name(), b"<message><toServiceName>a\nb</toServiceName></message>", "not a valid name of a service"),
        (to_service_name(), b"<?xml version='2.0'?><message/>", "version 2.0"),
        (xpath("/a"), b"<b/>", "nothing at /a"),
        (xpath("/a"), b"<a", "not an XML document"),
        (xpath("/a"), b"<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>", "document type"),
        (xpath("/a"), b"<a>" * 200 + b"</a>" * 200, "nested deeper than"),
        (json_path("$.a"), b"{}", r"nothing at \$\.a"),
        (json_path("$.a[2]"), b'{"a": [1, 2]}', "nothing at"),
        (json_path("$[0]"), b'{"0": 1}', "nothing at"),
        (json_path("$.a"), b'{"a": null}', r"at \$\.a is null"),
        (json_path("$.a"), b'{"a": 1.5}', "is float"),
        (json_path("$.a"), b'{"a": []}', "is list"),
        (json_path("$.a"), b'{"a": "\\ud800"}', "surrogate"),
        (json_path("$.a"), b'{"a": NaN}', "NaN is not a valid number"),
        (json_path("$.a"), b'{"a": "' + b"x" * (ROUTING_KEY_BYTES_MAX + 1) + b'"}', "2049 bytes"),
        (json_path("$.a"), b"[" * 300_000, "nested deeper than"),
        (json_path("$.a"), b'{"a": "//n", "b": ' + b"[" * 128 + b"]" * 128 + b"}", "nested deeper than 128"),
        (json_path("$.a"), b'{"a": ' + b"1" * 5_000 + b"}", "not a valid JSON document"),
        (json_path("$.a"), b"\xff", "not a valid JSON document"),
        (avro_field("customer.region", ORDER_SCHEMA), datum(None), "is null"),
        (avro_field("customer.share", ORDER_SCHEMA), datum(None), "is float"),
        (avro_field("customer.name", ORDER_SCHEMA), datum(None), "no field customer.name"),
        (avro_field("number", ORDER_SCHEMA), datum(None)[:-1], "not a valid datum"),
        (avro_field("number", ORDER_SCHEMA), datum(None) + b"x", "1 byte after"),
        (regular_expression("a(b)?"), b"xa", "no such group"),
        (regular_expression("a"), b"x", "Nothing in the body matches a"),
        (regular_expression("to=(?s:.)(.*)"), b"to=\xc3", "Nothing"),
    ],
)
def test_a_message_without_a_key_is_unclassifiable_with_a_reason(classifier: Classifier, body: bytes, why: str) -> None:
    assert re.search(why, reason(classifier, body))


def test_a_number_of_avro_symbols_and_texts_are_keys() -> None:
    classifier = avro_field("customer.region", ORDER_SCHEMA)
    assert classifier.explain(Letter(datum("BALTIC"))).key == "BALTIC"


def test_an_expression_cannot_take_time_that_a_body_chooses() -> None:
    assert "Nothing" in reason(regular_expression("^(a+)+$"), b"a" * 500_000 + b"b")


def test_the_schema_of_a_message_type_is_taken_where_none_is_given() -> None:
    classifier = avro_field("customer.region")
    with pytest.raises(InvalidSettings, match="no schema"):
        classifier(Letter(datum("//n")))
    bound = classifier.bound(lookup(services=("//n",), schema=ORDER_SCHEMA))
    assert bound(Letter(datum("//n"))) == Target("//n")
    decision = bound(Letter(datum("//n"), "Invoice"))
    assert decision == Unclassifiable("Message type 'Invoice' has no Avro schema.")


def test_a_service_that_a_body_names_and_that_is_not_there_is_unclassifiable() -> None:
    bound = json_path("$").bound(lookup(services=("//n",)))
    assert bound(Letter(b'"//n"')) == Target("//n")
    assert bound(Letter(b'"//z"')) == Unclassifiable("There is no service '//z'.")


def test_a_table_is_the_one_of_the_catalog_as_it_is_now() -> None:
    classifier = json_path("$", table="Regions")
    with pytest.raises(InvalidSettings, match="no catalog"):
        classifier(Letter(b'"north"'))
    with pytest.raises(RoutingTableNotFound):
        classifier.bound(lookup())(Letter(b'"north"'))
    bound = classifier.bound(lookup(REGIONS))
    assert bound.explain(Letter(b'"north"')) == Explanation(Target("//n"), "north", "Regions", 1)
    unknown = bound.explain(Letter(b'"east"'))
    assert unknown.decision == Unclassifiable("Routing table 'Regions' (version 1) has no service for key 'east'.")
    assert unknown[1:] == ("east", "Regions", 1, False)


def test_a_key_that_the_table_lacks_has_its_default() -> None:
    table = table_of("Regions", {"north": Target("//n")}, Target("//rest"))
    classifier = json_path("$", table=table)
    assert classifier.explain(Letter(b'"east"')) == Explanation(Target("//rest"), "east", "Regions", 1, by_default=True)
    assert isinstance(classifier(Letter(b"{}")), Unclassifiable), "no key is not another key"


def test_targets_are_known_where_bodies_do_not_name_them() -> None:
    assert key_hash(["//a", "//b"]).targets() == frozenset({"//a", "//b"})
    assert json_path("$").targets() is None
    assert json_path("$", table="Regions").targets() is None
    assert json_path("$", table="Regions").bound(lookup(REGIONS)).targets() == frozenset({"//n", "//seven", "//yes"})


def test_a_dialog_without_a_key_is_placed_by_its_id() -> None:
    services = [f"//{number}" for number in range(64)]
    classifier = key_hash(services)
    same = {classifier(Letter(b"", dialog=Dialog(b"k", bytes([number]) * 16))) for number in range(9)}
    other = {classifier(Letter(b"", dialog=Dialog(None, bytes([number]) * 16))) for number in range(9)}
    assert (len(same), len(other) > 4) == (1, True)


CLASSIFIERS = [
    to_service_name(),
    xpath("/a", namespaces={"o": "urn:o"}, table="Regions"),
    json_path("$.a", table="Regions"),
    avro_field("a.b"),
    avro_field("a", '"string"'),
    regular_expression("a(b)"),
    key_hash(["//a", "//b"]),
]


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=repr)
def test_a_classifier_is_described_by_data_and_made_of_them_again(classifier: Classifier) -> None:
    described = classifier.described()
    assert json.loads(json.dumps(described)) == described
    assert parse(described).described() == described
    assert parse(json.dumps(described)).described() == described
    assert pickle.loads(pickle.dumps(classifier)).described() == described


def test_a_classifier_takes_its_own_table_along_and_leaves_the_catalog_behind() -> None:
    there = pickle.loads(pickle.dumps(json_path("$", table=REGIONS).bound(lookup())))
    assert there(Letter(b'"north"')) == Target("//n")
    named = pickle.loads(pickle.dumps(json_path("$", table="Regions").bound(lookup(REGIONS))))
    with pytest.raises(InvalidSettings, match="no catalog"):
        named(Letter(b'"north"'))


@pytest.mark.parametrize(
    ("short", "described"),
    [
        ("to_service_name", {"kind": "to_service_name"}),
        ("xpath:/a:b", {"kind": "xpath", "expression": "/a:b"}),
        ("json_path:$.a", {"kind": "json_path", "path": "$.a"}),
        ("avro_field:a", {"kind": "avro_field", "field": "a"}),
        ("regular_expression:a:(b)", {"kind": "regular_expression", "pattern": "a:(b)"}),
        ("key_hash://a,//b", {"kind": "key_hash", "services": ["//a", "//b"]}),
    ],
)
def test_a_classifier_has_a_short_form(short: str, described: dict[str, Any]) -> None:
    if short.startswith("xpath"):
        described, short = {"kind": "xpath", "expression": "/a/b"}, "xpath:/a/b"
    assert parse(short).described() == described


@pytest.mark.parametrize(
    ("description", "says"),
    [
        ("path:$", "not a kind of classifier; there are to_service_name, xpath"),
        ("to_service_name:x", "no argument after a colon"),
        ("xpath", "needs 'expression'"),
        ("{", "not a valid JSON document"),
        ({"path": "$"}, "None is not a kind"),
        ({"kind": "json_path", "path": 7}, "a string, not 7"),
        ({"kind": "json_path", "path": "$", "every": 7}, "takes no argument 'every'; its arguments: path, table"),
        ({"kind": "key_hash", "services": "a"}, "a list of strings"),
        ({"kind": "xpath", "expression": "/a", "namespaces": []}, "an object of strings"),
        ({"kind": "key_hash", "services": []}, "one service or more"),
        ({"kind": "key_hash", "services": ["a", "a"]}, "each of them once"),
    ],
)
def test_an_invalid_classifier_description_is_refused_with_the_reason(description: Any, says: str) -> None:
    with pytest.raises(InvalidSettings, match=re.escape(says)):
        parse(description)


@pytest.mark.parametrize("expression", ["", " ", "a,b", "a)|(b", "foo()", "x:a", "$v", "a["])
def test_an_invalid_xpath_expression_is_refused(expression: str) -> None:
    with pytest.raises(InvalidSettings, match=re.escape(f"{expression!r} is not a valid expression of XPath 1.0")):
        xpath(expression)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "$.",
        "$..a",
        "$.*",
        "$[*]",
        "$[1:2]",
        "$[?@.a]",
        "$['a','b']",
        "$[01]",
        "$[-0]",
        "$.a ",
        "$['\\x']",
        '$["\\\'"]',
        "$['\\\"']",
        "$['\\ud800']",
        "$[9007199254740992]",
        "$. a",
        "$.1",
    ],
)
def test_a_path_that_is_not_a_singular_jsonpath_is_refused(path: str) -> None:
    with pytest.raises(InvalidSettings, match=r"is not a (valid )?JSONPath"):
        json_path(path)


@pytest.mark.parametrize("pattern", ["(a", "(a)\\1", "a(?=b)", "a{1001}", "\udcff"])
def test_a_pattern_that_re2_does_not_support_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidSettings, match="not a valid regular expression of RE2"):
        regular_expression(pattern)


def doubling(records: int, leaf: Any) -> Any:
    """A record with two fields of a record with two fields … of a leaf."""
    for number in range(records):
        name = f"R{number}"
        again = leaf if number == 0 else f"R{number - 1}"
        fields = [{"name": "f", "type": leaf}, {"name": "g", "type": again}]
        leaf = {"type": "record", "name": name, "fields": fields}
    return leaf


def padded(fields: int) -> Any:
    """A record with fields that have no bytes, and one that has a byte."""
    nothing = [{"name": f"f{number}", "type": "null"} for number in range(fields)]
    return {"type": "record", "name": "Padded", "fields": [*nothing, {"name": "g", "type": "boolean"}]}


def test_items_may_have_a_few_fields_without_bytes() -> None:
    fields = [{"name": "f", "type": "string"}, {"name": "items", "type": {"type": "array", "items": padded(16)}}]
    classify = avro_field("f", json.dumps({"type": "record", "name": "Whole", "fields": fields}))
    assert classify(Letter(b"\x02a\x04\x01\x00\x00")) == Target("a")


def test_a_record_may_be_used_by_many_fields() -> None:
    classify = avro_field(".".join(["g"] * 9 + ["f"]), json.dumps(doubling(10, "string")))
    letters = [chr(ord("a") + number % 26) for number in range(1 << 10)]
    assert classify(Letter(b"".join(b"\x02" + letter.encode() for letter in letters))) == Target(letters[-2])


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "cannot be used"),
        ('"nothing"', "cannot be used"),
        ('{"type": "array", "items": "null"}', "have no bytes"),
        (json.dumps({"type": "array", "items": NOTHING}), "have no bytes"),
        (
            json.dumps({"type": "array", "items": padded(17)}),
            "has 17 fields without bytes.*; 16 such fields are the most",
        ),
        (json.dumps({"type": "map", "values": ["null", padded(17)]}), "has 17 fields without bytes"),
        (json.dumps(DEEP), "as deep"),
        (json.dumps(doubling(30, "null")), "fields, those of its records included; 10,000 are the most"),
        (json.dumps(doubling(30, "string")), "fields, those of its records included; 10,000 are the most"),
    ],
)
def test_a_schema_by_which_a_small_body_is_a_large_datum_is_refused(schema: str, says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        avro_field("f", schema)


def test_a_schema_of_too_deeply_nested_types_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="nested too deeply"):
        avro_field("f", '{"type": "array", "items": ' * 600 + '"string"' + "}" * 600)


def test_names_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidName):
        to_service_name(table="")
    with pytest.raises(InvalidName):
        key_hash([""])
    with pytest.raises(InvalidSettings, match="names no field"):
        avro_field("a..b")


@pytest.mark.parametrize(("module", "make"), [("lxml", lambda: xpath("/a")), ("re2", lambda: regular_expression("a"))])
def test_a_classifier_without_its_library_names_the_package_to_install(
    module: str, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NotInstalled, match=re.escape("pip install 'konverse[routing]'")):
        make()
