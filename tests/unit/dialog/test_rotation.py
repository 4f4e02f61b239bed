"""A session continues under a new id (protocol.md section 5, rule 6)."""

from __future__ import annotations

import pytest

from konverse.dialog.queries.hearing import needs_another_id, on_id_news
from konverse.dialog.session.dialogs import BeginOptions, SessionDialog
from konverse.dialog.session.lanes import Produce, weight_of
from konverse.dialog.session.rotation import CloseQuery, Unheard, concerns, reply
from konverse.dialog.session.session import Session
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.writer import NO_HEIR
from konverse.schemas.errors import ConversationEnded, KonverseError, OutcomeExpired, QueueFull, SessionTakenOver
from konverse.schemas.identifiers import Address, session_writer
from konverse.schemas.limits import SESSION_WINDOW_BYTES_MAX
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import (
    FIRST,
    HEIR,
    NO_SEQUENCE,
    RETURNING,
    Bounce,
    BounceReason,
    Envelope,
    Kind,
    Notice,
    NoticeReason,
    Opened,
    Suffix,
    WriterClosed,
)
from tests.kit.builders import Scribe, Side, address_of, begin_block, identifier

HOME, TARGET = address_of("replies"), address_of("orders")
IDS = [session_writer(1, number) for number in range(5)]


@pytest.fixture
def session() -> Session:
    return Session(IDS[0])


def opened(session: Session, name: str = "a") -> SessionDialog:
    """A dialog whose BEGIN counts."""
    dialog, _ = session.begin(identifier(name), begin_block(group=identifier(name)))
    session.drained()
    return dialog


def to(hands: list[Produce], address: Address) -> list[tuple[Envelope, bytes | None]]:
    return [(decode(header), body) for hand in hands for header, _, body in hand.records if hand.address == address]


def kinds(hands: list[Produce], address: Address) -> list[Kind]:
    return [envelope.kind for envelope, _ in to(hands, address)]


def settle(session: Session, closed_at: int, address: Address = TARGET, heir: bytes | None = None) -> list[Produce]:
    """The answer to the question about the newest of the former ids there."""
    (wanted,) = [one for one in session.takeover.wanted() if one.address == address]
    said = WriterClosed(wanted.asked, closed_at, address, session.writer if heir is None else heir)
    return session.answered(wanted, said)


def test_a_session_continues_under_a_new_id_at_once_if_all_records_are_acknowledged(session: Session) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    session.drained()
    hands = session.change(IDS[1], 0)
    (close, _) = to(hands, TARGET)[0]
    assert (close.kind, close.flags, close.writer, close.conversation) == (Kind.CLOSE_WRITER, HEIR, IDS[1], IDS[0])
    assert close.sequence == 1, "it believes that this many are there"
    ((message, body),) = to(session.send(dialog, "order", b"1"), TARGET)
    assert (message.writer, message.counter, message.sequence, body) == (IDS[1], 1, 1, b"1")


def test_unreceived_messages_are_resent_in_order_and_only_after_the_answer_to_close_writer(session: Session) -> None:
    dialog = opened(session)
    for number in range(4):
        session.send(dialog, "order", b"%d" % number)
    hands = session.change(IDS[1], 0)
    ((question, _),) = to(hands, TARGET)
    assert (question.kind, question.sequence) == (Kind.CLOSE_WRITER, NO_SEQUENCE)
    assert session.send(dialog, "order", b"4") == []
    assert not session.idle
    again = to(settle(session, 2), TARGET)
    assert [(e.writer, e.counter, e.sequence, body) for e, body in again] == [
        (IDS[1], 1, 2, b"2"),
        (IDS[1], 2, 3, b"3"),
        (IDS[1], 3, 4, b"4"),
    ]
    ((message, _),) = to(session.send(dialog, "order", b"5"), TARGET)
    assert (message.counter, message.sequence) == (4, 5)
    session.drained()
    assert session.idle


