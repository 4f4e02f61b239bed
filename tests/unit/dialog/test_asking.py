"""A process asks for the outcome of messages whose sender is gone (protocol.md section 5, `outcome`)."""

from __future__ import annotations

from uuid import UUID

import pytest

from konverse.dialog.session.outcome import OutcomeQuery
from konverse.dialog.session.rotation import Unheard
from konverse.dialog.state.outbox import Run
from konverse.schemas.identifiers import Role, session_writer
from konverse.schemas.limits import WRITER_AHEAD_MS_MAX
from konverse.schemas.system_messages import Rejection
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import FIRST, HEIR, NAMED, NO_SEQUENCE, Kind, Opened, Suffix
from konverse.schemas.wire.token import Sent, Token
from tests.kit.builders import Scribe, Side, begin_block, identifier
from tests.kit.moving import living, relocate

NOW_MS = 1_800_000_000_000
ASKER, CONVERSATION = session_writer(NOW_MS, 99), identifier("a")


@pytest.fixture
def side() -> Side:
    made = Side("orders")
    made.state.now_ms = NOW_MS
    return made


def writer(number: int = 1, time_ms: int = NOW_MS) -> Scribe:
    scribe = Scribe(f"writer {number}")
    scribe.id = session_writer(time_ms, number)
    return scribe


def sent(side: Side, by: Scribe, *counters: int, sequence: int = 0, held: int = -1) -> Sent:
    return Sent(by.id, side.address, CONVERSATION, sequence, counters, held)


def send(side: Side, by: Scribe, count: int) -> None:
    """FIRST and further messages of the conversation arrive."""
    side.take(by.first(side.address, CONVERSATION, begin_block()))
    for _ in range(count - 1):
        side.take(by.message(side.address, CONVERSATION))


def ask(asking: OutcomeQuery, side: Side, asker: bytes = ASKER) -> list[bytes]:
    """The questions arrive. Returns the writers that they close."""
    headers = [header for _, (header, _, _) in asking.ask(asker)]
    for header in headers:
        side.take(header)
    return [decode(header).conversation for header in headers]


def missing(asking: OutcomeQuery) -> dict[UUID, int] | None:
    return None if asking.outcome is None else asking.outcome.missing


def test_records_below_the_closing_counter_of_their_writer_were_received(side: Side) -> None:
    client = writer()
    send(side, client, 3)
    asking = OutcomeQuery(Token((sent(side, client, 1, 2, 4, sequence=7),)))
    assert asking.outcome is None
    assert ask(asking, side) == [client.id]
    assert asking.ask(ASKER) == [], "it was asked already"
    asking.read(side.state)
    assert missing(asking) == {UUID(bytes=CONVERSATION): 9}
    assert asking.outcome is not None
    assert not asking.outcome.received


def test_a_session_with_transactions_is_closed_where_they_are_first(side: Side) -> None:
    """Sends of transactions have arrived when the session is closed elsewhere; else their FIRST would be refused."""
    client, through = writer(), Side("transmission")
    through.state.now_ms = NOW_MS
    send(side, client, 1)
    asking = OutcomeQuery(Token((sent(side, client, 0),), through.address))
    assert asking.addresses == [through.address]
    through.take(client.write(Kind.OPEN, through.address, client.id))
    stream = through.state.stream_to(side.address)
    stream.push(Run(b"p" * 39, b"k", 0, b"s", [b"of a transaction"]))
    assert ask(asking, through) == [client.id]
    asking.read(through.state)
    assert asking.addresses == [through.address], "it has not arrived"
    assert asking.ask(ASKER) == []
    asking.read(side.state)
    stream.acknowledge(1)
    asking.read(through.state)
    assert asking.addresses == [side.address]
    assert ask(asking, side) == [client.id]
    asking.read(side.state)
    assert missing(asking) == {}
    assert through.state.writers[client.id].closed_at is not None


