"""The rights of each kind of process, as docs/operating.md lists them, on a broker with SASL and an authorizer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any, Final
from uuid import UUID

import pytest
from confluent_kafka import Producer, TopicPartition

from konverse.bridge.admin.rights import GROUP, TOPIC, Right
from konverse.bridge.broker import Broker
from konverse.bridge.owner.snapshots import Truncation
from konverse.dialog.owner.events import Truncate
from konverse.dialog.transaction.received import Message
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import InvalidState, KonverseError, OutcomeUnknown, QueueNotFound
from konverse.schemas.system_messages import ERROR
from konverse.schemas.wire import token
from konverse.schemas.wire.token import Sent, Token
from tests.kit.guarded import SHORT_S, Guarded, guarded_stack, in_words
from tests.kit.pools import open_stream, pool_of
from tests.kit.regions import open_regions, service_of
from tests.kit.rights import (
    ADMINISTERS_ROUTES,
    ASKS,
    DATES,
    DELETES,
    DESCRIBE,
    FOLLOWS_HOME,
    INSTRUCTIONS,
    LOST,
    NEW,
    OF_LOSS,
    OPEN,
    ORDERS,
    READ,
    RENEWS,
    RIGHTS,
    SETTINGS,
    SHOP,
    WRITE,
    logs,
    reads,
)
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    SHOP_SERVICE,
    answer,
    begin,
    connected,
    drain,
    fill,
    open_shop,
    pumped,
    receive,
    until,
)

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.xdist_group("own Kafka"), pytest.mark.timeout(300)]


def _send(broker: Broker) -> None:
    begin(broker).send(ORDER, b"an order")
    broker.flush()


def _transact(broker: Broker) -> None:
    with broker.transaction() as transaction:
        dialog = transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
        transaction.send(dialog, ORDER, b"an order")
    broker.flush()


def _transmit(broker: Broker) -> None:
    with broker.transmitter() as reader:
        reader.wait_for_partitions(1, DEADLINE_S)


def _work(broker: Broker) -> None:
    with broker.reader("Orders", timeout=10, max_messages=1) as orders:
        assert answer(orders)
        orders.settle(DEADLINE_S)


def _route(broker: Broker) -> None:
    router = broker.router(ORDER_SERVICE)(lambda _: service_of("north"))
    router.run(timeout=3)
    assert router.routed.forwarded


def _pool(broker: Broker, **options: Any) -> None:
    with pool_of(broker, **options) as pool:
        pool.send(ORDER, b"an order", "a key")
        pool.flush()


def _operate(broker: Broker) -> None:
    assert not any(broker.operations.suspended())
    with suppress(OutcomeUnknown):  # that queue has no reader
        broker.operations.error_broker_conversations(queue="North", timeout=1)
    with suppress(InvalidState):
        broker.operations.accept_loss("Orders", 0)


def _audit(broker: Broker) -> None:
    _, findings = broker.operations.verification(broker.catalog.all(Queue)).run()
    assert findings == []


def _look(broker: Broker) -> None:
    target = next(row for row in broker.views.conversation_endpoints("Orders") if not row.is_initiator)
    assert list(broker.why(target.conversation_id))
    assert target.conversation_id in {row.conversation for row in broker.operations.conversations()}


def _administer(broker: Broker) -> None:
    broker.admin.create_queue("New")
    broker.admin.alter_queue("New", status=False)
    broker.admin.drop_queue("New")


_NAMES: Final = map("pool {}".format, count())
"""A second pool of the same name would wait for the queue's reader, to adopt the conversations of the first."""

ACTS: Final[dict[str, Callable[[Broker], None]]] = {
    "sender": _send,
    "client": _transact,
    "transmitter": _transmit,
    "worker": _work,
    "router": _route,
    "pool": _pool,
    "named": lambda broker: _pool(broker, name=next(_NAMES)),
    "unread": lambda broker: _pool(broker, read=False),
    "operator": _operate,
    "auditor": _audit,
    "onlooker": _look,
    "administrator": _administer,
}


