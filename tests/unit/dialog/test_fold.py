"""Journal and data log in, state out. Missing data is asked for and never guessed."""

from __future__ import annotations

import hashlib

import pytest

from konverse.bridge.verifier.journal import JournalJudge
from konverse.bridge.verifier.records import Record
from konverse.dialog.fold.fold import Fold
from konverse.dialog.fold.journal import JournalRecord
from konverse.dialog.state.recent import RecordColumns
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.wire.journal import (
    FOLD_VERSION,
    GENESIS_HASH,
    Claim,
    Commit,
    CommitOperations,
    Part,
    encode_claim,
    encode_commit,
    encode_part,
)
from tests.kit.builders import Pair, Row, Scribe, begin_block, columns_of, identifier, log_of, record
from tests.kit.digests import digest

LOG = log_of()
OWNER = identifier("owner")


class Journal:
    """Consecutive records of one owner."""

    def __init__(self) -> None:
        self.records: list[JournalRecord] = []
        self.number = 0
        self.hash = GENESIS_HASH
        self.add(
            encode_claim(Claim(1, OWNER, FOLD_VERSION, LOG.incarnation, LOG.data_topic_id, LOG.journal_topic_id, True))
        )

    def add(self, data: bytes, header: bytes | None = None) -> None:
        self.records.append(JournalRecord(len(self.records), data, 0, header))

    def commit(self, ingest_to: int, **columns: list[int]) -> None:
        self.number += 1
        data = encode_commit(Commit(1, OWNER, self.number, self.hash, ingest_to, CommitOperations(**columns)))  # type: ignore[arg-type]
        self.hash = hashlib.sha256(data).digest()
        self.add(data)


def messages(count: int) -> list[Row]:
    """The messages of one conversation."""
    client, conversation, to = Scribe("client"), identifier("c"), Pair().target.address
    rows: list[Row] = [(client.first(to, conversation, begin_block()), record())]
    rows += [(client.message(to, conversation), record()) for _ in range(count - 1)]
    return rows


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def fold() -> Fold:
    return Fold(LOG)


def test_a_fold_of_nothing_needs_nothing(fold: Fold) -> None:
    assert fold.advance() is None
    assert (fold.head.offset, fold.data_to) == (-1, 0)


def test_a_commit_waits_for_the_data_that_it_ingests(fold: Fold, journal: Journal) -> None:
    journal.commit(3)
    fold.feed_journal(journal.records)
    assert fold.advance() == 3
    assert (fold.head.number, fold.head.offset) == (0, 0)
    fold.feed_data(columns_of(messages(2)))
    assert fold.advance() == 3
    assert fold.data_to == 2
    fold.feed_data(columns_of(messages(3)[2:], 2))
    assert fold.advance() is None
    assert (fold.head.number, fold.state.ingest_to, fold.state.unread) == (1, 3, 3)


def test_one_question_covers_all_commits_that_were_read(fold: Fold, journal: Journal) -> None:
    for ingest_to in (1, 2, 5):
        journal.commit(ingest_to)
    fold.feed_journal(journal.records)
    assert fold.advance() == 5


def test_each_commit_is_applied_to_exactly_its_own_data(fold: Fold, journal: Journal) -> None:
    """A receive of a position is right only before later messages are ingested."""
    journal.commit(2)
    journal.commit(2, receive_endpoints=[0], receive_positions=[2 << 2])
    journal.commit(4, receive_endpoints=[0], receive_positions=[3 << 2])
    fold.feed_data(columns_of(messages(5)))
    fold.feed_journal(journal.records)
    assert fold.advance() is None
    (endpoint,) = fold.state.live()
    assert (endpoint.consumed, endpoint.received, fold.state.ingest_to) == (3, 4, 4)
    assert fold.data_to == 5, "what stands behind the last commit is kept"
    assert fold.ingest_some(10, 1_000) == 1
    assert endpoint.received == 5


def test_it_does_not_matter_in_which_pieces_the_logs_are_read(journal: Journal) -> None:
    journal.commit(2)
    journal.commit(3, receive_endpoints=[0], receive_positions=[1 << 2])
    journal.commit(6, receive_endpoints=[0], receive_positions=[5 << 2])
    rows = messages(6)
    digests = set()
    for size in (1, 2, 3, 6):
        fold = Fold(LOG)
        for start in range(0, 6, size):
            fold.feed_data(columns_of(rows[start : start + size], start))
        for journal_record in journal.records:
            fold.feed_journal([journal_record])
            assert fold.advance() is None
        digests.add(digest(fold.state))
    assert len(digests) == 1


