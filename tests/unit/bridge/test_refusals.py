"""An authorizer's refusal becomes one typed error with principal, operation, resource and the right to grant."""

from __future__ import annotations

import pickle

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.kafka.refusals import OF_THIS_PROCESS, Need, access_denied, principal_of, unavailable, words
from konverse.schemas.errors import AccessDenied, KafkaUnavailable

REFUSALS = [
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, Need.topic("WRITE", "t"), "WRITE", "topic t"),
    (KafkaError.GROUP_AUTHORIZATION_FAILED, Need.group("g"), "READ", "group g"),
    (KafkaError.CLUSTER_AUTHORIZATION_FAILED, Need.topic("CREATE", "t"), "CREATE", "topic t"),
    (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Need.topic("WRITE", "t"), "WRITE", "topic t"),
]
CLIENT = {"security.protocol": "SASL_SSL", "sasl.username": "shop"}


@pytest.mark.parametrize(("code", "need", "operation", "resource"), REFUSALS)
def test_a_refusal_names_principal_operation_resource_and_remedy(
    code: int, need: Need, operation: str, resource: str
) -> None:
    error = unavailable("a record is not written", KafkaException(KafkaError(code)), need, CLIENT)
    assert isinstance(error, AccessDenied)
    assert (error.principal, error.operation, error.resource) == ("User:shop", operation, resource)
    assert str(error).startswith(f"a record is not written: Kafka refuses User:shop {operation} on {resource}")
    assert str(error).endswith(f"Grant {operation} on {resource} to User:shop")
    assert "reachable" not in str(error)
    assert f"Grant {operation} on {resource} to User:shop" in words(KafkaError(code), need, CLIENT)


def test_a_producer_that_has_failed_for_good_says_only_in_words_that_it_was_refused() -> None:
    fatal = KafkaError(KafkaError._FATAL, "Fatal error: Cluster authorization failed", fatal=True)
    assert isinstance(unavailable("x", fatal, Need.topic("WRITE", "t"), CLIENT), AccessDenied)


def test_another_error_has_one_look_at_the_broker() -> None:
    timed_out = KafkaError(KafkaError._TIMED_OUT)
    error = unavailable("x", timed_out, Need.topic("WRITE", "t"), CLIENT)
    assert type(error) is KafkaUnavailable
    assert str(error).endswith("Check that the broker runs and is reachable")
    assert words(timed_out, Need.topic("WRITE", "t"), CLIENT) == timed_out.str()


@pytest.mark.parametrize(
    ("client", "principal"),
    [
        (CLIENT, "User:shop"),
        ({}, "User:ANONYMOUS"),
        ({"security.protocol": "PLAINTEXT"}, "User:ANONYMOUS"),
        ({"security.protocol": "ssl"}, OF_THIS_PROCESS),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, OF_THIS_PROCESS),
    ],
)
def test_the_principal_is_derived_from_the_client_properties(client: dict[str, str], principal: str) -> None:
    assert principal_of(client) == principal


def test_the_error_goes_from_process_to_process() -> None:
    error = access_denied("no", "User:shop", Need.topic("WRITE", "t"))
    there = pickle.loads(pickle.dumps(error))  # our own data
    assert (str(there), there.principal, there.operation, there.resource) == ("no", "User:shop", "WRITE", "topic t")
