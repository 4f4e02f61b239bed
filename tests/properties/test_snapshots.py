"""A snapshot is the state at its beginning, whatever happens while it is made, and restores that state."""

from __future__ import annotations

from hashlib import sha256
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from konverse.dialog.fold import snapshot
from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.state.partition import Partition
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import LogIdentity
from konverse.schemas.limits import SNAPSHOT_CHUNK_ENTRIES_MAX
from konverse.schemas.wire.snapshot import Chunk, SnapshotEnd, decode, encode
from tests.kit.builders import log_of
from tests.kit.digests import digest
from tests.kit.strategies import counters, damaged, identifiers, ints
from tests.properties.scripts import Step, rows_of, scripts
from tests.properties.test_replay import Life, works

LOG: LogIdentity = log_of()


@given(scripts, works, works, st.sampled_from([1, 2, 1000]))
def test_the_state_comes_back_from_pieces_that_were_made_while_it_changed(
    script: list[Step], before: list[tuple[str, int]], during: list[tuple[str, int]], size: int
) -> None:
    life = Life(rows_of(script))
    for what, number in before:
        life.do(what, number)
    state = life.driver.state
    with patch.object(snapshot, "SNAPSHOT_PIECE_ENTRIES_MAX", size):
        then, unread = digest(state), state.unread
        freeze = Freeze(state)
        freeze.follow()
        pieces = freeze.pieces()
        data = b""
        for what, number in during:
            data += next(pieces, b"")
            life.do(what, number)
        data += b"".join(pieces)
        assert sha256(data).digest() == then, "the state is not the one with which it began"
        restored = Partition(LOG)
        restore(restored, data)
        assert b"".join(Freeze(restored).pieces()) == data, "the bytes are not canonical"
    assert restored.unread == unread
    assert state.on_touch is None, "the state tells nobody any more"


CHUNKS = st.builds(Chunk, identifiers, ints, st.binary(max_size=50))
ENDS = st.builds(
    SnapshotEnd,
    *(identifiers, ints, identifiers, identifiers, identifiers, counters, identifiers, counters),
    *(st.binary(min_size=32, max_size=32), counters, counters, counters, st.booleans(), counters),
    *(st.integers(1, SNAPSHOT_CHUNK_ENTRIES_MAX), counters),
    st.binary(min_size=32, max_size=32),
)


@given(st.one_of(CHUNKS, ENDS))
def test_a_record_of_a_snapshot_is_read_back(record: Chunk | SnapshotEnd) -> None:
    assert decode(encode(record)) == record


@given(damaged(st.one_of(CHUNKS, ENDS).map(encode)))
def test_a_record_or_malformed_record_comes_of_any_bytes(data: bytes) -> None:
    try:
        record = decode(data)
    except MalformedRecord:
        return
    assert isinstance(record, Chunk | SnapshotEnd)
