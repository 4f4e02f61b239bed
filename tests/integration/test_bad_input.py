"""Invalid requests are refused with an error that tells why, and change nothing."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import konverse
from konverse.bridge.broker import Broker
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import (
    AlreadyExists,
    BadInput,
    BodyTooLarge,
    ContractNotFound,
    ContractTwice,
    DialogNotFound,
    InvalidContract,
    InvalidError,
    InvalidName,
    InvalidSettings,
    InvalidValidation,
    KonverseError,
    MessageTypeNotFound,
    NotInContract,
    NullBody,
    QueueNotFound,
    ServiceNotFound,
    TransactionTooLarge,
    WrongDirection,
)
from konverse.schemas.limits import BODY_BYTES_MAX, KEY_BYTES_MAX, TRANSACTION_BYTES_MAX
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    NOTE,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    begin,
    connected,
    fill,
    open_shop,
    receive,
)

pytestmark = pytest.mark.stack


NOT_BYTES: Any = "text"
NOTHING: Any = None
NUMBER: Any = 1.5
ID = uuid.UUID(int=7)
NO_MAPPING: Any = ["a type"]
MISSPELT: Any = {"partition": 3}
BYTES: Any = b"x"


@pytest.fixture(scope="module")
def shop(servers: Servers) -> Iterator[Broker]:
    """A shop shared by all tests of this module, because all their requests are refused."""
    with connected(servers.bootstrap, f"bad{time.time_ns()}") as broker:
        open_shop(broker)
        yield broker


REFUSED: Final[dict[str, tuple[Callable[[Broker], object], type[KonverseError], int | None, str]]] = {
    "from an unknown service": (lambda b: b.begin_dialog("?", ORDER_SERVICE), ServiceNotFound, 8423, "service '?'"),
    "to an unknown service": (lambda b: b.begin_dialog(SHOP_SERVICE, "?"), ServiceNotFound, 8423, "create_service"),
    "a service in other letters": (
        lambda b: b.begin_dialog(SHOP_SERVICE, ORDER_SERVICE.upper(), ORDERING),
        ServiceNotFound,
        8423,
        "byte by",
    ),
    "an unknown contract": (
        lambda b: b.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, "?"),
        ContractNotFound,
        8425,
        "contract '?'",
    ),
    "a validation that does not exist": (
        lambda b: b.admin.create_message_type("new", "XML"),
        InvalidValidation,
        None,
        "NONE, EMPTY, WELL_FORMED_XML",
    ),
    "altering an unknown type": (lambda b: b.admin.alter_message_type("?", "EMPTY"), MessageTypeNotFound, 8428, "'?'"),
    "a service on an unknown queue": (
        lambda b: b.admin.create_service("new", queue="?"),
        QueueNotFound,
        15151,
        "queue '?'",
    ),
    "a service with an unknown contract": (
        lambda b: b.admin.create_service("new", queue="Orders", contracts=["?"]),
        ContractNotFound,
        8425,
        "contract '?'",
    ),
    "a contract with an unknown type": (
        lambda b: b.admin.create_contract("new", {"?": "ANY"}),
        MessageTypeNotFound,
        8428,
        "message type '?'",
    ),
    "reading an unknown queue": (lambda b: b.reader("?"), QueueNotFound, 15151, "create_queue"),
    "an unknown type": (lambda b: begin(b).send("?"), MessageTypeNotFound, 8428, "message type '?'"),
    "a type that is not in the contract": (
        lambda b: begin(b).send("DEFAULT"),
        NotInContract,
        8431,
        "is not in contract",
    ),
    "the peer's type": (lambda b: begin(b).send(RECEIPT), WrongDirection, 8432, "this side is the initiator"),
    "a body that is too large": (
        lambda b: begin(b).send(ORDER, b"x" * (BODY_BYTES_MAX + 1)),
        BodyTooLarge,
        8459,
        "960001 bytes",
    ),
    "a text for a body": (lambda b: begin(b).send(ORDER, NOT_BYTES), BadInput, None, "encode it first"),
    "no body at all": (lambda b: begin(b).send(ORDER, NOTHING), NullBody, 8433, "not None"),
    "a key that is too large": (lambda b: begin(b, key=b"k" * (KEY_BYTES_MAX + 1)), InvalidSettings, None, "at most"),
    "a second message type": (lambda b: b.admin.create_message_type(ORDER), AlreadyExists, 2714, "message type"),
    "a second contract": (lambda b: b.admin.create_contract(ORDERING, {ORDER: "ANY"}), AlreadyExists, 2714, "contract"),
    "a second queue": (lambda b: b.admin.create_queue("Orders"), AlreadyExists, 2714, "queue"),
    "a second service": (
        lambda b: b.admin.create_service(ORDER_SERVICE, queue="Orders"),
        AlreadyExists,
        2714,
        "service",
    ),
    "a contract without types": (
        lambda b: b.admin.create_contract("new", {}),
        InvalidContract,
        8492,
        "nothing to send",
    ),
    "a contract without a type for the initiator": (
        lambda b: b.admin.create_contract("new", {RECEIPT: "TARGET"}),
        InvalidContract,
        8492,
        "nothing to send",
    ),
    "a contract with an unknown side": (
        lambda b: b.admin.create_contract("new", {ORDER: "EVERYBODY"}),
        InvalidContract,
        8492,
        "INITIATOR, TARGET or ANY",
    ),
    "a contract twice in a service": (
        lambda b: b.admin.create_service("new", queue="Orders", contracts=[ORDERING] * 2),
        ContractTwice,
        8404,
        "twice",
    ),
    "a queue without partitions": (
        lambda b: b.admin.create_queue("new", partitions=0),
        InvalidSettings,
        None,
        "0 partitions",
    ),
    "a queue with too many partitions": (
        lambda b: b.admin.create_queue("new", partitions=1_025),
        InvalidSettings,
        None,
        "1 to 1024",
    ),
    "a commit of nothing": (lambda b: b.reader("Orders", batch=0), InvalidSettings, None, "batch is 0"),
    "transactions of nothing": (
        lambda b: b.reader("Orders", max_messages=0),
        InvalidSettings,
        None,
        "max_messages is 0",
    ),
    "a partition that is not there": (
        lambda b: b.reader("Orders", partitions=(0, 1)),
        InvalidSettings,
        None,
        "partitions 0 to 0, not 1",
    ),
    "a partition twice": (lambda b: b.reader("Orders", partitions=(0, 0)), InvalidSettings, None, "name each once"),
    "no partition": (lambda b: b.reader("Orders", partitions=()), InvalidSettings, None, "leave them out for a share"),
    "a text for a key": (lambda b: begin(b, key="k"), BadInput, None, "begin_dialog: argument 'key'"),
    "a relation to what is no dialog": (
        lambda b: begin(b, related_to=uuid.uuid4()),
        BadInput,
        None,
        "argument 'related_to'",
    ),
    "a text for a conversation": (
        lambda b: begin(b, conversation_id="c"),
        BadInput,
        None,
        "argument 'conversation_id'",
    ),
    "a conversation that others have": (
        lambda b: (
            begin(b, conversation_id=ID),
            b.begin_dialog(ORDER_SERVICE, ORDER_SERVICE, ORDERING, conversation_id=ID),
        ),
        BadInput,
        None,
        "was begun from",
    ),
    "a contract of a list": (
        lambda b: b.admin.create_contract("new", NO_MAPPING),
        BadInput,
        None,
        "argument 'sent_by'",
    ),
    "a number for a name": (lambda b: b.admin.create_message_type(NUMBER), BadInput, None, "argument 'name'"),
    "a list for a service": (lambda b: b.begin_dialog(NO_MAPPING, ORDER_SERVICE), BadInput, None, "'from_service'"),
    "no contracts": (
        lambda b: b.admin.create_service("new", queue="Orders", contracts=NOTHING),
        BadInput,
        None,
        "'contracts'",
    ),
    "an argument with another name": (
        lambda b: b.admin.create_queue("new", **MISSPELT),
        BadInput,
        None,
        "create_queue takes no argument 'partition'; did you mean 'partitions'?",
    ),
    "an argument too few": (
        lambda b: b.admin.create_service(*["new"]),  # type: ignore[call-arg]
        BadInput,
        None,
        "create_service needs the argument 'queue'; write queue=…",
    ),
    "an argument without its name": (
        lambda b: b.admin.create_queue(*["new", 3]),  # type: ignore[arg-type]
        BadInput,
        None,
        "its arguments are name, partitions",
    ),
    "a body instead of a type": (lambda b: begin(b).send(BYTES), BadInput, None, "comes before the body"),
    "an end by hand": (lambda b: begin(b).send(konverse.END_DIALOG), NotInContract, 8431, "use `end`"),
    "half a partition": (
        lambda b: b.admin.create_queue("new", partitions=NUMBER),
        BadInput,
        None,
        "argument 'partitions'",
    ),
    "half a message": (lambda b: b.reader("Orders", max_messages=NUMBER), BadInput, None, "argument 'max_messages'"),
    "no time": (lambda b: b.reader("Orders", timeout=math.nan), BadInput, None, "argument 'timeout'"),
    "a text for a time": (lambda b: b.flush(NOT_BYTES), BadInput, None, "argument 'timeout'"),
    "a list for a type": (lambda b: begin(b).send(NO_MAPPING), BadInput, None, "not list"),
    "a text for an error": (lambda b: begin(b).end(error=NOT_BYTES), InvalidError, 8422, "needs a description"),
    "no description": (lambda b: begin(b).end(error=1, description=NOTHING), InvalidError, 8422, "needs a description"),
    "no handler": (lambda b: b.reader("Orders").run(NOTHING), BadInput, None, "argument 'handler'"),
    "a handler without threads": (
        lambda b: b.reader("Orders").run(print, threads=0),
        InvalidSettings,
        None,
        "`threads` must be 1 to",
    ),
    "contents of nothing": (lambda b: b.views.contents(NOTHING), BadInput, None, "argument 'queue'"),
    "contents of no queue": (lambda b: b.views.contents("orders"), QueueNotFound, 15151, "'orders'"),
    "a column that is none": (
        lambda b: b.views.conversation_endpoints(columns=("stat",)),
        BadInput,
        None,
        "no column 'stat'; did you mean 'state'?",
    ),
    "a view without Redis": (lambda b: b.view("Orders"), InvalidSettings, None, "no Redis is configured"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_invalid_call_is_refused_with_an_error_that_states_the_reason(shop: Broker, what: str) -> None:
    call, error, number, words = REFUSED[what]
    with pytest.raises(KonverseError) as caught:
        call(shop)
    assert type(caught.value) is error
    assert words in str(caught.value)
    assert caught.value.number == number


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "empty"),
        ("x" * 257, "257 bytes"),
        ("ä" * 129, "258 bytes"),
        ("line\nbreak", "control character"),
        ("null\0", "control character"),
        ("\ud800", "control character"),
        ("a\u0308", "NFC"),
    ],
)
def test_a_name_that_is_none_is_refused_everywhere(shop: Broker, name: str, words: str) -> None:
    settings = shop.settings
    calls: list[Callable[[], object]] = [
        lambda: shop.admin.create_message_type(name),
        lambda: shop.admin.create_contract(name, {ORDER: "ANY"}),
        lambda: shop.admin.create_queue(name),
        lambda: shop.admin.create_service(name, queue="Orders"),
        lambda: konverse.connect(settings.kafka, database=name),
        lambda: konverse.connect(settings.kafka, database="fine", instance=name),
    ]
    for call in calls:
        with pytest.raises(InvalidName) as caught:
            call()
        assert words in str(caught.value)


def test_names_and_keys_of_the_largest_size_and_of_any_script_are_used(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        longest = "x" * 256
        broker.admin.create_message_type(longest)
        broker.admin.create_contract("契約 ✓" + "y" * 246, {longest: "ANY"})
        broker.admin.create_queue("Очередь. -_/" + "z" * 120, partitions=1)
        shop, target = "ä" * 128, "ö" * 128
        for service in (shop, target):
            broker.admin.create_service(service, queue="Очередь. -_/" + "z" * 120, contracts=["契約 ✓" + "y" * 246])
        dialog = broker.begin_dialog(shop, target, "契約 ✓" + "y" * 246, key=b"k" * KEY_BYTES_MAX)
        dialog.send(longest, b"x")
        dialog.send(longest, b"y")
        messages = receive(broker, "Очередь. -_/" + "z" * 120, 2)
    assert {(m.type, m.dialog.service, m.dialog.far_service) for m in messages} == {(longest, target, shop)}


def test_a_queue_whose_topic_name_would_be_too_long_is_refused_before_anything_is_made(shop: Broker) -> None:
    with pytest.raises(InvalidName, match="Kafka allows 249"):
        shop.admin.create_queue("ä" * 128)


# ------------------------------------------------------------------------------------------------------ transactions


@pytest.fixture
def both(servers: Servers, database: str) -> Iterator[tuple[Transaction, Endpoint, Endpoint]]:
    """A transaction of the target, its conversation, and another one that it did not receive."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        for _ in range(2):
            begin(broker).send(ORDER, b"x")
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            fill(reader, 2)
            first, second = next(reader), next(reader)
            with second, first:
                yield first, first.dialog, second.dialog