def _seldom(user: str, right: Right) -> bool:
    """Whether the acts above do not need the right.

    Snapshots come later, a router answers messages that it cannot forward, an operator uses ages only sometimes and
    skips nothing, an onlooker asks for a group only where an owner is silent, nothing waits for the transmitter, and
    the records of an empty queue are not read before it is dropped.
    """
    resource, name, operation = right
    return (
        (user, resource) == ("onlooker", GROUP)
        or (name.endswith(".snapshot") and operation in (READ, WRITE))
        or (user, name)
        in {
            ("router", SHOP),
            ("operator", OPEN),
            ("transmitter", ORDERS),
            ("transmitter", SHOP),
        }
        or (user, name, operation) == ("operator", INSTRUCTIONS, READ)
        or ((user, operation) == ("administrator", READ) and name.startswith(NEW))
    )


ACCEPTOR: Final = "acceptor"
"""The user that accepts a loss; it has a test of its own, since each loss is accepted once."""

NOT_FOR_LOSS: Final[set[Right]] = {
    *(right for right in OF_LOSS if right[1].startswith(LOST) and right[2] is SETTINGS),
    Right(TOPIC, INSTRUCTIONS, READ),
    Right(TOPIC, SHOP, WRITE),
    Right(TOPIC, f"{LOST}.queue.snapshot", READ),
}
"""Rights of a reader of the queue, without which the loss of the test is accepted all the same: no snapshot exists."""

EACH: Final = [
    pytest.param(user, right, id=f"{user}: {in_words(right)}")
    for user in ACTS
    for right in RIGHTS[user]
    if not _seldom(user, right)
]


@pytest.fixture(scope="module")
def stack() -> Iterator[tuple[Guarded, Broker]]:
    with guarded_stack([*ACTS, ACCEPTOR, "renewing", *SPECIAL]) as (guarded, administrator):
        open_shop(administrator)
        open_stream(administrator)
        open_regions(administrator, ("north",))
        begin(administrator).send(ORDER, b"an order")
        administrator.flush()
        administrator.transmitter().close()  # creates the topics, and leaves all partitions to others
        administrator.begin_dialog(SHOP_SERVICE, service_of("north"), ORDERING).send(ORDER, b"for operators")
        administrator.flush()
        receive(administrator, "North", 1)
        yield guarded, administrator


@pytest.fixture
def guarded(stack: tuple[Guarded, Broker]) -> Iterator[Guarded]:
    guarded, administrator = stack
    yield guarded
    with suppress(QueueNotFound):
        administrator.admin.drop_queue("New", force=True)
    left = [name for name in guarded.admin.list_topics(timeout=DEADLINE_S).topics if name.startswith(NEW)]
    for deleted in guarded.admin.delete_topics(left).values() if left else ():
        deleted.result()


def _renew(guarded: Guarded, user: str) -> None:
    """Take a new id while a message to `Orders` is unacknowledged."""
    with guarded.as_user(user) as broker:
        dialog = begin(broker)
        dialog.send(ORDER, b"an order")
        dialog.flush()
        sender = broker._client.sender
        assert sender is not None
        with sender._producer.lock:
            dialog.send(ORDER, b"not acknowledged when the id is given up")
            sender._renewal.give_up()
        dialog.flush(SHORT_S)
        assert len(sender.session.ids) == 2


def _delete(guarded: Guarded, user: str) -> None:
    """Delete the first record of each topic of `Orders`, as an owner does after a snapshot."""
    with guarded.as_user(user) as broker:
        queue = next(queue for queue in broker.catalog.all(Queue) if queue.name == "Orders")
        truncation = Truncation(broker._kafka, replace(queue, keep_ms=0))
        truncation.truncate(0, Truncate(1, 1, 1))
        truncation._worker.shutdown(wait=True)


def _messages(guarded: Guarded) -> None:
    """Send messages to work on."""
    guarded.grant("sender", RIGHTS["sender"])
    with guarded.as_user("sender") as broker:
        _send(broker)


