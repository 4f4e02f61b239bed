"""The partition of a new dialog."""

from __future__ import annotations

import pytest

from konverse.routing.partitioning import choose_home, choose_partition, murmur2


@pytest.mark.parametrize(
    ("key", "number"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_one_of_kafkas_own_tests(key: bytes, number: int) -> None:
    assert murmur2(key) == number % 2**32


def test_one_partition_takes_everything() -> None:
    assert {choose_partition(str(number).encode(), 1) for number in range(100)} == {0}


def test_a_dialog_of_a_process_that_owns_nothing_has_its_home_anywhere() -> None:
    homes = {choose_home(number.to_bytes(16, "big"), 4, frozenset()) for number in range(200)}
    assert homes == {0, 1, 2, 3}


def test_the_homes_of_many_dialogs_are_spread_over_the_owned_partitions() -> None:
    owned = frozenset({1, 5, 7})
    homes = [choose_home(number.to_bytes(16, "big"), 8, owned) for number in range(300)]
    assert all(homes.count(number) > 60 for number in owned)


def test_a_dialog_has_one_home() -> None:
    """The same in every process, whatever the order of its set of partitions."""
    conversation = b"c" * 16
    assert choose_home(conversation, 8, frozenset([7, 1, 5])) == choose_home(conversation, 8, frozenset([5, 7, 1]))
