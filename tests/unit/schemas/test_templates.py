"""Ends of envelopes recognised from earlier ones mean the same as in Avro, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import SUFFIX_CACHE_ENTRIES_MAX, SUFFIX_SHAPE_ENTRIES_MAX
from konverse.schemas.wire.envelope import _lay, _read_suffix
from konverse.schemas.wire.records import Begin, End, Suffix
from konverse.schemas.wire.templates import Layings, Readings, Remembered

HOME, TARGET = Address("home", 0, b"home"), Address("target", 1, b"trgt")
IDENTIFIERS = st.binary(min_size=16, max_size=16) | st.sampled_from([bytes(16), b"\xff" * 16, b"homehomehomehome"])
COUNTERS = st.integers(0, 2**40) | st.sampled_from([0, 63, 64, 8191, 8192, 2**34, 2**35, 2**62])
CONVERSATION = bytes(range(16))


def beginning(group: bytes, key: bytes | None = None, contract: str = "//sales/Ordering") -> Suffix:
    return Suffix("//sales/Order", begin=Begin("//sales/Shop", "//sales/Orders", contract, HOME, TARGET, group, key))


def ending(*received: tuple[bytes, int], message_type: str = "end") -> Suffix:
    return Suffix(message_type, home=HOME, detail=End(CONVERSATION, TARGET, received))


def read(data: bytes) -> Suffix | None:
    """The suffix as Avro decodes it."""
    try:
        return _read_suffix(data)
    except MalformedRecord:
        return None


def learned(*suffixes: Suffix) -> Readings:
    readings = Readings()
    for suffix in suffixes:
        readings.learn(_lay(suffix), suffix)
    return readings


SUFFIXES = (
    st.builds(beginning, IDENTIFIERS, st.none() | st.just(b"key"))
    | st.builds(lambda writer, counter: ending((writer, counter)), IDENTIFIERS, COUNTERS)
    | st.builds(lambda writer, counter: ending((writer, counter), (writer, 7)), IDENTIFIERS, COUNTERS)
    | st.just(ending())
    | st.just(Suffix("//sales/Order", home=HOME))
)


@given(st.lists(SUFFIXES, max_size=5))
def test_suffixes_encoded_from_templates_equal_avros_encoding(suffixes: list[Suffix]) -> None:
    layings = Layings(_lay)
    for suffix in suffixes:
        assert layings.lay(suffix) == _lay(suffix)


@given(SUFFIXES, SUFFIXES)
@example(beginning(CONVERSATION), beginning(b"\xff" * 16))
@example(ending((CONVERSATION, 7)), ending((CONVERSATION, 8192)))
def test_a_recognised_suffix_equals_the_suffix_that_avro_reads(one: Suffix, another: Suffix) -> None:
    assert learned(one).find(_lay(another)) in (None, another)


@given(at=st.integers(0, 300), byte=st.integers(0, 255), begins=st.booleans())
def test_a_damaged_suffix_is_recognised_only_if_avro_reads_the_same(at: int, byte: int, *, begins: bool) -> None:
    suffix = beginning(CONVERSATION) if begins else ending((CONVERSATION, 8191))
    data = bytearray(_lay(suffix))
    data[at % len(data)] = byte
    found = learned(suffix).find(bytes(data))
    assert found is None or found == read(bytes(data))


@pytest.mark.parametrize("tail", [b"", b"\0", b"\x80\0\0", b"\x02\0\0", b"\xff" * 5 + b"\0", b"\x0e\0\x02"])
def test_a_counter_that_is_none_is_not_found(tail: bytes) -> None:
    suffix = ending((CONVERSATION, 7))
    data = _lay(suffix)[:-2] + tail
    assert learned(suffix).find(data) is None
    assert read(data) is None


def test_those_that_are_like_one_that_was_seen_are_found() -> None:
    readings = learned(beginning(CONVERSATION), ending((CONVERSATION, 7)))
    for group in (bytes(16), b"\xff" * 16):
        assert readings.find(_lay(beginning(group))) == beginning(group)
    for counter in (0, 8, 8192, 2**33):
        assert readings.find(_lay(ending((CONVERSATION, counter)))) == ending((CONVERSATION, counter))
    for other in (beginning(bytes(16), contract="//sales/ordering"), ending((bytes(16), 7)), ending()):
        assert readings.find(_lay(other)) is None


def test_a_group_that_stands_in_two_places_is_not_learned() -> None:
    twice = beginning(b"//sales/Ordering")
    assert learned(twice).find(_lay(twice)) is None


def test_a_conversation_with_a_key_of_its_own_is_not_learned() -> None:
    assert learned(beginning(CONVERSATION, b"key")).find(_lay(beginning(CONVERSATION, b"key"))) is None


def test_few_places_are_tried_for_one_length() -> None:
    contracts = ["/" * (20 - size) for size in range(SUFFIX_SHAPE_ENTRIES_MAX + 2)]
    suffixes = [
        Suffix("t" * (20 - len(contract)), begin=beginning(CONVERSATION, contract=contract).begin)
        for contract in contracts
    ]
    assert len({len(_lay(suffix)) for suffix in suffixes}) == 1
    assert max(map(len, learned(*suffixes)._shapes.values())) <= SUFFIX_SHAPE_ENTRIES_MAX


def test_a_full_cache_is_cleared() -> None:
    remembered = Remembered[int, int]()
    for number in range(SUFFIX_CACHE_ENTRIES_MAX + 1):
        remembered.put(number, number)
    assert [*remembered] == [SUFFIX_CACHE_ENTRIES_MAX]