def test_outputs_of_others_do_not_delay_the_answer_about_a_session_with_transactions(side: Side) -> None:
    """There is always one under way: the acknowledgements are read after later transactions were ingested."""
    client, through = writer(), Side("transmission")
    through.state.now_ms = NOW_MS
    asking = OutcomeQuery(Token((sent(side, client, 0),), through.address))
    through.take(client.write(Kind.OPEN, through.address, client.id))
    stream = through.state.stream_to(side.address)
    stream.push(Run(b"p" * 39, b"k", 0, b"s", [b"of its transaction"]))
    ask(asking, through)
    asking.read(through.state)
    stream.push(Run(b"p" * 39, b"k", 0, b"s", [b"of another session"]))
    stream.acknowledge(1)
    asking.read(through.state)
    assert asking.addresses == [side.address]


def test_a_session_that_is_forgotten_where_its_transactions_were_is_asked_about_elsewhere(side: Side) -> None:
    old, through = writer(time_ms=NOW_MS - 1), Side("transmission")
    through.state.now_ms = through.state.floor_ms = NOW_MS
    asking = OutcomeQuery(Token((sent(side, old, 0),), through.address))
    ask(asking, through)
    asking.read(through.state)
    assert (asking.addresses, asking.expired) == ([side.address], False)


def test_all_of_it_may_have_been_received(side: Side) -> None:
    client = writer()
    send(side, client, 3)
    asking = OutcomeQuery(Token((sent(side, client, 1, 2),)))
    ask(asking, side)
    asking.read(side.state)
    assert asking.outcome is not None
    assert asking.outcome.received


def test_there_is_no_answer_before_the_question_was_heard(side: Side) -> None:
    client = writer()
    send(side, client, 1)
    asking = OutcomeQuery(Token((sent(side, client, 0),)))
    asking.ask(ASKER)
    asking.read(side.state)
    assert asking.outcome is None


def test_messages_are_followed_to_the_id_under_which_they_were_sent_again(side: Side) -> None:
    """Two of four were received. The others were sent again behind a question at counter 1; one of these arrived."""
    client, heir = writer(1), writer(2)
    send(side, client, 2)
    side.take(heir.message(side.address, identifier("of another conversation")))
    side.take(heir.write(Kind.CLOSE_WRITER, side.address, client.id, flags=HEIR))
    side.take(heir.message(side.address, CONVERSATION))
    asking = OutcomeQuery(Token((sent(side, client, 0, 1, 2, 3),)))
    assert ask(asking, side) == [client.id]
    asking.read(side.state)
    assert asking.outcome is None
    assert ask(asking, side) == [heir.id]
    asking.read(side.state)
    assert missing(asking) == {UUID(bytes=CONVERSATION): 3}


def test_messages_wrongly_counted_as_received_by_an_heir_are_reported_missing(side: Side) -> None:
    client, heir = writer(1), writer(2)
    send(side, client, 2)
    side.take(heir.write(Kind.CLOSE_WRITER, side.address, client.id, flags=HEIR, sequence=4))
    side.take(heir.first(side.address, identifier("b"), begin_block()))
    asking = OutcomeQuery(Token((sent(side, client, 0, 1, 2, 3),)))
    ask(asking, side)
    asking.read(side.state)
    assert missing(asking) == {UUID(bytes=CONVERSATION): 2}


def test_held_messages_were_not_received_when_nothing_behind_them_was(side: Side) -> None:
    client = writer()
    send(side, client, 1)
    asking = OutcomeQuery(Token((sent(side, client, sequence=0, held=1),)))
    ask(asking, side)
    asking.read(side.state)
    assert missing(asking) == {UUID(bytes=CONVERSATION): 0}


