"""Behind a LOST: which writers are heard on, and the reports about records in the hole (protocol.md section 7.7)."""

from __future__ import annotations

from uuid import UUID

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.pool.recycling import standing_of
from konverse.dialog.session.lanes import Lane, has_ingested, refused
from konverse.dialog.session.outcome import OutcomeQuery
from konverse.dialog.session.rotation import CloseQuery, Unheard, reply
from konverse.dialog.session.session import Session
from konverse.dialog.state.transitions import State
from konverse.dialog.state.writer import MERGED, Hole
from konverse.schemas.identifiers import session_writer
from konverse.schemas.limits import WRITER_HOLE_ENTRIES_MAX
from konverse.schemas.system_messages import ERROR, lost_body
from konverse.schemas.wire.operations import Lost
from konverse.schemas.wire.records import HEIR, REFUSED, Bounce, BounceReason, End, Envelope, Kind, Suffix
from konverse.schemas.wire.token import Sent, Token
from tests.kit.builders import Scribe, Side, address_of, begin_block, identifier
from tests.kit.digests import digest
from tests.kit.moving import World, move

NOW_MS = 1_800_000_000_000
ASKER = session_writer(NOW_MS, 99)
WRITERS = pytest.mark.parametrize("number", [0, 1], ids=["an owner", "a session"])


@pytest.fixture
def world() -> World:
    made = World()
    for side in (made.home, made.target, made.second, made.third):
        side.state.now_ms = NOW_MS
    made.client.id = session_writer(NOW_MS, 7)
    return made


def writer(number: int) -> Scribe:
    """An owner, or a session."""
    scribe = Scribe("client")
    if number:
        scribe.id = session_writer(NOW_MS, number)
    return scribe


def lose(side: Side, count: int = 12) -> Lost:
    """The next `count` records are gone, and a COMMIT reports that."""
    lost = Lost(side.state.ingest_to, side.state.ingest_to + count)
    side.state.ingest_to = lost.end
    side.commit(rare=[lost])
    return lost


def message(side: Side, scribe: Scribe, counter: int, conversation: bytes = b"c" * 16) -> int:
    """A writer's record arrives under this counter. Returns the number of gaps so far."""
    suffix = Suffix("order", home=address_of("replies"))
    side.take(scribe.message(side.address, conversation, counter=counter, suffix=suffix), b"%d" % counter)
    return side.state.statistics.gaps


def holes_of(side: Side, scribe: Scribe) -> list[tuple[int, int]]:
    return [(hole.start, hole.end) for hole in side.state.writers[scribe.id].holes]


def told(world: World, kind: Kind) -> list[tuple[Envelope, bytes | None]]:
    """Envelopes and bodies of this kind that wait at the target for the sessions' home."""
    outputs = world.target.outputs(world.home.address)
    return [(sent.envelope, sent.body) for sent in outputs if sent.kind is kind]


# -------------------------------------------------------------------------------------------------- writers heard on


@WRITERS
def test_a_known_writer_continues_after_a_hole(world: World, number: int) -> None:
    target, client = world.target, writer(number)
    assert message(target, client, 0) == 0
    assert message(target, client, 4) == 1, "nothing was lost yet"
    lose(target)
    assert message(target, client, 5) == 1
    assert target.state.writers[client.id].next == 6
    assert holes_of(target, client) == [(1, 5)]


@WRITERS
def test_a_writer_whose_first_records_were_lost_is_accepted(world: World, number: int) -> None:
    target, client = world.target, writer(number)
    assert message(target, client, 7) == 1
    assert client.id not in target.state.writers
    lose(target)
    assert message(target, client, 7) == 1
    assert target.state.writers[client.id].next == 8
    assert holes_of(target, client) == [(0, 7)]


@WRITERS
def test_a_copy_of_a_record_from_before_the_hole_does_not_close_the_hole(world: World, number: int) -> None:
    """A late request of an abandoned producer may land behind the hole. Its counter proves nothing."""
    target, client = world.target, writer(number)
    lose(target)
    message(target, client, 0)
    assert message(target, client, 2) == 0
    assert holes_of(target, client) == [(1, 2)]


@WRITERS
def test_of_whom_nothing_is_missing_nothing_is_passed_over(world: World, number: int) -> None:
    target, client = world.target, writer(number)
    message(target, client, 0)
    lose(target)
    message(target, client, 0)
    assert target.state.statistics.duplicates == 1
    message(target, client, 1)
    assert holes_of(target, client) == []


