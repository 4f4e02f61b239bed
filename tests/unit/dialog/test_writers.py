"""Writer entries: which writers are heard, how they are closed, and when they are forgotten (protocol.md section 5)."""

from __future__ import annotations

import pytest

from konverse.dialog.session.rotation import CloseQuery, Unheard, reply
from konverse.dialog.state.transitions import State
from konverse.dialog.state.writer import NO_HEIR
from konverse.schemas.identifiers import session_writer
from konverse.schemas.limits import NOTICED_WRITERS_MAX, WRITER_AHEAD_MS_MAX
from konverse.schemas.wire.operations import Prune
from konverse.schemas.wire.records import (
    ACKED,
    HEIR,
    NO_SEQUENCE,
    REFUSED,
    BounceReason,
    End,
    Kind,
    Notice,
    NoticeReason,
    Opened,
    Suffix,
    WriterClosed,
)
from tests.kit.builders import Pair, Scribe, Sent, address_of, begin_block, identifier

NOW_MS = 1_800_000_000_000
HOME = address_of("replies")


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.home.state.now_ms = made.target.state.now_ms = NOW_MS
    made.client.id = session_writer(NOW_MS, 1)
    return made


def told(pair: Pair) -> list[Sent]:
    """The target's records to home about writers."""
    return [sent for sent in pair.target.outputs(HOME) if sent.kind in (Kind.NOTICE, Kind.WRITER_CLOSED)]


def notice(pair: Pair, number: int, reason: NoticeReason) -> Notice:
    return Notice(pair.client.id, number, pair.target.address, reason)


def close(pair: Pair, asker: Scribe, writer: bytes, flags: int = 0, acknowledged: int = NO_SEQUENCE) -> None:
    """CLOSE_WRITER arrives at the target; its answer goes home."""
    written = {"flags": flags, "suffix": Suffix(home=HOME), "sequence": acknowledged}
    pair.target.take(asker.write(Kind.CLOSE_WRITER, pair.target.address, writer, **written))


def session(number: int, time_ms: int = NOW_MS) -> Scribe:
    scribe = Scribe(f"session {number}")
    scribe.id = session_writer(time_ms, number)
    return scribe


def prune(pair: Pair, floor_ms: int, now_ms: int = NOW_MS) -> None:
    pair.target.state.now_ms = now_ms
    pair.target.commit(rare=[Prune(floor_ms)])


# ----------------------------------------------------------------------------------------------------------- notices


def test_a_gap_is_reported_once_for_each_missing_counter(pair: Pair) -> None:
    conversation = pair.begin()
    for counter in (5, 6, 5):
        pair.send(conversation, counter=counter)
    assert [sent.detail for sent in told(pair)] == [notice(pair, 1, NoticeReason.GAP)]
    pair.send(conversation)
    pair.send(conversation, counter=9)
    assert [sent.detail.next for sent in told(pair)] == [1, 2]


def test_an_unknown_writer_that_starts_at_a_later_counter_is_notified_of_a_gap(pair: Pair) -> None:
    for _ in range(2):
        pair.send(identifier("a conversation"), counter=3)
    assert [sent.detail for sent in told(pair)] == [notice(pair, 0, NoticeReason.GAP)]
    assert pair.client.id not in pair.target.state.writers


@pytest.mark.parametrize(
    ("time_ms", "reason"), [(NOW_MS - 1, NoticeReason.PRUNED), (NOW_MS + WRITER_AHEAD_MS_MAX + 1, NoticeReason.CLOCK)]
)
def test_a_writer_with_an_id_too_old_or_in_the_future_is_refused_and_notified(
    pair: Pair, time_ms: int, reason: NoticeReason
) -> None:
    pair.target.state.floor_ms = NOW_MS
    pair.client.id = session_writer(time_ms, 1)
    for _ in range(2):
        pair.send(identifier("a conversation"), counter=0)
    assert [sent.detail for sent in told(pair)] == [notice(pair, 0, reason)]
    assert pair.target.state.writers == {}
    assert pair.target.state.statistics.strangers == 2


@pytest.mark.parametrize(
    ("time_ms", "reason"), [(NOW_MS - 1, NoticeReason.PRUNED), (NOW_MS + WRITER_AHEAD_MS_MAX + 1, NoticeReason.CLOCK)]
)
def test_a_refused_writer_whose_first_record_names_no_home_is_notified_with_its_next_record(
    pair: Pair, time_ms: int, reason: NoticeReason
) -> None:
    pair.target.state.floor_ms = NOW_MS
    pair.client.id = session_writer(time_ms, 1)
    pair.target.take(pair.client.close(pair.target.address, identifier("a former id")))
    assert told(pair) == []
    asked = CloseQuery(pair.target.address, identifier("a former id"), pair.client.id, 0)
    assert reply(pair.target.state, asked) is Unheard.ANOTHER, "whoever reads this state knows it all the same"
    for _ in range(2):
        pair.send(identifier("a conversation"), counter=1)
    assert [sent.detail for sent in told(pair)] == [notice(pair, 0, reason)]


