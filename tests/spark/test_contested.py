"""Records under a used counter with other content: the verdict `contested`, and one warning for each read."""

from __future__ import annotations

import logging
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konverse.schemas.identifiers import owner_writer, session_writer
from konverse.schemas.limits import ALARMS_MAX, RECENT_BODY_BYTES_MAX, RECENT_RECORDS_MAX
from konverse.schemas.wire.records import Kind
from konverse.spark.connection.settings import parse
from konverse.spark.log.acceptance import Acceptance
from konverse.spark.log.contested import ContestedCount, ContestedPair
from konverse.spark.log.ingest import Ingest, RecordVerdict
from konverse.spark.read.reader import Range, contested_records
from tests.kit.batches import ReceivedMessages
from tests.kit.builders import Scribe, Side, begin_block, identifier
from tests.spark.logs import ORDERS
from tests.spark.test_batch_rows import log_of, pieces

CONVERSATION: Final = identifier("a conversation")
WRITERS: Final = (Scribe("a session"), Scribe("another session"))


def scribe(writer: bytes) -> Scribe:
    made = Scribe("writer")
    made.id = writer
    return made


def message(counter: int, body: bytes, writer: Scribe = WRITERS[0]) -> ReceivedMessages:
    return writer.message(ORDERS, CONVERSATION, counter=counter), body


def judged(log: list[ReceivedMessages], *cuts: int) -> tuple[list[str], list[ContestedPair]]:
    """The verdicts of a log that is read in pieces, and the contested pairs."""
    ingest, verdicts, pairs = Ingest(Acceptance(), tag=None), [], []
    for piece in pieces(log_of(log), [*cuts]):
        verdicts += [RecordVerdict(one).name for rows in ingest.take(piece) for one in rows.verdict.tolist()]
        pairs += ingest.contested
    return verdicts, pairs


def test_both_offsets_of_a_contested_record_are_known_however_the_log_is_cut() -> None:
    log = [message(0, b"first"), message(1, b"a stranger's"), message(1, b"the sender's"), message(2, b"third")]
    for cuts in ((), (1,), (2,), (1, 2, 3)):
        assert judged(log, *cuts) == (["accepted", "accepted", "contested", "accepted"], [ContestedPair(1, 2)])


def test_another_header_under_the_counter_is_other_content() -> None:
    log = [message(0, b"body"), (WRITERS[0].message(ORDERS, identifier("another"), counter=0), b"body")]
    assert judged(log) == (["accepted", "contested"], [ContestedPair(0, 1)])


def test_each_content_is_contested_once_and_comes_again_as_a_duplicate() -> None:
    bodies = (b"one", b"two", b"one", b"two", b"three")
    verdicts, pairs = judged([message(0, body) for body in bodies])
    assert verdicts == ["accepted", "contested", "duplicate", "duplicate", "contested"]
    assert pairs == [ContestedPair(0, 1), ContestedPair(0, 4)]


def test_a_record_is_not_compared_with_one_that_came_before_a_gap_or_from_another_writer() -> None:
    log = [message(0, b"other", WRITERS[1]), message(1, b"too early"), message(0, b"a"), message(1, b"b")]
    log += [message(1, b"b"), message(1, b"too early")]
    assert judged(log)[1] == [ContestedPair(3, 5)]


@pytest.mark.parametrize(("between", "found"), [(RECENT_RECORDS_MAX - 1, 1), (RECENT_RECORDS_MAX, 0)])
@pytest.mark.parametrize("cuts", [(), (10,), (RECENT_RECORDS_MAX,)], ids=str)
def test_a_record_is_compared_with_as_many_records_before_it_as_an_owner_keeps(
    between: int, found: int, cuts: tuple[int, ...]
) -> None:
    log = [message(0, b"first"), *(message(number, b"", WRITERS[1]) for number in range(between)), message(0, b"2nd")]
    verdicts, pairs = judged(log, *cuts)
    assert (verdicts[-1], len(pairs)) == ("contested" if found else "duplicate", found)


@pytest.mark.parametrize(("spare", "found"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("cuts", [(), (1,), (2,)], ids=str)
def test_a_record_is_compared_with_no_more_bytes_than_an_owner_keeps(
    spare: int, found: int, cuts: tuple[int, ...]
) -> None:
    first, between = message(0, b"first"), WRITERS[1].message(ORDERS, CONVERSATION, counter=0)
    room = RECENT_BODY_BYTES_MAX - len(first[0]) - len(first[1] or b"") - len(between)
    _, pairs = judged([first, (between, bytes(room + spare)), message(0, b"second")], *cuts)
    assert len(pairs) == found


def test_an_owners_void_in_place_of_its_output_is_not_contested_and_a_sessions_is() -> None:
    for writer, verdict in (
        (owner_writer(identifier("a queue"), 0), "duplicate"),
        (session_writer(1_000, 7), "contested"),
    ):
        its = scribe(writer)
        void, output = its.write(Kind.VOID, ORDERS, CONVERSATION, counter=0), message(0, b"output", its)
        for log in ([(void, b""), output], [output, (void, b"")]):
            assert judged(log)[0][-1] == verdict


BODIES: Final = st.sampled_from([b"honest", b"forged", b""])


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 1), BODIES), max_size=30),
    st.lists(st.integers(0, 30), max_size=4),
)
def test_contested_records_are_those_of_the_owners_fold(
    steps: list[tuple[int, int, int, bytes]], cuts: list[int]
) -> None:
    side, opener = Side("orders"), Scribe("opener")
    side.state.judged_by(None)
    conversations = [identifier("one"), identifier("two")]
    log: list[ReceivedMessages] = [
        (opener.first(side.address, one, begin_block(group=one)), b"") for one in conversations
    ]
    log += [
        (WRITERS[writer].message(side.address, conversations[at], counter=counter), body)
        for writer, counter, at, body in steps
    ]
    for header, body in log:
        side.take(header, body)
    _, pairs = judged(log, *[cut for cut in cuts if cut < len(log)])
    assert [ContestedPair(one.taken, one.contested) for one in side.state.recent.found] == pairs[-ALARMS_MAX:]
    assert side.state.statistics.forged == len(pairs)


def test_a_read_warns_once_of_the_contested_records_in_its_range(caplog: pytest.LogCaptureFixture) -> None:
    given_ = parse({"bootstrap": "localhost:9092", "topic": "orders"})
    pairs = [ContestedPair(1, 4), ContestedPair(5, 6), ContestedPair(5, 9)]
    with caplog.at_level(logging.WARNING, "konverse.spark"):
        with contested_records(given_, Range(3, 0, 6, 20)) as contested:
            contested.add(pairs[:2])
            contested.add(pairs[2:])
        with contested_records(given_, Range(3, 0, 10, 20)) as contested:
            contested.add(pairs)
    (told,) = [record.message for record in caplog.records]
    assert "partition 3 of topic 'orders': 2 records have the writer and counter of an earlier record" in told
    assert "the first at offset 6; the earlier one is at 5" in told
    assert "read with 'all', and take the rows with the verdict 'contested' too" in told
    assert ContestedCount(0).first is None