def test_data_that_was_read_already_is_dropped(fold: Fold) -> None:
    rows = messages(5)
    fold.feed_data(columns_of(rows[:3]))
    fold.feed_data(columns_of(rows[1:3], 1))
    fold.feed_data(columns_of(rows[1:5], 1))
    assert fold.data_to == 5
    assert fold.ingest_some(100, 1_000) == 5
    assert fold.state.statistics.accepted == 5
    assert fold.state.statistics.duplicates == 0


def test_a_read_without_records_moves_on(fold: Fold, journal: Journal) -> None:
    journal.commit(3)
    fold.feed_journal(journal.records)
    fold.feed_data(RecordColumns((), (), (), (), 3, 0))
    assert fold.advance() is None
    assert fold.state.ingest_to == 3


def test_whole_reads_are_ingested_until_there_are_enough(fold: Fold) -> None:
    rows = messages(9)
    for start in (0, 3, 6):
        fold.feed_data(columns_of(rows[start : start + 3], start))
    assert fold.ingest_some(4, 1_000) == 6
    assert fold.state.ingest_to == 6
    assert fold.ingest_some(4, 1_000) == 3
    assert fold.ingest_some(4, 1_000) == 0


def test_an_undecodable_record_changes_nothing_and_raises_an_alarm(fold: Fold, journal: Journal) -> None:
    journal.add(b"no record")
    journal.commit(0)
    fold.feed_journal(journal.records)
    assert fold.advance() is None
    assert (fold.head.number, fold.head.offset) == (1, 2)
    ((alarm, _),) = fold.journal.alarms
    assert "journal record 1 of orders/0 is undecodable" in alarm


def test_a_record_with_the_header_of_data_changes_nothing_in_a_journal(fold: Fold, journal: Journal) -> None:
    ids = LOG.incarnation, LOG.data_topic_id, LOG.journal_topic_id
    claim = encode_claim(Claim(2, identifier("a deputy"), FOLD_VERSION, *ids, True))
    journal.add(claim, header=b"an envelope")
    journal.commit(0)
    fold.feed_journal(journal.records)
    assert fold.advance() is None
    assert (fold.head.epoch, fold.head.number, fold.head.offset) == (1, 1, 2)
    ((alarm, _),) = fold.journal.alarms
    assert "journal record 1 of orders/0 is undecodable: it has the header of a data record" in alarm
    judge = JournalJudge(ids)
    judged = [judge.judge(Record(one.offset, one.header, one.data, one.timestamp_ms)) for one in journal.records]
    assert [(one.decision is None, one.counts) for one in judged] == [(False, True), (True, False), (False, True)]


def test_a_part_with_the_header_of_data_is_none(fold: Fold, journal: Journal) -> None:
    data = encode_commit(Commit(1, OWNER, 1, GENESIS_HASH, 0, CommitOperations()))
    pieces = [encode_part(Part(OWNER, 1, at, 3, data[cut : cut + 40])) for at, cut in enumerate((0, 40, 80))]
    assert len(data) <= 120
    for at, piece in enumerate(pieces):
        journal.add(piece, header=b"an envelope" if at == 1 else None)
    fold.feed_journal(journal.records)
    assert fold.advance() is None
    assert fold.head.number == 0


def test_a_record_that_does_not_count_is_passed(fold: Fold, journal: Journal) -> None:
    stale = encode_commit(Commit(1, identifier("a zombie"), 1, GENESIS_HASH, 0, CommitOperations()))
    journal.add(stale)
    journal.commit(0)
    fold.feed_journal(journal.records)
    assert fold.advance() is None
    assert (fold.head.number, fold.head.offset) == (1, 2)


def test_a_journal_that_does_not_chain_halts_the_fold(fold: Fold, journal: Journal) -> None:
    journal.commit(0)
    journal.hash = b"x" * 32
    journal.commit(0)
    fold.feed_journal(journal.records)
    with pytest.raises(PartitionHalted, match="commit 2 of orders/0"):
        fold.advance()
    assert fold.head.number == 1


def test_parts_that_name_other_numbers_of_parts_are_no_commit(fold: Fold, journal: Journal) -> None:
    """The verifier's reading is the same (M16)."""
    data = encode_commit(Commit(1, OWNER, 1, GENESIS_HASH, 0, CommitOperations()))
    pieces = [encode_part(Part(OWNER, 1, 0, 3, data[:40])), encode_part(Part(OWNER, 1, 1, 2, data[40:]))]
    for piece in pieces:
        journal.add(piece)
    fold.feed_journal(journal.records)
    assert fold.advance() is None
    assert fold.head.number == 0
    judge = JournalJudge((LOG.incarnation, LOG.data_topic_id, LOG.journal_topic_id))
    judged = [judge.judge(Record(one.offset, one.header, one.data, one.timestamp_ms)) for one in journal.records]
    assert [one.counts for one in judged if isinstance(one.decision, Commit)] == []
