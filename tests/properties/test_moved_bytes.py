"""The state of a moved endpoint is read back from its pieces. Any other bytes raise MalformedRecord."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.wire import moved as moved_state
from konverse.schemas.wire.moved import Moved, MovedGroup, decode_moved, encode_moved, group_of_moved, pieces_of
from tests.kit.strategies import damaged, moved_states


@given(moved_states(), st.integers(1, 100))
def test_the_state_of_an_endpoint_is_read_back_from_its_pieces(moved: Moved, size: int) -> None:
    with patch.object(moved_state, "BODY_BYTES_MAX", size):
        pieces = pieces_of(encode_moved(moved))
    assert max(map(len, pieces)) <= size
    assert decode_moved(b"".join(pieces)) == moved


@given(damaged(moved_states().map(encode_moved)))
def test_a_state_or_malformed_record_comes_of_any_bytes(data: bytes) -> None:
    try:
        moved = decode_moved(data)
    except MalformedRecord:
        return
    assert isinstance(moved, Moved)


@given(moved_states())
def test_the_first_piece_says_of_which_group_it_is(moved: Moved) -> None:
    piece = pieces_of(encode_moved(moved._replace(waiting=[], urgent=[])))[0]
    assert group_of_moved(piece) == (moved.generation, moved.service, moved.group)


@given(damaged(moved_states().map(encode_moved)))
def test_a_group_or_malformed_record_comes_of_any_bytes(data: bytes) -> None:
    try:
        assert isinstance(group_of_moved(data), MovedGroup)
    except MalformedRecord:
        return
