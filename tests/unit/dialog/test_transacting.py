"""Transactions of a session: when they leave, and which sends wait for them (protocol.md section 5)."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from konverse.dialog.session.dialogs import DialogState, SessionDialog
from konverse.dialog.session.session import Session
from konverse.dialog.session.transactions import StagedTransaction
from konverse.schemas.errors import (
    BodyTooLarge,
    ConversationEnded,
    DialogNotFound,
    InvalidState,
    QueueFull,
    TransactionLost,
    TransactionTooLarge,
)
from konverse.schemas.limits import BODY_BYTES_MAX, TRANSACTION_RECORDS_MAX
from konverse.schemas.wire.operations import Lost
from konverse.schemas.wire.records import Kind, Timer
from tests.kit.builders import Scribe, Side, begin_block, identifier
from tests.kit.transmission import TRANSMISSION, arrived, expanded, opened, records, transmitting


@pytest.fixture
def session() -> Session:
    return transmitting()


@pytest.fixture
def transmission() -> Side:
    return Side("transmission")


def test_a_transaction_is_one_record_with_its_steps_in_order(session: Session) -> None:
    first = opened(session)
    transaction = StagedTransaction(session)
    second = transaction.begin(identifier("b"), begin_block(group=identifier("b")))
    transaction.send(second, "order", b"1")
    transaction.send(first, "order", b"2")
    transaction.finish(first)
    transaction.end(second)
    assert not session.transactions.waiting, "nothing happens before it is committed"
    ((kind, said),) = records(session.commit(transaction))
    assert kind is Kind.TRANSACTION
    assert said is not None
    assert [(step.dialog, step.kind, step.sequence) for step in said.steps] == [
        (0, Kind.BEGIN, -1),
        (0, Kind.MESSAGE, 0),
        (1, Kind.OPEN, -1),
        (1, Kind.MESSAGE, 0),
        (1, Kind.FIN, -1),
        (0, Kind.END_CALL, -1),
    ]
    assert said.steps[2].body == first.opener
    assert second.state is DialogState.ENDED


def test_a_transaction_leaves_once_earlier_direct_sends_are_acknowledged(session: Session) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"1")
    assert session.commit(transaction) == []
    assert session.gated
    ((_, said),) = records(session.drained())
    assert said is not None
    assert said.steps[0].sequence == 1


def test_a_transaction_leaves_after_the_begin_and_the_messages_held_for_it(session: Session) -> None:
    dialog, _ = session.begin(identifier("a"), begin_block(group=identifier("a")))
    session.send(dialog, "order", b"0")
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"1")
    assert session.commit(transaction) == []
    with pytest.raises(QueueFull):
        session.send(dialog, "order", b"2")
    assert [kind for kind, _ in records(session.drained())] == [Kind.MESSAGE]
    assert [kind for kind, _ in records(session.drained())] == [Kind.TRANSACTION]


def test_a_fin_in_a_transaction_stays_behind_its_messages_when_begin_counts(session: Session) -> None:
    dialog, _ = session.begin(identifier("a"), begin_block(group=identifier("a")))
    session.send(dialog, "order", b"0")
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"1")
    transaction.finish(dialog)
    assert session.commit(transaction) == []
    assert [kind for kind, _ in records(session.drained())] == [Kind.MESSAGE]
    ((_, said),) = records(session.drained())
    assert said is not None
    assert [step.kind for step in said.steps] == [Kind.MESSAGE, Kind.FIN]


def test_a_direct_send_waits_until_the_outputs_have_arrived(session: Session, transmission: Side) -> None:
    dialog = opened(session)
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"0")
    expanded(transmission, session.commit(transaction))
    session.drained()
    with pytest.raises(QueueFull, match="have not arrived"):
        session.send(dialog, "order", b"1")
    session.transmitted(transmission.state)
    assert dialog.blocked, "expanded is not arrived"
    arrived(transmission)
    session.transmitted(transmission.state)
    assert dialog.open
    ((kind, _),) = records(session.send(dialog, "order", b"1"))
    assert kind is Kind.MESSAGE
    assert session.may_close is False
    session.drained()
    assert session.may_close


def test_an_end_call_waits_until_the_outputs_have_arrived(session: Session, transmission: Side) -> None:
    dialog = opened(session)
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"0")
    expanded(transmission, session.commit(transaction))
    assert session.end(dialog) == []
    assert session.drained() == []
    arrived(transmission)
    ((kind, _),) = records(session.transmitted(transmission.state))
    assert kind is Kind.END_CALL


def test_a_transaction_that_ends_with_an_error_sends_nothing_else_on_it_behaviour_111(
    session: Session, transmission: Side
) -> None:
    dialog, other = opened(session), opened(session, "other")
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"never")
    transaction.send(other, "order", b"said")
    transaction.finish(dialog)
    transaction.end(dialog, b"<Error/>")
    expanded(transmission, session.commit(transaction))
    said = [sent for stream in transmission.state.streams for sent in transmission.outputs(stream)]
    assert sorted((sent.kind.name, sent.body) for sent in said) == [("END_CALL", b"<Error/>"), ("MESSAGE", b"said")]


def test_an_end_with_an_error_keeps_held_messages_that_a_transaction_follows(session: Session) -> None:
    dialog, _ = session.begin(identifier("a"), begin_block(group=identifier("a")))
    session.send(dialog, "order", b"before")
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"behind")
    session.commit(transaction)
    session.end(dialog, b"<Error/>")
    assert [kind for kind, _ in records(session.drained())] == [Kind.MESSAGE]
    ((kind, said),) = records(session.drained())
    assert (kind, said and said.steps[-1].sequence) == (Kind.TRANSACTION, 1)


def test_a_session_learns_nothing_about_a_transaction_that_was_not_ingested(
    session: Session, transmission: Side
) -> None:
    dialog = opened(session)
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"0")
    session.commit(transaction)
    assert session.transmitted(transmission.state) == []
    assert dialog.blocked


def test_nothing_is_sent_after_a_refused_transaction(session: Session, transmission: Side) -> None:
    dialog = opened(session)
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"0")
    transmission.take(Scribe("successor").close(TRANSMISSION, session.writer))
    expanded(transmission, session.commit(transaction))
    session.transmitted(transmission.state)
    with pytest.raises(ConversationEnded):
        session.send(dialog, "order", b"1")
    assert not session.transactions.flying


def test_a_dialog_of_a_dropped_transaction_has_not_begun(session: Session) -> None:
    transaction = StagedTransaction(session)
    dialog = transaction.begin(identifier("a"), begin_block())
    with pytest.raises(InvalidState, match="has not been committed"):
        session.send(dialog, "order", b"0")
    with pytest.raises(InvalidState, match="has not been committed"):
        session.end(dialog)
    transaction.drop()
    with pytest.raises(InvalidState, match="is over"):
        transaction.send(dialog, "order", b"0")
    check_is_not_begun(session, dialog)
    assert session.dialogs == {}


def test_a_dialog_begun_after_a_savepoint_has_not_begun_after_rollback_to_the_savepoint(session: Session) -> None:
    transaction = StagedTransaction(session)
    transaction.savepoint("here")
    dialog = transaction.begin(identifier("a"), begin_block())
    transaction.rollback("here")
    calls: list[Callable[[], object]] = [
        lambda: transaction.send(dialog, "order", b"0"),
        lambda: transaction.end(dialog),
        lambda: transaction.set_timer(dialog, 1_000),
    ]
    for call in calls:
        with pytest.raises(DialogNotFound):
            call()
    assert transaction.steps == []
    check_is_not_begun(session, dialog)


def check_is_not_begun(session: Session, dialog: SessionDialog) -> None:
    """Nothing can be done with it, and nothing is written."""
    calls: list[Callable[[], object]] = [
        lambda: session.send(dialog, "order", b"0"),
        lambda: session.finish(dialog),
        lambda: session.end(dialog),
        lambda: session.end(dialog, b"error"),
        lambda: session.set_timer(dialog, Timer(1_000)),
    ]
    for call in calls:
        with pytest.raises(DialogNotFound) as error:
            call()
        assert error.value.number == 8426
    assert session.idle


def test_a_conversation_that_was_begun_is_given_again(session: Session) -> None:
    dialog = opened(session)
    transaction = StagedTransaction(session)
    assert transaction.begin(dialog.conversation, dialog.begin) is dialog
    other = transaction.begin(identifier("b"), begin_block())
    assert transaction.begin(identifier("b"), begin_block()) is other
    assert len(transaction.steps) == 1


def test_nothing_happens_when_a_conversation_was_begun_outside_of_it_meanwhile(session: Session) -> None:
    transaction = StagedTransaction(session)
    staged = transaction.begin(identifier("a"), begin_block(group=identifier("a")))
    transaction.send(staged, "order", b"0")
    outside = opened(session)
    with pytest.raises(InvalidState, match="was begun outside of this transaction meanwhile"):
        session.commit(transaction)
    assert session.dialogs == {identifier("a"): outside}
    assert not session.unsent()


def test_an_end_in_a_transaction_leaves_the_next_dialog_of_its_id(session: Session) -> None:
    """Its peer has ended the first one, and the session takes part in the conversation again."""
    first = opened(session)
    session.ended_by_peer(first.conversation)
    second = opened(session)
    transaction = StagedTransaction(session)
    transaction.end(first)
    session.commit(transaction)
    assert session.dialogs[first.conversation] is second


def test_nothing_happens_when_a_dialog_was_ended_meanwhile(session: Session) -> None:
    dialog = opened(session)
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"0")
    session.end(dialog)
    with pytest.raises(ConversationEnded):
        session.commit(transaction)
    assert not session.transactions.waiting


def test_after_an_end_or_a_finish_nothing_is_staged(session: Session) -> None:
    dialog, other = opened(session), opened(session, "b")
    transaction = StagedTransaction(session)
    transaction.finish(dialog)
    transaction.end(other)
    for one in (dialog, other):
        with pytest.raises(InvalidState, match="already"):
            transaction.send(one, "order", b"0")
    transaction.end(dialog)


def test_the_lifetime_of_a_dialog_begun_in_a_transaction_is_measured_from_its_commit(session: Session) -> None:
    """The block may last longer than the lifetime; then sends are refused a lifetime after the commit, as at home."""
    transaction = StagedTransaction(session)
    dialog = transaction.begin(identifier("a"), begin_block(group=identifier("a"))._replace(lifetime_ms=1_000))
    session.check_age(0)
    session.check_age(5_000)
    session.commit(transaction)
    session.check_age(6_000)
    session.check_age(6_999)
    dialog.check_open()
    session.check_age(7_000)
    with pytest.raises(ConversationEnded):
        dialog.check_open()


def test_it_has_bounds(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    dialog = opened(session)
    transaction = StagedTransaction(session)
    with pytest.raises(BodyTooLarge):
        transaction.send(dialog, "order", bytes(BODY_BYTES_MAX + 1))
    with pytest.raises(TransactionTooLarge):
        transaction.send(dialog, "order", bytes(BODY_BYTES_MAX))
    monkeypatch.setattr("konverse.dialog.session.transactions.TRANSACTION_RECORDS_MAX", 2)
    transaction.send(dialog, "order", b"0")
    transaction.send(dialog, "order", b"1")
    with pytest.raises(TransactionTooLarge):
        transaction.send(dialog, "order", b"2")
    assert TRANSACTION_RECORDS_MAX > 2


def test_the_largest_transaction_fits_into_a_record(session: Session) -> None:
    dialog = opened(session)
    transaction = StagedTransaction(session)
    for _ in range(2_000):
        transaction.send(dialog, "ü" * 40, bytes(100))
    with pytest.raises(TransactionTooLarge):
        transaction.send(dialog, "order", bytes(BODY_BYTES_MAX - transaction.size_bytes))
    transaction.send(dialog, "order", bytes(BODY_BYTES_MAX - transaction.size_bytes - 100))
    ((kind, _),) = records(session.commit(transaction))
    assert kind is Kind.TRANSACTION


def test_a_session_sends_one_fin_after_its_messages_on_a_dialog(session: Session) -> None:
    dialog = opened(session)
    silent = [kind for kind, _ in records(session.finish(opened(session, "silent")))]
    assert silent == [Kind.FIN], "handlers at home learn of it by the answer (M144)"
    session.send(dialog, "order", b"0")
    assert [kind for kind, _ in records(session.finish(dialog))] == [Kind.FIN]
    assert session.finish(dialog) == []
    with pytest.raises(ConversationEnded, match="finished"):
        session.send(dialog, "order", b"1")
    assert session.end(dialog) == []
    assert [kind for kind, _ in records(session.drained())] == [Kind.END_CALL]


def test_finishing_a_beginning_dialog_sends_fin_after_its_waiting_messages(session: Session) -> None:
    dialog, _ = session.begin(identifier("a"), begin_block())
    session.send(dialog, "order", b"0")
    assert session.finish(dialog) == []
    assert [kind for kind, _ in records(session.drained())] == [Kind.MESSAGE, Kind.FIN]
    assert not dialog.open


def test_a_flush_waits_until_the_outputs_of_transactions_have_arrived(session: Session, transmission: Side) -> None:
    dialog, other = opened(session), opened(session, "b")
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"0")
    hands = session.commit(transaction)
    done, all_done = session.acknowledged(dialog), session.transactions.arrived()
    assert session.acknowledged(other)(), "nothing of it was in the transaction"
    session.drained()
    assert not done(), "a handler at home would overtake it"
    expanded(transmission, hands)
    session.transmitted(transmission.state)
    assert [done(), all_done()] == [False, False], "expanded is not arrived"
    arrived(transmission)
    session.transmitted(transmission.state)
    assert done()
    assert all_done()


@pytest.mark.parametrize("why", ["closed", "deleted"])
@pytest.mark.parametrize("of_dialog", [True, False])
def test_a_flush_reports_a_transaction_that_did_not_happen_once(
    session: Session, transmission: Side, why: str, of_dialog: bool
) -> None:
    dialog, other = opened(session), opened(session, "b")
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"0")
    hands = session.commit(transaction)
    session.drained()
    if why == "closed":  # another process asks for an outcome of this session
        transmission.take(Scribe("another").close(transmission.address, session.writer))
        expanded(transmission, hands)
    else:  # its record is gone, and a later one of the session comes
        lost = Lost(0, 1)
        transmission.state.ingest_to = 1
        transmission.commit(rare=[lost])
        later = StagedTransaction(session)
        later.send(other, "order", b"1")
        expanded(transmission, session.commit(later))
    session.transmitted(transmission.state)
    arrived(transmission)
    session.transmitted(transmission.state)
    assert session.transactions.arrived(other)(), "nothing of it was in the transaction"
    with pytest.raises(TransactionLost, match=f"{UUID(bytes=dialog.conversation)}: .* {why} "):
        session.transactions.arrived(dialog if of_dialog else None)()
    assert session.transactions.arrived()()


def test_a_flush_does_not_wait_for_a_transaction_that_is_committed_behind_it(session: Session) -> None:
    dialog = opened(session)
    all_done = session.transactions.arrived()
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"0")
    session.commit(transaction)
    assert all_done()
    assert not session.transactions.arrived()()