@pytest.mark.parametrize("heir", [False, True], ids=["a record vouches", "an heir tells"])
def test_records_that_came_before_their_time_were_refused_and_are_not_lost(pair: Pair, *, heir: bool) -> None:
    """Kafka had acknowledged them, they stand in the log, and their session was told (M291)."""
    pair.target.state.now_ms = NOW_MS
    early = NOW_MS + WRITER_AHEAD_MS_MAX + 1
    pair.client.id = session_writer(early, 1)
    for counter in range(2):
        pair.send(identifier("a conversation"), counter=counter)
    pair.target.state.now_ms = early
    if heir:
        close(pair, session(2, early), pair.client.id, HEIR, acknowledged=2)
    else:
        for counter in (2, 3):
            pair.send(identifier("a conversation"), counter=counter, flags=ACKED)
    assert pair.target.state.statistics.lost == 0
    assert [sent.detail for sent in told(pair) if sent.kind is Kind.NOTICE] == [notice(pair, 0, NoticeReason.CLOCK)]


def test_a_gap_before_a_record_without_a_home_is_reported_with_the_next_record(pair: Pair) -> None:
    conversation = pair.begin()
    closing = pair.client.write(Kind.CLOSE_WRITER, pair.target.address, identifier("a former id"), counter=5)
    pair.target.take(closing)
    assert told(pair) == []
    pair.send(conversation, counter=6)
    assert [sent.detail for sent in told(pair)] == [notice(pair, 1, NoticeReason.GAP)]


def test_a_writer_within_the_bounds_is_heard(pair: Pair) -> None:
    pair.target.state.floor_ms = NOW_MS
    for number, time_ms in enumerate((NOW_MS, NOW_MS + WRITER_AHEAD_MS_MAX)):
        pair.client = session(number, time_ms)
        pair.begin(f"conversation {number}")
    assert len(pair.target.state.writers) == 2
    assert told(pair) == []


def test_a_writer_id_without_a_timestamp_is_never_reported_and_never_pruned(pair: Pair) -> None:
    owner = Scribe("an owner")
    pair.target.take(owner.message(pair.target.address, identifier("a"), suffix=Suffix("order", home=HOME), counter=4))
    assert told(pair) == []
    pair.target.take(owner.close(pair.target.address, session_writer(NOW_MS, 7)))
    for now_ms in range(NOW_MS, NOW_MS + 5):
        prune(pair, now_ms, now_ms)
    assert owner.id in pair.target.state.writers


