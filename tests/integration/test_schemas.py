"""Message types with schemas, and broker priorities, on real servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from konverse.bridge.broker import Broker
from konverse.schemas.catalog.objects import MessageType
from konverse.schemas.catalog.priorities import BrokerPriority
from konverse.schemas.catalog.schema_collections import XmlSchemaCollection
from konverse.schemas.errors import (
    AlreadyExists,
    BadInput,
    ContractNotFound,
    InvalidPriority,
    InvalidSchema,
    NothingChanged,
    PriorityNotFound,
    PriorityTwice,
    SchemaCollectionNotFound,
    ServiceNotFound,
    StillUsed,
)
from konverse.schemas.system_messages import ERROR, read_error
from tests.kit.readme import readme
from tests.kit.servers import Servers
from tests.kit.shop import (
    ORDER,
    ORDER_SERVICE,
    ORDER_XSD,
    ORDERING,
    SHOP_SERVICE,
    begin,
    connected,
    open_shop,
    pumped,
    receive,
)

pytestmark = pytest.mark.stack

PIECES = {"type": "object", "properties": {"pieces": {"type": "integer", "minimum": 1}}, "required": ["pieces"]}
NULLS = {"type": "array", "items": "null"}


@pytest.fixture
def shop(servers: Servers, database: str) -> Iterator[Broker]:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        yield broker


def sent(broker: Broker, *bodies: bytes) -> tuple[list[tuple[str, bytes]], tuple[int, str]]:
    """The received orders as type and body, and the Error that their sender gets."""
    dialog = begin(broker)
    for body in bodies:
        dialog.send(ORDER, body)
    broker.flush()
    with broker.reader("Orders") as orders, pumped(orders):
        (error,) = receive(broker, "Shop", 1)
    assert error.type == ERROR
    messages = receive(broker, "Orders", 2)
    return [(each.validation, each.body) for each in messages if each.type == ORDER], read_error(error.body)


@pytest.mark.parametrize(
    ("kind", "good", "bad", "code"),
    [
        (("JSON_SCHEMA", PIECES), b'{"pieces": 3}', b'{"pieces": 0}', -8430),
        (("AVRO", "long"), b"\x06", b"\x06\x06", -8430),
        (("AVRO", NULLS), b"\x00", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00", -9704),
    ],
)
def test_a_body_that_its_schema_forbids_or_that_takes_for_ever_is_rejected(
    shop: Broker, kind: tuple[str, object], good: bytes, bad: bytes, code: int
) -> None:
    validation, schema = kind
    shop.admin.alter_message_type(ORDER, validation, schema=json.dumps(schema))
    received, error = sent(shop, good, bad)
    assert received == [(validation[0], good)]
    assert error[0] == code
    if code == -9704:
        assert "more time or memory than is allowed" in error[1]


def test_a_collection_is_kept_while_it_is_used_and_can_be_added_to(servers: Servers, database: str) -> None:
    other = ORDER_XSD.replace("<xs:schema ", '<xs:schema targetNamespace="urn:other" ')
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        with pytest.raises(SchemaCollectionNotFound, match="create_xml_schema_collection"):
            broker.admin.alter_message_type(ORDER, "VALID_XML", schema_collection="Orders")
        with pytest.raises(InvalidSchema, match="not an XML Schema"):
            broker.admin.create_xml_schema_collection("Orders", ["<a/>"])
        broker.admin.create_xml_schema_collection("Orders", [ORDER_XSD])
        assert broker.admin.create_xml_schema_collection("Orders", [ORDER_XSD], if_not_exists=True).name == "Orders"
        with pytest.raises(AlreadyExists, match="documents"):
            broker.admin.create_xml_schema_collection("Orders", [other], if_not_exists=True)
        broker.admin.alter_message_type(ORDER, "VALID_XML", schema_collection="Orders")
        with pytest.raises(StillUsed, match=ORDER):
            broker.admin.drop_xml_schema_collection("Orders")
        for wrong, refusal in (([ORDER_XSD], InvalidSchema), (["<a/>"], InvalidSchema), ([], NothingChanged)):
            with pytest.raises(refusal):
                broker.admin.alter_xml_schema_collection("Orders", add=wrong)
        broker.admin.alter_xml_schema_collection("Orders", add=[other])
        good = b"<o:order xmlns:o='urn:other'><pieces>3</pieces></o:order>"
        assert sent(broker, good, good.replace(b"3", b"no"))[0] == [("X", good)]
        assert len(broker.catalog.get(XmlSchemaCollection, "Orders").documents) == 2
    with connected(servers.bootstrap, database) as broker:
        assert broker.catalog.get(MessageType, ORDER).schema_collection == "Orders"
        broker.admin.alter_message_type(ORDER, "NONE")
        broker.admin.drop_xml_schema_collection("Orders")
        with pytest.raises(SchemaCollectionNotFound):
            broker.admin.drop_xml_schema_collection("Orders")


def test_the_example_of_the_readme_runs(
    servers: Servers, database: str, shop: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    program = readme("import json\n", servers, database)
    exec(compile(program, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in lines) == ["//sales/Label", "//sales/Parcel", ERROR]
    assert "(-9615, " in next(line for line in lines if ERROR in line)


def test_a_schema_that_cannot_be_read_makes_no_message_type(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        for validation, schema in (("JSON_SCHEMA", '{"$ref": "http://127.0.0.1:9/a"}'), ("AVRO", '"nothing"')):
            with pytest.raises(InvalidSchema, match="nothing is fetched"):
                broker.admin.create_message_type(ORDER, validation, schema=schema)
        assert broker.catalog.find(MessageType, ORDER) is None


def test_priorities_are_created_altered_and_dropped(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        made = broker.admin.create_broker_priority("p", contract=ORDERING, remote_service="anywhere at all")
        assert made == BrokerPriority("p", ORDERING, "ANY", "anywhere at all", 5)
        altered = broker.admin.alter_broker_priority("p", local_service=ORDER_SERVICE, remote_service="ANY", level=10)
        assert altered == BrokerPriority("p", ORDERING, ORDER_SERVICE, "ANY", 10)
        with pytest.raises(PriorityTwice, match="'p'") as twice:
            broker.admin.create_broker_priority("q", contract=ORDERING, local_service=ORDER_SERVICE, level=1)
        assert twice.value.number == 33303
        broker.admin.create_broker_priority("q")
        with pytest.raises(PriorityTwice):
            broker.admin.alter_broker_priority("q", contract=ORDERING, local_service=ORDER_SERVICE)
        refused: list[tuple[dict[str, Any], type[BadInput]]] = [
            ({"level": 11}, InvalidPriority),
            ({"contract": "none"}, ContractNotFound),
            ({"local_service": SHOP_SERVICE.upper()}, ServiceNotFound),
            ({}, NothingChanged),
        ]
        for wrong, refusal in refused:
            with pytest.raises(refusal):
                broker.admin.alter_broker_priority("q", **wrong)
        assert [each.name for each in broker.catalog.all(BrokerPriority)] == ["p", "q"]
        broker.admin.drop_broker_priority("q")
        with pytest.raises(PriorityNotFound):
            broker.admin.drop_broker_priority("q")
