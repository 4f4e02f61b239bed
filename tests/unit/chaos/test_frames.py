"""The proxy's parser of Kafka's requests."""

from __future__ import annotations

import pytest

from konverse.schemas.errors import MalformedRecord
from tests.chaos.frames import PRODUCE, Produced, Request, correlation_of, produced, request_of
from tests.kit.frames import plain_produce, produce

FETCH = 1


def test_a_request_is_named_by_its_header() -> None:
    request = request_of(produce(7, [("orders", 3, b"batch")]))
    assert (request.api_key, request.version, request.correlation) == (PRODUCE, 9, 7)


@pytest.mark.parametrize("make", [produce, plain_produce])
def test_a_produce_request_is_parsed_into_the_data_for_each_partition(make: object) -> None:
    parts = [("orders", 3, b"batch"), ("orders.journal", 0, b"x" * 300)]
    assert [*produced(request_of(make(1, parts)))] == [Produced(*part) for part in parts]  # type: ignore[operator]


def test_other_requests_produce_nothing() -> None:
    assert [*produced(Request(FETCH, 12, 1, b""))] == []


@pytest.mark.parametrize("size", range(8, 40))
def test_a_produce_that_is_cut_is_malformed(size: int) -> None:
    data = produce(7, [("orders", 3, b"batch")])[:size]
    with pytest.raises(MalformedRecord):
        list(produced(request_of(data)))


def test_a_produce_that_names_topics_by_id_is_not_understood() -> None:
    with pytest.raises(MalformedRecord, match="version 13"):
        list(produced(Request(PRODUCE, 13, 1, b"")))


def test_an_answer_says_whose_it_is() -> None:
    assert correlation_of((-3).to_bytes(4, "big", signed=True) + b"rest") == -3