@pytest.mark.parametrize(
    ("kind", "body", "error", "words"),
    [
        ("?", b"", MessageTypeNotFound, "message type '?'"),
        ("DEFAULT", b"", NotInContract, "is not in contract"),
        (ORDER, b"", WrongDirection, "this side is the target"),
        (RECEIPT, b"x" * (BODY_BYTES_MAX + 1), BodyTooLarge, "960001 bytes"),
        (RECEIPT, "text", BadInput, "encode it first"),
        (RECEIPT, 7, BadInput, "not int"),
    ],
)
def test_a_handler_cannot_send_messages_that_break_the_contract_or_the_size_limit(
    both: tuple[Transaction, Endpoint, Endpoint], kind: str, body: Any, error: type[KonverseError], words: str
) -> None:
    transaction, dialog, _ = both
    for _ in range(2):  # also when the type was checked before
        with pytest.raises(error) as caught:
            transaction.send(dialog, kind, body)
        assert words in str(caught.value)
    transaction.send(dialog, RECEIPT, b"fine")
    assert [bodies for _, _, bodies in transaction.sends] == [[b"fine"]]


def test_a_handler_works_on_the_conversations_that_it_received_only(
    both: tuple[Transaction, Endpoint, Endpoint],
) -> None:
    transaction, dialog, other = both
    transaction.send(dialog, RECEIPT, b"x")
    for _ in range(2):
        with pytest.raises(DialogNotFound, match="does not belong to the group") as caught:
            transaction.send(other, RECEIPT, b"x")
        assert caught.value.number == 8426
        with pytest.raises(DialogNotFound):
            transaction.end(other)


