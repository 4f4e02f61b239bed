"""Three brokers of which one is missing: too few replicas are in sync."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from konverse.deploy import LocalStack, StackSettings
from konverse.schemas.errors import OutcomeUnknown
from tests.kit.oracle import verify
from tests.kit.shop import DEADLINE_S, ORDER, begin, connected, open_shop, queue_of, receive, until
from tests.kit.topics import set_config

pytestmark = [pytest.mark.stack, pytest.mark.nightly, pytest.mark.timeout(400)]

NewStack = Callable[[StackSettings], LocalStack]


def in_sync(admin: AdminClient, topic: str) -> set[int]:
    return {*admin.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs}


def test_a_message_that_too_few_replicas_take_is_kept_and_sent_when_they_are_back(new_stack: NewStack) -> None:
    stack = new_stack(StackSettings(brokers=3, redis=False))
    admin = AdminClient({"bootstrap.servers": stack.bootstrap, "log_level": 0})
    with connected(stack.bootstrap, f"t{uuid.uuid4().hex[:12]}", send_timeout_s=4) as broker:
        open_shop(broker)
        topic = queue_of(broker, "Orders").topic
        set_config(admin, topic, "min.insync.replicas", "3")
        dialog = begin(broker)
        dialog.send(ORDER, b"while all replicas are in sync")
        dialog.flush()
        stack.kill("kafka-2")
        until(lambda: in_sync(admin, topic) == {1, 3}, "the replica of the killed broker is out of sync")
        dialog.send(ORDER, b"while one is missing")
        with pytest.raises(OutcomeUnknown, match=r"has not acknowledged message 1 of .* are kept and sent again"):
            dialog.flush(15)
        stack.restart("kafka-2")
        dialog.flush(DEADLINE_S)
        bodies = [message.body for message in receive(broker, "Orders", 2)]
        assert bodies == [b"while all replicas are in sync", b"while one is missing"]
        assert verify(stack.bootstrap, [queue_of(broker, "Orders"), queue_of(broker, "Shop")]) == []
