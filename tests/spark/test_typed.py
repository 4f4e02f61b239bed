"""Bodies as columns, by the catalog's schema of their message type."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pytest
from fastavro import parse_schema, schemaless_writer
from pyspark.sql import DataFrame, SparkSession

import konverse.spark
from konverse.bridge.broker import Broker
from konverse.bridge.validation.rules import SchemaRule
from konverse.schemas.catalog.objects import Validation
from konverse.schemas.errors import InvalidSchema, InvalidSettings, MessageTypeNotFound, ValidatorUnavailable
from konverse.spark import typed
from konverse.spark.connection import clients as bridging
from konverse.spark.connection.clients import schema_of
from konverse.spark.connection.settings import parse
from tests.kit.servers import Servers
from tests.kit.shop import NOTE, ORDER_XSD, SHOP_SERVICE

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

JSON, AVRO, XML, UNION = "//json/Order", "//avro/Order", "//xml/Order", "//json/Anything"

JSON_SCHEMA: Final = {"type": "object", "properties": {"pieces": {"type": "integer", "minimum": 1}}}
AVRO_SCHEMA: Final = {"type": "record", "name": "Order", "fields": [{"name": "pieces", "type": "int"}]}


def datum(pieces: int) -> bytes:
    body = BytesIO()
    schemaless_writer(body, parse_schema(AVRO_SCHEMA), {"pieces": pieces})
    return body.getvalue()


BODIES: Final = {
    JSON: [b'{"pieces": 1}', b'{"pieces": 0}', b"{", b"{}", b'{"pieces": 9223372036854775808}'],
    AVRO: [datum(1), datum(2) + b"?", b""],
    XML: [b"<order><pieces>1</pieces></order>", b"<order/>", b"<!DOCTYPE order><order/>"],
}


def ordered(shop: Broker) -> None:
    """Message types with schemas, and messages of each in one conversation."""
    shop.admin.create_xml_schema_collection("Orders", [ORDER_XSD])
    shop.admin.create_message_type(JSON, "JSON_SCHEMA", schema=json.dumps(JSON_SCHEMA))
    shop.admin.create_message_type(UNION, "JSON_SCHEMA", schema=json.dumps({"type": ["string", "integer"]}))
    shop.admin.create_message_type(AVRO, "AVRO", schema=json.dumps(AVRO_SCHEMA))
    shop.admin.create_message_type(XML, "VALID_XML", schema_collection="Orders")
    shop.admin.create_contract("//typed", dict.fromkeys(BODIES, "INITIATOR"))
    shop.admin.create_service("//typed/Service", queue="Orders", contracts=["//typed"])
    dialog = shop.begin_dialog(SHOP_SERVICE, "//typed/Service", "//typed")
    for name, bodies in BODIES.items():
        for body in bodies:
            dialog.send(name, body)
    shop.flush()


def read(spark: SparkSession, given: dict[str, str]) -> DataFrame:
    return spark.read.format("konverse").options(**given).load()


def values(frame: DataFrame) -> list[tuple[Any, str | None]]:
    """Value and fault by sequence, as plain values."""
    found = frame.orderBy("sequence").collect()
    return [(None if row["value"] is None else row["value"].asDict(), row["fault"]) for row in found]


def test_bodies_have_the_type_of_their_schema(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    ordered(shop)
    given = {"bootstrap": servers.bootstrap, "database": database, "queue": "Orders"}
    frame = read(spark, given)
    by_json = typed(frame, JSON, given)
    assert by_json.columns == [*frame.columns, "value", "fault"]
    found = values(by_json)
    assert [value for value, _ in found] == [{"pieces": 1}, None, None, {"pieces": None}, None]
    assert [fault is None for _, fault in found] == [True, False, False, True, False]
    assert "minimum" in str(found[1][1])
    assert str(found[2][1]).startswith("not a JSON document")
    assert "too large for a bigint" in str(found[4][1])
    found = values(typed(frame.select("sequence", "message_type", "body"), AVRO, given))
    assert [value for value, _ in found] == [{"pieces": 1}, None, None]
    assert found[1][1] == "1 byte after the datum of its Avro schema"
    by_xml = typed(frame, XML, given)
    assert by_xml.schema["value"].dataType.simpleString() == "struct<pieces:decimal(38,0)>"
    found = values(by_xml)
    assert [value for value, _ in found] == [{"pieces": 1}, None, None]
    assert "pieces" in str(found[1][1])
    assert found[2][1] == "a document type declaration, which is not allowed"
    refusals(frame, given)
    assert konverse.spark.typed is typed, "no module of that name takes its place"


def refusals(frame: DataFrame, given: dict[str, str]) -> None:
    """Check that invalid arguments of `typed` raise at the call."""
    for arguments, error, words in (
        ((frame, "//none", given), MessageTypeNotFound, "no message type '//none'"),
        ((frame, NOTE, given), InvalidSettings, f"message type '{NOTE}' has no schema to parse bodies by"),
        (
            (frame, UNION, given),
            InvalidSettings,
            r"'//json/Anything' do not fit a column: .* \$ may be integer or string",
        ),
        ((frame.drop("body"), JSON, given), InvalidSettings, "lacks the column 'body'"),
        ((frame.withColumnRenamed("kind", "fault"), JSON, given), InvalidSettings, "has a column 'fault' already"),
        ((frame, JSON, {"bootstrap": "b:1", "topic": "t"}), InvalidSettings, "a bare topic names no catalog"),
    ):
        with pytest.raises(error, match=words):
            typed(*arguments)
    with pytest.raises(InvalidSettings, match="has no root element to choose"):
        typed(frame, JSON, given, root="order")


def test_a_missing_schema_library_is_reported_with_the_extra_to_install(
    servers: Servers, shop: Broker, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.admin.create_message_type(JSON, "JSON_SCHEMA", schema=json.dumps(JSON_SCHEMA))
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['jsonschema_rs'] = None")
    monkeypatch.syspath_prepend(tmp_path)
    given = {"bootstrap": servers.bootstrap, "database": database, "queue": "Orders"}
    with pytest.raises(ValidatorUnavailable, match=r"without jsonschema-rs .*'konverse\[validation\]'"):
        schema_of(parse(given), JSON)


def test_a_schema_that_cannot_be_read_is_named_by_its_message_type(
    servers: Servers, shop: Broker, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidSchema, match="the schema is not a JSON document"):
        shop.admin.create_message_type(JSON, "JSON_SCHEMA", schema="{")
    shop.admin.create_message_type(JSON, "JSON_SCHEMA", schema=json.dumps(JSON_SCHEMA))
    monkeypatch.setattr(
        bridging, "rule_of", lambda *_: SchemaRule(Validation.JSON_SCHEMA, ("{",))
    )  # from a later version
    given = {"bootstrap": servers.bootstrap, "database": database, "queue": "Orders"}
    with pytest.raises(InvalidSchema, match=f"message type '{JSON}' .* the schema is not a JSON document"):
        schema_of(parse(given), JSON)
