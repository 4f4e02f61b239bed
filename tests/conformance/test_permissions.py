"""Behaviour 135: senders without permission."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from konverse.bridge.broker import Broker
from konverse.deploy import LocalStack
from konverse.schemas.errors import OutcomeUnknown
from tests.kit.shop import ORDER, begin, connected, open_shop, queue_of, receive, until

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def guarded(own_stack: LocalStack, database: str) -> Iterator[tuple[Broker, AdminClient]]:
    """A shop on a Kafka with access control."""
    with connected(own_stack.bootstrap, database) as broker:
        open_shop(broker)
        yield broker, AdminClient({"bootstrap.servers": own_stack.bootstrap})


def rule(topic: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", "*", operation, permission)


def test_135_a_message_without_permission_waits_at_its_sender_with_the_reason(
    guarded: tuple[Broker, AdminClient],
) -> None:
    """Deviates: Kafka's ACLs control writing to a queue's topic; refused messages wait at the sender, with no Error."""
    broker, admin = guarded
    topic = queue_of(broker, "Orders").topic
    dialog = begin(broker)
    dialog.send(ORDER, b"allowed")
    broker.flush()
    deny = rule(topic, AclOperation.WRITE, AclPermissionType.DENY)
    for done in admin.create_acls([rule(topic, AclOperation.ALL, AclPermissionType.ALLOW), deny]).values():
        done.result(30)
    number = 0

    def refused() -> bool:
        nonlocal number
        number += 1
        dialog.send(ORDER, b"%d" % number)
        return "authorization" in broker.views.transmission_status(dialog.id).lower()

    until(refused, "Kafka refuses it")
    with pytest.raises(OutcomeUnknown, match="authorization"):
        dialog.flush(1)
    every = AclBindingFilter(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", "*", AclOperation.ANY, AclPermissionType.ANY
    )
    admin.delete_acls([every])[every].result(30)
    broker.flush()
    bodies = [message.body for message in receive(broker, "Orders", number + 1)]
    assert bodies == [b"allowed", *(b"%d" % each for each in range(1, number + 1))]
