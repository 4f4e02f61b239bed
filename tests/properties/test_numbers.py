"""Our own Avro longs, and the tables that encode running counters, give the same numbers."""

from __future__ import annotations

from io import BytesIO
from typing import Final

import pytest
from fastavro import schemaless_reader, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from konverse.schemas.wire.varint import LOW_MASK, SMALL, high_part, low_table, read_varint, varint
from tests.kit.strategies import counters

LONGS: Final = st.one_of(counters, st.integers(-(2**63), 2**63 - 1))
BOUNDARIES: Final = [
    n + near
    for n in (0, 64, 8192, 16384, 24576, 2**20, 2**27, 2**34, 2**41, 2**48, 2**55, 2**62)
    for near in (-1, 0, 1)
    if n + near >= 0
]


def avro(number: int) -> bytes:
    out = BytesIO()
    schemaless_writer(out, "long", number)
    return out.getvalue()


@given(LONGS)
def test_a_varint_is_an_avro_long(number: int) -> None:
    assert varint(number) == avro(number)
    assert schemaless_reader(BytesIO(varint(number)), "long", None) == number


@given(LONGS, st.binary(max_size=5), st.binary(max_size=5))
def test_a_varint_is_read_back_wherever_it_stands(number: int, before: bytes, behind: bytes) -> None:
    data = before + varint(number) + behind
    assert read_varint(data, len(before)) == (number, len(data) - len(behind))


@given(counters)
def test_the_tables_make_the_bytes_of_a_varint(number: int) -> None:
    assert low_table(number)[number & LOW_MASK] + high_part(number) == varint(number)


@pytest.mark.parametrize("number", BOUNDARIES)
def test_the_tables_hold_where_a_number_gets_longer_or_the_high_part_changes(number: int) -> None:
    assert low_table(number)[number & LOW_MASK] + high_part(number) == varint(number) == avro(number)


@given(st.integers(0, 2**49), st.integers(0, LOW_MASK))
def test_one_table_and_one_high_part_serve_8192_numbers(block: int, place: int) -> None:
    start = block * (LOW_MASK + 1)
    table, high = low_table(start), high_part(start)
    assert table[place] + high == varint(start + place)


def test_the_table_of_small_numbers_is_complete() -> None:
    assert [varint(number) for number in range(LOW_MASK + 1)] == SMALL


@given(LONGS, st.data())
def test_a_cut_varint_is_an_index_error(number: int, data: st.DataObject) -> None:
    whole = varint(number)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(IndexError):
        read_varint(cut, 0)


@pytest.mark.parametrize(
    "data", [b"\xff" * 9 + b"\x02", b"\xff" * 10, b"\x80" * 10 + b"\x00", b"\xff" * 1000 + b"\x00"]
)
def test_more_than_64_bits_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        read_varint(data, 0)


@pytest.mark.parametrize(
    ("data", "number"), [(b"\xff" * 9 + b"\x01", -(2**63)), (b"\xfe" + b"\xff" * 8 + b"\x01", 2**63 - 1)]
)
def test_64_bits_are_a_number(data: bytes, number: int) -> None:
    assert read_varint(data, 0) == (number, 10)
