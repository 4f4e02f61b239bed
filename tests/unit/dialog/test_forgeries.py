"""A record with other content under a used counter is never dropped silently (protocol.md section 3, `ingest`)."""

from __future__ import annotations

import time

import pytest

from konverse.dialog.fold.fold import Fold
from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.fold.snapshot_sections import pieces_of
from konverse.dialog.session.lanes import Lane
from konverse.dialog.session.rotation import concerns, forgeries_told
from konverse.dialog.state import recent as forgeries
from konverse.dialog.state.recent import Forgery
from konverse.schemas.identifiers import Role, owner_writer, session_writer
from konverse.schemas.wire.records import End, Kind, Notice, NoticeReason, Suffix, WriterClosed
from tests.kit.builders import Pair, Scribe, address_of, columns_of, identifier, log_of, record


@pytest.fixture
def pair() -> Pair:
    """A pair whose target partition has an owner."""
    pair = Pair()
    pair.target.state.judged_by(None)
    return pair


def waiting(pair: Pair, conversation: bytes) -> list[bytes | None]:
    """Bodies of the messages that the target of a conversation has accepted."""
    endpoint = pair.target.state.endpoint(Role.TARGET, conversation)
    assert endpoint is not None
    return [body for _, _, body, _ in endpoint.queue]


def test_the_honest_record_behind_a_forged_one_arrives_and_both_offsets_are_reported(pair: Pair) -> None:
    conversation = pair.begin()
    forged = pair.target.state.ingest_to
    honest = pair.client.message(pair.target.address, conversation)
    counter = pair.client.next[pair.target.address] - 1
    pair.target.take(honest, b"what a stranger wrote")
    pair.target.take(honest, b"what was acknowledged")
    pair.target.take(pair.client.message(pair.target.address, conversation), b"the next one")
    assert waiting(pair, conversation) == [b"0", b"what a stranger wrote", b"what was acknowledged", b"the next one"]
    assert [*pair.target.state.recent.found] == [Forgery(pair.client.id, counter, forged, forged + 1)]
    assert (pair.target.state.statistics.forged, pair.target.state.statistics.duplicates) == (1, 0)


@pytest.mark.parametrize("again", [b"forged", b"honest"])
def test_both_records_are_taken_once(pair: Pair, again: bytes) -> None:
    conversation = pair.begin()
    header = pair.client.message(pair.target.address, conversation)
    for body in (b"forged", b"honest", again, again):
        pair.target.take(header, body)
    assert waiting(pair, conversation) == [b"0", b"forged", b"honest"]
    assert pair.target.state.statistics.duplicates == 2


def test_forged_records_far_ahead_do_not_delay_the_session(pair: Pair) -> None:
    conversation, to = pair.begin(), pair.target.address
    first = pair.client.next[to]
    for ahead in range(first, first + 3):
        pair.target.take(pair.client.message(to, conversation, counter=ahead), b"forged")
    for number in range(5):
        pair.target.take(pair.client.message(to, conversation), b"honest %d" % number)
    assert waiting(pair, conversation) == [b"0", *[b"forged"] * 3, *(b"honest %d" % number for number in range(5))]


def test_a_far_counter_leaves_the_sender_heard(pair: Pair) -> None:
    conversation, to = pair.begin(), pair.target.address
    later = pair.client.next[to] + 2
    pair.target.take(pair.client.message(to, conversation, counter=later), b"forged")
    for number in range(4):
        pair.target.take(pair.client.message(to, conversation), b"honest %d" % number)
    assert waiting(pair, conversation) == [b"0", *(b"honest %d" % number for number in range(4))]
    assert (pair.target.state.statistics.gaps, pair.target.state.statistics.forged) == (1, 0)


def test_messages_after_a_forged_end_come_back(pair: Pair) -> None:
    conversation, to = pair.begin(), pair.target.address
    counter = pair.client.next[to]
    pair.target.take(pair.client.end(to, conversation, End(pair.client.id, pair.home.address), counter=counter))
    sent = pair.client.message(to, conversation, suffix=Suffix("order", home=pair.home.address))
    pair.target.take(sent, b"acknowledged")
    pair.target.take(pair.client.message(to, conversation, suffix=Suffix("order", home=pair.home.address)), b"next")
    pair.target.commit()
    back = [sent for sent in pair.target.outputs(pair.home.address) if sent.kind is Kind.BOUNCE]
    assert [sent.body for sent in back] == [b"acknowledged", b"next"]
    assert len({(sent.detail.writer, sent.detail.counter) for sent in back}) == 2


