"""A session after the outcome of its records is known, and its CLOSE_WRITER (protocol.md section 5)."""

from __future__ import annotations

import pytest

from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.session.lanes import Produce
from konverse.dialog.session.session import Session
from konverse.schemas.errors import BodyTooLarge, ConversationEnded, KonverseError, QueueFull
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import ACKED, NO_SEQUENCE, Begin, Envelope, Kind
from tests.kit.builders import Side, address_of, begin_block, identifier, record

HOME, TARGET = address_of("replies"), address_of("orders")
WRITER = identifier("a session")


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


# ----------------------------------------------------------------------------------------------------------- outcomes


def test_after_a_failure_the_same_bytes_are_handed_over_again(session: Session) -> None:
    dialog = opened(session)
    sent = [hand for number in range(5) for hand in session.send(dialog, "order", str(number).encode())]
    (again,) = session.restart()
    assert again.address == TARGET
    assert again.records == [hand.records[0] for hand in sent]
    assert session.restart() == [again]


def test_acknowledged_messages_are_not_resent(session: Session) -> None:
    dialog = opened(session)
    for number in range(4):
        if number == 2:
            session.drained()
        session.send(dialog, "order", str(number).encode())
    (again,) = session.restart()
    assert (counters([again]), bodies([again])) == ({TARGET: [2, 3]}, [b"2", b"3"])


def test_every_destination_starts_again_after_a_failure(session: Session) -> None:
    one, two = opened(session, "one"), opened(session, "two", "other")
    session.send(one, "order", b"1")
    session.send(two, "order", b"2")
    assert counters(session.restart()) == {TARGET: [0], address_of("other"): [0]}


def test_a_begin_goes_again_too_and_its_messages_wait_on(session: Session) -> None:
    dialog = begun(session)
    session.send(dialog, "order", b"held")
    assert kinds(session.restart()) == {HOME: [Kind.BEGIN]}
    assert bodies(session.drained()) == [b"held"]


def test_messages_that_are_sent_after_a_failure_follow_those_that_go_again(session: Session) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    assert counters(session.restart()) == {TARGET: [0]}
    assert counters(session.send(dialog, "order", b"1")) == {TARGET: [1]}


def test_nothing_counts_before_the_producer_ran_empty(session: Session) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    assert session.end(dialog) == []
    assert not session.idle
    assert kinds(session.drained()) == {HOME: [Kind.END_CALL]}


def test_a_session_is_idle_when_everything_counts(session: Session) -> None:
    assert session.idle
    dialog = begun(session)
    assert not session.idle
    session.drained()
    assert session.idle
    session.send(dialog, "order", b"")
    assert not session.idle
    session.end(dialog)
    session.drained()
    assert not session.idle, "the END is on its way"
    session.drained()
    assert session.idle


# -------------------------------------------------------------------------------------------------------------- close


def test_closing_a_session_closes_its_writer_at_every_destination(session: Session) -> None:
    opened(session, "one")
    dialog = opened(session, "two", "other")
    session.send(dialog, "order", b"")
    session.drained()
    assert not session.closing
    hands = session.close()
    addresses = {HOME, TARGET, address_of("other")}
    assert {address: [one.kind for one in all_of_it] for address, all_of_it in envelopes(hands).items()} == {
        address: [Kind.CLOSE_WRITER] for address in addresses
    }
    assert {one.conversation for all_of_it in envelopes(hands).values() for one in all_of_it} == {WRITER}
    assert {(one.role, one.sequence) for all_of_it in envelopes(hands).values() for one in all_of_it} == {
        (Role.INITIATOR, NO_SEQUENCE)
    }
    vouching = {address: [one.flags for one in all_of_it] for address, all_of_it in envelopes(hands).items()}
    assert vouching == {HOME: [ACKED], TARGET: [0], address_of("other"): [ACKED]}, "where something was acknowledged"
    assert counters(hands) == {HOME: [2], TARGET: [0], address_of("other"): [1]}
    assert session.closing
    assert not session.idle
    session.drained()
    assert session.idle


def test_the_destinations_take_the_goodbye(session: Session) -> None:
    dialog = opened(session)
    side = Side("orders")
    for hands in (session.send(dialog, "order", b""), session.drained(), session.close()):
        rows = [(header, record(body)) for hand in hands if hand.address == TARGET for header, _, body in hand.records]
        side.take_all(rows)
    assert side.state.writers[WRITER].closed_at == 2


def test_a_session_does_not_close_while_something_waits(session: Session) -> None:
    begun(session)
    with pytest.raises(AssertionError, match="close only when"):
        session.close()


def test_a_refusal_says_whether_to_try_again() -> None:
    refusals: list[type[KonverseError]] = [QueueFull, ConversationEnded, BodyTooLarge]
    assert [refusal.retriable for refusal in refusals] == [True, False, False]


def test_a_destination_that_refuses_waits_while_the_others_count(session: Session) -> None:
    one, other = opened(session, "one"), opened(session, "other", "elsewhere")
    session.send(one, "order", b"1")
    session.send(other, "order", b"1")
    assert {hand.address for hand in session.restart(TARGET)} == {address_of("elsewhere")}
    there, elsewhere = session.acknowledged(one), session.acknowledged(other)
    session.drained()
    assert (elsewhere(), there()) == (True, False)
    with pytest.raises(QueueFull):
        session.send(one, "order", b"2")
    assert session.restart(TARGET) == [], "parked once"
    assert session.unsent() == [], "and not handed over by the way"
    assert {hand.address for hand in session.restart()} == set(), "another failure leaves it parked"
    assert session.refused
    (hand,) = session.try_again()
    assert (hand.address, bodies([hand])) == (TARGET, [b"1"])
    assert session.try_again() == []
    assert not session.refused
    session.drained()
    assert there()
    assert one.target.room == other.target.room
