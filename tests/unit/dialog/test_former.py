"""Late records of sessions about a conversation whose id was begun anew: none of them counts (M281)."""

from __future__ import annotations

from typing import Final

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.session.adoption import Adoption, AdoptRequest
from konverse.dialog.session.dialogs import BeginOptions
from konverse.dialog.session.session import Session
from konverse.dialog.session.transactions import StagedTransaction
from konverse.dialog.state import named
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import SENDING, State
from konverse.schemas.identifiers import Role, session_writer
from konverse.schemas.wire.client_transaction import decode as decode_transaction
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import (
    ANEW,
    FIRST,
    NAMED,
    RETURNING,
    BounceId,
    BounceReason,
    Envelope,
    Kind,
    Opened,
    Suffix,
    Timer,
    WriterClosed,
)
from tests.kit.builders import Pair, Scribe, address_of, begin_block, identifier, log_of
from tests.kit.digests import digest
from tests.kit.moving import World, move

ORDER: Final = identifier("an order")
BLOCK: Final = begin_block(group=ORDER)


def begin(pair: Pair, client: Scribe, flags: int = NAMED, *, sends: bool = True) -> None:
    pair.home.take(client.write(Kind.BEGIN, pair.home.address, ORDER, flags=flags, suffix=Suffix(begin=BLOCK)))
    if sends:
        pair.target.take(client.first(pair.target.address, ORDER, BLOCK, flags=FIRST | flags), b"first")


def end(pair: Pair, writer: Scribe, opener: bytes) -> None:
    """END_CALL of a session for a conversation begun by that opener."""
    suffix = Suffix("EndDialog", detail=Opened(opener))
    pair.home.take(writer.write(Kind.END_CALL, pair.home.address, ORDER, suffix=suffix))


def both_end(pair: Pair, opener: bytes) -> None:
    end(pair, pair.client, opener)
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(ORDER))
    pair.target.deliver(pair.home)


@pytest.fixture
def former() -> Scribe:
    """The former session under another id. Its BEGIN had the client's id."""
    return Scribe("the former session under another id")


@pytest.fixture
def pair() -> Pair:
    """An order that is over, and was begun anew by another session."""
    return anew(Pair())


def anew(pair: Pair) -> Pair:
    begin(pair, pair.client)
    both_end(pair, pair.client.id)
    begin(pair, Scribe("anew"), NAMED | ANEW)
    return pair


def test_the_end_of_a_former_session_ends_nothing(pair: Pair, former: Scribe) -> None:
    end(pair, former, pair.client.id)
    assert pair.initiator(ORDER).committed is State.STARTED_OUTBOUND
    end(pair, former, identifier("anew"))
    assert pair.initiator(ORDER).committed is State.DISCONNECTED_OUTBOUND


def test_a_timer_of_a_former_session_is_not_set(pair: Pair, former: Scribe) -> None:
    for opener, is_set in ((pair.client.id, False), (identifier("anew"), True)):
        suffix = Suffix(origin=opener, detail=Timer(1_000))
        pair.home.take(former.write(Kind.SET_TIMER, pair.home.address, ORDER, suffix=suffix))
        assert (pair.initiator(ORDER).clock is not None) is is_set


@pytest.mark.parametrize("flags", [NAMED, NAMED | RETURNING])
def test_a_message_of_a_former_session_comes_back(pair: Pair, former: Scribe, flags: int) -> None:
    suffix = Suffix("order", home=BLOCK.home, detail=Opened(pair.client.id))
    pair.target.take(former.message(BLOCK.target, ORDER, flags=flags, suffix=suffix), b"former")
    assert [entry[2] for entry in pair.receiver(ORDER).queue] == [b"first"]
    pair.target.deliver(pair.home)
    kept = [(one.body, one.bounce.reason) for one in pair.home.state.mailbox.entries.values()]
    assert kept == [(b"former", BounceReason.NO_ENDPOINT)]
    suffix = suffix._replace(detail=Opened(identifier("anew")))
    pair.target.take(former.message(BLOCK.target, ORDER, flags=flags, suffix=suffix), b"of this one")
    assert [entry[2] for entry in pair.receiver(ORDER).queue] == [b"first", b"of this one"]


def test_the_fin_of_a_former_session_finishes_nothing_and_is_answered(pair: Pair, former: Scribe) -> None:
    suffix = Suffix(home=BLOCK.home, detail=Opened(pair.client.id))
    pair.target.take(former.write(Kind.FIN, BLOCK.target, ORDER, suffix=suffix))
    assert pair.receiver(ORDER).finished is None
    assert pair.target.outputs(BLOCK.home)[-1].kind is Kind.FIN_ANSWER