def test_a_session_whose_id_is_too_old_is_a_stranger_behind_a_hole_too(world: World) -> None:
    lose(world.target)
    world.target.state.floor_ms = NOW_MS + 1
    message(world.target, world.client, 4)
    assert world.target.state.statistics.strangers == 1
    assert world.client.id not in world.target.state.writers


def test_the_bytes_of_the_next_record_are_predicted_behind_a_hole(world: World) -> None:
    session, conversation = world.client, identifier("later")
    lose(world.target, 9_000)
    world.target.take(session.first(world.target.address, conversation, begin_block(), counter=8_190))
    for counter in range(8_191, 8_200):
        world.target.take(session.message(world.target.address, conversation, counter=counter))
    assert len(world.receiver(conversation).queue) == 10
    assert world.target.state.statistics.gaps == 0


def test_messages_after_a_hole_are_received_in_order_and_once(world: World) -> None:
    world.begin("before")
    lose(world.target)
    conversation, target = identifier("behind"), world.target.address
    world.target.take(world.client.first(target, conversation, begin_block(group=conversation), counter=5), b"0")
    for counter in (6, 7, 6, 5):
        world.send(conversation, b"%d" % (counter - 5), counter=counter)
    assert [entry[2] for entry in world.receiver(conversation).queue] == [b"0", b"1", b"2"]


def test_a_closed_writer_has_no_hole_where_its_heir_sends_everything_again(world: World) -> None:
    target, client, heir = world.target, world.client, writer(2)
    message(target, client, 0)
    close = heir.write(Kind.CLOSE_WRITER, target.address, client.id, flags=HEIR)
    target.take(close)
    lose(target)
    message(target, client, 4)
    message(target, client, 2)
    assert target.state.writers[client.id].next == 5
    assert holes_of(target, client) == []
    assert target.state.statistics.duplicates == 1


# --------------------------------------------------------------------------------------------------- late records


def test_late_messages_from_the_hole_bounce_once_and_home_is_notified_of_the_loss(world: World) -> None:
    lost = lose(world.target)
    conversation = identifier("in the hole")
    message(world.target, world.client, 5, identifier("another"))
    for counter in (2, 2, 4, 3, 4):
        message(world.target, world.client, counter, conversation)
    back = []
    for envelope, body in told(world, Kind.BOUNCE):
        detail = envelope.suffix.detail
        assert isinstance(detail, Bounce)
        back.append((envelope.conversation, detail.counter, detail.reason, body))
    assert back[1:] == [
        (conversation, 2, BounceReason.NO_ENDPOINT, b"2"),
        (conversation, 4, BounceReason.NO_ENDPOINT, b"4"),
        (conversation, 3, BounceReason.NO_ENDPOINT, b"3"),
    ]
    assert {body for _, body in told(world, Kind.NO_PEER)} == {lost_body(*lost)}
    assert world.target.state.live() == []
    assert world.target.state.statistics.duplicates == 2
    assert world.target.state.statistics.gaps == 0


def test_a_late_begin_from_the_hole_is_refused_and_its_target_receives_an_end(world: World) -> None:
    lose(world.home)
    message(world.home, world.client, 5)
    begin = begin_block(group=identifier("late"))
    header = world.client.write(
        Kind.BEGIN, world.home.address, identifier("late"), counter=2, suffix=Suffix(begin=begin)
    )
    world.home.take(header)
    assert world.home.state.live() == []
    (sent,) = world.home.outputs(world.target.address)
    assert (sent.kind, sent.envelope.flags & REFUSED) == (Kind.END, REFUSED)


def test_a_transaction_of_the_hole_that_comes_late_comes_back_whole(world: World) -> None:
    lose(world.target)
    message(world.target, world.client, 5)
    suffix = Suffix(home=world.home.address)
    header = world.client.write(Kind.TRANSACTION, world.target.address, identifier("a"), counter=2, suffix=suffix)
    world.target.take(header, b"all of it")
    assert told(world, Kind.BOUNCE)[-1][1] == b"all of it"


