"""Transactions of a session that continues under another id (protocol.md section 5)."""

from __future__ import annotations

import pytest

from konverse.dialog.session.dialogs import DialogState
from konverse.dialog.session.rotation import reply
from konverse.dialog.session.session import Session
from konverse.dialog.session.transactions import StagedTransaction
from konverse.schemas.identifiers import session_writer
from konverse.schemas.limits import WRITER_AHEAD_MS_MAX
from konverse.schemas.wire.records import Kind, WriterClosed
from tests.kit.builders import Side, begin_block, identifier
from tests.kit.transmission import TRANSMISSION, arrived, expanded, opened, records, transmitting

NOW_MS = 1_800_000_000_000


@pytest.fixture
def session() -> Session:
    return transmitting()


@pytest.fixture
def transmission() -> Side:
    return Side("transmission")


def test_a_transaction_is_looked_for_under_the_id_under_which_it_was_taken(
    session: Session, transmission: Side
) -> None:
    dialog = opened(session)
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"0")
    expanded(transmission, session.commit(transaction))
    session.drained()
    session.change(identifier("its next id"), 0)
    session.drained()
    session.transmitted(transmission.state)
    arrived(transmission)
    session.transmitted(transmission.state)
    assert dialog.open


def test_a_transaction_that_was_not_taken_goes_again_under_the_next_id(session: Session, transmission: Side) -> None:
    transaction = StagedTransaction(session)
    dialog = transaction.begin(identifier("a"), begin_block(group=identifier("a")))
    transaction.send(dialog, "order", b"0")
    session.commit(transaction)
    following = identifier("its next id")
    expanded(transmission, [hand for hand in session.change(following, 0) if hand.address == TRANSMISSION])
    session.transmitted(transmission.state)
    assert dialog.blocked, "the answer is not there"
    (wanted,) = session.takeover.wanted()
    said = reply(transmission.state, wanted)
    assert isinstance(said, WriterClosed)
    assert said == WriterClosed(session.ids[0], 0, TRANSMISSION, following)
    expanded(transmission, session.answered(wanted, said))
    session.transmitted(transmission.state)
    arrived(transmission)
    session.transmitted(transmission.state)
    assert dialog.open
    assert dialog.opener == following


def test_sends_after_a_resent_begin_name_the_new_writer_id(session: Session, transmission: Side) -> None:
    begins = StagedTransaction(session)
    dialog = begins.begin(identifier("a"), begin_block(group=identifier("a")))
    session.commit(begins)
    sends = StagedTransaction(session)
    sends.send(dialog, "order", b"0")
    session.commit(sends)
    following = identifier("its next id")
    expanded(transmission, [hand for hand in session.change(following, 0) if hand.address == TRANSMISSION])
    (wanted,) = session.takeover.wanted()
    said = reply(transmission.state, wanted)
    assert isinstance(said, WriterClosed)
    (_, content) = records(session.answered(wanted, said))[-1]
    assert content is not None
    (opening, _) = content.steps
    assert (opening.kind, opening.body) == (Kind.OPEN, following)


def test_sends_after_an_accepted_begin_name_the_original_writer_id(session: Session, transmission: Side) -> None:
    begins = StagedTransaction(session)
    dialog = begins.begin(identifier("a"), begin_block(group=identifier("a")))
    expanded(transmission, session.commit(begins))
    sends = StagedTransaction(session)
    sends.send(dialog, "order", b"0")
    session.commit(sends)
    expanded(
        transmission,
        [hand for hand in session.change(identifier("its next id"), 0) if hand.address == TRANSMISSION],
    )
    (wanted,) = session.takeover.wanted()
    said = reply(transmission.state, wanted)
    assert isinstance(said, WriterClosed)
    (_, content) = records(session.answered(wanted, said))[-1]
    assert content is not None
    (opening, _) = content.steps
    assert (opening.kind, opening.body) == (Kind.OPEN, session.ids[0])


@pytest.mark.parametrize("ids_ahead", [1, 2, 3])
def test_a_transaction_did_not_happen_when_its_id_was_ahead_of_time_however_many_of_the_next_ids_are_too(
    transmission: Side, ids_ahead: int
) -> None:
    ahead_ms = WRITER_AHEAD_MS_MAX + 1
    transmission.state.now_ms = NOW_MS
    ids = [session_writer(NOW_MS + ahead_ms, number) for number in range(ids_ahead)]
    session = Session(ids[0])
    session.transmit_to(TRANSMISSION)
    dialog = opened(session)
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"0")
    expanded(transmission, session.commit(transaction))
    session.drained()
    for following in [*ids[1:], session_writer(NOW_MS, 9)]:
        session.transmitted(transmission.state)
        assert dialog.blocked, "the partition may still hear of it"
        expanded(transmission, [hand for hand in session.change(following, 0) if hand.address == TRANSMISSION])
        session.drained()
    session.transmitted(transmission.state)
    assert dialog.state is DialogState.ENDED
    assert transmission.outputs(dialog.begin.target) == []
