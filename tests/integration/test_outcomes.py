"""A client dies with messages of unknown outcome. A process with its token asks, and the answer stays true."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from uuid import UUID

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.client.sender import Sender
from konverse.bridge.kafka.clock import OpenTopic
from konverse.bridge.runtime.clock import now_ms
from konverse.dialog.session.outcome import Outcome
from konverse.dialog.session.rotation import Age, AgeWatch
from konverse.schemas.errors import BadInput, KafkaUnavailable, OutcomeExpired, OutcomeUnknown
from konverse.schemas.identifiers import session_writer, time_of_writer
from konverse.schemas.limits import SESSION_IDLE_MS_MAX
from konverse.schemas.wire import token
from konverse.schemas.wire.token import Sent, Token
from tests.chaos.proxy import Action, Trap
from tests.chaos.rig import Rig
from tests.kit.oracle import prove_exactly_once
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    SHOP_SERVICE,
    answer_once,
    begin,
    connected,
    open_shop,
    pumped,
    queue_of,
    receive,
    until,
)

PATIENCE_S = 60.0
DAY_S = 86_400.0


def send_and_hang(bootstrap: str, database: str, token_file: Path) -> None:
    """A client whose messages hang in the network. It writes down the token of its unknown outcomes."""
    with connected(bootstrap, database, send_timeout_s=3.0) as broker:
        dialog = begin(broker)
        dialog.send(ORDER, b"0")
        dialog.flush(30)
        dialog.send(ORDER, b"1")
        dialog.send(ORDER, b"2")
        try:
            dialog.flush()
        except OutcomeUnknown as unknown:
            token_file.with_suffix(".new").write_bytes(unknown.token)
            token_file.with_suffix(".new").rename(token_file)
        signal.pause()


@pytest.mark.stack
def test_a_message_with_the_outcome_not_received_is_never_received(proxied: Rig, database: str, tmp_path: Path) -> None:
    direct = proxied.stack.bootstrap
    token_file = tmp_path / "token"
    with connected(direct, database) as broker:
        open_shop(broker)
        orders = queue_of(broker, "Orders")
        held = Trap(Action.HOLD, topic=orders.topic, nth=2)
        proxied.proxies["client"].trap(held)
        spawn = multiprocessing.get_context("spawn")
        client = spawn.Process(target=send_and_hang, args=(proxied.bootstrap("client"), database, token_file))
        client.start()
        try:
            assert held.caught.wait(PATIENCE_S)
            wait_for(token_file)
        finally:
            assert client.pid is not None
            os.kill(client.pid, signal.SIGKILL)
            client.join()
        with broker.reader("Orders", timeout=2) as reader:
            assert answer_once(reader) == 1
        asked = token_file.read_bytes()
        told = asked_while_somebody_works(broker, asked)
        assert not told.received
        assert list(told.missing.values()) == [1]
        held.release()
        assert held.answered.wait(PATIENCE_S), "the broker has not taken what was held"
        with broker.reader("Orders", timeout=3) as reader:
            assert answer_once(reader) == 0, "it came after all"
        assert asked_while_somebody_works(broker, asked) == told


def asked_while_somebody_works(broker: Broker, asked: bytes) -> Outcome:
    with broker.reader("Orders") as reader, pumped(reader):
        return broker.outcome(asked, timeout=PATIENCE_S)


@pytest.mark.stack
def test_the_outcome_of_an_arrived_message_is_received(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        with connected(servers.bootstrap, database) as client:
            dialog = begin(client)
            dialog.send(ORDER, b"0")
            dialog.send(ORDER, b"1")
            sender = client._client.sender
            assert sender is not None
            sent = sent_as_if_nobody_knew(sender, dialog)
            dialog.flush()
            with pytest.raises(BadInput, match="this broker sent these messages"):
                client.outcome(token.encode(Token(tuple(sent))))
        assert asked_while_somebody_works(broker, token.encode(Token(tuple(sent)))).received


@pytest.mark.stack
def test_messages_to_a_dropped_queue_expire_and_the_outcome_of_the_others_is_told(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        broker.admin.create_queue("Dropped", partitions=1)
        gone = queue_of(broker, "Dropped").address(0)
        with connected(servers.bootstrap, database) as client:
            dialog = begin(client)
            dialog.send(ORDER, b"0")
            sender = client._client.sender
            assert sender is not None
            dialog.flush()
            (sent,) = sent_as_if_nobody_knew(sender, dialog)
        arrived = sent._replace(counters=(0,))
        lost = arrived._replace(address=gone, conversation=bytes(16))
        broker.admin.drop_queue("Dropped", force=True)
        with pytest.raises(OutcomeExpired, match="was dropped, and its log with it"):
            broker.outcome(token.encode(Token((lost,))))
        with pytest.raises(OutcomeExpired, match=f"{UUID(int=0)} .*All other messages were received"):
            asked_while_somebody_works(broker, token.encode(Token((lost, arrived))))


def sent_as_if_nobody_knew(sender: Sender, dialog: Dialog) -> list[Sent]:
    """The token of a client that has no answer about its messages."""
    return [Sent(sender.session.writer, dialog.begin.target, dialog.id.bytes, 0, (0, 1))]


@pytest.mark.stack
def test_sends_of_a_transaction_arrive_when_an_outcome_query_asks_about_its_session(
    servers: Servers, database: str
) -> None:
    """It was committed, so its sends happen. No process has transmitted it; the asking process does."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        with connected(servers.bootstrap, database, transmit=False, send_timeout_s=3.0) as client:
            dialog = begin(client)
            dialog.send(ORDER, b"0")
            dialog.send(ORDER, b"1")
            dialog.flush()
            with client.transaction() as transaction:
                other = transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
                transaction.send(other, ORDER, b"of a transaction")
            sender = client._client.sender
            assert sender is not None
            sender.settle()  # Kafka has the transaction
            sent = tuple(sent_as_if_nobody_knew(sender, dialog))
            asked = token.encode(Token(sent, sender.session.transactions.address))
            assert asked_while_somebody_works(broker, asked).received
            bodies = {message.body for message in receive(broker, "Orders", 3)}
        assert bodies == {b"0", b"1", b"of a transaction"}


