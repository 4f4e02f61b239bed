"""Behaviours 1 to 10: names and message types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from konverse.bridge.broker import Broker
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.catalog.objects import Contract, MessageType, Validation
from konverse.schemas.catalog.priorities import BrokerPriority, level_of
from konverse.schemas.errors import (
    MessageTypeNotFound,
    NullBody,
    QueueNotFound,
    ServiceNotFound,
    StillUsed,
    SystemObject,
)
from konverse.schemas.system_messages import DEFAULT, DIALOG_TIMER, END_DIALOG, ERROR, read_error
from tests.kit.shop import (
    DEADLINE_S,
    NOTE,
    ORDER,
    ORDER_SERVICE,
    ORDER_XSD,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    begin,
    drain,
    fill,
    handle,
    pumped,
    receive,
    work,
)

pytestmark = pytest.mark.stack


def test_001_names_are_compared_byte_by_byte(broker: Broker) -> None:
    """In part: routes are not used for sending yet."""
    broker.admin.create_broker_priority("orders first", remote_service=ORDER_SERVICE, level=9)
    priorities = broker.catalog.all(BrokerPriority)
    for name, level in ((ORDER_SERVICE, 9), (ORDER_SERVICE.upper(), 5)):
        assert level_of(priorities, ORDERING, SHOP_SERVICE, name) == level
    with pytest.raises(ServiceNotFound, match="byte by byte"):
        broker.begin_dialog(SHOP_SERVICE.lower(), ORDER_SERVICE, ORDERING)
    with pytest.raises(ServiceNotFound):
        broker.begin_dialog(SHOP_SERVICE, ORDER_SERVICE.upper(), ORDERING)
    with pytest.raises(QueueNotFound):
        broker.reader("orders")
    with pytest.raises(MessageTypeNotFound):
        begin(broker).send(ORDER.lower())


def test_010_a_message_shows_the_validation_of_its_type(broker: Broker) -> None:
    dialog = begin(broker)
    for name, validation in ((ORDER, "EMPTY"), (NOTE, "WELL_FORMED_XML")):
        broker.admin.alter_message_type(name, validation)
    dialog.send(ORDER)
    dialog.send(NOTE, b"<note/>")
    broker.flush()  # else an END WITH ERROR would withdraw them
    dialog.end(error=1, description="no more")
    broker.flush()
    with broker.reader("Shop") as shop, pumped(shop):
        seen = {message.type: message.validation for message in receive(broker, "Orders", 3)}
    assert seen == {ORDER: "E", NOTE: "X", ERROR: "X"}


BOM = b"\xef\xbb\xbf"
"""Byte order mark of UTF-8."""


@pytest.mark.parametrize(
    "body", [b"", b"\x00\xff no text at all", b"<not xml", b" \r\n", BOM, "<a/>".encode("utf-16"), b"\xff\xfe"]
)
def test_002_a_type_without_validation_takes_any_body_and_none(broker: Broker, body: bytes) -> None:
    begin(broker).send(ORDER, body)
    broker.flush()
    assert [message.body for message in receive(broker, "Orders", 1)] == [body]


def test_008_a_database_is_born_with_the_type_and_the_contract_default(broker: Broker) -> None:
    born_with = {each.name for each in broker.catalog.all(MessageType)} - {ORDER, NOTE, RECEIPT}
    assert born_with == {DEFAULT, END_DIALOG, ERROR, DIALOG_TIMER}
    for system in (END_DIALOG, ERROR, DIALOG_TIMER):
        with pytest.raises(SystemObject):
            broker.admin.alter_message_type(system, "NONE")
        with pytest.raises(SystemObject):
            broker.admin.create_contract("//sales/Ending", {ORDER: "INITIATOR", system: "ANY"})
        with pytest.raises(StillUsed, match="every database"):
            broker.admin.drop_message_type(system)
    assert broker.catalog.get(MessageType, DEFAULT).validation is Validation.NONE
    assert {name: side.value for name, side in broker.catalog.get(Contract, DEFAULT).sent_by.items()} == {
        DEFAULT: "ANY"
    }
    broker.admin.create_service("//sales/Anything", queue="Orders", contracts=[DEFAULT])
    broker.begin_dialog(SHOP_SERVICE, "//sales/Anything").send(body=b"of the default type")
    broker.flush()
    assert [(message.type, message.body) for message in receive(broker, "Orders", 1)] == [
        (DEFAULT, b"of the default type")
    ]


def test_009_system_messages_arrive_under_every_contract(broker: Broker) -> None:
    assert not {END_DIALOG, ERROR, DIALOG_TIMER} & set(broker.catalog.get(Contract, ORDERING).sent_by)
    for error in (0, 1):
        dialog = begin(broker)
        dialog.send(NOTE)
        broker.flush()  # else an END WITH ERROR would withdraw it
        dialog.end(error=error, description="no more" if error else "")
    broker.flush()
    with broker.reader("Shop") as shop, pumped(shop):
        types = {message.type for message in receive(broker, "Orders", 4)}
    assert types == {NOTE, END_DIALOG, ERROR}
    begin(broker).set_timer(0.01)
    assert [message.type for message in receive(broker, "Shop", 1)] == [DIALOG_TIMER]


def rejected(broker: Broker, message_type: str, body: bytes, *others: bytes) -> tuple[list[bytes], list[int]]:
    """The bodies that a target receives, in order, and the codes of the Errors at their initiator."""
    broker.admin.create_contract("checked", {message_type: "INITIATOR"}, if_not_exists=True)
    broker.admin.create_service("checking", queue="Orders", contracts=["checked"], if_not_exists=True)
    dialog = broker.begin_dialog(SHOP_SERVICE, "checking", "checked")
    for each in (body, *others):
        dialog.send(message_type, each)
    broker.flush()
    with broker.reader("Orders") as reader, pumped(reader):
        (error,) = receive(broker, "Shop", 1)
    assert (error.type, error.sequence) == (ERROR, -1)
    return [message.body for message in drain(broker, "Orders") if message.type == message_type], [
        read_error(error.body)[0]
    ]


@pytest.mark.parametrize("body", [b"a body", b" ", b"\r\n", BOM, b"\x00"])
def test_003_a_message_with_a_body_of_an_empty_type_is_rejected_at_the_receiver(broker: Broker, body: bytes) -> None:
    """Blanks and a byte order mark are bodies too."""
    broker.admin.create_message_type("ping", "EMPTY")
    assert rejected(broker, "ping", b"", body, b"") == ([b""], [-8430])


CONTRADICTED = [
    "<?xml version='1.0' encoding='UTF-8'?><order><pieces>3</pieces></order>".encode("utf-16"),
    b"<?xml version='1.0' encoding='UTF-16'?><order><pieces>3</pieces></order>",
    BOM + b"<?xml version='1.0' encoding='UTF-16'?><order><pieces>3</pieces></order>",
    BOM + b"<?xml version='1.0' encoding='ISO-8859-1'?><order><pieces>3</pieces></order>",
]
"""Documents whose declaration contradicts their byte order mark or their first bytes."""

NO_DOCUMENT = [b" \r\n\t", BOM, BOM + b" ", " ".encode("utf-16")]
"""Bodies of blanks and byte order marks alone."""


@pytest.mark.parametrize(
    "body",
    [
        b"<order",
        b"<a/><b/>",
        b"<!DOCTYPE a [<!ENTITY e 'e'>]><a>&e;</a>",
        b" <?xml version='1.0'?><order/>",
        *NO_DOCUMENT,
        *CONTRADICTED,
    ],
)
def test_004_broken_xml_never_reaches_the_target_and_the_sender_gets_an_error(broker: Broker, body: bytes) -> None:
    broker.admin.create_message_type("document", "WELL_FORMED_XML")
    assert rejected(broker, "document", b"<order/>", body) == ([b"<order/>"], [-9615])


@pytest.mark.parametrize(
    "declaration", ["version='2.0'", "version='1.0' encoding='IBM437'", "version='1.0' encoding='unicode_escape'"]
)
def test_004_a_declaration_names_version_1_0_and_a_known_encoding(broker: Broker, declaration: str) -> None:
    """Our choice: the guide lists the encodings; no published text does. VALID_XML takes the same ones."""
    broker.admin.create_message_type("document", "WELL_FORMED_XML")
    taken = "<?xml version='1.0' encoding='Shift_JIS'?><order>\u30bd</order>".encode("shift_jis")
    assert rejected(broker, "document", taken, f"<?xml {declaration}?><order/>".encode()) == ([taken], [-9615])


def test_004_a_message_without_a_body_is_well_formed(broker: Broker) -> None:
    broker.admin.create_message_type("document", "WELL_FORMED_XML")
    taken = [b"<order/>", b"", BOM + b"<order/>", "<order/>".encode("utf-16"), "<order/>".encode("utf-16-le")]
    contradicted = "<?xml version='1.0' encoding='UTF-8'?><order/>".encode("utf-16")
    assert rejected(broker, "document", taken[0], *taken[1:], contradicted) == (taken, [-9615])


def test_131_the_error_names_the_parsers_reason_the_conversation_the_role_and_the_number(broker: Broker) -> None:
    """At both sides, in the words of 9615."""
    broker.admin.create_message_type("document", "WELL_FORMED_XML")
    broker.admin.create_contract("checked", {"document": "INITIATOR"})
    broker.admin.create_service("checking", queue="Orders", contracts=["checked"])
    dialog = broker.begin_dialog(SHOP_SERVICE, "checking", "checked")
    for body in (b"<a/>", b"<b/>", b"<order></ordr>"):
        dialog.send("document", body)
    broker.flush()
    told = [*receive(broker, "Orders", 3), *receive(broker, "Shop", 1)]
    errors = [message for message in told if message.type == ERROR]
    assert len(errors) == 2
    for error in errors:
        code, words = read_error(error.body)
        assert code == -9615
        assert "'document'" in words
        assert "mismatched tag: line 1, column 9" in words
        assert f"Conversation ID '{dialog.id}', Initiator: 0, and Message sequence number: 2." in words


@pytest.mark.parametrize("way", ["direct", "transaction", "several", "handler"])
def test_004_validation_does_not_depend_on_the_way_of_sending(broker: Broker, way: str) -> None:
    """A missing body, an empty one, byte order marks and encodings; the last one is broken."""
    broker.admin.create_message_type("document", "WELL_FORMED_XML")
    broker.admin.create_contract("both", {ORDER: "INITIATOR", "document": "ANY"})
    broker.admin.create_service("checking", queue="Orders", contracts=["both"])
    bodies = [b"<a/>", b"", BOM + b"<a/>", "<a/>".encode("utf-16"), "<a/>".encode("utf-16-be")]
    broken = "<?xml version='1.0' encoding='UTF-8'?><a/>".encode("utf-16")

    def say(send: Callable[..., object], dialog: Any) -> None:
        with pytest.raises(NullBody):
            send(dialog, "document", None)
        send(dialog, "document")
        for body in (*bodies, broken):
            send(dialog, "document", body)

    if way == "transaction":
        with broker.transaction() as transaction:
            say(transaction.send, transaction.begin(SHOP_SERVICE, "checking", "both"))
    else:
        dialog = broker.begin_dialog(SHOP_SERVICE, "checking", "both")
        if way == "handler":
            dialog.send(ORDER)
        elif way == "direct":
            say(lambda to, *message: to.send(*message), dialog)
        else:
            say(lambda to, *message: broker.send([to], *message), dialog)
    broker.flush()
    if way == "handler":
        handle(broker, "Orders", lambda transaction: say(transaction.send, transaction.dialog))
    here = "Shop" if way == "handler" else "Orders"
    found = receive(broker, here, 2 + len(bodies))
    (error,) = (read_error(message.body)[0] for message in found if message.type == ERROR)
    assert error == (-9616 if way == "handler" else -9615)
    assert [message.body for message in found if message.type == "document"] == [b"", *bodies]


def test_004_broken_xml_that_comes_first_leaves_nothing_at_the_target(broker: Broker) -> None:
    broker.admin.create_message_type("document", "WELL_FORMED_XML")
    assert rejected(broker, "document", b"<order", b"<order/>") == ([], [-9615])


def test_004_replies_are_validated_at_the_initiator(broker: Broker) -> None:
    broker.admin.create_message_type("answer", "WELL_FORMED_XML")
    broker.admin.create_contract("asking", {ORDER: "INITIATOR", "answer": "TARGET"})
    broker.admin.create_service("answering", queue="Orders", contracts=["asking"])
    broker.begin_dialog(SHOP_SERVICE, "answering", "asking").send(ORDER, b"a question")
    broker.flush()

    def reply(transaction: Transaction) -> None:
        for message in transaction:
            transaction.send(message.dialog, "answer", b"no document")

    handle(broker, "Orders", reply)
    (at_home,) = receive(broker, "Shop", 1)
    (at_target,) = receive(broker, "Orders", 1)
    assert [read_error(each.body)[0] for each in (at_home, at_target)] == [-9616, -9616]


@pytest.mark.parametrize("body", [b"<order><pieces>many</pieces></order>", b"<note/>", b"<order"])
def test_005_xml_that_violates_its_schema_is_rejected_as_broken_xml_is(broker: Broker, body: bytes) -> None:
    broker.admin.create_xml_schema_collection("//sales/Orders", [ORDER_XSD])
    broker.admin.create_message_type("document", "VALID_XML", schema_collection="//sales/Orders")
    good = b"<order><pieces>3</pieces></order>"
    assert rejected(broker, "document", good, body) == ([good], [-9615])


@pytest.mark.parametrize(
    "body", [b" <?xml version='1.0'?><order><pieces>3</pieces></order>", *NO_DOCUMENT, *CONTRADICTED]
)
def test_005_blanks_byte_order_marks_and_encodings_are_judged_as_in_well_formed_xml(
    broker: Broker, body: bytes
) -> None:
    broker.admin.create_xml_schema_collection("//sales/Orders", [ORDER_XSD])
    broker.admin.create_message_type("document", "VALID_XML", schema_collection="//sales/Orders")
    good = "<order><pieces>3</pieces></order>"
    declared = "<?xml version='1.0' encoding='UTF-16'?>" + good
    taken = [
        f" {good}\r\n".encode(),
        BOM + good.encode(),
        good.encode("utf-16"),
        good.encode("utf-16-be"),
        declared.encode("utf-16"),
    ]
    assert rejected(broker, "document", taken[0], *taken[1:], body) == (taken, [-9615])


def test_005_an_empty_body_fits_no_schema(broker: Broker) -> None:
    """Our choice: an empty body of a VALID_XML type is rejected, as it has no element; no published text says so."""
    broker.admin.create_xml_schema_collection("//sales/Orders", [ORDER_XSD])
    broker.admin.create_message_type("document", "VALID_XML", schema_collection="//sales/Orders")
    good = b"<order><pieces>3</pieces></order>"
    assert rejected(broker, "document", good, b"") == ([good], [-9615])


def test_006_the_receiver_alone_validates(broker: Broker) -> None:
    """Sender and receiver are in one database here. No send is refused."""
    broker.admin.create_message_type("document", "WELL_FORMED_XML")
    assert rejected(broker, "document", b"<order/>", b"no document")[1] == [-9615]
    broker.admin.alter_message_type("document", "NONE")
    broker.begin_dialog(SHOP_SERVICE, "checking", "checked").send("document", b"no document")
    broker.flush()
    assert [message.body for message in receive(broker, "Orders", 1)] == [b"no document"]


def test_007_a_queued_message_stays_when_its_type_is_altered(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(ORDER, b"no document")
    broker.flush()
    with broker.reader("Orders") as reader:
        fill(reader, 1)
        reader.settle()
    broker.admin.alter_message_type(ORDER, "WELL_FORMED_XML")
    dialog.send(ORDER, b"no document either")
    broker.flush()
    messages = receive(broker, "Orders", 2)
    assert [message.body for message in messages if message.type == ORDER] == [b"no document"]
    assert [message.type for message in messages if message.type != ORDER] == [ERROR]


def test_007_a_reader_that_is_at_work_notices_the_alteration(broker: Broker) -> None:
    dialog = begin(broker)
    with broker.reader("Orders", timeout=DEADLINE_S) as reader:
        for _ in range(3):
            dialog.send(ORDER, b"no document")
        fill(reader, 3)
        broker.admin.alter_message_type(ORDER, "WELL_FORMED_XML")
        work(reader)
        dialog.send(ORDER, b"no document")
        broker.flush()
        with next(reader) as transaction:
            messages = list(transaction)
        while not any(message.type == ERROR for message in messages):
            with next(reader) as transaction:
                messages += transaction
    assert [message.type for message in messages].count(ORDER) == 3
