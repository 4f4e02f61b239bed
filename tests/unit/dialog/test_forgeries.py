"""Other content under a counter that was taken is never dropped in silence (protocol.md section 3, `ingest`)."""

from __future__ import annotations

import pytest

from konverse.dialog import forgeries
from konverse.dialog.fold import Fold
from konverse.dialog.forgeries import Forgery
from konverse.schemas.identifiers import owner_writer, session_writer
from konverse.schemas.records import Kind
from tests.kit.builders import Pair, Scribe, columns_of, identifier, log_of, record


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_the_honest_record_behind_a_forged_one_is_reported_with_both_offsets(pair: Pair) -> None:
    conversation = pair.begin()
    forged = pair.target.state.ingest_to
    honest = pair.client.message(pair.target.address, conversation)
    pair.target.take(honest, b"what a stranger wrote")
    pair.target.take(honest, b"what was acknowledged")
    assert [*pair.target.state.recent.found] == [Forgery(pair.client.id, 1, forged, forged + 1)]
    assert pair.target.state.recent.count == 1
    assert pair.target.state.statistics.duplicates == 1


def test_another_header_under_the_counter_is_another_content(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.take(pair.client.message(pair.target.address, conversation), b"body")
    pair.target.take(pair.client.message(pair.target.address, identifier("another"), counter=1), b"body")
    assert pair.target.state.recent.count == 1


def test_both_records_may_come_in_one_read(pair: Pair) -> None:
    header = pair.client.message(pair.target.address, pair.begin())
    pair.target.take_all([(header, record(b"one")), (header, record(b"other"))])
    assert pair.target.state.recent.count == 1


def test_the_same_record_again_is_a_duplicate_and_nothing_else(pair: Pair) -> None:
    header = pair.client.message(pair.target.address, pair.begin())
    for _ in range(3):
        pair.target.take(header, b"body")
    assert pair.target.state.statistics.duplicates == 2
    assert not pair.target.state.recent.found


def test_a_copy_for_another_incarnation_is_not_compared(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.take(pair.client.message(pair.target.address, conversation, counter=1, tag=b"else"), b"elsewhere")
    for _ in range(2):
        pair.target.take(pair.client.message(pair.target.address, conversation, counter=1), b"here")
    assert not pair.target.state.recent.found


@pytest.mark.parametrize(
    ("writer", "expected"), [(owner_writer(identifier("incarnation"), 0), 0), (session_writer(1_000, 7), 1)]
)
def test_an_owner_may_say_void_in_the_place_of_what_it_took_back_and_a_session_may_not(
    pair: Pair, writer: bytes, expected: int
) -> None:
    pair.target.state.now_ms = 1_000
    scribe, at, conversation = Scribe("a writer"), pair.target.address, pair.begin()
    scribe.id = writer
    pair.target.take(scribe.message(at, conversation), b"taken back")
    pair.target.take(scribe.write(Kind.VOID, at, conversation, counter=0))
    assert pair.target.state.statistics.duplicates == 1
    assert pair.target.state.recent.count == expected


@pytest.mark.parametrize(("bound", "value"), [("RECENT_RECORDS_MAX", 3), ("RECENT_BODY_BYTES_MAX", 20)])
def test_a_duplicate_of_what_is_not_remembered_is_counted_as_one(
    pair: Pair, bound: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgeries, bound, value)
    conversation = pair.begin()
    first = pair.client.message(pair.target.address, conversation)
    pair.target.take(first, b"0123456789")
    pair.target.take(first, b"0123456789")  # and now there is an index
    for _ in range(5):
        pair.target.take(pair.client.message(pair.target.address, conversation), b"0123456789")
    pair.target.take(first, b"another one")
    assert pair.target.state.statistics.duplicates == 2
    assert not pair.target.state.recent.found


def test_the_fold_raises_an_alarm_that_names_the_partition_and_both_offsets() -> None:
    fold, client = Fold(log_of("orders")), Scribe("client")
    header = client.message(fold.state.address, identifier("c"))
    fold.feed_data(columns_of([(header, record(b"forged")), (header, record(b"honest"))]))
    fold.ingest_to(2)
    (alarm,) = fold.journal.alarms
    assert alarm.startswith("FORGED: the records 0 and 1 of orders/0 ")
    assert client.id.hex() in alarm
