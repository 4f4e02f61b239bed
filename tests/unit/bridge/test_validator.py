"""Bodies against schemas, in the validating process, and hostile bodies and schemas (behaviour 5)."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from typing import Any, Final

import pytest

from konverse.bridge.validation import validator as module
from konverse.bridge.validation.rules import MissingLibrary, SchemaRule, check_of
from konverse.bridge.validation.validator import BodyFinding, EncodedRule, Validator
from konverse.bridge.validation.worker import ANSWER, AnswerKind, CheckCache, RequestKind
from konverse.schemas.catalog.objects import Validation
from konverse.schemas.errors import InvalidSchema, ValidatorUnavailable
from konverse.schemas.limits import COMPILED_SCHEMA_ENTRIES_MAX, FAULT_CHARACTERS_MAX, XML_DEPTH_ENTRIES_MAX

XML, JSON, AVRO = Validation.VALID_XML, Validation.JSON_SCHEMA, Validation.AVRO

XSD: Final = 'xmlns:xs="http://www.w3.org/2001/XMLSchema"'
ORDERS: Final = f"""<xs:schema {XSD} targetNamespace="urn:orders" xmlns:a="urn:address" elementFormDefault="qualified">
  <xs:import namespace="urn:address" schemaLocation="http://127.0.0.1:9/address.xsd"/>
  <xs:element name="order"><xs:complexType><xs:sequence>
    <xs:element name="pieces" type="xs:positiveInteger"/><xs:element ref="a:city" minOccurs="0"/>
  </xs:sequence></xs:complexType></xs:element>