def test_every_message_of_a_returning_dialog_says_so_under_every_id(session: Session) -> None:
    dialog, _ = session.begin(identifier("a"), begin_block(group=identifier("a")), BeginOptions(returning=True))
    session.drained()
    sent = [session.send(dialog, "order", b"%d" % number) for number in range(2)]
    assert [envelope.flags for hands in sent for envelope, _ in to(hands, TARGET)] == [FIRST | RETURNING, RETURNING]
    session.change(IDS[1], 0)
    again = to(settle(session, 0), TARGET)
    assert [envelope.flags for envelope, _ in again] == [FIRST | RETURNING, RETURNING]
    assert [envelope.flags for envelope, _ in to(session.send(dialog, "order", b"2"), TARGET)] == [RETURNING]


def test_waiting_for_a_message_succeeds_after_it_was_resent_under_a_new_id(session: Session) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    session.send(dialog, "order", b"1")
    counts = session.acknowledged(dialog)
    session.change(IDS[1], 0)
    settle(session, 1)
    assert not counts()
    session.drained()
    assert counts()


def test_a_resent_first_names_the_original_opener(session: Session) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    session.change(IDS[1], 0)
    ((first, _),) = to(settle(session, 0), TARGET)
    assert (first.flags, first.suffix.detail) == (1, Opened(IDS[0]))
    session.change(IDS[2], 0)
    ((first, _),) = to(settle(session, 1), TARGET)
    assert first.suffix.detail == Opened(IDS[0])


def test_a_begin_that_is_sent_again_begins_anew(session: Session) -> None:
    dialog, _ = session.begin(identifier("a"), begin_block(group=identifier("a")))
    session.send(dialog, "order", b"0")
    session.change(IDS[1], 0)
    hands = settle(session, 0, HOME)
    assert [(e.kind, e.writer) for e, _ in to(hands, HOME)] == [(Kind.BEGIN, IDS[1])]
    settle(session, 0, TARGET)
    ((first, _),) = to(session.drained(), TARGET)
    assert (first.writer, first.suffix.detail) == (IDS[1], None)


def test_the_old_id_is_closed_where_nothing_was_sent_under_it_too(session: Session) -> None:
    session.begin(identifier("a"), begin_block(group=identifier("a")))
    hands = session.change(IDS[1], 0)
    assert kinds(hands, TARGET) == [Kind.CLOSE_WRITER]
    assert {one.address for one in session.takeover.wanted()} == {HOME}


def test_messages_held_for_a_begin_are_not_sent_before_the_target_has_answered(session: Session) -> None:
    dialog, _ = session.begin(identifier("a"), begin_block(group=identifier("a")))
    session.send(dialog, "order", b"held")
    session.change(IDS[1], 0)
    assert {one.address for one in session.takeover.wanted()} == {HOME, TARGET}
    settle(session, 0, HOME)
    assert to(session.drained(), TARGET) == []
    wanted = next(one for one in session.takeover.wanted() if one.address == TARGET)
    assert session.answered(wanted, Unheard.EXPIRED) == []
    with pytest.raises(OutcomeExpired, match="has forgotten this session"):
        session.send(dialog, "order", b"1")


def test_an_end_leaves_after_the_resent_messages_are_acknowledged(session: Session) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    session.end(dialog)
    session.change(IDS[1], 0)
    settle(session, 0)
    assert kinds(session.drained(), HOME) == [Kind.END_CALL]


@pytest.mark.parametrize("heard", [True, False])
def test_an_id_that_is_given_up_before_the_answer_is_asked_about_first(session: Session, heard: bool) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    session.send(dialog, "order", b"1")
    session.change(IDS[1], 0)
    session.drained()
    session.change(IDS[2], 0)
    (wanted,) = session.takeover.wanted()
    assert wanted.asked == IDS[1]
    hands = settle(session, int(heard))
    assert kinds(hands, TARGET) == ([] if heard else [Kind.CLOSE_WRITER])
    (wanted,) = session.takeover.wanted()
    assert (wanted.asked, wanted.asker) == (IDS[0], IDS[1] if heard else IDS[2])
    again = to(settle(session, 1, heir=wanted.asker), TARGET)
    assert [(e.counter, body) for e, body in again] == [(2 - heard, b"1")]


