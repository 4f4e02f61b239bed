"""A session's REDIRECTs and direct sends on one dialog: one way to the target at a time (protocol.md section 5)."""

from __future__ import annotations

import pytest

from konverse.dialog.session.dialogs import BeginOptions, DialogState, SessionDialog
from konverse.dialog.session.lanes import Produce
from konverse.dialog.session.session import Session
from konverse.dialog.session.transactions import StagedTransaction
from konverse.dialog.state.outbox import Run
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import ConversationEnded, InvalidState
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.envelope import encode, encode_suffix, head
from konverse.schemas.wire.records import ACKED, FIRST, NO_SEQUENCE, RETURNING, BounceId, Kind, Suffix
from tests.kit.builders import Scribe, Side, address_of, identifier, record
from tests.kit.moving import living, relocate
from tests.unit.dialog.test_session import HOME, TARGET, WRITER, begun, block, bodies, envelopes, kinds, opened

BOUNCE = BounceId(WRITER, 7, address_of("elsewhere"))


@pytest.fixture
def session() -> Session:
    return Session(WRITER)


@pytest.fixture
def home() -> Side:
    return Side("replies")


def hear(home: Side, hands: list[Produce]) -> None:
    """Deliver the records to home."""
    for hand in hands:
        if hand.address == HOME:
            home.take_all([(header, record(body)) for header, _, body in hand.records])


def arrived(session: Session, home: Side, dialog: SessionDialog) -> list[Produce]:
    """Home has received everything and reports that its outputs are in the target's log."""
    writer = home.state.writers.get(session.writer)
    for counter in range(writer.next if writer else 0, dialog.home.next):
        home.take(_any(session, counter))
    return session.read_home(home.state)


def _any(session: Session, counter: int) -> bytes:
    prefix = head(Kind.OPEN, 0, Role.INITIATOR, HOME.tag, session.writer) + identifier("c")
    return encode(prefix, counter, NO_SEQUENCE, encode_suffix(Suffix()))


def test_a_redirect_leaves_when_all_that_was_sent_on_the_dialog_counts(session: Session) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    assert session.redirect(dialog, BOUNCE) == []
    assert session.gated
    assert kinds(session.drained()) == {HOME: [Kind.REDIRECT]}


def test_a_redirect_to_a_dialog_without_messages_asks_home_to_open_it(session: Session) -> None:
    dialog = opened(session)
    (envelope,) = envelopes(session.redirect(dialog, BOUNCE))[HOME]
    assert (envelope.kind, envelope.flags, envelope.suffix.detail) == (Kind.REDIRECT, FIRST | ACKED, BOUNCE)
    assert envelope.suffix.begin == dialog.begin
    session.send(dialog, "order", b"0")
    assert dialog.held == [("order", b"0")]


def test_a_redirect_waits_for_begin(session: Session) -> None:
    dialog = begun(session)
    assert session.redirect(dialog, BOUNCE) == []
    assert kinds(session.drained()) == {HOME: [Kind.REDIRECT]}


def test_a_send_after_a_redirect_waits_until_home_reports_its_arrival(session: Session, home: Side) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    session.drained()
    session.redirect(dialog, BOUNCE)
    assert session.send(dialog, "order", b"1") == []
    assert session.drained() == []
    assert session.redirecting == [dialog]
    assert session.read_home(home.state) == [], "home has not heard it"
    stream = home.state.stream_to(TARGET)
    stream.push(Run(b"p" * 39, b"k", 0, b"s", [b"the redirected one"]))
    assert arrived(session, home, dialog) == [], "its output is not in the log of the target"
    stream.acknowledge(1)
    hands = session.read_home(home.state)
    assert bodies(hands) == [b"1"]
    (envelope,) = envelopes(hands)[TARGET]
    assert (envelope.kind, envelope.sequence, envelope.suffix.home) == (Kind.MESSAGE, NO_SEQUENCE, HOME)
    assert session.redirecting == []