def test_nothing_is_redirected_into_it_by_a_former_session(pair: Pair, former: Scribe) -> None:
    suffix = Suffix("order", home=BLOCK.home, detail=Opened(pair.client.id))
    pair.target.take(former.message(BLOCK.target, ORDER, flags=NAMED, suffix=suffix), b"former")
    pair.target.deliver(pair.home)
    ((name, _),) = pair.home.state.mailbox.entries.items()
    for opener, kept in ((pair.client.id, 1), (identifier("anew"), 0)):
        asks = Suffix(origin=opener, detail=BounceId(*name))
        pair.home.take(former.write(Kind.REDIRECT, pair.home.address, ORDER, flags=NAMED, suffix=asks))
        assert len(pair.home.state.mailbox.entries) == kept


def test_whoever_begins_what_lives_takes_part_in_it(pair: Pair) -> None:
    begin(pair, Scribe("another"))
    end(pair, Scribe("another under another id"), identifier("another"))
    assert pair.initiator(ORDER).committed is State.DISCONNECTED_OUTBOUND


def test_a_former_session_that_begins_it_once_more_takes_part_in_it(pair: Pair, former: Scribe) -> None:
    begin(pair, pair.client)
    assert len(pair.receiver(ORDER).queue) == 2
    end(pair, former, pair.client.id)
    assert pair.initiator(ORDER).committed is State.DISCONNECTED_OUTBOUND


def test_the_session_that_had_begun_it_may_begin_it_anew_itself(former: Scribe) -> None:
    pair = Pair()
    begin(pair, pair.client)
    both_end(pair, pair.client.id)
    begin(pair, pair.client, NAMED | ANEW)
    end(pair, former, pair.client.id)
    assert pair.initiator(ORDER).committed is State.DISCONNECTED_OUTBOUND


def test_all_former_sessions_are_known_up_to_a_bound(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "NAMED_OPENER_ENTRIES_MAX", 2)
    key = Role.INITIATOR, ORDER
    assert pair.home.state.named.former[key] == (pair.client.id,)
    begin(pair, Scribe("another"))
    both_end(pair, identifier("anew"))
    begin(pair, Scribe("third"), NAMED | ANEW)
    assert pair.home.state.named.former[key] == (identifier("anew"), identifier("another")), "the latest two"
    assert pair.home.state.named.openers[key] == (identifier("third"),)


def test_what_has_moved_does_not_hear_a_former_session_either(former: Scribe) -> None:
    world = World()
    anew(world)
    moved = move(world, world.home, world.initiator(ORDER), world.second)
    end(world, former, world.client.id)
    world.settle()
    assert moved.committed in SENDING
    end(world, former, identifier("anew"))
    world.settle()
    assert moved.committed not in SENDING


def test_former_sessions_are_state_and_go_with_the_conversation(pair: Pair, former: Scribe) -> None:
    for side in (pair.home, pair.target):
        again = Partition(log_of(side.queue))
        restore(again, b"".join(Freeze(side.state).pieces()))
        assert (again.named.former, again.named.openers) == (side.state.named.former, side.state.named.openers)
        assert again.named.former
        assert digest(again) == digest(side.state)
    both_end(pair, identifier("anew"))
    for side in (pair.home, pair.target):
        side.state.named.prune(side.state.now_ms + 1)
        assert not side.state.named.former
        assert not side.state.named.openers


# ----------------------------------------------------------------------------------------------------------- sessions

IDS: Final = [session_writer(1, number) for number in range(3)]


def handed(session: Session) -> list[Envelope]:
    """The records that the session hands over."""
    return [decode(header) for hand in session.restart() for header, _, _ in hand.records]


def test_a_session_names_the_opener_under_whatever_id() -> None:
    session = Session(IDS[0])
    dialog, _ = session.begin(ORDER, BLOCK, BeginOptions(named=True))
    session.drained()
    session.send(dialog, "order", b"0")
    session.drained()
    session.change(IDS[1], 0)
    session.set_timer(dialog, Timer(1_000))
    session.send(dialog, "order", b"1")
    session.send(dialog, "other", b"2")
    session.finish(dialog)
    spoken = {one.kind: one.suffix for one in handed(session)}
    assert spoken[Kind.SET_TIMER].origin == IDS[0]
    assert spoken[Kind.MESSAGE].detail == spoken[Kind.FIN].detail == Opened(IDS[0])
    session.drained()
    session.end(dialog)
    (end_call,) = [one for one in handed(session) if one.kind is Kind.END_CALL]
    assert end_call.suffix.detail == Opened(IDS[0])