@pytest.mark.stack
def test_the_time_of_a_session_is_the_brokers(servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's clock is off by a day. Partitions judge a session's age by its id."""
    clock = time.time
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        for name, unit in (("time", 1), ("time_ns", 10**9)):
            monkeypatch.setattr(time, name, lambda unit=unit: int((clock() + DAY_S) * unit))
        writer, _ = broker._client._sessions.ids.new()
        monkeypatch.undo()
    made_ms = time_of_writer(writer)
    assert made_ms is not None
    assert abs(made_ms / 1000 - clock()) < PATIENCE_S


@pytest.mark.stack
def test_a_query_for_an_outcome_fails_when_no_worker_runs(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        address = queue_of(broker, "Orders").address(0)
        asked = token.encode(Token((Sent(session_writer(0, 1), address, bytes(16), 0, (0,)),)))
        with pytest.raises(OutcomeUnknown, match="workers may be down") as unknown:
            broker.outcome(asked, timeout=0.5)
        assert unknown.value.token == asked
        with pytest.raises(BadInput, match="unchanged"):
            broker.outcome(b"no token")


@pytest.mark.stack
def test_a_session_continues_under_a_new_id(servers: Servers, database: str) -> None:
    """Everything counts, so no question is needed. A lane with records in flight waits for its destination's answer."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        orders, shop = queue_of(broker, "Orders"), queue_of(broker, "Shop")
        dialog = begin(broker)
        dialog.send(ORDER, b"0")
        dialog.flush()
        sender = broker._client.sender
        assert sender is not None
        before = sender.session.writer
        with sender._producer.lock:
            dialog.send(ORDER, b"1")
            sender._renewal.give_up()
        with broker.reader("Orders") as reader, pumped(reader):
            dialog.send(ORDER, b"2")
            dialog.flush()
        assert sender.session.writer != before
        with sender._producer.lock:
            sender.session.ageing = AgeWatch(now_ms() - SESSION_IDLE_MS_MAX)
        until(lambda: sender._renewal.age is Age.OLD, "the sender notices the age of its id")
        dialog.send(ORDER, b"3")
        dialog.flush()
        assert len(sender.session.ids) == 3
        with broker.reader("Orders", timeout=2) as reader:
            assert answer_once(reader) == 4
        proof = prove_exactly_once(servers.bootstrap, orders, shop, {dialog.id.bytes: [b"0", b"1", b"2", b"3"]})
        assert proof.messages == 4


@pytest.mark.stack
def test_only_callers_that_need_a_new_id_wait_for_it(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answered = threading.Event(), threading.Event()
    append = OpenTopic.append

    def slowly(topic: OpenTopic, timeout_s: float) -> int:
        asked.set()
        assert answered.wait(DEADLINE_S)
        return append(topic, timeout_s)

    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.flush()
        sender = broker._client.sender
        assert sender is not None
        monkeypatch.setattr(OpenTopic, "append", slowly)
        with sender._producer.lock:
            dialog.send(ORDER, b"0")
            sender._renewal.give_up()
        assert asked.wait(DEADLINE_S), "a new id is asked for"
        began = time.monotonic()
        sender.ended_by_peer(b"somebody else's.")
        with pytest.raises(OutcomeUnknown):
            broker.flush(0.5)
        assert time.monotonic() - began < 5
        answered.set()
        with broker.reader("Orders") as orders, broker.reader("Shop") as shop, pumped(orders, shop):
            broker.flush()  # they answer about the first records
        assert len(sender.session.ids) == 2


@pytest.mark.stack
def test_an_outcome_query_gives_up_after_its_timeout(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        asked = token.encode(
            Token((Sent(session_writer(0, 1), queue_of(broker, "Orders").address(0), bytes(16), 0, (0,)),))
        )
        broker._client._sessions.ids._open.name = "no.topic.of.this.name"
        began = time.monotonic()
        with pytest.raises(KafkaUnavailable, match="no record can be written to"):
            broker.outcome(asked, timeout=1)
        assert time.monotonic() - began < 10


@pytest.mark.stack
def test_the_documented_example_for_unknown_outcomes_works(servers: Servers, database: str, tmp_path: Path) -> None:
    """In a process whose Kafka is silent, and in another one."""
    text = (Path(__file__).parents[2] / "docs" / "guide" / "ends-and-errors.md").read_text("utf-8")
    kept, asked = (block for block in text.split("```") if "notes." in block)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        sent = Sent(
            session_writer(time.time_ns() // 1_000_000, 1), queue_of(broker, "Orders").address(0), bytes(16), 0, (0,)
        )

        class Silent:
            def flush(self) -> None:
                raise OutcomeUnknown("silent for the test", token.encode(Token((sent,))))

        names = {"dialog": Silent(), "broker": broker, "notes": tmp_path / "notes"}
        exec(kept.removeprefix("python"), names)
        with broker.reader("Orders") as reader, pumped(reader):
            exec(asked.removeprefix("python"), names)
    assert isinstance(names["outcome"], Outcome)
    assert not names["outcome"].received


def wait_for(file: Path) -> None:
    until(file.exists, "the client has no token", PATIENCE_S)