def test_the_numbers_of_one_fold_are_not_compared_with_those_of_another(session: Session, home: Side) -> None:
    dialog = opened(session)
    session.redirect(dialog, BOUNCE)
    session.send(dialog, "order", b"1")
    home.state.stream_to(TARGET).push(Run(b"p" * 39, b"k", 0, b"s", [b"the redirected one"]))
    assert arrived(session, home, dialog) == []
    other = Side("replies")
    other.state.stream_to(TARGET).push(Run(b"p" * 39, b"k", 0, b"s", [b"another", b"the redirected one"]))
    other.state.stream_to(TARGET).acknowledge(1)
    assert arrived(session, other, dialog) == []
    other.state.stream_to(TARGET).acknowledge(2)
    assert bodies(session.read_home(other.state)) == [b"1"]


@pytest.mark.parametrize("known", [True, False])
def test_a_session_sends_first_itself_when_no_redirect_has_opened_the_dialog(
    session: Session, home: Side, known: bool
) -> None:
    dialog, hands = session.begin(identifier("a"), block())
    hear(home, hands)
    session.drained()
    hear(home, session.redirect(dialog, BOUNCE))
    if known:
        endpoint = home.state.endpoint(Role.INITIATOR, dialog.conversation)
        assert endpoint is not None
        endpoint.committed = State.CONVERSING
    session.send(dialog, "order", b"0")
    session.send(dialog, "order", b"1")
    first, second = envelopes(session.read_home(home.state))[TARGET]
    assert (first.flags, first.sequence) == ((0, NO_SEQUENCE) if known else (FIRST, 0))
    assert (second.flags, second.sequence) == (0, NO_SEQUENCE)


def test_what_home_opens_behind_a_redirect_in_vain_has_not_arrived_with_it(session: Session, home: Side) -> None:
    """A handler speaks while the session waits for what home had sent: its FIRST is still on the way (M288)."""
    dialog, hands = session.begin(identifier("a"), block())
    hear(home, hands)
    session.drained()
    stream = home.state.stream_to(TARGET)
    stream.push(Run(b"p" * 39, b"k", 0, b"s", [b"of another conversation"]))
    hear(home, session.redirect(dialog, BOUNCE))
    session.send(dialog, "order", b"0")
    assert session.read_home(home.state) == []
    endpoint = home.state.endpoint(Role.INITIATOR, dialog.conversation)
    assert endpoint is not None
    home.send(endpoint, b"first of the handler")
    stream.acknowledge(1)
    (sent,) = envelopes(session.read_home(home.state))[TARGET]
    assert (sent.flags, sent.sequence) == (FIRST, 0), "it would find no target"


@pytest.mark.parametrize("first", [True, False])
def test_a_redirect_on_a_returning_dialog_says_so(session: Session, *, first: bool) -> None:
    dialog, _ = session.begin(identifier("a"), block(), BeginOptions(returning=True))
    session.drained()
    if not first:
        session.send(dialog, "order", b"0")
        session.drained()
    (redirect,) = envelopes(session.redirect(dialog, BOUNCE))[HOME]
    assert redirect.flags == ACKED | (RETURNING | FIRST if first else RETURNING)


def test_the_end_of_a_dialog_that_a_redirect_opened_waits_for_its_fin(session: Session, home: Side) -> None:
    dialog, hands = session.begin(identifier("a"), block())
    hear(home, hands)
    session.drained()
    hear(home, session.redirect(dialog, BOUNCE))
    session.drained()
    assert arrived(session, home, dialog) == []
    assert not session.redirecting
    assert dialog.redirects is not None
    dialog.redirects.opened = True
    assert kinds(session.finish(dialog)) == {TARGET: [Kind.FIN]}
    assert not session.acknowledged(dialog)()
    assert session.end(dialog) == [], "END is not the first to arrive"
    assert kinds(session.drained()) == {HOME: [Kind.END_CALL]}


def test_messages_and_redirects_leave_in_the_order_of_the_calls(session: Session, home: Side) -> None:
    dialog = opened(session)
    session.send(dialog, "order", b"0")
    session.redirect(dialog, BOUNCE)
    session.send(dialog, "order", b"1")
    session.redirect(dialog, BOUNCE._replace(counter=8))
    assert kinds(session.drained()) == {HOME: [Kind.REDIRECT]}
    assert bodies(arrived(session, home, dialog)) == [b"1"]
    assert kinds(session.drained()) == {HOME: [Kind.REDIRECT]}
    assert not session.idle
    session.drained()
    assert session.idle, "Kafka has it all"
    assert session.redirecting == [dialog], "what is sent now still waits for home"


