"""The rights of each kind of process, as docs/operating.md names them, on a broker with SASL and an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

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
from konverse.deploy.ports import HOST, free_port
from konverse.deploy.settings import StackSettings
from konverse.deploy.stack import LocalStack
from konverse.schemas.catalog import Queue
from konverse.schemas.errors import KafkaUnavailable, StackError
from tests.kit.servers import missing
from tests.kit.shop import DEADLINE_S, ORDER, answer, begin, connected, open_shop, until

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.xdist_group("own Kafka"), pytest.mark.timeout(300)]

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, SETTINGS = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS

ORDERS, SHOP, CATALOG, OPEN = "konverse.sales.Orders", "konverse.sales.Shop", "konverse.catalog", "konverse.open"

Right = tuple[ResourceType, str, AclOperation]


def _topic(name: str, *operations: AclOperation) -> list[Right]:
    return [(TOPIC, name, operation) for operation in operations]


def _logs(queue: str) -> tuple[str, str, str]:
    return queue, f"{queue}.queue.journal", f"{queue}.queue.snapshot"


RIGHTS: Final[dict[str, list[Right]]] = {
    "sender": [
        *_topic(CATALOG, READ, SETTINGS),
        *_topic(OPEN, WRITE, SETTINGS),
        *_topic(ORDERS, WRITE),
        *_topic(SHOP, WRITE),
    ],
    "worker": [
        *_topic(CATALOG, READ, SETTINGS),
        *_topic(OPEN, WRITE, SETTINGS),
        *_topic(ORDERS, READ, SETTINGS),
        *[right for log in _logs(ORDERS)[1:] for right in _topic(log, READ, WRITE, SETTINGS)],
        *_topic(SHOP, WRITE),
        (GROUP, f"{ORDERS}.queue", READ),
    ],
    "auditor": [
        *_topic(CATALOG, READ, SETTINGS),
        *[right for queue in (ORDERS, SHOP) for log in _logs(queue) for right in _topic(log, READ)],
    ],
}
RIGHTS["onlooker"] = [*RIGHTS["auditor"], *_topic(OPEN, WRITE, SETTINGS)]


@dataclass
class Guarded:
    """A shop on a Kafka that asks who may do what."""

    bootstrap: str
    admin: AdminClient

    def as_user(self, user: str) -> AbstractContextManager[Broker]:
        client = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        client |= {"sasl.username": user, "sasl.password": f"{user}-secret"}
        return connected(self.bootstrap, "sales", client=client, connect_timeout_s=10, send_timeout_s=10)

    def grant(self, user: str, rights: list[Right]) -> None:
        for done in self.admin.create_acls([_binding(user, right) for right in rights]).values():
            done.result(DEADLINE_S)

    def revoke(self, user: str, right: Right) -> None:
        kind, name, operation = right
        every = AclBindingFilter(
            kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW
        )
        assert self.admin.delete_acls([every])[every].result(DEADLINE_S)


def _binding(user: str, right: Right) -> AclBinding:
    kind, name, operation = right
    return AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    plain = free_port(())
    sasl = free_port({plain})
    controller = free_port({plain, sasl})
    clients = f"PLAINTEXT://{HOST}:{plain},SASL://{HOST}:{sasl}"
    users = " ".join(f'user_{user}="{user}-secret"' for user in RIGHTS)
    settings = {
        "listeners": f"{clients},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": clients,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    try:
        stack = LocalStack.start(StackSettings(redis=False, kafka_port=plain, broker_settings=settings))
    except StackError as error:
        missing(error)
    with stack, connected(stack.bootstrap, "sales") as administrator:
        open_shop(administrator)
        yield Guarded(f"{HOST}:{sasl}", AdminClient({"bootstrap.servers": stack.bootstrap}))


def test_each_kind_of_process_works_with_the_rights_that_the_operating_page_names(guarded: Guarded) -> None:
    for user, rights in RIGHTS.items():
        guarded.grant(user, rights)
    with guarded.as_user("sender") as broker:
        begin(broker).send(ORDER, b"an order")
        broker.flush()
    with guarded.as_user("worker") as broker, broker.reader("Orders", timeout=10, max_messages=1) as orders:
        assert answer(orders) == 1
        orders.settle(DEADLINE_S)
    with guarded.as_user("auditor") as broker:
        verdicts, findings = broker.verification(broker.catalog.all(Queue)).run()
    assert ([verdict.consumed for verdict in verdicts], findings) == ([1, 0], [])
    with guarded.as_user("onlooker") as broker:
        (target,) = [row for row in broker.views.conversation_endpoints("Orders") if not row.is_initiator]
        *_, sides = broker.why(target.conversation_id)
        assert target.conversation_id in {row.conversation for row in broker.conversations()}
        assert [side.role for side in sides if side.queue == "Orders"] == ["target"]


@pytest.mark.parametrize("operation", [READ, SETTINGS], ids=["READ", "DESCRIBE_CONFIGS"])
def test_the_error_for_a_missing_right_on_the_catalog_names_the_topic(
    guarded: Guarded, operation: AclOperation
) -> None:
    guarded.grant("auditor", RIGHTS["auditor"])
    guarded.revoke("auditor", (TOPIC, CATALOG, operation))

    def refused() -> bool:
        try:
            with guarded.as_user("auditor") as broker:
                broker.catalog.all(Queue)
        except KafkaUnavailable as error:
            return CATALOG in str(error) and ("DESCRIBE" in str(error) or "uthorization" in str(error))
        return False

    until(refused, "the right is gone")
