"""`max.message.bytes` lowered below what is written: nothing is reported as sent, and all goes on when it is mended."""

from __future__ import annotations

import logging
import re
import threading

import pytest
from confluent_kafka.admin import AdminClient

from konverse.bridge.reader.reader import Reader
from konverse.schemas.errors import KonverseError, OutcomeUnknown, SteppedDown
from konverse.schemas.identifiers import journal_topic
from tests.kit.oracle import verify
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, ORDER, RECEIPT, begin, connected, open_shop, queue_of, receive, until
from tests.kit.topics import set_config

pytestmark = pytest.mark.stack

LARGE = b"x" * 20_000


@pytest.fixture
def admin(servers: Servers) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers.bootstrap})


def test_a_body_that_its_topic_does_not_take_is_kept_and_sent_when_the_topic_is_mended(
    servers: Servers, database: str, admin: AdminClient
) -> None:
    with connected(servers.bootstrap, database, send_timeout_s=5) as broker:
        open_shop(broker)
        topic = queue_of(broker, "Orders").topic
        dialog, beside = begin(broker), begin(broker)
        set_config(admin, topic, "max.message.bytes", "2000")
        dialog.send(ORDER, LARGE)
        command = f"kafka-configs --bootstrap-server {servers.bootstrap} --alter --topic {topic}"
        remedy = re.escape(f"{command} --add-config max.message.bytes=1000000")
        with pytest.raises(OutcomeUnknown, match=f"topic {topic} has max.message.bytes=2000.*{remedy}"):
            dialog.flush(5)
        set_config(admin, topic, "max.message.bytes", "1000000")
        dialog.flush(DEADLINE_S)
        beside.send(ORDER, b"small")
        beside.flush()
        assert {message.body for message in receive(broker, "Orders", 2)} == {LARGE, b"small"}
        assert verify(servers.bootstrap, [queue_of(broker, "Orders"), queue_of(broker, "Shop")]) == []


def test_a_handlers_commit_that_the_journal_does_not_take_waits_until_the_journal_is_mended(
    servers: Servers, database: str, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(servers.bootstrap, database) as broker, caplog.at_level(logging.WARNING):
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"an order")
        dialog.flush()
        journal = journal_topic(queue_of(broker, "Orders").topic)
        handled: list[bytes] = []
        ended: list[BaseException] = []

        def answer(reader: Reader) -> None:
            try:
                for transaction in reader:
                    with transaction:
                        for message in transaction:
                            handled.append(message.body)
                            transaction.send(message.dialog, RECEIPT, LARGE)
            except KonverseError as error:
                ended.append(error)

        with broker.reader("Orders") as reader:
            reader.wait_for_partitions(1)
            set_config(admin, journal, "max.message.bytes", "2000")
            thread = threading.Thread(target=answer, args=(reader,))
            thread.start()
            try:
                until(lambda: handled.count(b"an order") > 1 or ended, "the message is received again")
                with pytest.raises((SteppedDown, OutcomeUnknown)):
                    reader.settle(3)
                until(lambda: f"topic {journal} has max.message.bytes=2000" in caplog.text, "the line")
                set_config(admin, journal, "max.message.bytes", "1000000")
                (told,) = receive(broker, "Shop", 1)
                assert told.body == LARGE
                assert not ended
            finally:
                reader.close()
                thread.join(DEADLINE_S)
        assert verify(servers.bootstrap, [queue_of(broker, "Orders"), queue_of(broker, "Shop")]) == []