@pytest.mark.parametrize(("closed_at", "heir"), [(1, NO_HEIR[0]), (1, identifier("another")), (0, None)])
def test_a_session_closed_by_another_process_is_over(session: Session, closed_at: int, heir: bytes | None) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    session.drained()
    session.send(dialog, "order", b"1")
    session.change(IDS[1], 0)
    assert settle(session, closed_at, heir=heir) == []
    with pytest.raises(SessionTakenOver, match="connect again"):
        session.send(dialog, "order", b"2")
    with pytest.raises(SessionTakenOver):
        session.begin(identifier("b"), begin_block())
    assert session.unsent() == []


def test_a_session_that_was_forgotten_does_not_send_again(session: Session) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    session.change(IDS[1], 0)
    (wanted,) = session.takeover.wanted()
    assert session.answered(wanted, Unheard.EXPIRED) == []
    with pytest.raises(OutcomeExpired, match="forgotten"):
        session.check_over()


def test_a_stranger_may_have_gone_further_under_its_id_than_the_session(session: Session) -> None:
    """The session's record then counts as a record of the stranger, so nothing is sent again."""
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    session.send(dialog, "order", b"1")
    session.change(IDS[1], 0)
    assert to(settle(session, 9), TARGET) == []
    assert [body for _, body in to(session.send(dialog, "order", b"2"), TARGET)] == [b"2"]


def test_a_writer_id_from_the_future_is_asked_about_again(session: Session) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    session.change(IDS[1], 0)
    (wanted,) = session.takeover.wanted()
    hands = session.answered(wanted, Unheard.LATER)
    assert [(e.kind, e.counter) for e, _ in to(hands, TARGET)] == [(Kind.CLOSE_WRITER, 1)]
    assert session.answered(wanted, WriterClosed(IDS[0], 0, TARGET, IDS[1])) == [], "an answer to another question"
    ((first, _),) = to(settle(session, 0), TARGET)
    assert first.counter == 2


def test_an_answer_is_there_when_the_question_was_heard(session: Session) -> None:
    dialog, side = opened(session), Side("orders")
    side.state.now_ms = 1
    for header in handed(session.send(dialog, "order", b"0")):
        side.take(header, b"0")
    session.send(dialog, "order", b"1")
    hands = session.change(IDS[1], 0)
    (wanted,) = session.takeover.wanted()
    assert reply(side.state, wanted) is None
    for header in handed(hands):
        side.take(header)
    said = reply(side.state, wanted)
    assert said == WriterClosed(IDS[0], 1, TARGET, IDS[1])


def test_a_writer_forgotten_before_the_answer_was_read_asks_under_another_id() -> None:
    side, asker = Side("orders"), session_writer(1_000, 2)
    wanted = CloseQuery(TARGET, session_writer(1_000, 1), asker, 0)
    assert reply(side.state, wanted) is None, "it was not heard yet"
    side.state.floor_ms = 1_001
    assert reply(side.state, wanted) is Unheard.ANOTHER


def handed(hands: list[Produce]) -> list[bytes]:
    return [header for hand in hands for header, _, _ in hand.records if hand.address == TARGET]


def test_only_a_closed_writer_a_clock_notice_or_a_gap_in_acknowledged_records_requires_a_new_id(
    session: Session,
) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    session.drained()
    lane = session.lanes[TARGET]
    assert concerns(WriterClosed(IDS[0], 1, TARGET), lane)
    assert concerns(Notice(IDS[0], 0, TARGET, NoticeReason.CLOCK), lane)
    assert concerns(Notice(IDS[0], 0, TARGET, NoticeReason.GAP), lane), "what counts is missing there"
    assert not concerns(Notice(IDS[0], 1, TARGET, NoticeReason.GAP), lane)


def test_why_a_session_is_over_is_an_error_of_ours() -> None:
    assert issubclass(SessionTakenOver, KonverseError)