def test_gap_notices_are_remembered_for_a_bounded_number_of_writers(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.dialog.rules.writers.NOTICED_WRITERS_MAX", 2)
    assert NOTICED_WRITERS_MAX > 2
    for number in (0, 1, 2, 0):
        pair.client = session(number)
        pair.send(identifier("a conversation"), counter=1)
    assert len(told(pair)) == 4
    assert [*pair.target.state.noticed] == [session(2).id, session(0).id]


def test_home_keeps_the_answer_about_a_closed_writer_and_ignores_later_gaps(pair: Pair) -> None:
    conversation = pair.begin()
    pair.send(conversation, counter=9)
    close(pair, session(2), pair.client.id)
    pair.target.deliver(pair.home)
    pair.send(conversation, counter=5)
    pair.target.deliver(pair.home)
    closed = WriterClosed(pair.client.id, 1, pair.target.address, NO_HEIR[0])
    assert pair.home.state.answers == {(pair.client.id, pair.target.address): closed}


# ----------------------------------------------------------------------------------------------------------- closing


def test_every_request_to_close_a_writer_is_answered_with_the_same_position(pair: Pair) -> None:
    conversation = pair.begin(messages=3)
    close(pair, session(2), pair.client.id)
    pair.send(conversation)
    close(pair, session(3), pair.client.id)
    assert [sent.detail for sent in told(pair)] == [
        WriterClosed(pair.client.id, 3, pair.target.address, NO_HEIR[0]),
        WriterClosed(pair.client.id, 3, pair.target.address, NO_HEIR[0]),
    ]
    assert told(pair)[0].key == pair.client.id


@pytest.mark.parametrize(
    ("time_ms", "reason"), [(NOW_MS - 1, NoticeReason.PRUNED), (NOW_MS + WRITER_AHEAD_MS_MAX + 1, NoticeReason.CLOCK)]
)
def test_a_writer_that_is_not_known_and_not_to_be_trusted_is_not_closed(
    pair: Pair, time_ms: int, reason: NoticeReason
) -> None:
    pair.target.state.floor_ms = NOW_MS
    asked = session_writer(time_ms, 9)
    close(pair, session(2), asked)
    assert [sent.detail for sent in told(pair)] == [Notice(asked, 0, pair.target.address, reason)]
    assert asked not in pair.target.state.writers


def test_the_first_heir_is_the_heir(pair: Pair) -> None:
    pair.begin()
    close(pair, session(2), pair.client.id, HEIR)
    close(pair, session(3), pair.client.id)
    assert pair.target.state.writers[pair.client.id].heir == (session(2).id, 0)
    assert [sent.detail.heir for sent in told(pair)] == [session(2).id, session(2).id]


def test_an_heir_that_closes_a_writer_too_late_is_closed_itself(pair: Pair) -> None:
    pair.begin()
    close(pair, session(2), pair.client.id)
    late = session(3)
    close(pair, late, pair.client.id, HEIR)
    assert pair.target.state.writers[pair.client.id].heir is NO_HEIR
    assert pair.target.state.writers[late.id].closed_at == 1
    assert pair.target.state.writers[late.id].heir is NO_HEIR


def test_an_heir_that_asks_again_stays_open_and_so_does_its_heir(pair: Pair) -> None:
    pair.begin()
    second, third = session(2), session(3)
    close(pair, second, pair.client.id, HEIR)
    close(pair, second, pair.client.id, HEIR)
    close(pair, third, second.id, HEIR)
    close(pair, third, pair.client.id, HEIR)
    assert pair.target.state.writers[third.id].closed_at is None


def test_records_of_a_closed_writer_other_than_messages_are_answered_to_its_home(pair: Pair) -> None:
    conversation = pair.begin()
    close(pair, session(2), pair.client.id)
    close(pair, pair.client, session(4).id)
    assert told(pair)[-1].detail == WriterClosed(pair.client.id, 1, pair.target.address, NO_HEIR[0])
    pair.home.take(session(3).close(HOME, pair.client.id))
    pair.end_call(conversation)
    (sent,) = pair.home.outputs(HOME)
    assert (sent.kind, sent.detail.writer) == (Kind.WRITER_CLOSED, pair.client.id)


# ----------------------------------------------------------------------------------------------------------- pruning


def test_an_open_writer_is_noted_then_closed_noted_and_forgotten(pair: Pair) -> None:
    pair.begin()
    pair.end_call(identifier("a conversation"))
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(identifier("a conversation")))
    writer = pair.target.state.writers[pair.client.id]
    prune(pair, 1, NOW_MS)
    assert (writer.noted, writer.noted_ms, writer.closed_at) == (1, NOW_MS, None)
    prune(pair, NOW_MS, NOW_MS + 5)
    assert writer.closed_at is None, "it was heard at the floor, not before it"
    prune(pair, NOW_MS + 1, NOW_MS + 10)
    assert (pair.target.state.writers[pair.client.id].closed_at, writer.heir) == (1, None)
    prune(pair, NOW_MS + 2, NOW_MS + 20)
    assert writer.noted_ms == NOW_MS + 20
    prune(pair, NOW_MS + 20, NOW_MS + 30)
    assert pair.client.id in pair.target.state.writers
    prune(pair, NOW_MS + 21, NOW_MS + 40)
    assert pair.client.id not in pair.target.state.writers


def test_a_prune_does_not_close_an_active_writer(pair: Pair) -> None:
    conversation = pair.begin()
    for step in range(5):
        prune(pair, NOW_MS + 10 * step, NOW_MS + 10 * step + 5)
        pair.send(conversation)
    assert pair.target.state.writers[pair.client.id].closed_at is None


def test_the_writer_of_a_living_conversation_is_not_forgotten(pair: Pair) -> None:
    pair.begin()
    for step in range(9):
        prune(pair, NOW_MS + 10 * step, NOW_MS + 10 * step)
    assert pair.target.state.writers[pair.client.id].closed_at == 1


def test_a_prune_lets_answers_about_old_writers_go_and_the_floor_never_falls(pair: Pair) -> None:
    pair.target.state.keep_answer(Notice(session(1).id, 0, HOME, NoticeReason.GAP))
    prune(pair, NOW_MS)
    assert len(pair.target.state.answers) == 1
    prune(pair, NOW_MS + 1)
    prune(pair, NOW_MS)
    assert (pair.target.state.answers, pair.target.state.floor_ms) == ({}, NOW_MS + 1)


# ------------------------------------------------------------------------------------------------- FIRST of an heir


def first_of(pair: Pair, heir: Scribe, conversation: bytes) -> None:
    """FIRST, sent again by an heir of the client that began."""
    suffix = Suffix("order", begin=begin_block(group=conversation), detail=Opened(pair.client.id))
    pair.target.take(heir.first(pair.target.address, conversation, begin_block(), suffix=suffix))