def test_a_transaction_that_does_not_fit_into_a_commit_is_refused_where_it_grows_too_large(
    both: tuple[Transaction, Endpoint, Endpoint],
) -> None:
    transaction, dialog, _ = both
    body = b"x" * 900_000
    fits = TRANSACTION_BYTES_MAX // len(body)
    for _ in range(fits):
        transaction.send(dialog, RECEIPT, body)
    with pytest.raises(TransactionTooLarge, match="Receive fewer messages at a time"):
        transaction.send(dialog, RECEIPT, body)
    transaction.send(dialog, RECEIPT, b"a small one fits")
    ((_, _, bodies),) = transaction.sends
    assert len(bodies) == fits + 1


def test_transactions_that_are_too_large_for_one_commit_together_use_several(servers: Servers, database: str) -> None:
    body = b"x" * 900_000
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        for _ in range(5):
            begin(broker).send(NOTE, b"x")
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            fill(reader, 5)
            transactions = [next(reader) for _ in range(5)]  # 18 MB, more than two records may hold
            for transaction in transactions:
                with transaction:
                    for message in transaction:
                        for _ in range(4):
                            transaction.send(message.dialog, NOTE, body)
            reader.settle(DEADLINE_S)
            assert reader.owners[0].counters.commits >= 5
        assert len(receive(broker, "Shop", 20)) == 20
