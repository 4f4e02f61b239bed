"""END WITH CLEANUP and conversations given up by the broker, in the fold and at an owner (protocol.md section 6)."""

from __future__ import annotations

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.state import partition
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import InvalidState, PartitionHalted
from konverse.schemas.identifiers import session_writer
from konverse.schemas.system_messages import ERROR, read_error
from konverse.schemas.wire.envelope import encode_envelope
from konverse.schemas.wire.journal import EndOperation
from konverse.schemas.wire.operations import Cleanup, Fail, Prune, Withdraw
from konverse.schemas.wire.records import BounceReason, Kind, Suffix
from tests.kit.builders import Pair, Side, begin_block, identifier, log_of, of, record
from tests.kit.digests import digest
from tests.kit.moving import World, move


@pytest.fixture
def pair() -> Pair:
    return Pair()


def clean(side: Side, endpoint: Endpoint) -> None:
    """A commit ends the endpoint WITH CLEANUP."""
    side.commit(rare=[Cleanup(endpoint.index)])


def said(side: Side, to: Side) -> list[Kind]:
    """Kinds of the outputs that wait for the other side."""
    return [sent.kind for sent in side.outputs(to.address)]


def frozen(state: Partition) -> bytes:
    return b"".join(Freeze(state).pieces())


# --------------------------------------------------------------------------------------------------- immediate sends


def test_a_cleanup_removes_the_endpoint_and_its_unread_messages_without_notice_to_the_peer_behaviour_120(
    pair: Pair,
) -> None:
    conversation = pair.begin(messages=3)
    clean(pair.target, pair.receiver(conversation))
    assert pair.target.state.live() == []
    assert (pair.target.state.unread, pair.target.state.unread_bytes) == (0, 0)
    assert pair.target.state.statistics.discarded == 3
    assert said(pair.target, pair.home) == []
    assert pair.initiator(conversation).state is State.STARTED_OUTBOUND


def test_unacknowledged_outputs_of_a_cleaned_up_side_become_void_behaviour_120(pair: Pair) -> None:
    conversation, other = pair.begin(messages=1), pair.begin("another")
    target = pair.receiver(conversation)
    pair.target.send(target, b"arrives")
    pair.target.deliver(pair.home)
    pair.target.send(target, b"one", b"two")
    pair.target.send(pair.receiver(other), b"three")
    pair.target.send(target, b"four")
    clean(pair.target, target)
    assert said(pair.target, pair.home) == [Kind.VOID, Kind.VOID, Kind.MESSAGE, Kind.VOID]
    assert [sent.envelope.counter for sent in pair.target.outputs(pair.home.address)] == [1, 2, 3, 4]
    pair.target.deliver(pair.home)
    assert [entry[2] for entry in pair.initiator(conversation).queue] == [b"arrives"]
    assert [entry[2] for entry in pair.initiator(other).queue] == [b"three"]


def test_a_run_of_which_a_part_has_arrived_is_taken_back_from_there(pair: Pair) -> None:
    target = pair.receiver(pair.begin())
    pair.target.send(target, b"one", b"two", b"three")
    pair.target.commit(output_acks=[(pair.home.address, 2)])
    clean(pair.target, target)
    (sent,) = pair.target.outputs(pair.home.address)
    assert (sent.kind, sent.envelope.counter, sent.body) == (Kind.VOID, 2, None)


def test_a_withdrawn_message_that_has_already_arrived_is_received(pair: Pair) -> None:
    conversation = pair.begin()
    target = pair.receiver(conversation)
    pair.target.send(target, b"early")
    rows = [(encode_envelope(sent.envelope), record(sent.body)) for sent in pair.target.outputs(pair.home.address)]
    pair.home.take_all(rows)
    clean(pair.target, target)
    pair.target.deliver(pair.home)
    assert [entry[2] for entry in pair.initiator(conversation).queue] == [b"early"]
    assert pair.home.state.statistics.duplicates == 1


