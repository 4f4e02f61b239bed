"""What an authorizer refuses, as one typed error: the principal, the operation, the resource and what to grant."""

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
        """Of the topic; empty for other resources."""
        kind, _, name = self.resource.partition(" ")
        return name if kind == "topic" else ""

    @classmethod
    def topic(cls, operation: str, name: str | None) -> Need:
        """A right to a topic."""
        return cls(operation, f"topic {name}")

    @classmethod
    def of_member(cls, error: KafkaError, topic: str, group: str) -> Need:
        """The right that a member of a group lacks that reads a topic, or keeps offsets of it."""
        return cls.group(group) if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED else cls.topic("READ", topic)

    @classmethod
    def group(cls, name: str) -> Need:
        """The right to be a member of a consumer group."""
        return cls("READ", f"group {name}")


def principal_of(client: Mapping[str, Any]) -> str:
    """The principal that Kafka sees behind clients with these properties, as far as the properties say."""
    user = client.get("sasl.username")
    if user:
        return f"User:{user}"
    plain = str(client.get("security.protocol", "plaintext")).lower() == "plaintext"
    return "User:ANONYMOUS" if plain else OF_THIS_PROCESS  # a certificate, a ticket or a token says the rest


def is_refusal(error: KafkaError) -> bool:
    """Whether an authorizer said it. A producer that has failed for good says so in its words alone."""
    return error.code() in _CODES or (error.fatal() and "authorization failed" in error.str().lower())


def denied(what: str, error: KafkaError, need: Need, client: Mapping[str, Any]) -> AccessDenied | None:
    """The error for a missing right; None for an error of another kind. `client` are the properties of the client."""
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
    """The error with this text, for programs too."""
    refused = AccessDenied(text)
    refused.principal, refused.operation, refused.resource = principal, *need
    return refused


def unavailable(
    what: str, error: KafkaException | KafkaError, need: Need, client: Mapping[str, Any]
) -> KafkaUnavailable:
    """A typed error for a call that Kafka did not answer, or that it refuses."""
    cause: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    return denied(what, cause, need, client) or KafkaUnavailable(
        f"{what}: {cause.str()}. Check that the broker runs and is reachable"
    )


def words(error: KafkaError, need: Need, client: Mapping[str, Any]) -> str:
    """What stands in a log line about an error: which right is missing, or the client's own words."""
    refused = denied(error.str(), error, need, client)
    return error.str() if refused is None else str(refused)
