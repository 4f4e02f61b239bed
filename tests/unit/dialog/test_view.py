"""Rows for Redis: small, each change once, and the whole view after a loss (protocol.md section 8)."""

from __future__ import annotations

from uuid import UUID

import pytest

from konverse.dialog.fold.fold import Fold
from konverse.dialog.owner.view import ViewFeed, bucket_of, field_of, pack, unpack
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import VIEW_BUCKETS, VIEW_VALUE_BYTES_MAX
from tests.kit.builders import Pair, identifier, log_of

OFFSET = (2**63 - 2).to_bytes(8, "big")
INTERVAL_MS = 100


@pytest.fixture
def pair() -> Pair:
    return Pair()


def feed_of(pair: Pair, interval_ms: int | None = INTERVAL_MS) -> ViewFeed:
    """The view of the target."""
    fold = Fold(log_of())
    fold.state = pair.target.state
    fold.head.owner, fold.head.claim_offset, fold.head.offset = identifier("owner"), 3, 9
    return ViewFeed(fold, interval_ms)


def forget(pair: Pair, conversation: bytes) -> None:
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(conversation))
    pair.target.deliver(pair.home)


# ---------------------------------------------------------------------------------------------------------------- rows


def test_a_row_says_how_a_conversation_stands(pair: Pair) -> None:
    conversation = pair.begin(messages=5)
    receiver = pair.receiver(conversation)
    pair.target.commit(receive_endpoints=[receiver.index], receive_positions=[2 << 2])
    pair.target.send(receiver, b"a", b"b", b"c")
    row = unpack(field_of(receiver), (77).to_bytes(8, "big") + pack(receiver))
    assert (row.conversation, row.role, row.state) == (UUID(bytes=conversation), Role.TARGET, State.CONVERSING)
    assert (row.journal_offset, row.send_sequence, row.receive_sequence, row.consumed) == (77, 3, 5, 2)
    assert (row.unread, row.error_waits, row.writer_counter) == (3, False, 4)
    assert (row.timer_due_ms, row.attempts) == (-1, 0)


def test_a_row_of_a_conversation_that_a_session_numbers_says_so(pair: Pair) -> None:
    initiator = pair.initiator(pair.begin())
    row = unpack(field_of(initiator), bytes(8) + pack(initiator))
    assert (row.role, row.state, row.send_sequence, row.writer_counter) == (
        Role.INITIATOR,
        State.STARTED_OUTBOUND,
        -1,
        -1,
    )


def test_a_row_says_that_an_error_waits(pair: Pair) -> None:
    conversation = pair.begin()
    pair.end_call(conversation, (1, "no"))
    pair.home.deliver(pair.target)
    receiver = pair.receiver(conversation)
    row = unpack(field_of(receiver), bytes(8) + pack(receiver))
    assert (row.state, row.error_waits, row.unread) == (State.ERROR, True, 1)


@pytest.mark.parametrize("number", [0, 63, 64, 8_191, 8_192, 2**31, 2**62, 2**63 - 1])
def test_a_row_fits_into_a_packed_hash_regardless_of_its_numbers(pair: Pair, number: int) -> None:
    receiver = pair.receiver(pair.begin())
    receiver.sent = receiver.received = receiver.consumed = number
    receiver.lanes()[0].last = number
    value = OFFSET + pack(receiver)
    assert len(value) <= VIEW_VALUE_BYTES_MAX
    row = unpack(field_of(receiver), value)
    assert (row.send_sequence, row.receive_sequence, row.consumed, row.writer_counter) == (number,) * 4
    assert row.journal_offset == 2**63 - 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"c" * 16 + b"X", bytes(8) + b"\x02" + bytes(8)),
        (b"c" * 15 + b"T", bytes(8) + b"\x02" + bytes(8)),
        (b"c" * 16, bytes(8) + b"\x02" + bytes(8)),
        (b"c" * 16 + b"T", bytes(8) + b"\x07" + bytes(8)),
        (b"c" * 16 + b"T", bytes(8) + b"\x02" + bytes(7)),
        (b"c" * 16 + b"T", bytes(8) + b"\x02" + bytes(9)),
        (b"c" * 16 + b"T", bytes(8) + b"\x02" + bytes(7) + b"\x80"),
        (b"c" * 16 + b"T", b""),
        (b"c" * 16 + b"\xff", bytes(8) + b"\x02" + bytes(8)),
        (b"c" * 16 + b"T", bytes(8) + b"\x02" + bytes(7) + b"\xff" * 10 + b"\x01"),
    ],
    ids=["role", "short", "no role", "state", "few numbers", "many numbers", "cut", "empty", "no text", "64 bits"],
)
def test_an_invalid_view_row_is_malformed(field: bytes, value: bytes) -> None:
    with pytest.raises(MalformedRecord):
        unpack(field, value)