def test_answers_to_other_senders_are_not_withdrawn(pair: Pair) -> None:
    conversation = pair.begin()
    suffix = Suffix(home=pair.home.address)
    pair.target.take(pair.client.write(Kind.FIN, pair.target.address, conversation, suffix=suffix))
    clean(pair.target, pair.receiver(conversation))
    assert said(pair.target, pair.home) == [Kind.FIN_ANSWER]


def test_a_side_that_has_ended_goes_too_and_so_does_its_end(pair: Pair) -> None:
    target = pair.receiver(pair.begin())
    pair.target.end(target)
    clean(pair.target, target)
    assert pair.target.state.live() == []
    assert said(pair.target, pair.home) == [Kind.VOID]


def test_a_peer_that_has_ended_is_forgotten_as_after_any_end(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.end(pair.receiver(conversation))
    pair.target.deliver(pair.home)
    clean(pair.home, pair.initiator(conversation))
    assert pair.home.state.live() == []
    pair.home.deliver(pair.target)
    assert pair.target.state.live() == []
    assert pair.target.state.unread == 0


def test_a_void_uses_up_its_counter_and_has_no_other_effect(pair: Pair) -> None:
    before = frozen(pair.target.state)
    pair.target.take(pair.client.write(Kind.VOID, pair.target.address, identifier("any")))
    assert pair.target.state.writers[pair.client.id].next == 1
    again = Pair()
    assert frozen(again.target.state) == before
    assert pair.target.state.streams == {}


def test_a_cleanup_or_failure_of_a_nonexistent_endpoint_halts_the_partition(pair: Pair) -> None:
    with pytest.raises(PartitionHalted, match="which does not exist"):
        pair.target.commit(rare=[Cleanup(0)])
    with pytest.raises(PartitionHalted, match="which does not exist"):
        pair.target.commit(rare=[Fail(-1, -9719, "given up")])


def test_a_cleanup_removes_the_stub_at_the_previous_place() -> None:
    world = World()
    conversation = world.begin()
    moved = move(world, world.target, world.receiver(conversation), world.second)
    clean(world.second, moved)
    world.settle()
    assert world.target.state.moves.count == 0


# ---------------------------------------------------------------------------------------------------- later senders


def test_a_later_message_of_the_initiator_gives_it_an_error_once_behaviour_121(pair: Pair) -> None:
    conversation = pair.begin()
    clean(pair.target, pair.receiver(conversation))
    pair.send(conversation, b"late")
    pair.send(conversation, b"later")
    assert said(pair.target, pair.home) == [Kind.BOUNCE, Kind.NO_PEER, Kind.BOUNCE]
    pair.target.deliver(pair.home)
    initiator = pair.initiator(conversation)
    assert initiator.state is State.ERROR
    assert initiator.error is not None
    assert read_error(initiator.error[2] or b"")[0] == -8462
    reasons = [bounced.bounce.reason for bounced in pair.home.state.mailbox.entries.values()]
    assert reasons == [BounceReason.NO_ENDPOINT] * 2
    assert pair.target.state.cleaned == {}


def test_a_handlers_later_message_gives_its_side_an_error_too(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.send(pair.receiver(conversation), b"answer")
    pair.target.deliver(pair.home)
    clean(pair.target, pair.receiver(conversation))
    pair.home.send(pair.initiator(conversation), b"late", message_type="order")
    pair.home.deliver(pair.target)
    pair.target.deliver(pair.home)
    assert pair.initiator(conversation).state is State.ERROR


def test_a_later_message_of_the_target_gives_it_an_error_behaviour_121(pair: Pair) -> None:
    conversation = pair.begin()
    clean(pair.home, pair.initiator(conversation))
    assert pair.home.state.cleaned == {}, "who it is says the message"
    pair.target.send(pair.receiver(conversation), b"late")
    pair.target.deliver(pair.home)
    pair.home.deliver(pair.target)
    target = pair.receiver(conversation)
    assert (target.state, target.error is not None) == (State.ERROR, True)


def test_a_replay_of_the_first_message_brings_nothing_back_to_life_behaviour_121(pair: Pair) -> None:
    conversation = pair.begin()
    clean(pair.target, pair.receiver(conversation))
    block = begin_block(group=conversation)
    pair.target.take(pair.client.first(pair.target.address, conversation, block, counter=0), b"0")
    assert pair.target.state.live() == []
    assert pair.target.state.statistics.duplicates == 1


def test_a_replay_that_comes_when_its_writer_is_forgotten_makes_no_conversation_behaviour_127(pair: Pair) -> None:
    pair.client.id = session_writer(1_000, 7)
    conversation = pair.begin()
    pair.target.state.now_ms = 2_000
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(conversation))
    pair.target.deliver(pair.home)
    for now_ms in (10_000, 20_000, 30_000, 40_000):  # it is seen, closed, seen again and forgotten
        pair.target.state.now_ms = now_ms
        pair.target.commit(rare=[Prune(now_ms - 1_000)])
    assert pair.client.id not in pair.target.state.writers
    block = begin_block(group=conversation)
    pair.target.take(pair.client.first(pair.target.address, conversation, block, counter=0), b"0")
    assert pair.target.state.live() == []
    assert pair.target.state.statistics.strangers == 1


def test_an_initiator_that_ends_after_a_cleanup_is_forgotten_without_an_error(pair: Pair) -> None:
    conversation = pair.begin()
    clean(pair.target, pair.receiver(conversation))
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    assert pair.target.state.cleaned == {}
    pair.target.deliver(pair.home)
    assert pair.home.state.live() == []


def test_an_id_that_is_used_again_is_another_conversation(pair: Pair) -> None:
    conversation = pair.begin()
    clean(pair.target, pair.receiver(conversation))
    other = Pair()
    other.target = pair.target
    other.client.id = identifier("another client")
    other.begin()
    assert pair.receiver(conversation).state is State.CONVERSING
    assert pair.target.state.cleaned == {}


def test_cleaned_up_sides_are_part_of_the_state(pair: Pair) -> None:
    clean(pair.target, pair.receiver(pair.begin()))
    again = Partition(log_of("orders"))
    restore(again, frozen(pair.target.state))
    assert again.cleaned == pair.target.state.cleaned != {}
    assert digest(again) == digest(pair.target.state)


def test_a_cleaned_up_side_is_forgotten_with_the_writers_of_its_time(pair: Pair) -> None:
    pair.target.state.now_ms = 100
    clean(pair.target, pair.receiver(pair.begin()))
    pair.target.commit(rare=[Prune(100)])
    assert len(pair.target.state.cleaned) == 1
    pair.target.commit(rare=[Prune(101)])
    assert pair.target.state.cleaned == {}


def test_of_too_many_that_were_cleaned_up_the_oldest_is_forgotten(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "CLEANED_ENTRIES_MAX", 2)
    begun = [pair.begin(name) for name in ("first", "second", "third")]
    for conversation in begun:
        clean(pair.target, pair.receiver(conversation))
    assert [*pair.target.state.cleaned] == begun[1:]


def test_a_message_to_a_relocated_and_cleaned_up_target_gives_the_initiator_an_error() -> None:
    world = World()
    conversation = world.begin()
    moved = move(world, world.target, world.receiver(conversation), world.second)
    clean(world.second, moved)
    world.send(conversation, b"on its way")
    world.target.deliver(world.second)
    world.settle()
    assert world.initiator(conversation).state is State.ERROR


# -------------------------------------------------------------------------------------------------- a broker's error


def test_a_conversation_that_is_given_up_fails_on_both_sides_behaviour_136(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    target = pair.receiver(conversation)
    pair.target.commit(rare=[Fail(target.index, -9719, "given up")])
    pair.target.deliver(pair.home)
    for side in (target, pair.initiator(conversation)):
        assert side.state is State.ERROR
        assert side.error is not None
        assert read_error(side.error[2] or b"") == (-9719, "given up")
    assert pair.target.receive(target) == [ERROR, "order", "order"]


def test_both_sides_may_be_given_up_and_each_has_one_error(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.commit(rare=[Fail(pair.receiver(conversation).index, -9719, "one")])
    pair.home.commit(rare=[Fail(pair.initiator(conversation).index, -9719, "two")])
    pair.target.deliver(pair.home)
    pair.home.deliver(pair.target)
    for side, text in ((pair.receiver(conversation), "one"), (pair.initiator(conversation), "two")):
        assert len(side.urgent) == 1
        assert read_error(side.urgent[0][2] or b"")[1] == text


def test_a_side_that_is_not_open_cannot_be_given_up(pair: Pair) -> None:
    conversation = pair.begin()
    target = pair.receiver(conversation)
    pair.target.end(target)
    pair.target.deliver(pair.home)
    pair.target.commit(rare=[Fail(target.index, -9719, "given up")])
    pair.home.commit(rare=[Fail(pair.initiator(conversation).index, -9719, "given up")])
    assert said(pair.target, pair.home) == []
    assert (target.state, pair.initiator(conversation).state) == (
        State.DISCONNECTED_OUTBOUND,
        State.DISCONNECTED_INBOUND,
    )


def test_of_a_side_that_ended_with_an_error_only_the_error_leaves_behaviour_111(pair: Pair) -> None:
    conversation = pair.begin()
    target = pair.receiver(conversation)
    pair.target.send(target, b"one", b"two")
    pair.target.commit(ends=[EndOperation(target.index, 7, "seven")], rare=[Withdraw(target.index)])
    assert said(pair.target, pair.home) == [Kind.VOID, Kind.VOID, Kind.ERROR]
    pair.target.deliver(pair.home)
    assert pair.home.receive(pair.initiator(conversation)) == [ERROR]


def test_nothing_is_withdrawn_of_a_side_whose_peer_had_ended(pair: Pair) -> None:
    conversation = pair.begin()
    target = pair.receiver(conversation)
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    pair.target.commit(ends=[EndOperation(target.index, 7, "seven")], rare=[Withdraw(target.index)])
    assert said(pair.target, pair.home) == [Kind.ERROR]
    assert pair.target.state.live() == []


# ------------------------------------------------------------------------------------------------------ transactions


def test_a_transaction_that_ends_a_dialog_with_an_error_drops_its_sends_behaviour_111(pair: Pair) -> None:
    pair.begin(messages=2)
    transaction = of(pair.target, pair.target.state.live()[0])
    empty = transaction.size_bytes
    with transaction:
        for message in transaction:
            transaction.send(message.dialog, "reply", b"never")
        transaction.end(transaction.dialog, error=1, description="because")
    assert transaction.sends == []
    assert transaction.size_bytes < empty + 2 * len(b"never") + 100


def test_an_end_is_with_error_or_with_cleanup(pair: Pair) -> None:
    pair.begin()
    transaction = of(pair.target, pair.target.state.live()[0])
    with transaction:
        with pytest.raises(InvalidState, match="not with both"):
            transaction.end(transaction.dialog, error=1, description="because", cleanup=True)
        transaction.send(transaction.dialog, "reply", b"never")
        transaction.end(transaction.dialog, cleanup=True)
        with pytest.raises(InvalidState, match="ended in this transaction"):
            transaction.end(transaction.dialog)
        with pytest.raises(InvalidState, match="ended in this transaction"):
            transaction.send(transaction.dialog, "reply", b"never")
    assert (transaction.sends, transaction.ends, transaction.idle) == ([], [], False)
    assert transaction.cleanups == [Cleanup(transaction.dialog.index)]