@pytest.mark.parametrize("user", ACTS)
def test_each_kind_of_process_works_with_the_rights_that_the_operating_page_names(
    guarded: Guarded, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    guarded.grant(user, RIGHTS[user])
    _messages(guarded)
    with caplog.at_level(logging.WARNING, "konverse"), guarded.as_user(user) as broker:
        ACTS[user](broker)
    assert "Kafka refuses" not in caplog.text
    assert "uthorization" not in caplog.text


def _received_of(broker: Broker, conversation: UUID) -> Message:
    """The next message of a conversation in the shop's queue, which has messages of other tests too."""
    with broker.reader("Shop", timeout=DEADLINE_S) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    if message.dialog.id == conversation:
                        return message
    raise AssertionError(f"no message of {conversation} in the shop's queue")


@contextmanager
def _loss(guarded: Guarded, administrator: Broker) -> Iterator[UUID]:
    """A queue whose only message was deleted before it was received; yields its conversation."""
    lost = administrator.admin.create_queue("Lost")
    administrator.admin.create_service("//lost/Service", queue="Lost", contracts=[ORDERING])
    try:
        with connected(guarded.plain, "sales") as sender:  # its session is over before the queue is dropped
            dialog = sender.begin_dialog(SHOP_SERVICE, "//lost/Service", ORDERING)
            dialog.send(ORDER, b"deleted before it is received")
            sender.flush()
        with administrator.reader("Lost", timeout=1) as reader:
            fill(reader, 1)
            reader.settle()
        place = TopicPartition(lost.topic, 0, 1)
        guarded.admin.delete_records([place])[place].result(DEADLINE_S)
        yield dialog.id
    finally:
        administrator.admin.drop_service("//lost/Service")
        administrator.admin.drop_queue("Lost", force=True)


def test_a_loss_is_accepted_with_the_rights_that_the_operating_page_names(
    stack: tuple[Guarded, Broker], caplog: pytest.LogCaptureFixture
) -> None:
    guarded, administrator = stack
    guarded.grant(ACCEPTOR, OF_LOSS)
    with _loss(guarded, administrator) as conversation:
        with caplog.at_level(logging.WARNING, "konverse"), guarded.as_user(ACCEPTOR) as broker:
            assert broker.operations.accept_loss("Lost", 0).first == 0
        assert _received_of(administrator, conversation).type == ERROR
    assert "uthorization" not in caplog.text


@pytest.mark.nightly
@pytest.mark.parametrize("right", [pytest.param(one, id=in_words(one)) for one in OF_LOSS if one not in NOT_FOR_LOSS])
def test_for_each_right_missing_for_accept_loss_an_error_or_a_log_line_names_the_right_to_grant(
    stack: tuple[Guarded, Broker], right: Right, caplog: pytest.LogCaptureFixture
) -> None:
    guarded, administrator = stack
    guarded.grant(ACCEPTOR, OF_LOSS)
    said = ""
    with _loss(guarded, administrator):
        guarded.revoke(ACCEPTOR, right)
        try:
            with caplog.at_level(logging.WARNING, "konverse"), guarded.as_user(ACCEPTOR) as broker:
                broker.operations.accept_loss("Lost", 0)
        except KonverseError as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            guarded.grant(ACCEPTOR, OF_LOSS)
    named = (in_words(right), in_words(right._replace(operation=DESCRIBE)))  # as in the test of all kinds of process
    assert any(f"rant {words} to User:{ACCEPTOR}" in f"{said} {caplog.text}" for words in named), (said, caplog.text)


@pytest.fixture
def owned(stack: tuple[Guarded, Broker]) -> Iterator[Guarded]:
    """The stack with a reader of the queue to which orders go."""
    guarded, administrator = stack
    with administrator.reader("Orders") as reader, pumped(reader):
        yield guarded


def test_without_the_right_to_describe_the_group_an_onlooker_does_not_know_whether_a_silent_owner_lives(
    owned: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.bridge.views.reading_state.LAG_MS", -1)  # each owner counts as silent
    group = Right(GROUP, f"{ORDERS}.queue", DESCRIBE)
    owned.grant("onlooker", RIGHTS["onlooker"])
    with owned.as_user("onlooker") as broker:

        def reader() -> bool | None:
            (state,) = broker.operations.reading_states("Orders")
            assert state.reader is not None or f"rant {in_words(group)} to User:onlooker" in state.membership.unknown
            return state.reader

        until(reader, "a reader owns the partition")
        owned.revoke("onlooker", group)
        until(lambda: reader() is None, "the right is gone")
        (lag,) = broker.operations.lag("Orders")
        assert (lag.reader, f"rant {in_words(group)} to User:onlooker" in lag.unknown) == (None, True)


def test_a_sender_takes_a_new_id_with_the_rights_that_the_operating_page_names(
    owned: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    owned.grant("renewing", RENEWS)
    with caplog.at_level(logging.WARNING, "konverse"):
        _renew(owned, "renewing")
    assert "uthorization" not in caplog.text


@pytest.mark.parametrize("topic", [pytest.param(topic, id=topic) for topic in logs(ORDERS)])
def test_for_each_log_that_a_sender_with_a_new_id_may_not_read_flush_names_the_right_to_grant(
    owned: Guarded, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    right = Right(TOPIC, topic, READ)
    owned.grant("renewing", RENEWS)
    owned.revoke("renewing", right)
    with pytest.raises(OutcomeUnknown) as unknown:
        _renew(owned, "renewing")
    named = (in_words(right), in_words(Right(TOPIC, topic, DESCRIBE)))  # as in the test of all kinds of process
    assert any(f"rant {words} to User:renewing" in str(unknown.value) for words in named), caplog.text


def _ask_for_bounced(guarded: Guarded, user: str) -> None:
    """Follow the home of a dialog, whose partition no reader of this process owns.

    A reader has ingested the begin of the dialog, so the follower needs the data of that partition, too.
    """
    with guarded.as_user(user) as broker:
        dialog = begin(broker)
        dialog.send(ORDER, b"an order")
        dialog.flush()
        with connected(guarded.plain, "sales") as another:
            drain(another, "Shop")
        assert dialog.bounced() == []


def _ask_for_outcome(guarded: Guarded, user: str) -> None:
    """Ask for the outcome of a message of another process to `Orders`."""
    with connected(guarded.plain, "sales") as sender:
        dialog = begin(sender)
        dialog.send(ORDER, b"an order")
        dialog.flush()
        writer, target = dialog._sender.session.writer, dialog._staged.begin.target
        asked = token.encode(Token((Sent(writer, target, dialog.id.bytes, 0, (0,)),)))
        with guarded.as_user(user) as broker:
            assert broker.outcome(asked, timeout=DEADLINE_S).received


def _give_a_route_a_lifetime(guarded: Guarded, user: str) -> None:
    with guarded.as_user(user) as broker:
        broker.admin.create_route("For a day", "LOCAL", lifetime=timedelta(days=1))
        broker.admin.drop_route("For a day")


SPECIAL: Final[dict[str, tuple[Callable[[Guarded, str], None], list[Right], list[Right]]]] = {
    "bouncing": (_ask_for_bounced, FOLLOWS_HOME, reads(SHOP)[:2]),
    "asking": (_ask_for_outcome, ASKS, reads(ORDERS)[:2]),
    "routes": (_give_a_route_a_lifetime, ADMINISTERS_ROUTES, DATES),
}
"""User -> a call, the rights that it needs, and those of them that its other calls do not need.

The snapshot topic is left out: it is read only once the logs are long.
"""


@pytest.mark.parametrize("user", SPECIAL)
def test_a_call_that_needs_further_rights_works_with_those_that_the_operating_page_names(
    owned: Guarded, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    act, rights, _ = SPECIAL[user]
    owned.grant(user, rights)
    with caplog.at_level(logging.WARNING, "konverse"):
        act(owned, user)
    assert "uthorization" not in caplog.text
    assert "Kafka refuses" not in caplog.text


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("user", "right"),
    [pytest.param(user, right, id=f"{user}: {in_words(right)}") for user in SPECIAL for right in SPECIAL[user][2]],
)
def test_for_each_missing_right_of_such_a_call_an_error_or_a_log_line_names_the_right_to_grant(
    owned: Guarded, user: str, right: Right, caplog: pytest.LogCaptureFixture
) -> None:
    act, rights, _ = SPECIAL[user]
    owned.grant(user, rights)
    owned.revoke(user, right)
    said = ""
    try:
        with caplog.at_level(logging.WARNING, "konverse"):
            act(owned, user)
    except KonverseError as error:
        said = f"{type(error).__name__}: {error}"
    finally:
        owned.grant(user, rights)
    named = (in_words(right), in_words(right._replace(operation=DESCRIBE)))  # as in the test of all kinds of process
    assert any(f"rant {words} to User:{user}" in f"{said} {caplog.text}" for words in named), (said, caplog.text)


@pytest.fixture
def written(stack: tuple[Guarded, Broker]) -> Guarded:
    """The stack with at least one record in each topic of `Orders`."""
    guarded, _ = stack
    producer = Producer({"bootstrap.servers": guarded.plain})
    for topic in logs(ORDERS):
        producer.produce(topic, b"a record", partition=0)
    assert not producer.flush(DEADLINE_S)
    return guarded


def test_an_owner_deletes_old_records_with_the_rights_that_the_operating_page_names(
    written: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    written.grant("worker", [*RIGHTS["worker"], *DELETES])
    with caplog.at_level(logging.INFO, "konverse.snapshots"):
        _delete(written, "worker")
    assert [line.split(":")[0] for line in caplog.messages] == [
        f"the logs of {ORDERS}/0 were truncated below these offsets"
    ]


@pytest.mark.parametrize("right", [pytest.param(right, id=in_words(right)) for right in DELETES])
def test_for_each_missing_right_to_delete_a_warning_names_the_right_to_grant(
    written: Guarded, right: Right, caplog: pytest.LogCaptureFixture
) -> None:
    written.grant("worker", [*RIGHTS["worker"], *DELETES])
    written.revoke("worker", right)
    with caplog.at_level(logging.INFO, "konverse.snapshots"):
        _delete(written, "worker")
    (line,) = caplog.messages
    assert line.startswith(f"the logs of {ORDERS}/0 were not truncated: ")
    words = in_words(right).replace(" group ", " groups with the prefix ")
    assert f"Grant {words} to User:worker" in line


@pytest.mark.nightly
@pytest.mark.parametrize(("user", "right"), EACH)
def test_for_each_missing_right_an_error_or_a_log_line_names_the_right_to_grant(
    guarded: Guarded, user: str, right: Right, caplog: pytest.LogCaptureFixture
) -> None:
    guarded.grant(user, RIGHTS[user])
    _messages(guarded)
    guarded.revoke(user, right)
    said: list[str] = []

    def act() -> None:
        try:
            with guarded.as_user(user) as broker:
                ACTS[user](broker)
        except Exception as error:  # noqa: BLE001  # any error is checked below
            said.append(f"{type(error).__name__}: {error}")
        else:
            said.append("done")

    acting = threading.Thread(target=act)
    with caplog.at_level(logging.WARNING, "konverse"):
        acting.start()
        # Without the right to read or write a topic, a client may not describe it either, and Kafka may refuse that
        # first.
        named = (in_words(right), in_words(right._replace(operation=DESCRIBE)))
        remedies = [f"rant {words} to User:{user}" for words in named]

        def told() -> bool:
            return any(remedy in f"{said} {caplog.text}" for remedy in remedies)

        try:
            until(lambda: told() or not acting.is_alive(), remedies[0])
        finally:
            guarded.grant(user, RIGHTS[user])
            acting.join(DEADLINE_S)
    assert told(), (said, caplog.text)
