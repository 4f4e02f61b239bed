"""A session adopts conversations whose sender is gone (protocol.md section 7.12)."""

from __future__ import annotations

import pytest

from konverse.dialog.session.adoption import Adopted, Adoption, AdoptRequest, FoundState
from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.session.lanes import Produce
from konverse.dialog.session.session import Session
from konverse.schemas.errors import ConversationEnded, SessionTakenOver
from konverse.schemas.identifiers import Role, session_writer
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import (
    ACKED,
    HEIR,
    NO_SEQUENCE,
    RETURNING,
    BounceReason,
    Envelope,
    FinAnswer,
    Kind,
    Suffix,
)
from tests.kit.builders import Pair, Scribe, Side, begin_block, identifier, record
from tests.kit.moving import living, relocate

NOW_MS = 1_800_000_000_000


def scribe(number: int) -> Scribe:
    made = Scribe(f"session {number}")
    made.id = session_writer(NOW_MS, number)
    return made


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.home.state.now_ms = made.target.state.now_ms = NOW_MS
    made.client = scribe(1)
    return made


@pytest.fixture
def session() -> Session:
    return Session(session_writer(NOW_MS, 99))


def wanted(*conversations: bytes, returning: bool = False) -> list[AdoptRequest]:
    return [AdoptRequest(one, begin_block(group=one), returning) for one in conversations]


def arrive(pair: Pair, hands: list[Produce]) -> list[Envelope]:
    """Deliver the records and return their envelopes."""
    said = []
    for hand in hands:
        side = pair.home if hand.address == pair.home.address else pair.target
        side.take_all([(header, record(body)) for header, _, body in hand.records])
        said += [decode(header) for header, _, _ in hand.records]
    return said


def drive(pair: Pair, adopting: Adoption, *, delivering: bool = True) -> list[Envelope]:
    """Pass it the states of both partitions until it wants no more. Returns the envelopes of its records."""
    written: list[Envelope] = []
    for _ in range(20):
        for address in adopting.addresses:
            side = pair.home if address == pair.home.address else pair.target
            written += arrive(pair, adopting.read(side.state))
        if delivering:
            pair.home.deliver(pair.target)
            pair.target.deliver(pair.home)
    return written


def adopt(pair: Pair, session: Session, *conversations: bytes, **options: bool) -> list[Adopted]:
    adopting = Adoption(session, wanted(*conversations, **options))
    drive(pair, adopting)
    assert adopting.addresses == []
    return adopting.finish()


def adopted(pair: Pair, session: Session, conversation: bytes) -> SessionDialog:
    ((dialog, standing),) = adopt(pair, session, conversation)
    assert standing is FoundState.OPEN
    return dialog


def bodies(pair: Pair, conversation: bytes) -> list[bytes | None]:
    return [entry[2] for entry in pair.receiver(conversation).queue]


def test_a_successor_continues_after_the_received_messages_without_first_and_sequence_numbers(
    pair: Pair, session: Session
) -> None:
    conversation = pair.begin(messages=2)
    dialog = adopted(pair, session, conversation)
    (message,) = arrive(pair, session.send(dialog, "order", b"2"))
    assert (message.flags, message.sequence, message.writer) == (0, NO_SEQUENCE, session.writer)
    assert dialog.next_sequence == NO_SEQUENCE
    assert bodies(pair, conversation) == [b"0", b"1", b"2"]
    assert pair.target.state.statistics.misnumbered == 0


def test_a_successor_inherits_bounced_messages_of_the_dead_session(pair: Pair, session: Session) -> None:
    conversation = pair.begin(messages=2)
    dialog = adopted(pair, session, conversation)
    pair.send(conversation, b"late")
    pair.target.deliver(pair.home)
    (back,) = pair.home.state.mailbox.entries.values()
    assert (back.body, back.session, back.bounce.reason) == (b"late", pair.client.id, BounceReason.WRITER_CLOSED)
    session.drained()
    (redirect,) = arrive(pair, session.redirect(dialog, back.id))
    assert redirect.flags == ACKED, "FIRST is there"
    assert arrive(pair, session.send(dialog, "order", b"behind")) == [], "it waits for what was redirected"
    pair.home.deliver(pair.target)
    arrive(pair, session.read_home(pair.home.state))
    assert bodies(pair, conversation) == [b"0", b"1", b"late", b"behind"]