def test_held_messages_are_looked_up_in_their_conversation(side: Side) -> None:
    client = writer()
    send(side, client, 2)
    asking = OutcomeQuery(Token((sent(side, client, sequence=0, held=0),)))
    ask(asking, side)
    asking.read(side.state)
    assert asking.outcome is not None
    assert asking.outcome.received
    gone = OutcomeQuery(Token((sent(side, client, held=0)._replace(conversation=identifier("over")),)))
    ask(gone, side, session_writer(NOW_MS, 98))
    gone.read(side.state)
    assert gone.expired


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("speaks", [False, True], ids=["another one alone", "both"])
def test_held_messages_are_not_looked_up_where_another_session_has_begun_the_conversation(
    side: Side, *, speaks: bool, ended: bool
) -> None:
    """With an id that a caller chose, the messages of both count among those received."""
    client, other = writer(), writer(2)
    for who in (other, client)[: 1 + speaks]:
        side.take(who.first(side.address, CONVERSATION, begin_block(), flags=FIRST | NAMED))
    side.take(client.first(side.address, identifier("b"), begin_block()))  # so that it was heard where they would stand
    if ended:
        side.end(living(side, Role.TARGET, CONVERSATION))
    asking = OutcomeQuery(Token((sent(side, client, sequence=0, held=0),)))
    ask(asking, side)
    asking.read(side.state)
    assert asking.expired, "what it has received may be of the other one"


@pytest.mark.parametrize("who", ["a handler", "a process that adopted it"])
def test_held_messages_are_not_looked_up_where_others_have_sent_on_the_conversation(side: Side, who: str) -> None:
    """A handler at home made the target, or an adopter spoke on it, and the held message never left."""
    client, other = writer(), writer(2) if who != "a handler" else Scribe("owner")
    begun = Suffix("order", begin=begin_block(), detail=Opened(client.id))
    side.take(other.message(side.address, CONVERSATION, flags=FIRST, suffix=begun, sequence=NO_SEQUENCE), b"h")
    side.take(client.first(side.address, identifier("b"), begin_block()))  # so that it was heard where they would stand
    asking = OutcomeQuery(Token((sent(side, client, sequence=0, held=0),)))
    ask(asking, side)
    asking.read(side.state)
    assert asking.expired, "the one that was received may be another one"


def test_a_held_message_that_is_rejected_at_once_is_not_received(side: Side) -> None:
    """It leaves a target that has received nothing and never will."""
    client = writer()
    side.state.rejected = {side.state.ingest_to: Rejection(9615)}
    send(side, client, 2)
    asking = OutcomeQuery(Token((sent(side, client, sequence=0, held=0),)))
    ask(asking, side)
    asking.read(side.state)
    assert (asking.expired, missing(asking)) == (False, {UUID(bytes=CONVERSATION): 0})
    assert not side.state.statistics.accepted


def test_held_messages_are_not_looked_up_in_a_conversation_that_moved_away_and_back(side: Side) -> None:
    client, second = writer(), Side("second")
    send(side, client, 2)
    for here, there in ((side, second), (second, side)):
        relocate(here, living(here, Role.TARGET, CONVERSATION), there)
        here.deliver(there)
    asking = OutcomeQuery(Token((sent(side, client, sequence=0, held=0),)))
    ask(asking, side)
    asking.read(side.state)
    assert asking.expired, "more may be on its way behind it"


def test_the_outcome_of_a_forgotten_writer_has_expired(side: Side) -> None:
    side.state.floor_ms = NOW_MS
    asking = OutcomeQuery(Token((sent(side, writer(time_ms=NOW_MS - 1), 0),)))
    ask(asking, side)
    asking.read(side.state)
    assert asking.expired


def test_a_writer_id_from_the_future_is_asked_about_again(side: Side) -> None:
    client = writer(time_ms=NOW_MS + WRITER_AHEAD_MS_MAX + 1)
    asking = OutcomeQuery(Token((sent(side, client, 0),)))
    ask(asking, side)
    assert asking.read(side.state) is None
    side.state.now_ms += 1
    assert ask(asking, side) == [client.id]
    asking.read(side.state)
    assert missing(asking) == {UUID(bytes=CONVERSATION): 0}


def test_an_outcome_query_under_an_unheard_writer_id_is_repeated_under_another_id(side: Side) -> None:
    client = writer()
    asking = OutcomeQuery(Token((sent(side, client, 0),)))
    late = session_writer(NOW_MS + WRITER_AHEAD_MS_MAX + 1, 5)
    ask(asking, side, late)
    assert asking.read(side.state) is Unheard.ANOTHER
    assert ask(asking, side) == [client.id]
    asking.read(side.state)
    assert missing(asking) == {UUID(bytes=CONVERSATION): 0}
