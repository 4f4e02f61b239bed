"""Kafka or Redis is away: waiting processes log it once and then seldom, and log when it is back."""

from __future__ import annotations

import logging
import shutil
from unittest.mock import Mock

import pytest
import redis

from konverse.deploy import LocalStack
from konverse.schemas.errors import OutcomeUnknown
from tests.kit.pausing import paused
from tests.kit.shop import ORDER, answer_once, begin, connected, open_shop, pumped, receive, send_orders, until

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(200)]


def test_a_reader_that_waits_for_kafka_says_so_and_so_does_close(
    own_stack: LocalStack, caplog: pytest.LogCaptureFixture
) -> None:
    def said(words: str) -> list[logging.LogRecord]:
        return [record for record in caplog.records if words in record.message]

    with connected(own_stack.bootstrap, "away", redis=own_stack.redis_url) as broker:
        open_shop(broker)
        with broker.reader("Orders") as reader:
            reader.wait_for_partitions(1)
            with pumped(reader), paused(own_stack.pids["kafka"]):
                until(lambda: said("Kafka has not answered for"), "the reader says that Kafka is away")
            with pumped(reader):
                until(lambda: said("Kafka answers again"), "the reader says that Kafka is back")
            assert len(said("Kafka has not answered for")) == 1
            with pumped(reader), paused(own_stack.pids["redis"]):
                until(
                    lambda: said("the view of queue 'Orders' is not written"),
                    "the writer of the view says that Redis is away",
                )
                writer = reader._driver._view
                assert writer is not None
                until(lambda: writer._trouble._absent._count[None] >= 3, "it has tried again")
            with pumped(reader):
                back = (
                    "the view of queue 'Orders' is written again",
                    "Redis answers again; the view of queue 'Orders' is complete there",
                )
                until(lambda: any(map(said, back)), "the writer of the view says that Redis is back")
            assert len(said("the view of queue 'Orders' is not written")) == 1
        dialog = begin(broker)
        broker.flush()  # an acknowledgement that comes after the kill would look as if Kafka went on
        own_stack.kill("kafka")  # first, or a machine that pauses here has the record acknowledged
        dialog.send(ORDER, b"x")
        with pytest.raises(OutcomeUnknown, match=r"127\.0\.0\.1:\d+"):
            broker.flush(4)
        (waits,) = said("Kafka has not acknowledged records to ")
        assert " yet; waiting 2 s more" in waits.message
        own_stack.restart("kafka")
        assert [message.body for message in receive(broker, "Orders", 1)] == [b"x"]


def test_a_redis_that_refuses_to_write_is_reported_once_with_its_reason_until_it_writes(
    own_stack: LocalStack, caplog: pytest.LogCaptureFixture
) -> None:
    """NOPERM: the view may be read, not written. Before the first write, no line may claim success."""

    def said(words: str) -> list[str]:
        return [record.message for record in caplog.records if words in record.message]

    with redis.Redis.from_url(own_stack.redis_url) as admin:

        def allow(*rights: str) -> None:
            admin.execute_command("ACL", "SETUSER", "guest", "on", ">pw", "~*", "resetkeys", "~*", "-@all", *rights)

        allow("+@read", "+@connection")
        guest = own_stack.redis_url.replace("redis://", "redis://guest:pw@")
        with connected(own_stack.bootstrap, "refused", redis=guest) as broker:
            open_shop(broker)
            send_orders(broker, dialogs=1, messages=1)
            with broker.reader("Orders") as reader:
                reader.wait_for_partitions(1)
                with pumped(reader):
                    until(lambda: said("Redis refuses it: this user has no permissions"), "the refusal is reported")
                    writer = reader._driver._view
                    assert writer is not None
                    tries = Mock(wraps=writer._trouble.failed)
                    writer._trouble.failed = tries  # type: ignore[method-assign]
                    until(lambda: tries.call_count >= 3, "it is tried again")
                    assert said("the view of queue 'Orders' is written again") == []
                    allow("+@all")
                    until(lambda: said("the view of queue 'Orders' is written again"), "the view is written")
        assert (
            len(said("the view of queue 'Orders' is not written"))
            == len(said("the view of queue 'Orders' is written again"))
            == 1
        )


def test_a_reader_whose_consumer_group_disappears_from_kafka_continues_with_a_new_consumer(
    own_stack: LocalStack, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(own_stack.bootstrap, "groupless") as broker:
        open_shop(broker)
        with broker.reader("Orders", timeout=1) as reader:
            reader.wait_for_partitions(1)
            assert answer_once(reader) == 0
            own_stack.kill("kafka")
            groups = [*own_stack.directory.rglob("__consumer_offsets-*")]
            assert groups
            for folder in groups:
                shutil.rmtree(folder)
            own_stack.restart("kafka")
            begin(broker).send(ORDER, b"x")
            until(lambda: answer_once(reader) == 1, "a message that is received although the group is gone")
        failed = [record.message for record in caplog.records if "failed and was replaced" in record.message]
        assert len(failed) == 1
        assert "The group id does not exist" in failed[0]
