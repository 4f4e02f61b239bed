"""A session: when records leave, and when they are sent again (protocol.md section 5)."""

from __future__ import annotations

import pytest

from konverse.dialog.pool.recycling import end_once
from konverse.dialog.session.dialogs import DialogState, SessionDialog
from konverse.dialog.session.lanes import Produce
from konverse.dialog.session.session import Session
from konverse.schemas.errors import BodyTooLarge, ConversationEnded, QueueFull
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import BODY_BYTES_MAX, SESSION_RECORD_BYTES, SESSION_WINDOW_BYTES_MAX
from konverse.schemas.system_messages import END_DIALOG
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import ACKED, FIRST, NO_SEQUENCE, Begin, Envelope, Kind
from tests.kit.builders import Side, address_of, begin_block, identifier, record

HOME, TARGET = address_of("replies"), address_of("orders")
WRITER = identifier("a session")
WINDOW_RECORDS = -(-SESSION_WINDOW_BYTES_MAX // SESSION_RECORD_BYTES)


@pytest.fixture
def session() -> Session:
    return Session(WRITER)


def block(name: str = "a", target: str = "orders", home: str = "replies") -> Begin:
    return begin_block(home, target, group=identifier(name))


def begun(session: Session, name: str = "a", target: str = "orders", home: str = "replies") -> SessionDialog:
    """A dialog whose BEGIN was handed over."""
    dialog, hands = session.begin(identifier(name), block(name, target, home))
    assert kinds(hands) == {address_of(home): [Kind.BEGIN]}
    return dialog


def opened(session: Session, name: str = "a", target: str = "orders") -> SessionDialog:
    """A dialog whose BEGIN counts."""
    dialog = begun(session, name, target)
    assert session.drained() == []
    return dialog


def envelopes(hands: list[Produce]) -> dict[Address, list[Envelope]]:
    return {hand.address: [decode(header) for header, _, _ in hand.records] for hand in hands}


def kinds(hands: list[Produce]) -> dict[Address, list[Kind]]:
    return {address: [one.kind for one in all_of_it] for address, all_of_it in envelopes(hands).items()}


def counters(hands: list[Produce]) -> dict[Address, list[int]]:
    return {address: [one.counter for one in all_of_it] for address, all_of_it in envelopes(hands).items()}


def bodies(hands: list[Produce]) -> list[bytes | None]:
    return [body for hand in hands for _, _, body in hand.records]


# ------------------------------------------------------------------------------------------------------------- begin


def test_begin_goes_to_home_and_nothing_to_the_target_behaviour_31(session: Session) -> None:
    dialog, hands = session.begin(identifier("a"), block())
    ((header, key, body),) = hands[0].records
    envelope = decode(header)
    assert hands[0].address == HOME
    assert (envelope.kind, envelope.role, envelope.tag, envelope.writer) == (
        Kind.BEGIN,
        Role.INITIATOR,
        HOME.tag,
        WRITER,
    )
    assert (envelope.conversation, envelope.counter, envelope.sequence) == (identifier("a"), 0, NO_SEQUENCE)
    assert envelope.flags == 0
    assert envelope.suffix.begin == block()
    assert (key, body) == (identifier("a"), None)
    assert dialog.state is DialogState.BEGINNING
    assert session.gated


def test_messages_wait_until_begin_counts(session: Session) -> None:
    dialog = begun(session)
    assert session.send(dialog, "order", b"0") == []
    assert session.send(dialog, "order", b"1") == []
    hands = session.drained()
    assert bodies(hands) == [b"0", b"1"]
    assert counters(hands) == {TARGET: [0, 1]}
    assert dialog.state is DialogState.OPEN
    assert not session.gated


def test_the_first_message_carries_the_begin_block_and_the_others_the_home(session: Session) -> None:
    dialog = opened(session)
    first, second, third = (envelopes(session.send(dialog, kind, b"body"))[TARGET][0] for kind in ("a", "b", "a"))
    assert (first.flags, first.suffix.begin, first.suffix.message_type) == (FIRST, block(), "a")
    assert (second.flags, second.suffix.begin, second.suffix.message_type) == (0, None, "b")
    assert second.suffix.home == third.suffix.home == HOME
    assert [one.sequence for one in (first, second, third)] == [0, 1, 2]


@pytest.mark.parametrize("over", ["ended", "ended by the peer"])
def test_a_dialog_is_open_from_its_first_message_to_its_end(session: Session, over: str) -> None:
    """A driver that stages messages itself relies on this."""
    dialog = begun(session)
    session.send(dialog, "order", b"held")
    assert not dialog.open
    session.drained()
    assert dialog.open
    if over == "ended":
        session.end(dialog)
    else:
        session.ended_by_peer(identifier("a"))
    assert not dialog.open


def test_a_dialog_that_has_sent_nothing_is_not_open(session: Session) -> None:
    dialog = opened(session)
    assert not dialog.open
    session.send(dialog, "order", b"")
    assert dialog.open


def test_a_dialog_that_was_ended_before_begin_counted_never_opens(session: Session) -> None:
    dialog = begun(session)
    session.send(dialog, "order", b"held")
    session.end(dialog)
    session.drained()
    assert (dialog.sent, dialog.open) == (1, False)


def test_the_key_is_the_users_own_or_else_the_group(session: Session) -> None:
    with_key, _ = session.begin(identifier("k"), block("k")._replace(key=b"a key"))
    without, _ = session.begin(identifier("g"), block("g"))
    session.drained()
    assert session.send(with_key, "order", b"")[0].records[0][1] == b"a key"
    assert session.send(without, "order", b"")[0].records[0][1] == identifier("g")


# -------------------------------------------------------------------------------------------------------------- sends


def test_counters_run_through_all_dialogs_with_one_destination(session: Session) -> None:
    one, two, elsewhere = opened(session, "one"), opened(session, "two"), opened(session, "three", "other")
    sent = [session.send(dialog, "order", b"") for dialog in (one, two, one, elsewhere, two)]
    assert [counters(hands) for hands in sent] == [
        {TARGET: [0]},
        {TARGET: [1]},
        {TARGET: [2]},
        {address_of("other"): [0]},
        {TARGET: [3]},
    ]
    assert [one.sent, two.sent, elsewhere.sent] == [2, 2, 1]


def test_numbers_are_right_beyond_the_tables(session: Session) -> None:
    dialog = opened(session)
    count = 16_500
    headers = [session.send(dialog, "order", b"")[0].records[0][0] for _ in range(count)]
    places = [0, 63, 64, 8_191, 8_192, 8_193, 16_383, 16_384, count - 1]
    assert [(decode(headers[n]).counter, decode(headers[n]).sequence) for n in places] == [(n, n) for n in places]
    side = Side("orders")
    side.take_all([(header, record()) for header in headers])
    assert side.state.statistics.accepted == count
    assert side.state.statistics.misnumbered == 0


def test_too_much_on_its_way_is_refused_and_nothing_is_written(session: Session) -> None:
    dialog = opened(session)
    for _ in range(WINDOW_RECORDS):
        session.send(dialog, "order", b"")
    with pytest.raises(QueueFull, match=f"{WINDOW_RECORDS:,} records to orders wait for Kafka"):
        session.send(dialog, "order", b"")
    assert (dialog.sent, dialog.target.next) == (WINDOW_RECORDS, WINDOW_RECORDS)
    session.drained()
    assert counters(session.send(dialog, "order", b"")) == {TARGET: [WINDOW_RECORDS]}


def test_too_many_bytes_on_their_way_are_refused_until_some_are_there(session: Session) -> None:
    dialog = opened(session)
    body = bytes(BODY_BYTES_MAX)
    count = -(-SESSION_WINDOW_BYTES_MAX // (len(body) + SESSION_RECORD_BYTES))
    for _ in range(count):
        session.send(dialog, "order", body)
    with pytest.raises(QueueFull):
        session.send(dialog, "order", b"")
    session.drained()
    session.send(dialog, "order", b"")
    session.drained()
    assert (dialog.target.weight, dialog.target.room) == (0, SESSION_WINDOW_BYTES_MAX)


def test_acknowledged_is_true_once_the_last_record_of_the_dialog_is_acknowledged(session: Session) -> None:
    dialog = begun(session)
    session.send(dialog, "order", b"held")
    there = session.acknowledged(dialog)
    assert not there()
    session.drained()
    assert not there(), "the message leaves only now"
    session.drained()
    assert there()
    session.send(dialog, "order", b"second")
    there = session.acknowledged(dialog)
    session.drained()
    session.send(dialog, "order", b"third")
    assert there()
    assert not session.acknowledged(dialog)()


def test_too_many_messages_that_wait_for_begin_are_refused(session: Session) -> None:
    dialog = begun(session)
    for _ in range(WINDOW_RECORDS):
        session.send(dialog, "order", b"")
    with pytest.raises(QueueFull):
        session.send(dialog, "order", b"")
    assert len(bodies(session.drained())) == WINDOW_RECORDS


def test_a_conversation_that_was_begun_is_given_again(session: Session) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"first")
    again, hands = session.begin(dialog.conversation, block())
    assert (again, hands) == (dialog, [])
    assert envelopes(session.send(again, "order", b"second"))[TARGET][0].sequence == 1
    session.end(dialog)
    assert dialog.state is DialogState.ENDING


def test_too_many_begins_on_their_way_are_refused(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("konverse.dialog.session.lanes.SESSION_WINDOW_BYTES_MAX", 2 * SESSION_RECORD_BYTES)
    begun(session, "one")
    begun(session, "two")
    with pytest.raises(QueueFull, match="2 records to replies wait for Kafka; try again"):
        session.begin(identifier("three"), block("three"))
    assert identifier("three") not in session.dialogs
    session.drained()
    begun(session, "three")


def test_a_body_that_is_too_large_is_refused_and_nothing_is_written(session: Session) -> None:
    dialog = opened(session)
    with pytest.raises(BodyTooLarge, match=f"{BODY_BYTES_MAX + 1} bytes; at most {BODY_BYTES_MAX}"):
        session.send(dialog, "order", bytes(BODY_BYTES_MAX + 1))
    assert dialog.sent == 0
    assert session.idle


# --------------------------------------------------------------------------------------------------------------- ends


def test_an_end_goes_to_home_when_all_sends_count(session: Session) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"")
    assert session.end(dialog) == []
    assert session.gated
    hands = session.drained()
    (end,) = envelopes(hands)[HOME]
    assert (end.flags, end.role, end.tag, end.writer) == (ACKED, Role.INITIATOR, HOME.tag, WRITER)
    assert (end.kind, end.counter, end.sequence, end.suffix.message_type) == (Kind.END_CALL, 1, NO_SEQUENCE, END_DIALOG)
    assert bodies(hands) == [None]
    assert dialog.state is DialogState.ENDED
    assert not session.gated
    assert session.dialogs == {}


def test_an_end_of_a_dialog_that_has_nothing_on_its_way_leaves_at_once(session: Session) -> None:
    dialog = opened(session)
    assert kinds(session.end(dialog)) == {HOME: [Kind.END_CALL]}


def test_an_end_waits_for_its_own_dialog_alone(session: Session) -> None:
    busy, quiet = opened(session, "busy", "other"), opened(session, "quiet")
    session.send(busy, "order", b"")
    session.end(busy)
    assert [one.conversation for one in envelopes(session.end(quiet))[HOME]] == [identifier("quiet")]


def test_an_end_waits_for_its_begin_and_for_held_messages(session: Session) -> None:
    dialog = begun(session)
    session.send(dialog, "order", b"held")
    assert session.end(dialog) == []
    assert kinds(session.drained()) == {TARGET: [Kind.MESSAGE]}
    assert kinds(session.drained()) == {HOME: [Kind.END_CALL]}


def test_an_end_with_an_error_carries_its_document(session: Session) -> None:
    dialog = opened(session)
    hands = session.end(dialog, b"<Error/>")
    assert (bodies(hands), kinds(hands)) == ([b"<Error/>"], {HOME: [Kind.END_CALL]})


def test_an_end_with_an_error_drops_held_messages_behaviour_111(session: Session) -> None:
    dialog = begun(session)
    room = dialog.target.room
    session.send(dialog, "order", b"never")
    assert session.end(dialog, b"<Error/>") == []
    assert dialog.target.room == room
    assert kinds(session.drained()) == {HOME: [Kind.END_CALL]}


def test_a_second_end_is_refused_and_one_behind_the_peers_is_not_behaviour_118(session: Session) -> None:
    dialog = opened(session)
    session.ended_by_peer(dialog.conversation)
    assert kinds(session.end(dialog)) == {HOME: [Kind.END_CALL]}
    for when in ("waiting", "gone"):
        for body in (b"", b"<Error/>"):
            with pytest.raises(ConversationEnded, match="ended already") as refused:
                session.end(dialog, body)
            assert refused.value.number == 8427, when
        assert session.drained() == []
    assert end_once(session, dialog) == []


@pytest.mark.parametrize("when", ["waiting", "gone"])
def test_nothing_is_sent_behind_an_end(session: Session, when: str) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"")
    session.end(dialog)
    if when == "gone":
        session.drained()
    with pytest.raises(ConversationEnded, match="begin a new one to send to store"):
        session.send(dialog, "order", b"")
    assert dialog.sent == 1