@pytest.mark.parametrize("kind", [Kind.MESSAGE, Kind.END])
def test_a_conversation_that_lives_although_something_of_it_comes_late_has_missed_it_and_fails(
    world: World, kind: Kind
) -> None:
    lost = lose(world.target)
    conversation, owner = identifier("lives"), writer(0)
    world.target.take(owner.first(world.target.address, conversation, begin_block(), counter=5))
    world.target.take(owner.write(kind, world.target.address, conversation, counter=3, suffix=Suffix("order")))
    target = world.receiver(conversation)
    assert target.state is State.ERROR
    assert target.error is not None
    assert (target.error[1], target.error[2]) == (ERROR, lost_body(*lost))


# ------------------------------------------------------------------------- conversations that began in the hole


def test_the_home_of_a_conversation_whose_first_message_is_gone_gets_an_error(world: World) -> None:
    conversation = world.begin(messages=0)
    lost = lose(world.target)
    world.send(conversation, b"1", counter=1)
    (bounced,) = told(world, Kind.BOUNCE)
    assert bounced[1] == b"1"
    world.settle()
    initiator = world.initiator(conversation)
    assert initiator.state is State.ERROR
    assert initiator.error is not None
    assert initiator.error[2] == lost_body(*lost)


def test_a_moved_initiator_gets_an_error_when_the_first_message_was_lost(world: World) -> None:
    conversation = world.begin(messages=0)
    moved = move(world, world.home, world.initiator(conversation), world.second)
    lose(world.target)
    world.send(conversation, b"1", counter=1)
    world.settle()
    assert moved.state is State.ERROR


def test_the_initiator_of_a_client_transaction_gets_an_error_when_its_first_message_was_lost(world: World) -> None:
    conversation, transmission = world.begin(messages=0), writer(0)
    lose(world.target)
    suffix = Suffix("order", home=world.home.address, origin=world.client.id)
    world.target.take(transmission.message(world.target.address, conversation, counter=1, suffix=suffix), b"1")
    (bounced,) = told(world, Kind.BOUNCE)
    assert bounced[0].suffix.origin == world.client.id, "it comes back to the session whose it is"
    world.settle()
    assert world.initiator(conversation).state is State.ERROR


def test_a_message_without_a_receiver_only_bounces_if_nothing_was_lost(world: World) -> None:
    conversation = world.begin(messages=0)
    world.send(conversation, b"1", counter=0)
    assert len(told(world, Kind.BOUNCE)) == 1
    assert told(world, Kind.NO_PEER) == []


def test_a_conversation_that_ended_normally_gets_no_error_for_a_loss(world: World) -> None:
    conversation = world.begin()
    world.target.end(world.receiver(conversation))
    world.settle()
    world.end_call(conversation)
    world.settle()
    lose(world.target)
    world.send(conversation, b"late", counter=1)
    world.settle()
    assert world.home.state.live() == []


def test_a_conversation_whose_begin_is_gone_is_over_for_a_pool(world: World) -> None:
    session = Session(world.client.id)
    dialog, _ = session.begin(identifier("a"), begin_block(group=identifier("a")))
    session.drained()
    lose(world.home)
    assert not standing_of(world.home.state, session, dialog).over, "it may stand behind"
    message(world.home, world.client, 1)
    assert standing_of(world.home.state, session, dialog).over


# -------------------------------------------------------------------------------------------- questions about it


def test_records_in_a_hole_were_not_ingested_and_are_refused(world: World) -> None:
    target, lane = world.target, Lane(world.target.address, world.client.id)
    message(target, world.client, 0)
    lose(target)
    message(target, world.client, 3)
    assert [has_ingested(target.state, lane, counter) for counter in range(5)] == [True, False, False, True, False]
    assert [refused(target.state, lane, counter) for counter in range(5)] == [False, True, True, False, False]
    target.take(writer(2).close(target.address, world.client.id))
    assert [has_ingested(target.state, lane, counter) for counter in range(5)] == [True, False, False, True, False]
    assert [refused(target.state, lane, counter) for counter in range(5)] == [False, True, True, False, True]


def asked(world: World, *counters: int) -> OutcomeQuery:
    sent = Sent(world.client.id, world.target.address, identifier("a"), 4, counters, -1)
    asking = OutcomeQuery(Token((sent,)))
    for _, (header, _, _) in asking.ask(ASKER):
        world.target.take(header)
    asking.read(world.target.state)
    return asking


@pytest.mark.parametrize(
    ("counters", "missing"),
    [((0,), None), ((0, 1), 5), ((2, 3), 4), ((0, 1, 3), 5), ((3,), None), ((3, 4), 5)],
    ids=str,
)
def test_records_in_a_hole_have_the_outcome_not_received(
    world: World, counters: tuple[int, ...], missing: int | None
) -> None:
    message(world.target, world.client, 0)
    lose(world.target)
    message(world.target, world.client, 3)
    outcome = asked(world, *counters).outcome
    assert outcome is not None
    assert outcome.missing == ({} if missing is None else {UUID(bytes=identifier("a")): missing})


