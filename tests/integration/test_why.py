"""`konverse why`: the position of a conversation, in words."""

from __future__ import annotations

import json
import re
import signal
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from konverse.bridge.broker import Broker
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.limits import ATTEMPTS_MAX
from tests.kit.commands import run
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, ORDER, begin, connected, fill, handle, living, open_shop, pumped, receive, until
from tests.kit.workers import Job, Worker

pytestmark = pytest.mark.stack


def why(broker: Broker, conversation: uuid.UUID) -> dict[str, str]:
    """The text about each side."""
    arguments = ("--kafka", broker.settings.kafka, "--database", broker.database, "--json")
    code, out, err = run("why", str(conversation), *arguments)
    assert (code, err) == (0, "")
    found: list[dict[str, Any]] = json.loads(out)
    return {side["role"]: " ".join((side["state"], *side["reasons"])) for side in found}


def test_why_gives_for_each_side_the_reason_for_its_wait(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        for body in (b"cup", b"pot"):
            dialog.send(ORDER, body)
        broker.flush()
        with broker.reader("Orders") as orders:
            fill(orders, 2)
            orders.settle()
        with broker.reader("Shop") as shop:
            until(lambda: living(shop) == 1, "the dialog is known at home")
            shop.settle()
        told = why(broker, dialog.id)
        assert (
            "To be received: 2 messages. No handler of service '//sales/OrderService' has committed" in told["target"]
        )
        assert "no reader of the queue runs" in told["target"]
        assert "Nothing waits to be received." in told["initiator"]
        there = f"in {broker.catalog.get(Queue, 'Orders').topic}/"
        (said,) = re.findall(f"Where the other side lives, {there}[0-9]+: [^.]+[.]", told["initiator"])
        assert said.endswith("no reader of the queue runs.")
        handle(broker, "Orders", lambda transaction: transaction.end(transaction.dialog))
        told = why(broker, dialog.id)
        assert "waits for the other side to end" in told["target"]
        assert "No owner has ingested" in told["initiator"]


def test_a_suspended_conversation_says_so(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER)
        broker.flush()
        with broker.reader("Orders", timeout=10) as orders:
            for _ in range(ATTEMPTS_MAX):
                with suppress(LookupError), next(orders):
                    raise LookupError
            orders.settle()
            told = why(broker, dialog.id)
            assert "To be received: 1 message. An operator has to resume, skip or end" in told["target"]
            assert "no reader" not in told["target"]


def test_an_open_transaction_of_a_stranger_is_named(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `why` at once, and by one warning of the waiting reader. Behind the transaction the rest is received."""
    monkeypatch.setattr("konverse.bridge.kafka.open_transactions.LOOK_EVERY_S", 0.2)

    def warnings(text: str) -> list[str]:
        return [message for message in caplog.messages if text in message]

    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"before")
        broker.flush()
        topic = broker.catalog.get(Queue, "Orders").topic
        with Producer({"bootstrap.servers": servers.bootstrap, "transactional.id": database}) as stranger:
            stranger.init_transactions(DEADLINE_S)
            stranger.begin_transaction()
            stranger.produce(topic, b"a stranger's", partition=0)
            stranger.flush(DEADLINE_S)
            dialog.send(ORDER, b"behind")
            broker.flush()
            with broker.reader("Orders") as orders:
                fill(orders, 1)
                with pumped(orders):
                    until(lambda: warnings("holds up"), "the reader warns")
                orders.settle()
                told = why(broker, dialog.id)["target"]
                assert f"An open transaction of a foreign producer holds up {topic}/0: the records 1 to 2" in told
                (state,) = broker.operations.reading_states("Orders")
                assert "an open transaction of a foreign producer holds up" in state.held_up
                assert "the records 1 to 2" in state.held_up
                place = ("--kafka", broker.settings.kafka, "--database", broker.database)
                assert state.held_up in run("view", "Orders", *place)[1]
                shown = json.loads(run("view", "Orders", *place, "--json")[1])
                assert shown["partitions"]["0"]["held_up"] == state.held_up
                stranger.abort_transaction(DEADLINE_S)
                fill(orders, 2)
                with pumped(orders):
                    until(lambda: warnings("has ended"), "the reader says that it is over")
                assert len(warnings("holds up")) == 1
                orders.settle()
        assert "transaction" not in why(broker, dialog.id)["target"]


def test_a_worker_that_was_killed_is_not_shown_as_a_reader_that_has_nothing_to_do(
    servers: Servers, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.bridge.views.reading_state.LAG_MS", 300)
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        dialog = begin(broker)
        place = ("--kafka", broker.settings.kafka, "--database", broker.database)
        with Worker(Job(servers.bootstrap, database, str(tmp_path / "diary"), idle_s=None)) as worker:
            dialog.send(ORDER, b"received")
            broker.flush()
            receive(broker, "Shop", 1)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        dialog.send(ORDER, b"waits")
        broker.flush()
        said = "its owner has written nothing for"

        def told() -> bool:
            return said in run("view", "Orders", "--redis", servers.redis_url, *place)[1]

        until(told, "the view doubts that the owner lives")
        dead = "has left its consumer group, and is dead: start a reader."
        until(lambda: dead in why(broker, dialog.id)["target"], "Kafka has removed the worker from its group")
        shown = json.loads(run("view", "Orders", *place, "--json")[1])["partitions"]["0"]
        assert (shown["stuck"], shown["waiting"], shown["reader"]) == (False, 1, False)
        with broker.reader("Orders") as orders:
            fill(orders, 1)
            orders.settle()
            assert said not in run("view", "Orders", *place)[1]
            assert said not in why(broker, dialog.id)["target"]


def test_people_read_lines(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER)
        broker.flush()
        receive(broker, "Orders", 1)
        kafka = f"kafka://{servers.bootstrap}"
        code, out, _ = run("why", str(dialog.id), "--kafka", kafka, "--database", database)
        assert code == 0
        assert "target //sales/OrderService, CO, in Orders/0, talks to //sales/Shop" in out
        code, out, err = run("why", str(uuid.uuid4()), "--kafka", kafka, "--database", database)
        assert (code, out) == (2, "")
        assert "it is over on both sides" in err
        assert run("why", "nonsense", "--kafka", kafka)[0] == 2


def test_a_queue_that_is_off_says_so(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER)
        broker.flush()
        with broker.reader("Orders") as orders:
            fill(orders, 1)
            orders.settle()
        assert "STATUS" not in why(broker, dialog.id)["target"]
        broker.admin.alter_queue("Orders", status=False)
        assert "Queue 'Orders' delivers no messages because its STATUS is OFF" in why(broker, dialog.id)["target"]