def test_of_an_id_of_our_own_making_nothing_more_is_said() -> None:
    session = Session(IDS[0])
    dialog, _ = session.begin(ORDER, BLOCK)
    session.drained()
    session.send(dialog, "order", b"0")
    session.set_timer(dialog, Timer(1_000))
    session.send(dialog, "order", b"1")
    session.drained()
    session.end(dialog)
    session.drained()
    suffixes = [one.suffix for one in handed(session)]
    assert all(one.origin is None and not isinstance(one.detail, Opened) for one in suffixes)


def test_a_timer_that_waits_goes_with_its_begin_under_another_id() -> None:
    session = Session(IDS[0])
    dialog, _ = session.begin(ORDER, BLOCK, BeginOptions(named=True))
    session.set_timer(dialog, Timer(1_000))
    session.change(IDS[1], 0)
    lane = session.lanes[BLOCK.home]
    assert dialog.opener == IDS[0]
    (wanted,) = session.takeover.wanted()
    session.answered(wanted, WriterClosed(IDS[0], 0, BLOCK.home, IDS[1]))
    assert dialog.opener == IDS[1]
    (timer,) = [one for one in handed(session) if one.kind is Kind.SET_TIMER]
    assert (timer.writer, timer.suffix.origin) == (IDS[1], IDS[1])
    assert lane.writer == IDS[1]


def test_a_transaction_names_the_opener_of_what_was_begun_before() -> None:
    session = Session(IDS[0])
    session.transmit_to(address_of("transmission"))
    dialog, _ = session.begin(ORDER, BLOCK, BeginOptions(named=True))
    session.drained()
    session.send(dialog, "order", b"0")
    session.drained()
    session.change(IDS[1], 0)
    session.drained()
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"1")
    transaction.set_timer(dialog, 1_000)
    transaction.end(dialog)
    session.commit(transaction)
    lane = session.lanes[address_of("transmission")]
    steps = decode_transaction(lane.bodies[-1] or b"").steps
    assert [step.kind for step in steps] == [Kind.OPEN, Kind.MESSAGE, Kind.SET_TIMER, Kind.END_CALL]
    assert steps[0].body == IDS[0]
    pair = Pair()
    transmission = pair.home
    transmission.take(Scribe("whose").write(Kind.TRANSACTION, transmission.address, ORDER), lane.bodies[-1])
    outputs = [*transmission.outputs(BLOCK.home), *transmission.outputs(BLOCK.target)]
    said = {one.kind: one.envelope.suffix for one in outputs}
    assert said[Kind.SET_TIMER].origin == IDS[0]
    assert said[Kind.MESSAGE].detail == said[Kind.END_CALL].detail == Opened(IDS[0])
    assert said[Kind.MESSAGE].origin == said[Kind.END_CALL].origin == identifier("whose")


def test_a_transaction_that_begins_it_names_its_session() -> None:
    session = Session(IDS[0])
    session.transmit_to(address_of("transmission"))
    transaction = StagedTransaction(session)
    dialog = transaction.begin(ORDER, BLOCK, BeginOptions(named=True))
    transaction.end(dialog)
    session.commit(transaction)
    body = session.lanes[address_of("transmission")].bodies[-1]
    assert [step.kind for step in decode_transaction(body or b"").steps] == [Kind.BEGIN, Kind.END_CALL]
    pair = Pair()
    pair.home.take(Scribe("whose").write(Kind.TRANSACTION, pair.home.address, ORDER), body)
    (said,) = [one.envelope.suffix for one in pair.home.outputs(BLOCK.home) if one.kind is Kind.END_CALL]
    assert said.detail == Opened(identifier("whose"))


def test_a_successor_names_the_opener_of_what_it_adopts() -> None:
    pair = Pair()
    begin(pair, pair.client)
    successor = Session(IDS[1])
    adopting = Adoption(successor, [AdoptRequest(ORDER, BLOCK)])
    while adopting.addresses:
        hands = [
            hand
            for address in adopting.addresses
            for hand in adopting.hear((pair.home if address == BLOCK.home else pair.target).state)
        ]
        for hand in hands:
            side = pair.home if hand.address == BLOCK.home else pair.target
            for header, _, body in hand.records:
                side.take(header, body)
        successor.drained()
        pair.target.deliver(pair.home)
        pair.home.deliver(pair.target)
    ((dialog, _),) = adopting.finish()
    assert (dialog.opener, dialog.flags & NAMED) == (pair.client.id, NAMED)
    successor.end(dialog)
    (end_call,) = [one for one in handed(successor) if one.kind is Kind.END_CALL]
    assert end_call.suffix.detail == Opened(pair.client.id)