def test_the_session_is_notified_of_a_forgery_once_and_continues(pair: Pair) -> None:
    conversation, to = pair.begin(), pair.target.address
    writer = pair.client.id = session_writer(1_000, 7)
    pair.target.state.now_ms = 1_000
    pair.client.next[to] = 0
    for _ in range(2):
        header = pair.client.message(to, conversation, suffix=Suffix("order", home=pair.home.address))
        pair.target.take(header, b"forged")
        pair.target.take(header, b"honest")
    pair.target.commit()
    (told,) = [sent.detail for sent in pair.target.outputs(pair.home.address) if sent.kind is Kind.NOTICE]
    assert told == Notice(writer, 0, to, NoticeReason.FORGED)
    assert not concerns(told, Lane(to, writer))
    pair.target.deliver(pair.home)
    assert [*forgeries_told(pair.home.state, [writer], [to])] == [told]


def test_honest_records_sent_before_the_close_of_their_writer_arrive_despite_forged_ones(pair: Pair) -> None:
    """Its session was told how many records arrived, and sends the rest under another id."""
    conversation, to = pair.begin(), pair.target.address
    first = pair.client.next[to]
    for ahead in (first, first + 1):
        pair.target.take(pair.client.message(to, conversation, counter=ahead), b"forged")
    pair.target.take(Scribe("its heir").close(to, pair.client.id))
    for _ in range(3):
        pair.target.take(pair.client.message(to, conversation), b"honest")
    assert waiting(pair, conversation) == [b"0", b"forged", b"forged", b"honest", b"honest"]


def test_a_follower_accepts_a_contested_record_only_if_the_commit_lists_it() -> None:
    follower = Pair()
    conversation = follower.begin()
    header = follower.client.message(follower.target.address, conversation)
    follower.target.take(header, b"forged")
    follower.target.take(header, b"honest")
    assert waiting(follower, conversation) == [b"0", b"forged"], "no commit says so"
    follower.target.state.recent.contested = {follower.target.state.ingest_to: None}
    follower.target.take(header, b"honest")
    assert waiting(follower, conversation) == [b"0", b"forged", b"honest"]
    assert not follower.target.state.recent.found, "its owner has raised the alarm"