def test_end_is_sent_after_the_held_messages(session: Session, home: Side) -> None:
    dialog = opened(session)
    session.redirect(dialog, BOUNCE)
    session.send(dialog, "order", b"0")
    assert session.end(dialog) == []
    assert session.drained() == []
    assert bodies(arrived(session, home, dialog)) == [b"0"]
    assert kinds(session.drained()) == {HOME: [Kind.END_CALL]}
    with pytest.raises(ConversationEnded):
        session.redirect(dialog, BOUNCE)


def test_a_dialog_with_redirects_gives_no_numbers_and_is_known_to_count(session: Session, home: Side) -> None:
    dialog = opened(session)
    assert dialog.next_sequence == 0
    session.redirect(dialog, BOUNCE)
    assert dialog.next_sequence == NO_SEQUENCE
    counts = session.acknowledged(dialog)
    assert not counts()
    session.send(dialog, "order", b"0")
    session.drained()
    assert not counts(), "a message is held"
    assert session.messages_waiting == 1
    arrived(session, home, dialog)
    assert session.messages_waiting == 1
    session.drained()
    assert counts()
    assert session.messages_waiting == 0


def test_a_flush_waits_until_redirected_messages_have_arrived(session: Session, home: Side) -> None:
    dialog = opened(session)
    hear(home, session.redirect(dialog, BOUNCE))
    session.drained()
    counts = session.acknowledged(dialog)
    assert not counts(), "Kafka has it, and a handler at home could still come first"
    arrived(session, home, dialog)
    assert counts()


def test_a_confirmation_goes_to_the_home_of_its_dialog(session: Session) -> None:
    dialog = opened(session)
    (envelope,) = envelopes(session.confirm(dialog, BOUNCE))[HOME]
    assert (envelope.kind, envelope.conversation, envelope.suffix.detail) == (
        Kind.CONFIRM,
        dialog.conversation,
        BOUNCE,
    )


@pytest.mark.parametrize("opened_by_home", [False, True])
def test_a_session_sends_first_on_a_moved_dialog_unless_its_home_has_opened_it(
    session: Session, home: Side, *, opened_by_home: bool
) -> None:
    dialog = opened(session)
    session.redirect(dialog, BOUNCE)
    begin = block()._replace(group=dialog.conversation)
    home.take(Scribe("anybody").begin(dialog.conversation, begin))
    endpoint = living(home, Role.INITIATOR, dialog.conversation)
    endpoint.committed = State.CONVERSING if opened_by_home else State.STARTED_OUTBOUND
    relocate(home, endpoint, Side("second"))
    session.send(dialog, "order", b"0")
    (envelope,) = envelopes(arrived(session, home, dialog))[TARGET]
    assert envelope.flags == (0 if opened_by_home else FIRST)


def test_a_message_held_behind_a_redirect_is_listed_as_unknown_after_the_peer_has_ended(
    session: Session, home: Side
) -> None:
    dialog = opened(session)
    session.redirect(dialog, BOUNCE)
    session.send(dialog, "order", b"0")
    session.ended_by_peer(dialog.conversation)
    assert session.messages_waiting == 1
    assert [(sent.conversation, sent.sequence) for sent in session.unknown()] == [(dialog.conversation, NO_SEQUENCE)]
    assert bodies(arrived(session, home, dialog)) == [b"0"]


def test_a_transaction_is_refused_when_something_was_redirected_to_its_dialog_meanwhile(session: Session) -> None:
    session.transmit_to(address_of("transmission"))
    dialog, other = opened(session), opened(session, "other")
    transaction = StagedTransaction(session)
    transaction.send(other, "order", b"0")
    transaction.send(dialog, "order", b"0")
    session.redirect(dialog, BOUNCE)
    with pytest.raises(InvalidState, match="use it outside of transactions"):
        session.commit(transaction)
    assert not session.transactions.waiting
    assert (other.pending, dialog.pending, other.state) == (0, 0, DialogState.OPEN), "nothing of it happens"
    assert kinds(session.send(other, "order", b"1")) == {TARGET: [Kind.MESSAGE]}