</xs:schema>"""
CITY: Final = f'<xs:schema {XSD} targetNamespace="urn:address"><xs:element name="city" type="xs:string"/></xs:schema>'
STREET: Final = f'<xs:schema {XSD} targetNamespace="urn:address"><xs:element name="street" type="xs:int"/></xs:schema>'
PLAIN: Final = f'<xs:schema {XSD}><xs:element name="plain" type="xs:int"/></xs:schema>'

ORDER_JSON: Final = json.dumps(
    {
        "type": "object",
        "properties": {"pieces": {"type": "integer", "minimum": 1}, "lines": {"items": {"$ref": "#/$defs/line"}}},
        "required": ["pieces"],
        "$defs": {"line": {"type": "string"}},
    }
)
ORDER_AVRO: Final = json.dumps(
    {
        "type": "record",
        "name": "order",
        "fields": [{"name": "pieces", "type": "long"}, {"name": "to", "type": "string"}],
    }
)
OTHER_FIELD: Final = '{"name": "o", "type": "o"}'


def avro_record(field: str, name: str = "o") -> str:
    """A schema of a record with this one field."""
    return f'{{"type": "record", "name": "{name}", "fields": [{field}]}}'


NESTED_AVRO: Final = json.dumps({"type": "record", "name": "o", "fields": [{"name": "o", "type": ["null", "o"]}]})


@pytest.fixture(scope="module")
def validator() -> Iterator[Validator]:
    made = Validator()
    yield made
    made.close()


def schema(content: str, attributes: str = "") -> str:
    """An XML Schema document."""
    return f"<xs:schema {XSD} {attributes}>{content}</xs:schema>"


def order(pieces: object, more: str = "") -> bytes:
    """An order in XML."""
    return f'<order xmlns="urn:orders"><pieces>{pieces}</pieces>{more}</order>'.encode()


# ------------------------------------------------------------------------------------------------------- in process


@pytest.mark.parametrize(
    ("documents", "body", "words"),
    [
        ((ORDERS, CITY), order(3), ""),
        ((CITY, ORDERS), order(3, '<city xmlns="urn:address">Ulm</city>'), ""),
        ((ORDERS, CITY), order("many"), "'many' is not a valid value"),
        ((ORDERS, CITY), order(0), "'0' is not a valid value"),
        ((ORDERS, CITY), order(3, "<city/>"), "not expected"),
        ((ORDERS, CITY), b"<order/>", "No matching global declaration"),
        ((ORDERS, CITY), b"<order", "unclosed token"),
        ((ORDERS, CITY), b"", "no element found"),
        ((ORDERS, CITY, STREET), b'<street xmlns="urn:address">3</street>', ""),
        ((ORDERS, CITY, STREET), b'<street xmlns="urn:address">Elm</street>', "'Elm' is not a valid value"),
        ((PLAIN, CITY), b"<plain>3</plain>", ""),
        ((PLAIN, CITY), "<?xml version='1.0' encoding='utf-16'?><plain>3</plain>".encode("utf-16"), ""),
    ],
)
def test_xml_is_held_against_the_documents_of_a_collection(documents: tuple[str, ...], body: bytes, words: str) -> None:
    fault = check_of(SchemaRule(XML, documents))(body)
    assert words in fault
    assert bool(words) == bool(fault)


def test_the_fault_of_an_xml_body_quotes_no_earlier_body() -> None:
    check = check_of(SchemaRule(XML, (PLAIN,)))
    assert "'Elm Street' is not a valid value" in check(b"<plain>Elm Street</plain>")
    for own in ("1_Ulm", "2_Bern"):
        fault = check(f"<plain>3</plain_{own}>".encode())
        assert "mismatched tag" in fault
        assert "Elm Street" not in fault
        fault = check(f'<plain b_{own}="">3</plain>'.encode())
        assert f"attribute 'b_{own}'" in fault
        assert "Elm Street" not in fault
        assert own == "1_Ulm" or "1_Ulm" not in fault
    assert "'Oak Street' is not a valid value" in check(b"<plain>Oak Street</plain>")


def test_the_fault_of_a_schema_document_quotes_no_earlier_one() -> None:
    for own, other in ("1 Ulm", "2 Bern"), ("2 Bern", "1 Ulm"):
        with pytest.raises(InvalidSchema, match=f"attribute value {own} is not an NCName") as raised:
            check_of(SchemaRule(XML, (schema(f'<xs:element name="a" xml:id="{own}"/>'),)))
        assert other not in str(raised.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"pieces": 3, "lines": ["a"]}', ""),
        ('{"pieces": 3, "to": "Zürich"}'.encode(), ""),
        (b'{"pieces": 0}', "less than the minimum"),
        (b'{"lines": []}', "required"),
        (b'{"pieces": 3, "lines": [4]}', "['lines'][0]"),
        (b"[]", 'not of type "object"'),
        (b'{"pieces": NaN}', "NaN is not a valid number"),
        (b'{"pieces": 3', "not a JSON document"),
        (b"", "not a JSON document"),
        (b'{"pieces": 3, "to": "\xff"}', "not a JSON document"),
        (b'{"pieces": 3, "to": %s}' % (b"[" * 128 + b"]" * 128), "more than 128"),
        (b'{"pieces": 3, "to": %s}' % (b"[" * 126 + b"]" * 126), ""),
        (b"[" * 500_000, "more than 128"),
        (b'{"pieces": %s}' % (b"9" * 10_000), "not a JSON document"),
    ],
)
def test_json_is_held_against_its_schema(body: bytes, words: str) -> None:
    fault = check_of(SchemaRule(JSON, (ORDER_JSON,)))(body)
    assert words in fault
    assert bool(words) == bool(fault)


@pytest.mark.parametrize(
    "inner", ['["null", "o"]', '{"type": "array", "items": "o"}', '{"type": "map", "values": "o"}']
)
def test_an_avro_record_may_have_others_of_its_kind_in_it_when_that_ends_somewhere(inner: str) -> None:
    document = f'{{"type": "record", "name": "o", "namespace": "n", "fields": [{{"name": "o", "type": {inner}}}]}}'
    assert check_of(SchemaRule(AVRO, (document,)))(b"\x00") == ""


@pytest.mark.parametrize("body", [rb'"\ud800"', rb'{"\udfff": 1}', rb'["\ud800\ud800"]'])
def test_half_of_a_surrogate_pair_is_no_json(body: bytes) -> None:
    assert "half of a surrogate pair" in check_of(SchemaRule(JSON, ("{}",)))(body)
    assert check_of(SchemaRule(JSON, ("{}",)))(rb'"\ud83d\ude00"') == ""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\x06\x04ab", ""),
        (b"\x06\x04abc", "1 byte after"),
        (b"\x06\x04a", "not a datum"),
        (b"\x06\x04\xff\xff", "not a datum"),
        (b"\x06\x03", "not a datum"),
        (b"", "not a datum"),
    ],
)
def test_avro_is_one_datum_of_its_schema(body: bytes, words: str) -> None:
    fault = check_of(SchemaRule(AVRO, (ORDER_AVRO,)))(body)
    assert words in fault
    assert bool(words) == bool(fault)


@pytest.mark.parametrize(
    ("validation", "document", "words"),
    [
        (XML, "<schema/>", "not an XML Schema"),
        (XML, "no XML", "is not an XML document"),
        (XML, '<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><a>&e;</a>', "a document type declaration"),
        (
            XML,
            schema('<xs:element name="a" xml:id="1 b"/>'),
            "schema document 0 cannot be used: xml:id : attribute value 1 b",
        ),
        (XML, schema('<xs:element name="a" type="xs:nothing"/>'), "does not resolve"),
        (XML, schema('<xs:include schemaLocation="file:///etc/passwd"/>'), "xs:include, and nothing is fetched"),
        (XML, schema('<xs:redefine schemaLocation="http://127.0.0.1:9/a"/>'), "xs:redefine, and nothing is fetched"),
        (
            XML,
            schema(
                '<xs:import namespace="urn:z" schemaLocation="/etc/passwd"/><xs:element name="a" type="z:t"/>'
            ).replace("<xs:schema ", '<xs:schema xmlns:z="urn:z" '),
            "does not resolve",
        ),
        (JSON, "{", "is not a JSON document"),
        (JSON, "[" * 100_000, "nested too deeply"),
        (JSON, "3", "cannot be used"),
        (JSON, '{"type": "nothing"}', "cannot be used"),
        (JSON, '{"pattern": "("}', "regex"),
        (JSON, '{"$ref": "#/nowhere"}', "/nowhere"),
        (JSON, '{"$ref": "http://127.0.0.1:9/a"}', "nothing is fetched"),
        (JSON, '{"properties": {"a": {"$ref": "file:///etc/passwd"}}}', "nothing is fetched"),
        (JSON, '{"$schema": "urn:unknown"}', "urn:unknown"),
        (AVRO, '"nothing"', "'nothing', which is not in it"),
        (AVRO, "{}", "cannot be used"),
        (AVRO, "3", "cannot be used"),
        (AVRO, "{", "is not a JSON document"),
        (AVRO, '{"type": "record", "name": "o"}', "record 'o' has no 'fields'"),
        (AVRO, '{"type": "record", "fields": []}', "record '' has no 'name'"),
        (AVRO, '[{"type": "map"}]', "map '' has no 'values'"),
        (AVRO, '{"type": "array", "items": {"type": "fixed", "name": "f"}}', "fixed 'f' has no 'size'"),
        (AVRO, avro_record('{"name": "a"}'), "a field of record 'o' lacks name or type"),
        (AVRO, avro_record("3"), "a field of record 'o' lacks name or type"),
        (AVRO, avro_record('{"name": "a", "type": {"type": "enum", "name": "e"}}'), "enum 'e' has no 'symbols'"),
        (AVRO, avro_record('{"name": "o", "type": "o"}'), "record 'o' would contain itself"),
        (AVRO, avro_record('{"name": "o", "type": ["o"]}'), "record 'o' would contain itself"),
        (
            AVRO,
            avro_record(f'{{"name": "p", "type": {avro_record(OTHER_FIELD, "p")}}}'),
            "record 'o' would contain itself",
        ),
    ],
)
def test_a_schema_that_cannot_be_read_or_leads_elsewhere_is_refused(
    validation: Validation, document: str, words: str
) -> None:
    with pytest.raises(InvalidSchema, match=words.replace("(", r"\(")):
        check_of(SchemaRule(validation, (document,)))


def test_the_error_for_a_missing_library_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lxml.etree", None)
    with pytest.raises(MissingLibrary, match=r"pip install 'konverse\[validation\]'"):
        check_of(SchemaRule(XML, (PLAIN,)))
    assert CheckCache().answer(RequestKind.READ, b"d", SchemaRule(XML, (PLAIN,)).encoded())[0] is AnswerKind.MISSING


def test_only_so_many_schemas_are_held_ready_and_the_one_in_use_is_kept() -> None:
    checks = CheckCache()
    for number in range(COMPILED_SCHEMA_ENTRIES_MAX + 1):
        digest = number.to_bytes(32, "big")
        assert checks.answer(RequestKind.READ, digest, SchemaRule(AVRO, ('"long"',)).encoded())[0] is AnswerKind.FINE
        assert checks.answer(RequestKind.CHECK, bytes(32), b"\x06")[0] is AnswerKind.FINE
    assert checks.answer(RequestKind.CHECK, (1).to_bytes(32, "big"), b"\x06")[0] is AnswerKind.UNKNOWN


# ------------------------------------------------------------------------------------------------------ in its own


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (SchemaRule(XML, (ORDERS, CITY)), order(3), order("many")),
        (SchemaRule(JSON, (ORDER_JSON,)), b'{"pieces": 3}', b'{"pieces": "many"}'),
        (SchemaRule(AVRO, (ORDER_AVRO,)), b"\x06\x00", b"\x06"),
    ],
)
def test_the_process_answers_as_the_check_does(validator: Validator, rule: SchemaRule, good: bytes, bad: bytes) -> None:
    known = EncodedRule.of(rule)
    validator.check(known)
    assert validator.validate(known, good) == BodyFinding("")
    assert validator.validate(known, bad) == BodyFinding(check_of(rule)(bad))


@pytest.mark.parametrize(
    "body",
    [
        b"<!DOCTYPE a [<!ENTITY a 'aaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'><!ENTITY c '&b;&b;&b;'>]><plain>&c;</plain>",
        b"<!DOCTYPE plain SYSTEM 'http://127.0.0.1:9/a.dtd'><plain>3</plain>",
        b"<!DOCTYPE plain [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><plain>&e;</plain>",
        b"<!DOCTYPE plain [<!ENTITY % e SYSTEM 'file:///etc/passwd'> %e;]><plain>3</plain>",
        b"<plain>" * (XML_DEPTH_ENTRIES_MAX + 1) + b"</plain>" * (XML_DEPTH_ENTRIES_MAX + 1),
        b"<plain " + b" ".join(b"a%d=''" % number for number in range(50_000)) + b">3</plain>",
    ],
)
def test_hostile_xml_is_refused_by_a_process_that_lives_on(validator: Validator, body: bytes) -> None:
    known, deaths = EncodedRule.of(SchemaRule(XML, (PLAIN,))), validator.deaths
    fault, examined = validator.validate(known, body)
    assert fault
    assert examined
    assert validator.validate(known, b"<plain>3</plain>") == BodyFinding("")
    assert validator.deaths == deaths


def test_a_schema_location_in_a_document_is_not_opened(validator: Validator) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        place = f"http://127.0.0.1:{server.getsockname()[1]}/a.xsd"
        xsi = "xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance'"
        body = f"<plain {xsi} xsi:noNamespaceSchemaLocation='{place}' xsi:schemaLocation='urn:a {place}'>3</plain>"
        assert validator.validate(EncodedRule.of(SchemaRule(XML, (PLAIN,))), body.encode()) == BodyFinding("")
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        (SchemaRule(AVRO, ('{"type": "array", "items": "null"}',)), b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00"),
        (
            SchemaRule(AVRO, ('{"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}',)),
            b"\xfe" * 8 + b"\x7f",
        ),
    ],
)
def test_a_body_that_takes_for_ever_gets_a_verdict_and_others_are_validated_after_it(
    validator: Validator, rule: SchemaRule, body: bytes
) -> None:
    fault, examined = validator.validate(EncodedRule.of(rule), body)
    assert not examined
    assert "than is allowed" in fault
    assert validator.validate(EncodedRule.of(SchemaRule(XML, (PLAIN,))), b"<plain>3</plain>") == BodyFinding("")


def test_a_body_that_kills_the_process_gets_a_verdict(validator: Validator) -> None:
    deaths = validator.deaths
    fault, examined = validator.validate(EncodedRule.of(SchemaRule(AVRO, (NESTED_AVRO,))), b"\x02" * 900_000)
    assert not examined
    assert "has died" in fault
    assert validator.deaths == deaths + 2
    assert validator.validate(EncodedRule.of(SchemaRule(XML, (PLAIN,))), b"<plain>3</plain>") == BodyFinding("")


def test_a_schema_that_takes_for_ever_is_refused(validator: Validator) -> None:
    parts = "".join(f'<xs:element name="e{number}" minOccurs="0"/>' for number in range(4_000))
    hostile = f'<xs:element name="a"><xs:complexType><xs:sequence>{parts}</xs:sequence></xs:complexType></xs:element>'
    with pytest.raises(InvalidSchema, match="more processor time than is allowed"):
        validator.check(EncodedRule.of(SchemaRule(XML, (schema(hostile),))))


def test_a_process_that_was_killed_by_chance_is_followed_by_another(validator: Validator) -> None:
    known = EncodedRule.of(SchemaRule(XML, (PLAIN,)))
    assert validator.validate(known, b"<plain>3</plain>") == BodyFinding("")
    process: Any = validator._process
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert validator.validate(known, b"<plain>3</plain>") == BodyFinding("")
    assert validator._process is not process


def test_an_unresponsive_validator_is_replaced_and_its_body_is_not_rejected() -> None:
    known, validator = EncodedRule.of(SchemaRule(AVRO, ('"long"',))), Validator()
    assert validator.validate(known, b"\x06") == BodyFinding("")
    validator._connected().settimeout(0.2)
    process: Any = validator._process
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(ValidatorUnavailable, match="has not answered"):
        validator.validate(known, b"\x06")
    assert process.returncode == -signal.SIGKILL
    assert validator.validate(known, b"\x06") == BodyFinding("")
    validator.close()


def test_half_of_an_answer_does_not_make_a_body_valid() -> None:
    known, validator = EncodedRule.of(SchemaRule(AVRO, ('"long"',))), Validator()
    ours, theirs = socket.socketpair()
    validator._connection = ours
    with theirs:
        theirs.sendall(ANSWER.pack(AnswerKind.FAULT, 20) + b"not a dat")
        theirs.shutdown(socket.SHUT_WR)
        assert "not a datum" in validator.validate(known, b"").fault
    assert validator.deaths == 1
    validator.close()


@pytest.mark.parametrize("started", [True, False])
def test_the_answer_to_an_interrupted_request_is_not_taken_for_that_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch, started: bool
) -> None:
    """Ctrl-C comes while the application waits for the answer, or for the start of the process."""

    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    known, validator = EncodedRule.of(SchemaRule(AVRO, ('"long"',))), Validator()
    if started:
        assert validator.validate(known, b"\x06") == BodyFinding("")
    with monkeypatch.context() as patched:
        patched.setattr(module, "take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            validator.validate(known, b"\x06")
    assert "not a datum" in validator.validate(known, b"").fault
    assert validator.deaths == 0
    validator.close()


def test_the_process_ends_with_the_one_that_has_started_it() -> None:
    validator = Validator()
    assert validator.validate(EncodedRule.of(SchemaRule(AVRO, ('"long"',))), b"\x06") == BodyFinding("")
    process: Any = validator._process
    connection: Any = validator._connection
    connection.close()
    assert process.wait(20) == 0


@pytest.mark.parametrize("program", ["/bin/false", "/nowhere/python"])
def test_a_validator_that_cannot_be_started_raises_validator_unavailable(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr("sys.executable", program)
    validator = Validator()
    with pytest.raises(ValidatorUnavailable, match="be started"):
        validator.validate(EncodedRule.of(SchemaRule(AVRO, ('"long"',))), b"\x06")
    assert validator._process is None
    assert validator._connection is None


def test_words_about_a_body_cannot_write_into_a_log(validator: Validator) -> None:
    fault, _ = validator.validate(
        EncodedRule.of(SchemaRule(JSON, (ORDER_JSON,))), json.dumps("\n\x1b[31mERROR" + "x" * 9_999).encode()
    )
    assert fault.isprintable()
    assert len(fault) <= FAULT_CHARACTERS_MAX


def test_after_close_nothing_is_started() -> None:
    validator = Validator()
    validator.close()
    validator.close()
    with pytest.raises(ValidatorUnavailable, match="connect again"):
        validator.validate(EncodedRule.of(SchemaRule(AVRO, ('"long"',))), b"\x06")


def test_a_forked_child_leaves_the_process_to_its_parent() -> None:
    validator, known = Validator(), EncodedRule.of(SchemaRule(AVRO, ('"long"',)))
    assert validator.validate(known, b"\x06") == BodyFinding("")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads of other tests; the child does nothing
        child = os.fork()
    if child == 0:
        validator.after_fork()
        validator.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert validator.validate(known, b"\x06") == BodyFinding("")
    validator.close()


def test_threads_share_a_process(validator: Validator) -> None:
    known = EncodedRule.of(SchemaRule(AVRO, ('"long"',)))
    findings: list[bool] = []

    def look() -> None:
        findings.extend(validator.validate(known, b"\x06" * (1 + number % 2)).fault == "" for number in range(100))

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (findings.count(True), findings.count(False)) == (150, 150)