def test_nothing_is_sent_after_news_that_the_peer_ended(session: Session) -> None:
    dialog = opened(session)
    session.ended_by_peer(identifier("a"))
    with pytest.raises(ConversationEnded):
        session.send(dialog, "order", b"")
    assert session.idle


def test_a_dialog_that_the_peer_ended_is_still_to_be_ended_behaviour_108(session: Session) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"")
    session.ended_by_peer(identifier("a"))
    assert session.end(dialog) == []
    assert kinds(session.drained()) == {HOME: [Kind.END_CALL]}


def test_news_of_a_dialog_that_is_not_ours_change_nothing(session: Session) -> None:
    dialog = opened(session)
    session.ended_by_peer(identifier("another"))
    session.send(dialog, "order", b"")


def test_ending_many_dialogs_examines_each_dialog_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call looks at one dialog, not at all waiting ones."""
    looked = 0
    may_end = Session._may_end

    def count(dialog: SessionDialog) -> bool:
        nonlocal looked
        looked += 1
        return may_end(dialog)

    dialogs = [opened(session, f"{number}") for number in range(50)]
    for dialog in dialogs:
        session.send(dialog, "order", b"")
    monkeypatch.setattr(Session, "_may_end", staticmethod(count))
    monkeypatch.setattr(Session, "_release", lambda _: pytest.fail("an end lets nothing else go"))
    for dialog in dialogs:
        assert session.end(dialog) == []
    assert looked == len(dialogs)
    monkeypatch.undo()
    assert kinds(session.drained()) == {HOME: [Kind.END_CALL] * len(dialogs)}


@pytest.mark.parametrize("peer_ended", [False, True])
def test_messages_waiting_for_a_begin_are_listed_as_unknown_even_after_the_peer_has_ended(
    session: Session, peer_ended: bool
) -> None:
    dialog = begun(session)
    session.send(dialog, "order", b"0")
    session.send(dialog, "order", b"1")
    if peer_ended:
        session.ended_by_peer(dialog.conversation)
    assert session.messages_waiting == 2
    assert [(sent.conversation, sent.sequence) for sent in session.unknown()] == [(dialog.conversation, 0)]
    assert session.unknown(dialog) == session.unknown()
    assert bodies(session.drained()) == [b"0", b"1"], "and leaves"
    session.drained()
    assert (session.messages_waiting, session.unknown()) == (0, [])
