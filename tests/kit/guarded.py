"""The shop on a Kafka with SASL and an authorizer, and one principal for each kind of process."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
)

from konverse.bridge.admin.rights import ANY, Right
from konverse.bridge.broker import Broker
from konverse.deploy import LocalStack, StackSettings
from konverse.deploy.host.ports import HOST, free_port
from konverse.schemas.errors import StackError
from tests.kit.servers import missing
from tests.kit.shop import DEADLINE_S, connected

SHORT_S: Final = 4.0
"""Timeout of a process whose requests Kafka refuses."""


def in_words(right: Right) -> str:
    """A right in the words of our errors."""
    kind, name, operation = right
    return f"{operation.name} on {kind.name.lower()} {name.removesuffix(ANY)}"


@dataclass
class Guarded:
    """A shop on a Kafka with access control."""

    bootstrap: str
    """The SASL listener."""
    admin: AdminClient
    plain: str
    """The listener whose clients are superusers."""

    def client(self, user: str) -> dict[str, str]:
        """Client settings of a process that authenticates as `user`."""
        client = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        return client | {"sasl.username": user, "sasl.password": f"{user}-secret"}

    def as_user(self, user: str) -> AbstractContextManager[Broker]:
        """A connection that authenticates as `user`."""
        settings = dict.fromkeys(("connect_timeout_s", "send_timeout_s", "append_timeout_s"), SHORT_S)
        return connected(self.bootstrap, "sales", client=self.client(user), **settings)

    def grant(self, user: str, rights: list[Right]) -> None:
        """Grant rights to `user`."""
        for done in self.admin.create_acls([_binding(user, right) for right in rights]).values():
            done.result(DEADLINE_S)

    def revoke(self, user: str, right: Right) -> None:
        """Revoke a granted right."""
        kind, name, operation = right
        every = AclBindingFilter(kind, *_pattern(name), f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        assert self.admin.delete_acls([every])[every].result(DEADLINE_S)


def _binding(user: str, right: Right) -> AclBinding:
    kind, name, operation = right
    return AclBinding(kind, *_pattern(name), f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def _pattern(name: str) -> tuple[str, ResourcePatternType]:
    kind = ResourcePatternType.PREFIXED if name.endswith(ANY) else ResourcePatternType.LITERAL
    return name.removesuffix(ANY), kind


@contextmanager
def guarded_stack(users: Collection[str]) -> Iterator[tuple[Guarded, Broker]]:
    """Start a Kafka with an authorizer and these users; yields it and a superuser's connection."""
    plain = free_port(())
    sasl = free_port({plain})
    controller = free_port({plain, sasl})
    clients = f"PLAINTEXT://{HOST}:{plain},SASL://{HOST}:{sasl}"
    known = " ".join(f'user_{user}="{user}-secret"' for user in users)
    settings = {
        "listeners": f"{clients},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": clients,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    try:
        stack = LocalStack.start(StackSettings(redis=False, kafka_port=plain, broker_settings=settings))
    except StackError as error:
        missing(error)
    with stack, connected(stack.bootstrap, "sales") as administrator:
        yield (
            Guarded(f"{HOST}:{sasl}", AdminClient({"bootstrap.servers": stack.bootstrap}), stack.bootstrap),
            administrator,
        )
