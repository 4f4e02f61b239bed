"""The search for the newest intact snapshot finds it, and keeps few chunks of the others."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import pytest

from konverse.dialog.owner.events import Recover
from konverse.dialog.owner.recovery import FIRST_WINDOW, SnapshotSearch, snapshot_id
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.wire.journal import FOLD_VERSION
from konverse.schemas.wire.snapshot import Chunk, SnapshotEnd, decode, encode
from tests.kit.builders import identifier, log_of

LARGE = 120
"""Chunks of a snapshot, far more than a first window."""

OWNER = identifier("an owner")


def snapshot(offset: int, chunks: int = LARGE, *, follower: bool = False, **changes: Any) -> list[bytes]:
    """The records of a snapshot of the state at this offset, which has ingested as many data records."""
    name, log = snapshot_id(OWNER, offset, follower=follower), log_of()
    pieces = [f"{offset}/{number}".encode() for number in range(chunks)]
    data = b"".join(pieces)
    end = SnapshotEnd(
        snapshot=name,
        fold_version=FOLD_VERSION,
        incarnation=log.incarnation,
        data_topic_id=log.data_topic_id,
        journal_topic_id=log.journal_topic_id,
        epoch=1,
        owner=OWNER,
        number=offset,
        hash=bytes(32),
        claim_offset=0,
        offset=offset,
        now_ms=0,
        clean=False,
        ingest_to=offset,
        chunks=chunks,
        size=len(data),
        sha256=hashlib.sha256(data).digest(),
    )
    records = [encode(Chunk(name, number, piece)) for number, piece in enumerate(pieces)]
    return [*records, encode(end._replace(**changes))]


@dataclass
class Searched:
    """Result of a search."""

    search: SnapshotSearch
    chunks_max: int
    records: int
    """Number of records read."""

    @property
    def offset(self) -> int | None:
        """Journal offset of the found state."""
        return None if self.search.found is None else self.search.found.end.offset

    @property
    def first_offset(self) -> int | None:
        return None if self.search.found is None else self.search.found.first_offset


def searched(topic: list[bytes], piece: int = 7, **bounds: int) -> Searched:
    """Search a topic with reads of at most `piece` records."""
    search = SnapshotSearch(
        log_of(), Recover(**{"journal_start": 0, "journal_end": 0, **bounds, "snapshots_end": len(topic)})
    )
    done = Searched(search, 0, 0)
    while (span := search.next_read()) is not None:
        start, end = span
        assert 0 <= start < end <= len(topic)
        end = min(end, start + piece)
        search.read([(at, topic[at]) for at in range(start, end)], end)
        done.records += end - start
        assert done.records < 50 * len(topic), "it goes round and round"
        done.chunks_max = max(done.chunks_max, len(search._chunks))
    return done


def spoil(records: list[bytes], at: int = 0) -> list[bytes]:
    """The same records with garbage at one index."""
    return [*records[:at], b"garbage", *records[at + 1 :]]


def test_the_newest_snapshot_is_found_and_nothing_before_it_is_read() -> None:
    topic = [*snapshot(1), *snapshot(2), *snapshot(3)]
    done = searched(topic)
    assert (done.offset, done.first_offset) == (3, 2 * (LARGE + 1))
    assert done.records <= LARGE + 1 + 2 * FIRST_WINDOW
    assert done.search.found is not None
    assert done.search.found.data == b"".join(f"3/{number}".encode() for number in range(LARGE))


@pytest.mark.parametrize("at", [0, LARGE // 2, LARGE - 1])
def test_a_spoilt_snapshot_is_passed_over_and_the_one_before_it_found(at: int) -> None:
    done = searched([*snapshot(1), *snapshot(2), *spoil(snapshot(3), at)])
    assert done.offset == 2


@pytest.mark.parametrize("changes", [{"sha256": bytes(32)}, {"size": 1}, {"incarnation": identifier("another")}])
def test_a_snapshot_that_does_not_match_its_end_record_is_skipped(changes: dict[str, Any]) -> None:
    assert searched([*snapshot(1), *snapshot(2, **changes)]).offset == 1


def test_however_many_are_spoilt_the_oldest_one_is_found() -> None:
    topic = snapshot(1)
    for offset in range(2, 9):
        topic += spoil(snapshot(offset), offset)
    assert searched(topic).offset == 1


def test_where_all_are_spoilt_the_search_ends() -> None:
    done = searched([*spoil(snapshot(1)), *spoil(snapshot(2)), *snapshot(3, sha256=bytes(32))])
    assert done.search.found is None


def test_a_snapshot_that_was_not_finished_is_passed_over() -> None:
    done = searched([*snapshot(1), *snapshot(2), *snapshot(3)[:-1]])
    assert done.offset == 2


def test_it_keeps_the_wanted_snapshot_and_one_window() -> None:
    topic = [record for offset in range(1, 20) for record in snapshot(offset)]
    done = searched([*topic, *spoil(snapshot(20)), *spoil(snapshot(21))])
    assert done.offset == 19
    assert done.chunks_max <= LARGE + 2 * FIRST_WINDOW


def test_between_others_chunks_it_keeps_its_own() -> None:
    """Two processes write at the same time."""
    one, other = snapshot(8), snapshot(7, 8 * LARGE)
    mixed = [record for place, chunk in enumerate(one) for record in (*other[8 * place : 8 * place + 8], chunk)]
    done = searched([*snapshot(1), *mixed])
    assert done.offset == 8
    assert done.chunks_max <= LARGE + 2 * (LARGE + FIRST_WINDOW)


def test_an_old_snapshot_of_a_follower_does_not_hide_the_one_of_an_owner_before_it() -> None:
    late = snapshot(5, follower=True)
    topic = [*snapshot(1), *snapshot(9), *late]
    for bounds in ({"journal_start": 10}, {"data_start": 9}, {"journal_start": 10, "data_start": 9}):
        done = searched(topic, **bounds)
        assert done.offset == 9
        assert done.search.found is not None
        assert done.search.found.by_owner
    assert searched(topic).offset in (5, 9), "either is good where the logs behind both are there"


def test_a_snapshot_whose_journal_is_gone_is_none() -> None:
    assert searched(snapshot(5), journal_start=7).search.found is None
    assert searched(snapshot(5), journal_start=6).offset == 5


def test_where_the_data_behind_all_are_gone_the_newest_is_found_yet() -> None:
    topic = [*snapshot(1), *spoil(snapshot(6)), *snapshot(4, follower=True), *spoil(snapshot(7))]
    done = searched(topic, data_start=9)
    assert done.offset == 4
    assert searched(topic, data_start=9, journal_start=6).search.found is None


def test_a_chunk_that_came_again_behind_its_end_does_no_harm() -> None:
    one = snapshot(1)
    topic = [*one, *one[:3], one[-1]]
    done = searched(topic)
    assert done.offset == 1
    assert done.first_offset == 0, "deleting begins before all that belongs to it"


@pytest.mark.parametrize("chunks", [2, LARGE])
def test_a_chunk_that_comes_first_behind_its_end_is_found(chunks: int) -> None:
    late = snapshot(8, chunks)
    late = [*late[:-2], late[-1], late[-2]]
    assert searched([*snapshot(1), *late]).offset == 8
    assert searched([*snapshot(1), *late, *spoil(snapshot(9, chunks))]).offset == 8
    assert searched([*snapshot(1), *late, *snapshot(9)[:-1]]).offset == 8


@pytest.mark.parametrize("piece", [1, 3, 1_000])
def test_it_does_not_matter_in_which_pieces_the_topic_is_read(piece: int) -> None:
    assert searched([*snapshot(1), *snapshot(2), *spoil(snapshot(3))], piece).offset == 2


def test_an_empty_topic_holds_none() -> None:
    assert searched([]).search.found is None
    assert searched([b"garbage"] * 40).search.found is None


@pytest.mark.parametrize("chunks", [0, -1, 1 << 40])
def test_an_end_of_no_chunks_or_of_more_than_a_snapshot_has_is_no_end(chunks: int) -> None:
    """The search would ask for each of them."""
    end = decode(snapshot(0, 1)[-1])
    assert isinstance(end, SnapshotEnd)
    with pytest.raises(MalformedRecord, match=f"the END of a snapshot of {chunks} chunks"):
        decode(encode(end._replace(chunks=chunks)))