def test_a_session_that_is_over_ends_no_dialog(session: Session) -> None:
    ended, dialog = opened(session, "ended"), opened(session)
    session.end(ended)
    session.send(dialog, "order", b"0")
    session.drained()
    session.send(dialog, "order", b"1")
    session.change(IDS[1], 0)
    settle(session, 1, heir=NO_HEIR[0])
    with pytest.raises(SessionTakenOver, match="connect again"):
        session.end(dialog)
    assert (dialog.waiting_end, session.gated) == (None, False)
    with pytest.raises(ConversationEnded):
        session.end(ended)


@pytest.mark.parametrize("held", [0, 3])
def test_a_destination_that_refuses_records_waits_for_a_retry_even_after_its_answer_arrives(
    session: Session, held: int
) -> None:
    one, later = opened(session), session.begin(identifier("b"), begin_block(group=identifier("b")))[0]
    session.send(one, "order", b"0")
    for _ in range(held):
        session.send(later, "order", b"held")
    session.change(IDS[1], 0)
    session.restart(TARGET)
    lane = session.lanes[TARGET]
    assert (lane.parked, lane.full) == (True, True)
    assert to(settle(session, 0), TARGET) == []
    assert (lane.parked, lane.full) == (True, True), "it is still refused"
    with pytest.raises(QueueFull):
        session.send(one, "order", b"1")
    assert len(to(session.try_again(), TARGET)) == 2
    assert lane.room == SESSION_WINDOW_BYTES_MAX - held * weight_of(b"held")
    if held:
        settle(session, 1, HOME)
    session.drained()
    session.drained()
    assert (lane.room, lane.weight) == (SESSION_WINDOW_BYTES_MAX, 0)


# ------------------------------------------------------------------------------------------------- news of its own id


def bounced_by(writer: bytes, reason: BounceReason = BounceReason.WRITER_CLOSED) -> Bounced:
    return Bounced(writer, Bounce(writer, 0, TARGET, reason), identifier("a"), 0, "order", b"", None)


@pytest.mark.parametrize(
    ("said", "due"),
    [
        (WriterClosed(IDS[0], 1, TARGET), True),
        (Notice(IDS[0], 0, TARGET, NoticeReason.GAP), True),
        (Notice(IDS[0], 1, TARGET, NoticeReason.GAP), False),
        (Notice(IDS[0], 0, TARGET, NoticeReason.CLOCK), True),
        (WriterClosed(IDS[1], 1, TARGET), False),
        (WriterClosed(IDS[0], 1, address_of("elsewhere")), False),
        (bounced_by(IDS[0]), True),
        (bounced_by(IDS[0], BounceReason.ENDED), False),
        (bounced_by(IDS[1]), False),
    ],
    ids=["closed", "a gap", "a gap of what is on its way", "ahead of time", "another writer", "another place",
         "came back", "came back for another reason", "of another session"],
)  # fmt: skip
def test_a_session_takes_another_id_when_its_home_hears_that_it_is_not_heard(
    session: Session, said: Notice | WriterClosed | Bounced, due: bool
) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    session.drained()
    home = Side("replies")
    assert not needs_another_id(session, home.state)
    if isinstance(said, Bounced):
        home.state.mailbox.keep(said)
    else:
        home.state.keep_answer(said)
    assert needs_another_id(session, home.state) is due
    assert on_id_news(session, said) is due
    session.close()
    assert not needs_another_id(session, home.state), "it says goodbye"


def test_a_home_reports_answers_for_sessions_to_its_owner(session: Session) -> None:
    home = Side("replies")
    told: list[object] = []
    home.state.on_answer = told.append
    closed, back = WriterClosed(IDS[0], 1, TARGET), Bounce(IDS[0], 0, TARGET, BounceReason.WRITER_CLOSED)
    owner = Scribe("an owner")
    home.take(owner.write(Kind.WRITER_CLOSED, HOME, IDS[0], suffix=Suffix(detail=closed)))
    home.take(owner.bounce(HOME, identifier("a"), back))
    assert [type(said) for said in told] == [WriterClosed, Bounced]
