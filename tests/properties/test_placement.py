"""A key goes to the partition to which Kafka's own producers send it."""

from __future__ import annotations

from typing import Final

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from konverse.routing.partitioning import choose_home, choose_partition

keys: Final = st.binary(max_size=64)
partitions: Final = st.integers(1, 1024)


@given(keys, partitions)
def test_a_key_goes_where_librdkafka_sends_it(key: bytes, count: int) -> None:
    assert choose_partition(key, count) == confluent_kafka.murmur2(key, count)


@pytest.mark.parametrize("length", range(20))
def test_every_length_of_key_goes_where_librdkafka_sends_it(length: int) -> None:
    for key in (bytes(length), b"\xff" * length, bytes(range(128, 128 + length))):
        assert choose_partition(key, 1009) == confluent_kafka.murmur2(key, 1009)


@given(keys, partitions)
def test_a_partition_is_one_of_those_that_exist(key: bytes, count: int) -> None:
    assert 0 <= choose_partition(key, count) < count


@given(st.binary(min_size=16, max_size=16), partitions, st.frozensets(st.integers(0, 1023), max_size=8))
def test_the_home_of_a_dialog_is_a_partition_that_this_process_owns(
    conversation: bytes, count: int, owned: frozenset[int]
) -> None:
    home = choose_home(conversation, count, owned)
    assert home in owned if owned else home == choose_partition(conversation, count)
