"""Which journal records count (invariants I1, I2, I17)."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from konverse.bridge.verifier.journal import JournalJudge
from konverse.bridge.verifier.records import Record
from konverse.dialog.fold.journal import JournalHead, NewerFold
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.wire.journal import FOLD_VERSION, GENESIS_HASH, Claim, Commit, CommitOperations, encode_claim
from tests.kit.builders import identifier, log_of

ME, OTHER = identifier("me"), identifier("other")
LOG = log_of()


def claim(epoch: int, owner: bytes = ME, **changes: Any) -> Claim:
    plain = Claim(epoch, owner, FOLD_VERSION, LOG.incarnation, LOG.data_topic_id, LOG.journal_topic_id, clean=True)
    return plain._replace(**changes)


def commit(epoch: int, number: int, owner: bytes = ME, previous: bytes = GENESIS_HASH, **changes: Any) -> Commit:
    return replace(Commit(epoch, owner, number, previous, 0, CommitOperations()), **changes)


@pytest.fixture
def head() -> JournalHead:
    """A head behind our own CLAIM(3)."""
    head = JournalHead(LOG)
    head.take(claim(3), b"claim", 10, 1_000)
    return head


def test_a_fresh_journal_begins_with_a_claim_of_epoch_one() -> None:
    assert JournalHead(LOG).accepts(claim(1))
    assert not JournalHead(LOG).accepts(claim(0))
    assert not JournalHead(LOG).accepts(claim(2))


@pytest.mark.parametrize(
    ("epoch", "counts"),
    [(-(2**63), False), (2, False), (3, False), (4, True), (5, False), (2**60, False), (2**63 - 1, False)],
)
def test_a_claim_counts_when_its_epoch_follows_the_last_one(head: JournalHead, epoch: int, counts: bool) -> None:
    assert head.accepts(claim(epoch, OTHER)) is counts
    assert head.accepts(claim(epoch, ME)) is counts
    judge = JournalJudge((LOG.incarnation, LOG.data_topic_id, LOG.journal_topic_id), epoch=3, owner=ME)
    assert judge.judge(Record(11, None, encode_claim(claim(epoch, OTHER)), 1_000)).counts is counts


@pytest.mark.parametrize("field", ["incarnation", "data_topic_id", "journal_topic_id"])
def test_a_claim_that_names_another_log_does_not_count(head: JournalHead, field: str) -> None:
    assert not head.accepts(claim(4, **{field: identifier("yesterday's")}))
    assert not JournalHead(LOG).accepts(claim(1, **{field: identifier("yesterday's")}))


@pytest.mark.parametrize(
    ("record", "counts"),
    [
        (commit(3, 1), True),
        (commit(2, 1), False),
        (commit(4, 1), False),
        (commit(3, 1, OTHER), False),
        (commit(3, 0), False),
        (commit(3, 2), False),
    ],
)
def test_a_commit_counts_when_epoch_owner_and_number_are_right(head: JournalHead, record: Commit, counts: bool) -> None:
    assert head.accepts(record) is counts


def test_no_commit_counts_before_a_claim() -> None:
    assert not JournalHead(LOG).accepts(commit(1, 1))


def test_after_a_claim_no_commit_of_an_epoch_below_counts(head: JournalHead) -> None:
    head.take(claim(4, OTHER), b"claim", 11, 1_000)
    assert not head.accepts(commit(3, 1))
    assert head.accepts(commit(4, 1, OTHER))


def test_commit_numbers_continue_across_a_claim(head: JournalHead) -> None:
    head.take(commit(3, 1), b"the bytes", 11, 1_000)
    head.take(claim(4, OTHER), b"claim", 12, 1_000)
    previous = hashlib.sha256(b"the bytes").digest()
    assert not head.accepts(commit(4, 1, OTHER, previous))
    assert head.accepts(commit(4, 2, OTHER, previous))


def test_a_commit_that_does_not_chain_halts(head: JournalHead) -> None:
    head.take(commit(3, 1), b"the bytes", 11, 1_000)
    with pytest.raises(PartitionHalted, match=r"commit 2 of orders/0 .* Restore Kafka's storage"):
        head.accepts(commit(3, 2, previous=hashlib.sha256(b"other bytes").digest()))


def test_a_commit_that_does_not_count_needs_no_chain(head: JournalHead) -> None:
    assert not head.accepts(commit(2, 1, previous=b"x" * 32))


def test_a_claim_by_newer_rules_halts_and_one_that_does_not_count_may_have_any(head: JournalHead) -> None:
    with pytest.raises(NewerFold, match=f"rules {FOLD_VERSION + 1}; this process has only {FOLD_VERSION}"):
        head.accepts(claim(4, fold_version=FOLD_VERSION + 1))
    assert not head.accepts(claim(3, fold_version=FOLD_VERSION + 1))
    assert head.accepts(claim(4, fold_version=FOLD_VERSION - 1))


def test_judging_changes_nothing(head: JournalHead) -> None:
    before = replace(head)
    head.accepts(claim(9))
    head.accepts(commit(3, 1))
    assert head == before


def test_the_time_is_the_latest_log_append_time_of_valid_records(head: JournalHead) -> None:
    head.take(commit(3, 1), b"1", 11, 5_000)
    head.take(commit(3, 2), b"2", 12, 4_000)
    assert head.now_ms == 5_000
    head.skip(13)
    assert head.now_ms == 5_000


def test_a_release_is_clean_until_the_next_claim(head: JournalHead) -> None:
    assert JournalHead(LOG).clean
    assert not head.clean
    head.take(commit(3, 1, release=True), b"1", 11, 0)
    assert head.clean
    head.take(claim(4, OTHER), b"claim", 12, 0)
    assert not head.clean


def test_a_claim_sets_epoch_owner_and_its_own_offset(head: JournalHead) -> None:
    assert (head.epoch, head.owner, head.claim_offset, head.offset) == (3, ME, 10, 10)
    head.take(commit(3, 1), b"1", 11, 0)
    assert (head.number, head.claim_offset, head.offset) == (1, 10, 11)


@pytest.mark.parametrize("offset", [10, 9])
def test_the_journal_never_goes_back(head: JournalHead, offset: int) -> None:
    with pytest.raises(AssertionError, match="orders/0 went back from 10"):
        head.skip(offset)