def test_a_conversation_created_by_the_first_of_an_heir_keeps_its_original_opener(pair: Pair) -> None:
    conversation = pair.begin(messages=0)
    first_of(pair, session(2), conversation)
    assert pair.receiver(conversation).opener == pair.client.id


def test_a_tombstone_refuses_the_first_of_an_heir(pair: Pair) -> None:
    conversation, heir = pair.begin(messages=0), session(2)
    close(pair, heir, pair.client.id, HEIR)
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    assert pair.target.state.tombstones == {conversation: pair.client.id}
    first_of(pair, heir, conversation)
    assert (pair.target.state.live(), pair.target.state.tombstones) == ([], {})


def test_the_tombstone_is_removed_when_the_last_heir_closes(pair: Pair) -> None:
    conversation, heir = pair.begin(messages=0), session(2)
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    close(pair, heir, pair.client.id, HEIR)
    assert pair.target.state.tombstones == {conversation: pair.client.id}
    close(pair, heir, heir.id)
    assert pair.target.state.tombstones == {}


def test_a_first_of_an_heir_bounces_when_its_opener_had_already_been_closed_without_an_heir(pair: Pair) -> None:
    conversation, heir = pair.begin(messages=0), session(3)
    close(pair, session(2), pair.client.id)
    close(pair, heir, pair.client.id, HEIR)
    first_of(pair, heir, conversation)
    assert pair.target.state.live() == []
    assert pair.target.outputs(HOME)[-1].detail.reason is BounceReason.WRITER_CLOSED


def test_the_end_of_a_refused_begin_ends_no_conversation_opened_by_another_writer(pair: Pair) -> None:
    conversation = pair.begin()
    home = Scribe("home")
    for opener, lives in ((session(2).id, True), (pair.client.id, False)):
        pair.target.take(home.end(pair.target.address, conversation, End(opener, HOME), flags=REFUSED))
        assert (pair.receiver(conversation).state.code == "CO") is lives


@pytest.mark.parametrize("flags", [HEIR, 0])
def test_a_message_of_a_closed_writer_bounces_unless_the_writer_has_an_heir(pair: Pair, flags: int) -> None:
    close(pair, session(2), pair.client.id, flags)
    pair.send(identifier("a"), b"0")
    kinds = [sent.kind for sent in pair.target.outputs(HOME)]
    assert kinds == [Kind.WRITER_CLOSED, Kind.WRITER_CLOSED if flags else Kind.BOUNCE]


def test_the_answer_to_the_end_of_a_refused_begin_ends_nothing_either(pair: Pair) -> None:
    heir = session(2)
    block = begin_block(group=identifier("a"))
    pair.home.take(heir.write(Kind.CLOSE_WRITER, HOME, pair.client.id, flags=HEIR))
    pair.home.take(heir.begin(identifier("a"), block))
    pair.home.take(pair.client.begin(identifier("a"), block))
    (end,) = pair.home.deliver(pair.target)
    assert (end.kind, end.envelope.flags) == (Kind.END, REFUSED)
    answer = next(sent for sent in pair.target.deliver(pair.home) if sent.kind is Kind.END)
    assert answer.envelope.flags == REFUSED
    assert pair.initiator(identifier("a")).state is State.STARTED_OUTBOUND


def test_a_prune_leaves_the_tombstone_against_an_opener_that_is_too_old_to_be_heard(pair: Pair) -> None:
    state = pair.target.state
    pair.client = session(1, NOW_MS - 1)
    conversation, heir = pair.begin(messages=0), session(2, NOW_MS)
    pair.target.take(Scribe("home").end(pair.target.address, conversation, End(pair.client.id, HOME)))
    prune(pair, NOW_MS)
    first_of_its_own(pair, pair.client)
    assert (state.live(), [*state.tombstones]) == ([], [conversation]), "it is not heard"
    first_of(pair, heir, conversation)
    assert (state.live(), state.tombstones) == ([], {}), "its heir is, and names it"
    assert pair.target.outputs(HOME)[-1].detail.reason is BounceReason.ENDED


def test_a_prune_leaves_the_tombstone_against_an_old_opener_that_is_known(pair: Pair) -> None:
    opener = session(2, NOW_MS - 1)
    pair.client = opener
    pair.begin("another conversation")
    pair.target.take(Scribe("home").end(pair.target.address, opener.id, End(opener.id, HOME)))
    prune(pair, NOW_MS)
    assert [*pair.target.state.tombstones] == [opener.id]
    first_of_its_own(pair, opener)
    assert pair.target.state.tombstones == {}
    assert len(pair.target.state.live()) == 1


def first_of_its_own(pair: Pair, opener: Scribe) -> None:
    """FIRST of the conversation whose id is the opener's own."""
    pair.target.take(opener.first(pair.target.address, opener.id, begin_block(group=opener.id)))