def test_nothing_leaves_before_both_sides_have_heard_that_the_dead_one_is_closed(pair: Pair, session: Session) -> None:
    conversation = pair.begin()
    adopting = Adoption(session, wanted(conversation))
    assert adopting.addresses == [pair.home.address]
    assert adopting.read(pair.target.state) == [], "it was not asked for"
    assert adopting.read(pair.home.state) == []
    assert adopting.addresses == [pair.target.address]
    hands = adopting.read(pair.target.state)
    assert adopting.addresses == [pair.home.address]
    assert adopting.read(pair.home.state) == [], "it was not heard"
    (close,) = arrive(pair, hands)
    assert (close.kind, close.conversation, close.flags & HEIR) == (Kind.CLOSE_WRITER, pair.client.id, 0)
    assert drive(pair, adopting)
    assert adopting.addresses == []
    for side in (pair.home, pair.target):
        assert side.state.writers[pair.client.id].closed_at is not None


def test_bounced_messages_are_in_the_mailbox_before_a_successor_can_send(pair: Pair, session: Session) -> None:
    conversation = pair.begin()
    pair.target.end(pair.receiver(conversation))
    pair.send(conversation, b"late", flags=RETURNING)
    adopting = Adoption(session, wanted(conversation))
    drive(pair, adopting, delivering=False)
    assert adopting.addresses == [pair.target.address], "its outputs have not arrived"
    pair.target.deliver(pair.home)
    drive(pair, adopting)
    ((dialog, standing),) = adopting.finish()
    assert standing is FoundState.ENDED
    assert [one.body for one in pair.home.state.mailbox.entries.values()] == [b"late"]
    with pytest.raises(ConversationEnded):
        session.send(dialog, "order", b"in vain")
    session.end(dialog)
    arrive(pair, session.drained())
    assert pair.home.state.live() == []


def test_messages_from_home_for_the_dead_session_arrive_before_a_successor_can_send(
    pair: Pair, session: Session
) -> None:
    conversation = pair.begin()
    pair.home.send(pair.initiator(conversation), b"redirected", message_type="order")
    adopting = Adoption(session, wanted(conversation))
    drive(pair, adopting, delivering=False)
    assert adopting.addresses == [pair.home.address]
    drive(pair, adopting)
    ((dialog, _),) = adopting.finish()
    arrive(pair, session.send(dialog, "order", b"behind"))
    assert bodies(pair, conversation) == [b"0", b"redirected", b"behind"]


def test_adoption_closes_every_session_of_the_conversation_and_its_heirs_but_no_owner(
    pair: Pair, session: Session
) -> None:
    conversation = pair.begin()
    second, third = scribe(2), scribe(3)
    pair.target.take(second.message(pair.target.address, conversation))
    pair.target.take(third.write(Kind.CLOSE_WRITER, pair.target.address, second.id, flags=HEIR))
    pair.home.send(pair.initiator(conversation), b"of a handler", message_type="order")
    pair.home.deliver(pair.target)
    adopted(pair, session, conversation)
    for side in (pair.home, pair.target):
        closed = {writer.id for writer in side.state.writers.values() if writer.closed_at is not None}
        assert closed == {pair.client.id, second.id, third.id}


def test_a_writer_that_is_heard_meanwhile_is_closed_at_home_as_well(pair: Pair, session: Session) -> None:
    conversation = pair.begin()
    adopting = Adoption(session, wanted(conversation))
    adopting.read(pair.home.state)
    hands = adopting.read(pair.target.state)
    second = scribe(2)
    pair.target.take(second.message(pair.target.address, conversation), b"1")
    arrive(pair, hands)
    drive(pair, adopting)
    assert adopting.addresses == []
    assert pair.home.state.writers[second.id].closed_at == 0
    assert pair.target.state.writers[second.id].closed_at == 1


def test_adoption_closes_named_writers_that_no_partition_has_heard(pair: Pair, session: Session) -> None:
    conversation, unheard = pair.begin(), scribe(2)
    drive(pair, Adoption(session, wanted(conversation), [unheard.id]))
    pair.target.take(unheard.message(pair.target.address, conversation))
    assert bodies(pair, conversation) == [b"0"]