@WRITERS
def test_a_conversation_with_a_skipped_number_fails_and_receives_no_later_message(world: World, number: int) -> None:
    """A failed producer leaves disorder: its repeated records come behind later ones."""
    lost, target, client, conversation = lose(world.target), world.target, writer(number), identifier("later")
    target.take(client.first(target.address, conversation, begin_block(), counter=0), b"0")
    receiver = world.receiver(conversation)
    suffix = Suffix("order", home=world.home.address)
    for counter in (2, 1):
        target.take(client.message(target.address, conversation, counter=counter, sequence=counter, suffix=suffix))
    assert [(entry[1], entry[2]) for entry in (*receiver.queue, *receiver.urgent)] == [
        ("order", b"0"),
        (ERROR, lost_body(*lost)),
    ]
    reasons = [envelope.suffix.detail for envelope, _ in told(world, Kind.BOUNCE)]
    assert [(one.counter, one.reason) for one in reasons if isinstance(one, Bounce)] == [
        (2, BounceReason.ENDED),
        (1, BounceReason.NO_ENDPOINT),
    ]


@pytest.mark.parametrize("kind", [Kind.MESSAGE, Kind.END])
def test_a_conversation_that_has_moved_fails_too_when_something_of_it_comes_late(world: World, kind: Kind) -> None:
    lost, target, client, conversation = lose(world.target), world.target, writer(1), identifier("moved")
    target.take(client.first(target.address, conversation, begin_block(), counter=0), b"0")
    moved = move(world, target, world.receiver(conversation), world.second)
    target.take(client.message(target.address, identifier("another"), counter=2))
    detail = End(client.id, world.home.address) if kind is Kind.END else None
    target.take(client.write(kind, target.address, conversation, counter=1, suffix=Suffix("late", detail=detail)))
    world.settle()
    assert moved.committed is State.ERROR
    assert moved.urgent[-1][2] == lost_body(*lost)


def test_a_question_that_lay_in_a_hole_is_asked_again(world: World) -> None:
    target, asker = world.target, writer(2)
    lose(target)
    message(target, asker, 1)
    wanted = CloseQuery(target.address, world.client.id, asker.id, 0)
    target.take(Scribe("another").close(target.address, world.client.id))
    assert reply(target.state, wanted) is Unheard.LATER


def test_the_oldest_of_too_many_holes_are_merged_and_their_outcome_is_expired(world: World) -> None:
    lose(world.target)
    for number in range(WRITER_HOLE_ENTRIES_MAX + 1):
        message(world.target, world.client, 2 * number + 1)
    kept = world.target.state.writers[world.client.id].holes
    assert len(kept) == WRITER_HOLE_ENTRIES_MAX
    assert kept[0] == Hole(0, 3, MERGED)
    message(world.target, world.client, 0)
    assert world.target.state.statistics.duplicates == 1, "it may have been received"
    asking = asked(world, 1)
    assert asking.expired
    assert not asked(world, 5).expired


def test_a_snapshot_holds_the_lost_range_and_the_holes_of_writers(world: World) -> None:
    before = digest(world.target.state)
    lose(world.target)
    assert digest(world.target.state) != before
    for counter in (0, 3, 7, 2):
        message(world.target, world.client, counter)
    restored = Side("orders")
    restore(restored.state, b"".join(Freeze(world.target.state).pieces()))
    assert digest(restored.state) == digest(world.target.state)
    assert restored.state.writers[world.client.id].holes == (Hole(1, 2, 1), Hole(2, 3, 3), Hole(4, 7, 4))
    assert (restored.state.lost_from, restored.state.lost_to) == (0, 12)


def test_a_gap_of_more_records_than_were_deleted_is_no_loss(world: World) -> None:
    """A stranger may write any counter in a writer's name. The honest writer is asked for its records."""
    target, client = world.target, writer(1)
    lose(target, 12)
    assert message(target, client, 13) == 1
    assert client.id not in target.state.writers
    assert message(target, client, 12) == 1
    assert message(target, client, 12 + 13 + 1) == 2
    assert holes_of(target, client) == [(0, 12)]