def test_another_header_under_the_counter_is_another_content(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.take(pair.client.message(pair.target.address, conversation), b"body")
    pair.target.take(pair.client.message(pair.target.address, identifier("another"), counter=1), b"body")
    assert pair.target.state.statistics.forged == 1


def test_both_records_may_come_in_one_read(pair: Pair) -> None:
    header = pair.client.message(pair.target.address, pair.begin())
    pair.target.take_all([(header, record(b"one")), (header, record(b"other"))])
    assert pair.target.state.statistics.forged == 1


def test_the_same_record_again_is_a_duplicate_and_nothing_else(pair: Pair) -> None:
    header = pair.client.message(pair.target.address, pair.begin())
    for _ in range(3):
        pair.target.take(header, b"body")
    assert pair.target.state.statistics.duplicates == 2
    assert not pair.target.state.recent.found


def test_a_record_that_was_a_gap_when_it_came_is_no_duplicate_of_itself(pair: Pair) -> None:
    conversation, to = pair.begin(), pair.target.address
    ahead = pair.client.next[to] + 1
    later = pair.client.message(to, conversation, counter=ahead)
    pair.target.take(later, b"honest")
    for _ in range(2):
        pair.target.take(pair.client.message(to, conversation), b"forged")
    pair.target.take(later, b"honest")
    assert waiting(pair, conversation) == [b"0", b"forged", b"forged", b"honest"]


def test_a_copy_for_another_incarnation_is_not_compared(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.take(pair.client.message(pair.target.address, conversation, counter=1, tag=b"else"), b"elsewhere")
    for _ in range(2):
        pair.target.take(pair.client.message(pair.target.address, conversation, counter=1), b"here")
    assert not pair.target.state.recent.found


@pytest.mark.parametrize("void_first", [False, True])
@pytest.mark.parametrize("snapshot_between", [False, True])
@pytest.mark.parametrize(
    ("writer", "expected"), [(owner_writer(identifier("incarnation"), 0), 0), (session_writer(1_000, 7), 1)]
)
def test_an_owner_may_replace_a_withdrawn_message_with_a_void_and_a_session_may_not(
    pair: Pair, writer: bytes, expected: int, snapshot_between: bool, void_first: bool
) -> None:
    state = pair.target.state
    state.now_ms = 1_000
    scribe, at, conversation = Scribe("a writer"), pair.target.address, pair.begin()
    scribe.id = writer
    written = [(scribe.message(at, conversation), b"taken back")]
    written.append((scribe.write(Kind.VOID, at, conversation, counter=0), b""))
    first, second = reversed(written) if void_first else written
    pair.target.take(*first)
    if snapshot_between:
        restored = forgeries.Recent()
        for known in state.recent.known():
            restored.recall(known)
        restored.decides, state.recent = state.recent.decides, restored
    pair.target.take(*second)
    assert state.statistics.forged == expected


@pytest.mark.parametrize(("bound", "value"), [("RECENT_RECORDS_MAX", 3), ("RECENT_BODY_BYTES_MAX", 20)])
@pytest.mark.parametrize("is_indexed", [False, True])
def test_the_last_record_of_a_writer_is_known_however_long_ago_it_came(
    pair: Pair, bound: str, value: int, is_indexed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgeries, bound, value)
    conversation, to, other = pair.begin(), pair.target.address, Scribe("another client")
    header = pair.client.message(to, conversation)
    forged = pair.target.state.ingest_to
    pair.target.take(header, b"0123456789")
    for _ in range(5):
        message = other.message(to, conversation)
        pair.target.take(message, b"0123456789")
        if is_indexed:
            pair.target.take(message, b"0123456789")
    honest = pair.target.state.ingest_to
    for _ in range(2):
        pair.target.take(header, b"acknowledged")
    pair.target.take(header, b"0123456789")
    assert waiting(pair, conversation) == [b"0", *[b"0123456789"] * 6, b"acknowledged"]
    assert [*pair.target.state.recent.found] == [Forgery(pair.client.id, 1, forged, honest)]


def test_of_writers_that_say_nothing_any_more_so_many_are_known(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgeries, "RECENT_RECORDS_MAX", 1)
    monkeypatch.setattr(forgeries, "RECENT_WRITERS_MAX", 2)
    conversation, to = pair.begin(), pair.target.address
    clients = [Scribe(f"client {number}") for number in range(5)]
    headers = [client.message(to, conversation) for client in clients]
    for header in headers:
        pair.target.take(header, b"forged")
    for header in headers:
        pair.target.take(header, b"honest")
    assert (pair.target.state.statistics.forged, pair.target.state.recent.unknown) == (2, 3)


@pytest.mark.parametrize("others", [0, 5])
def test_records_before_a_snapshot_are_compared_with_later_ones(
    pair: Pair, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgeries, "RECENT_RECORDS_MAX", 3)
    conversation, to = pair.begin(), pair.target.address
    ahead = [pair.client.message(to, conversation) for _ in range(2)]
    for header in ahead:
        pair.target.take(header, b"forged")
    for _ in range(others):
        pair.target.take(Scribe("another").message(to, conversation), b"other")
    pair.target.take(ahead[1], b"honest")
    pair.target.commit()
    pieces = [*Freeze(pair.target.state).pieces(), *pieces_of(pair.target.state.recent)]
    after = Pair()
    restore(after.target.state, b"".join(pieces))
    after.target.state.judged_by(None)
    for body in (b"honest", b"forged"):
        after.target.take(ahead[1], body)
    assert after.target.state.statistics.forged == 1, "it was taken before"
    if not others:
        after.target.take(ahead[0], b"honest")
        assert after.target.state.statistics.forged == 2
    assert not after.target.state.recent.unknown


def test_a_duplicate_of_a_forgotten_record_is_counted_and_raises_no_alarm(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgeries, "RECENT_RECORDS_MAX", 3)
    conversation = pair.begin()
    first = pair.client.message(pair.target.address, conversation)
    pair.target.take(first, b"0123456789")
    for _ in range(5):
        pair.target.take(pair.client.message(pair.target.address, conversation), b"0123456789")
    pair.target.take(first, b"another one")
    assert (pair.target.state.statistics.duplicates, pair.target.state.recent.unknown) == (1, 1)
    assert not pair.target.state.recent.found


def test_the_fold_raises_an_alarm_that_names_the_partition_and_both_offsets() -> None:
    fold, client = Fold(log_of("orders")), Scribe("client")
    fold.state.judged_by(None)
    header = client.message(fold.state.address, identifier("c"))
    fold.feed_data(columns_of([(header, record(b"forged")), (header, record(b"honest"))]))
    fold.ingest_to(2)
    ((alarm, _),) = fold.journal.alarms
    assert alarm.startswith("FORGED: the records 0 and 1 of orders/0 ")
    assert client.id.hex() in alarm


def test_a_duplicate_that_cannot_be_compared_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgeries, "RECENT_RECORDS_MAX", 1)
    fold, client = Fold(log_of("orders")), Scribe("client")
    fold.state.judged_by(None)
    headers = [client.message(fold.state.address, identifier("c")) for _ in range(4)]
    for offset, header in enumerate([*headers, headers[0], headers[1]]):
        fold.feed_data(columns_of([(header, record(b"body"))], offset))
        fold.ingest_to(offset + 1)
    ((alarm, _),) = fold.journal.alarms
    assert alarm.startswith("NOT COMPARED: record 4 of orders/0 ")


GAP, FORGED, CLOCK = (
    Notice(b"w" * 16, 1, address_of(), reason) for reason in (NoticeReason.GAP, NoticeReason.FORGED, NoticeReason.CLOCK)
)
CLOSED = WriterClosed(b"w" * 16, 1, address_of())


@pytest.mark.parametrize(
    ("heard", "kept"),
    [
        ((FORGED,), FORGED),
        ((GAP, FORGED), GAP),
        ((FORGED, GAP), GAP),
        ((FORGED, CLOSED), CLOSED),
        ((CLOSED, FORGED), CLOSED),
        ((FORGED, CLOCK), CLOCK),
        ((CLOCK, FORGED), CLOCK),
    ],
)
def test_a_forgery_notice_gives_way_to_every_other_answer(
    pair: Pair, heard: tuple[Notice | WriterClosed, ...], kept: Notice | WriterClosed
) -> None:
    for said in heard:
        pair.home.state.keep_answer(said)
    assert [*pair.home.state.answers.values()] == [kept]


def test_the_home_of_a_session_raises_an_alarm_of_its_own() -> None:
    fold, said = Fold(log_of("replies")), Notice(b"w" * 16, 7, address_of("orders", 3), NoticeReason.FORGED)
    fold.state.keep_answer(said)
    fold.state.judged_by(None)
    fold.state.keep_answer(said)
    fold.feed_data(columns_of([(None, record())]))
    fold.ingest_to(1)
    ((alarm, _),) = fold.journal.alarms
    assert alarm.startswith(f"FORGED: another producer writes to orders/3 under the id of session {(b'w' * 16).hex()}")


@pytest.mark.parametrize(
    ("writer", "shows"), [(session_writer(1_000, 7), True), (owner_writer(identifier("incarnation"), 0), False)]
)
def test_the_last_contested_record_is_known_behind_a_snapshot(pair: Pair, writer: bytes, shows: bool) -> None:
    """Where an owner has withdrawn an output, two records with one counter are both its own."""
    pair.target.state.now_ms = 1_000
    scribe, at, conversation = Scribe("a writer"), pair.target.address, pair.begin()
    scribe.id = writer
    pair.target.take(scribe.message(at, conversation), b"one")
    last = pair.target.state.ingest_to if shows else None
    pair.target.take(scribe.write(Kind.VOID, at, conversation, counter=0))
    assert pair.target.state.recent.contested_last == last
    restored = forgeries.Recent()
    for known in pair.target.state.recent.known():
        restored.recall(known)
    assert restored.contested_last == last


@pytest.mark.parametrize("differs", [False, True])
def test_many_records_under_one_counter_take_time_in_proportion(pair: Pair, *, differs: bool) -> None:
    """A stranger repeats a record, or writes other content each time. Meanwhile the partition has to go on."""
    pair.target.state.recent.decides = True
    conversation = pair.begin()
    began_s = time.process_time()
    rows = [
        (pair.client.message(pair.target.address, conversation, counter=1), record(b"%d" % (number * differs)))
        for number in range(10_000)
    ]
    pair.target.take_all(rows)
    assert time.process_time() - began_s < 10
    assert pair.target.state.statistics.forged == (len(rows) - 1) * differs
    assert pair.target.state.statistics.duplicates == (len(rows) - 1) * (not differs)