def test_a_partition_is_read_and_a_writer_closed_there_once_for_many_conversations(
    pair: Pair, session: Session
) -> None:
    conversations = [pair.begin(f"conversation {number}") for number in range(20)]
    adopting = Adoption(session, wanted(*conversations))
    written = drive(pair, adopting)
    assert [one.kind for one in written] == [Kind.CLOSE_WRITER] * 3, "at home, at the target, and at home behind that"
    found = adopting.finish()
    assert [one.dialog.conversation for one in found] == conversations
    assert {one.standing for one in found} == {FoundState.OPEN}


def test_a_conversation_that_no_message_has_reached_is_not_opened_any_more(pair: Pair, session: Session) -> None:
    conversation = pair.begin(messages=0)
    ((dialog, standing),) = adopt(pair, session, conversation)
    assert standing is FoundState.NOT_OPENED
    pair.target.take(pair.client.first(pair.target.address, conversation, begin_block(group=conversation)), b"late")
    assert pair.target.state.live() == []
    pair.target.deliver(pair.home)
    assert [one.body for one in pair.home.state.mailbox.entries.values()] == [b"late"]
    with pytest.raises(ConversationEnded):
        session.send(dialog, "order", b"in vain")


def test_adoption_reports_the_state_of_a_conversation_that_is_over(pair: Pair, session: Session) -> None:
    unknown, ended, finished = identifier("unknown"), pair.begin("ended"), pair.begin("finished")
    answered = pair.begin("answered")
    pair.end_call(ended)
    pair.target.take(pair.client.write(Kind.FIN, pair.target.address, finished, suffix=Suffix(home=pair.home.address)))
    answer = Suffix(detail=FinAnswer(identifier("somebody")))
    header = scribe(7).write(Kind.FIN_ANSWER, pair.home.address, answered, role=Role.TARGET, suffix=answer)
    pair.home.take(header)
    found = adopt(pair, session, unknown, ended, finished, answered)
    assert [one.standing for one in found] == [
        FoundState.NOT_BEGUN,
        FoundState.ENDED,
        FoundState.FINISHED,
        FoundState.FINISHED,
    ]
    for dialog, _ in found:
        with pytest.raises(ConversationEnded):
            session.send(dialog, "order", b"in vain")


def test_a_conversation_that_has_moved_cannot_be_adopted(pair: Pair, session: Session) -> None:
    conversation = pair.begin()
    relocate(pair.target, living(pair.target, Role.TARGET, conversation), Side("elsewhere"))
    ((_, standing),) = adopt(pair, session, conversation)
    assert standing is FoundState.MOVED


def test_a_dialog_of_the_session_itself_is_given_again(pair: Pair, session: Session) -> None:
    conversation = identifier("own")
    dialog, _ = session.begin(conversation, begin_block(group=conversation))
    adopting = Adoption(session, wanted(conversation))
    assert adopting.addresses == []
    assert adopting.finish() == [Adopted(dialog, FoundState.OPEN)]
    session.finish(dialog)
    assert Adoption(session, wanted(conversation)).finish() == [Adopted(dialog, FoundState.FINISHED)]
    session.end(dialog)
    assert [one.standing for one in Adoption(session, wanted(conversation)).finish()] == [FoundState.ENDED]


def test_an_adopted_dialog_is_returning_when_its_successor_wants_that(pair: Pair, session: Session) -> None:
    ((dialog, _),) = adopt(pair, session, pair.begin(), returning=True)
    (message,) = arrive(pair, session.send(dialog, "order", b"1"))
    assert message.flags == RETURNING


def test_a_closed_session_cannot_adopt_conversations(pair: Pair, session: Session) -> None:
    conversation = pair.begin()
    adopting = Adoption(session, wanted(conversation))
    adopting.read(pair.home.state)
    hands = adopting.read(pair.target.state)
    pair.home.take(scribe(2).close(pair.home.address, session.writer))
    arrive(pair, hands)
    with pytest.raises(SessionTakenOver):
        adopting.read(pair.home.state)
