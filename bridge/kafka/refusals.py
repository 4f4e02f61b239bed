"""Turns an authorization error into one exception type: principal, operation, resource, and the right to grant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from konverse.schemas.errors import AccessDenied, KafkaUnavailable

_CODES: Final = frozenset({
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
})  # fmt: skip

OF_THIS_PROCESS: Final = "the principal of this process"


class Need(NamedTuple):
    """A right that a call needs."""

    operation: str
    resource: str

    @property
    def name(self) -> str:
        """Name of the topic; empty for other resources."""
        kind, _, name = self.resource.partition(" ")
        return name if kind == "topic" else ""

    @classmethod
    def topic(cls, operation: str, name: str | None) -> Need:
        """The right to an operation on a topic."""
        return cls(operation, f"topic {name}")

    @classmethod
    def of_member(cls, error: KafkaError, topic: str, group: str) -> Need:
        """The right that a group member lacks according to `error`: on the group, or on the topic that it reads."""
        return cls.group(group) if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED else cls.topic("READ", topic)

    @classmethod
    def group(cls, name: str) -> Need:
        """The right to be a member of a consumer group."""
        return cls("READ", f"group {name}")


def principal_of(client: Mapping[str, Any]) -> str:
    """Kafka's principal for clients with these properties, as far as the properties show it."""
    user = client.get("sasl.username")
    if user:
        return f"User:{user}"
    plain = str(client.get("security.protocol", "plaintext")).lower() == "plaintext"
    return "User:ANONYMOUS" if plain else OF_THIS_PROCESS  # known only to the certificate, token or Kerberos


def is_refusal(error: KafkaError) -> bool:
    """Whether it is an authorization error. A producer with a fatal error shows this only in the error's text."""
    return error.code() in _CODES or (error.fatal() and "authorization failed" in error.str().lower())


def denied(what: str, error: KafkaError, need: Need, client: Mapping[str, Any]) -> AccessDenied | None:
    """AccessDenied for a missing right; None for an error of another kind. `client` holds the client's properties."""
    if not is_refusal(error):
        return None
    principal = principal_of(client)
    return access_denied(
        f"{what}: Kafka refuses {principal} {need.operation} on {need.resource} ({error.name()}). "
        f"Grant {need.operation} on {need.resource} to {principal}",
        principal,
        need,
    )


def access_denied(text: str, principal: str, need: Need) -> AccessDenied:
    """AccessDenied with this text, and with principal, operation and resource as attributes for programs."""
    refused = AccessDenied(text)
    refused.principal, refused.operation, refused.resource = principal, *need
    return refused


def unavailable(
    what: str, error: KafkaException | KafkaError, need: Need, client: Mapping[str, Any]
) -> KafkaUnavailable:
    """AccessDenied for a call that Kafka refuses, else KafkaUnavailable."""
    cause: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    return denied(what, cause, need, client) or KafkaUnavailable(
        f"{what}: {cause.str()}. Check that the broker runs and is reachable"
    )


def words(error: KafkaError, need: Need, client: Mapping[str, Any]) -> str:
    """Text for a log line about an error: the missing right, or the client's own text."""
    refused = denied(error.str(), error, need, client)
    return error.str() if refused is None else str(refused)
