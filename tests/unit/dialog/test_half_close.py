"""FIN, the half-close: messages before it are received, messages behind it come back (protocol.md section 6)."""

from __future__ import annotations

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.state.endpoint import Finished
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import InvalidState, PartitionHalted
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.operations import Finish
from konverse.schemas.wire.records import BounceReason, End, FinAnswer, Kind, Suffix
from tests.kit.builders import GROUP, Pair, Side, identifier, of
from tests.kit.digests import digest


@pytest.fixture
def pair() -> Pair:
    return Pair()


def fin(pair: Pair, conversation: bytes) -> None:
    """The session's FIN arrives at the target."""
    suffix = Suffix(home=pair.home.address)
    pair.target.take(pair.client.write(Kind.FIN, pair.target.address, conversation, suffix=suffix))


def test_messages_before_a_fin_are_received_and_later_messages_come_back(pair: Pair) -> None:
    conversation = pair.begin(messages=3)
    fin(pair, conversation)
    pair.send(conversation, b"late", sequence=3)
    assert len(pair.receiver(conversation).queue) == 3
    bounce = pair.target.outputs(pair.home.address)[-1]
    assert (bounce.kind, bounce.detail.reason, bounce.body) == (Kind.BOUNCE, BounceReason.FINISHED, b"late")


def test_a_fin_is_answered_with_how_far_each_writer_was_received(pair: Pair) -> None:
    conversation = pair.begin(messages=3)
    fin(pair, conversation)
    (answer,) = pair.target.deliver(pair.home)
    assert (answer.kind, answer.envelope.role) == (Kind.FIN_ANSWER, Role.TARGET)
    assert answer.detail == FinAnswer(pair.client.id, ((pair.client.id, 2),))
    assert pair.initiator(conversation).finished == Finished(
        own=True, answer=((pair.client.id, 2),), askers=(pair.client.id,)
    )


def test_a_fin_without_an_endpoint_gets_an_empty_answer(pair: Pair) -> None:
    fin(pair, identifier("unknown"))
    (answer,) = pair.target.deliver(pair.home)
    assert answer.detail == FinAnswer(pair.client.id)
    assert pair.home.outputs(pair.target.address) == [], "an answer is never answered"


def test_an_end_is_accepted_behind_a_fin(pair: Pair) -> None:
    conversation = pair.begin()
    fin(pair, conversation)
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    assert pair.receiver(conversation).state is State.DISCONNECTED_INBOUND


def test_the_other_direction_stays_open_after_a_fin(pair: Pair) -> None:
    conversation = pair.begin()
    fin(pair, conversation)
    pair.target.send(pair.receiver(conversation), b"answer")
    pair.target.deliver(pair.home)
    assert len(pair.initiator(conversation).queue) == 1


def test_a_handler_that_finishes_sends_fin_after_its_messages_and_cannot_send_again(pair: Pair) -> None:
    conversation = pair.begin()
    endpoint = pair.receiver(conversation)
    transaction = of(pair.target, endpoint)
    transaction.send(endpoint, "reply", b"last")
    transaction.finish(endpoint)
    transaction.finish(endpoint)
    with pytest.raises(InvalidState, match="has finished"):
        transaction.send(endpoint, "reply", b"never")
    pair.target.commit(sends=transaction.sends, rare=transaction.finishes)
    assert [one.kind for one in pair.target.outputs(pair.home.address)] == [Kind.MESSAGE, Kind.FIN]
    later = of(pair.target, endpoint)
    with pytest.raises(InvalidState, match="has finished"):
        later.send(endpoint, "reply", b"never")
    later.finish(endpoint)
    assert later.idle, "a second call changes nothing"
    pair.target.deliver(pair.home)
    pair.home.deliver(pair.target)
    owner = pair.target.state.writer_id
    assert endpoint.finished == Finished(own=True, answer=((owner, 0),), askers=(owner,))


def test_an_end_in_the_same_transaction_says_it_too(pair: Pair) -> None:
    endpoint = pair.receiver(pair.begin())
    transaction = of(pair.target, endpoint)
    transaction.finish(endpoint)
    transaction.end(endpoint)
    assert transaction.finishes == []
    with pytest.raises(InvalidState, match="cannot finish"):
        transaction.finish(endpoint)


def test_a_conversation_on_which_nothing_was_sent_cannot_be_finished_by_a_handler(pair: Pair) -> None:
    (talking,) = pair.answered("talking")
    silent = pair.initiator(pair.begin("silent", messages=0, group=GROUP))
    with pytest.raises(InvalidState, match="nothing was sent or received"):
        of(pair.home, talking).finish(silent)


def test_a_finish_of_a_nonexistent_endpoint_halts_the_partition(pair: Pair) -> None:
    with pytest.raises(PartitionHalted, match="which does not exist"):
        pair.target.commit(rare=[Finish(7)])


def test_fins_are_part_of_the_state(pair: Pair) -> None:
    conversation = pair.begin()
    before = digest(pair.target.state)
    fin(pair, conversation)
    assert digest(pair.target.state) != before
    other = Side("orders")
    restore(other.state, b"".join(Freeze(pair.target.state).pieces()))
    assert digest(other.state) == digest(pair.target.state)
    suffix = Suffix("order", home=pair.home.address)
    other.take(pair.client.message(pair.target.address, conversation, suffix=suffix), b"late")
    assert other.outputs(pair.home.address)[-1].detail.reason is BounceReason.FINISHED


def test_an_unmatched_fin_answer_is_counted_as_undeliverable(pair: Pair) -> None:
    header = pair.client.write(
        Kind.FIN_ANSWER,
        pair.home.address,
        identifier("unknown"),
        role=Role.TARGET,
        suffix=Suffix(detail=FinAnswer(identifier("somebody"))),
    )
    pair.home.take(header)
    assert pair.home.state.statistics.undeliverable == 1
    conversation = pair.begin()
    wrong = Suffix(detail=End(pair.client.id, pair.home.address))
    pair.home.take(pair.client.write(Kind.FIN_ANSWER, pair.home.address, conversation, role=Role.TARGET, suffix=wrong))
    assert pair.home.state.statistics.undeliverable == 2


def test_when_a_session_has_finished_the_handlers_of_its_side_send_no_more(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    initiator = pair.initiator(conversation)
    pair.target.send(pair.receiver(conversation), b"reply")
    pair.target.deliver(pair.home)
    of(pair.home, initiator).send(initiator, "order", b"by a handler")
    fin(pair, conversation)
    pair.target.deliver(pair.home)
    transaction = of(pair.home, initiator)
    with pytest.raises(InvalidState, match="has finished"):
        transaction.send(initiator, "order", b"never")
    transaction.finish(initiator)
    assert transaction.idle, "the target knows it already"
    transaction.end(initiator)