def test_the_fields_of_a_pair_differ_and_each_has_its_bucket(pair: Pair) -> None:
    conversation = pair.begin()
    fields = [field_of(pair.initiator(conversation)), field_of(pair.receiver(conversation))]
    assert fields == [conversation + b"I", conversation + b"T"]
    assert all(0 <= bucket_of(field) < VIEW_BUCKETS for field in fields)


def test_buckets_are_filled_evenly() -> None:
    buckets = [bucket_of(identifier(str(number)) + b"I") for number in range(4 * VIEW_BUCKETS)]
    assert max(buckets.count(number) for number in {*buckets[:200]}) < 20


# ---------------------------------------------------------------------------------------------------------------- feed


def test_the_first_view_is_whole(pair: Pair) -> None:
    receivers = [pair.receiver(pair.begin(name)) for name in ("a", "b")]
    show = feed_of(pair).due(0)
    assert show is not None
    assert show.rows == [(field_of(endpoint), pack(endpoint)) for endpoint in receivers]
    assert (show.claim_offset, show.journal_offset, show.owner) == (3, 9, identifier("owner"))
    assert (show.whole, show.gone, show.unread) == (True, [], 2)
    pair.begin("c")
    assert show.open == 2, "of the state that is shown"


def test_after_the_first_write_only_changed_rows_are_written_and_each_once(pair: Pair) -> None:
    one = pair.begin("one")
    pair.begin("two")
    feed = feed_of(pair)
    feed.due(0)
    pair.send(one)
    pair.send(one)
    show = feed.due(INTERVAL_MS)
    assert show is not None
    assert show.rows == [(field_of(pair.receiver(one)), pack(pair.receiver(one)))]
    assert not show.whole
    assert feed.due(2 * INTERVAL_MS) is None
    pair.send(one)
    assert feed.due(3 * INTERVAL_MS) is not None


def test_a_view_is_not_due_before_its_interval(pair: Pair) -> None:
    conversation = pair.begin()
    feed = feed_of(pair)
    feed.due(0)
    pair.send(conversation)
    assert feed.due(INTERVAL_MS - 1) is None
    assert feed.due(INTERVAL_MS) is not None


def test_without_a_view_nothing_is_packed_and_nothing_is_kept(pair: Pair) -> None:
    feed, state = feed_of(pair, interval_ms=None), pair.target.state
    for name in ("one", "two"):
        conversation = pair.begin(name)
        assert state.changed
        forget(pair, conversation)
        assert state.forgotten
        assert feed.due(0, last=True) is None
        assert (state.changed, state.forgotten) == ([], [])


def test_a_conversation_that_is_over_is_deleted(pair: Pair) -> None:
    over, open_one = pair.begin("over"), pair.begin("open")
    feed = feed_of(pair)
    feed.due(0)
    pair.send(open_one)
    forget(pair, over)
    show = feed.due(INTERVAL_MS)
    assert show is not None
    assert show.gone == [over + b"T"]
    assert [field for field, _ in show.rows] == [open_one + b"T"]


def test_a_conversation_that_began_and_ended_between_two_views_is_no_row(pair: Pair) -> None:
    feed = feed_of(pair)
    feed.due(0)
    forget(pair, pair.begin("short"))
    show = feed.due(INTERVAL_MS)
    assert show is not None
    assert show.rows == []


def test_a_conversation_id_that_lives_again_is_not_deleted(pair: Pair) -> None:
    forget(pair, pair.begin("again"))
    conversation = pair.begin("again")
    feed = feed_of(pair)
    show = feed.due(0)
    assert show is not None
    assert ([field for field, _ in show.rows], show.gone) == ([conversation + b"T"], [])


def test_a_view_that_was_lost_is_shown_whole_and_at_once(pair: Pair) -> None:
    for name in ("a", "b"):
        pair.begin(name)
    feed = feed_of(pair)
    feed.due(0)
    feed.lost()
    show = feed.due(1)
    assert show is not None
    assert (show.whole, len(show.rows)) == (True, 2)
    assert feed.due(2 * INTERVAL_MS) is None
