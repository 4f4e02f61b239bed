"""Conversations with a service that routing does not find wait in a link queue (protocol.md section 9l)."""

from __future__ import annotations

import os
from unittest.mock import patch

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.owner import relocations
from konverse.dialog.owner.locks import GroupLocks
from konverse.dialog.owner.relocations import DelayedRoutes
from konverse.dialog.rules.relocation import moved_of
from konverse.dialog.state import delayed as delayed_module
from konverse.dialog.state.delayed import FRESH_PART, DelayedDialogs, DelayedRecord, RouteWanted
from konverse.dialog.state.endpoint import Endpoint, Terms
from konverse.dialog.state.outbox import Stream
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.system_messages import ERROR, LIFETIME_BODY, NO_PEER_BODY, Rejection
from konverse.schemas.wire.moved import encode_moved, pieces_of
from konverse.schemas.wire.operations import Cleanup, Fail, Lost, Relocate
from konverse.schemas.wire.records import ACKED, FIRST, RETURNING, Begin, BounceReason, Kind, Suffix
from tests.kit.builders import Pair, Side, identifier, record

LINK = "konverse.link"
MINUTE_MS = 60_000


class Delays(Pair):
    """A home, the link queue to which the session writes, and the queue of a service that is found later."""

    def __init__(self) -> None:
        super().__init__()
        self.service = self.target
        self.target = Side(LINK)

    def begin(self, name: str = "a conversation", messages: int = 1, **changes: object) -> bytes:
        return super().begin(name, messages, **{"target": self.target.address, **changes})

    def send(self, conversation: bytes, body: bytes = b"", **changes: object) -> None:
        super().send(conversation, body, **changes)

    def route(self, conversation: bytes) -> None:
        """The owner of the link queue has found the place."""
        endpoint = self.receiver(conversation)
        pieces = len(pieces_of(encode_moved(moved_of(self.target.state, endpoint))))
        self.target.commit(rare=[Relocate(endpoint.index, self.service.address, 0, pieces)])

    def settle(self) -> None:
        """Everything that was sent arrives."""
        sides = (self.home, self.target, self.service)
        while sum(len(source.deliver(to)) for source in sides for to in sides):
            pass

    def bodies(self, conversation: bytes) -> list[bytes | None]:
        """Messages that wait for the service."""
        endpoint = self.service.state.endpoint(Role.TARGET, conversation)
        return [] if endpoint is None else [entry[2] for entry in endpoint.queue]

    def end(self, conversation: bytes) -> None:
        """The initiator ends the conversation, and its END arrives in the link queue."""
        self.end_call(conversation)
        self.home.deliver(self.target)

    @property
    def returned(self) -> list[tuple[bytes, BounceReason]]:
        """Messages in the mailbox of the session, with the reasons."""
        return [(one.body or b"", one.bounce.reason) for one in self.home.state.mailbox.entries.values()]


@pytest.fixture
def world() -> Delays:
    return Delays()


def copied(state: Partition) -> Partition:
    """The state as another process restores it from a snapshot."""
    data = b"".join(Freeze(state).pieces())
    copy = Partition(state.identity)
    restore(copy, data)
    assert b"".join(Freeze(copy).pieces()) == data
    return copy


def test_a_conversation_waits_in_the_link_queue_and_nothing_of_it_is_ready(world: Delays) -> None:
    conversation = world.begin(messages=3)
    endpoint = world.receiver(conversation)
    assert (endpoint.queue, endpoint.received, [*world.target.state.ready]) == ([], 3, [])
    waiting = world.target.state.delayed
    delayed = waiting.of(endpoint)
    assert delayed is not None
    assert (waiting.count, [record.body for record in delayed.records]) == (3, [b"0", b"1", b"2"])
    assert [*waiting.wanted] == [RouteWanted("replies", "store", None)]


def test_its_messages_arrive_in_order_when_it_has_a_place_and_later_ones_follow(world: Delays) -> None:
    conversation = world.begin(messages=3)
    world.route(conversation)
    world.send(conversation, b"3", sequence=3)
    world.settle()
    assert world.bodies(conversation) == [b"0", b"1", b"2", b"3"]
    endpoint = world.service.state.endpoint(Role.TARGET, conversation)
    assert endpoint is not None
    assert (endpoint.received, endpoint.service, endpoint.stream.address) == (4, "store", world.home.address)
    assert world.target.state.delayed.count == world.target.state.delayed.bytes == 0
    assert world.service.state.statistics.misnumbered == 0


def test_the_reply_goes_home_and_both_sides_are_forgotten_when_both_have_ended(world: Delays) -> None:
    conversation = world.begin(messages=2)
    world.end(conversation)
    assert world.receiver(conversation).committed is State.CONVERSING, "the END waits behind the messages"
    world.route(conversation)
    world.settle()
    endpoint = world.service.state.endpoint(Role.TARGET, conversation)
    assert endpoint is not None
    assert endpoint.committed is State.DISCONNECTED_INBOUND
    assert len(world.service.receive(endpoint)) == 3
    world.service.end(endpoint)
    world.settle()
    assert not any(side.state.live() for side in (world.home, world.target, world.service))
    assert not world.target.state.moves.stubs


def test_a_message_is_judged_by_the_place_and_the_target_learns_nothing_of_a_bad_first_one(world: Delays) -> None:
    """M221: the target of a conversation whose first message is rejected learns nothing of it."""
    conversation = world.begin(messages=2)
    world.route(conversation)
    sent = world.target.outputs(world.service.address)
    assert [one.kind for one in sent] == [Kind.INSTALL, Kind.FORWARD, Kind.FORWARD]
    world.service.state.rejected[1] = Rejection(8498)
    world.settle()
    endpoint = world.service.state.endpoint(Role.TARGET, conversation)
    assert endpoint is not None
    assert (endpoint.committed, endpoint.waits) == (State.DISCONNECTED_OUTBOUND, False)
    initiator = world.initiator(conversation)
    assert initiator.error is not None
    assert b"8498" in (initiator.error[2] or b"")


def test_the_place_gives_the_level(world: Delays) -> None:
    """Behaviour 216: a side gets its priority when it begins, by the catalog of its own database."""

    class Important:
        def verdict(self, *_: object) -> None: ...

        def level(self, *_: object) -> int:
            return 8

        def examines(self, _message_type: str) -> bool:
            return False

    for side in (world.target, world.service):
        side.state.judge = Important()
    conversation = world.begin()
    assert world.receiver(conversation).level == 5
    world.route(conversation)
    world.settle()
    endpoint = world.service.state.endpoint(Role.TARGET, conversation)
    assert endpoint is not None
    assert endpoint.level == 8
    assert world.service.state.unsaid == [endpoint]


def test_when_its_lifetime_is_over_the_initiator_gets_the_error_and_the_messages_come_back(world: Delays) -> None:
    """Behaviour 123, by the link queue's time. The target never learns of the conversation."""
    conversation = world.begin(messages=0, lifetime_ms=MINUTE_MS)
    block = Begin(
        "shop", "store", "orders", world.home.address, world.target.address, conversation, lifetime_ms=MINUTE_MS
    )
    first = world.client.first(world.target.address, conversation, block, flags=FIRST | RETURNING)
    world.target.take_all([(first, record(b"0", time_ms=1))])
    world.target.state.now_ms = MINUTE_MS + 1
    world.target.commit()
    assert world.receiver(conversation).committed is State.DISCONNECTED_OUTBOUND
    world.settle()
    initiator = world.initiator(conversation)
    assert initiator.error is not None
    assert (initiator.error[1], initiator.error[2]) == (ERROR, LIFETIME_BODY)
    assert world.returned == [(b"0", BounceReason.PEER_ENDED)]
    world.home.end(initiator)
    world.settle()
    assert not world.target.state.live()


@pytest.mark.parametrize("how", ["cleanup", "fail", "lost"])
def test_a_conversation_that_ends_in_the_link_queue_leaves_nothing_there(world: Delays, how: str) -> None:
    """Records that waited are judged behind the end. The END of the initiator among them is answered."""
    conversation = world.begin(messages=2)
    world.end(conversation)
    index, end = world.receiver(conversation).index, world.target.state.ingest_to
    world.target.commit(
        rare=[{"cleanup": Cleanup(index), "fail": Fail(index, -9719, "given up"), "lost": Lost(end, end + 1)}[how]]
    )
    assert (world.target.state.delayed.count, world.target.state.delayed.dialogs) == (0, 0)
    world.settle()
    assert world.target.state.endpoint(Role.TARGET, conversation) is None
    assert world.home.state.endpoint(Role.INITIATOR, conversation) is None
    assert world.service.state.ingest_to == 0


def test_the_messages_of_a_cleaned_up_conversation_vanish_and_the_next_one_fails_its_sender(world: Delays) -> None:
    """M145, M147: as for a target that is at its place."""
    conversation = world.begin(messages=1)
    world.target.commit(rare=[Cleanup(world.receiver(conversation).index)])
    assert world.target.state.endpoint(Role.TARGET, conversation) is None
    world.settle()
    assert (world.returned, world.initiator(conversation).error) == ([], None)
    world.send(conversation, b"1", sequence=1)
    world.settle()
    error = world.initiator(conversation).error
    assert error is not None
    assert (error[1], error[2]) == (ERROR, NO_PEER_BODY)


def test_a_snapshot_holds_what_waits(world: Delays) -> None:
    first, second = world.begin("a", messages=2, broker_instance="an id"), world.begin("b")
    freeze = Freeze(world.target.state)
    data = b"".join(freeze.pieces())
    assert freeze.oldest_waiting == 0
    copy = copied(world.target.state)
    assert b"".join(Freeze(copy).pieces()) == data
    assert (copy.delayed.count, copy.delayed.bytes) == (3, world.target.state.delayed.bytes)
    assert [*copy.delayed.wanted] == [RouteWanted("replies", "store", "an id"), RouteWanted("replies", "store", None)]
    world.target.state = copy
    for conversation in (first, second):
        world.route(conversation)
    world.settle()
    assert (world.bodies(first), world.bodies(second)) == ([b"0", b"1"], [b"0"])


# -------------------------------------------------------------------------------------------------- what the owner does


def routes(world: Delays) -> tuple[DelayedRoutes, GroupLocks]:
    locks = GroupLocks(world.target.state)
    return DelayedRoutes(world.target.state, locks.moving), locks


def test_an_owner_moves_those_whose_route_is_known_now_and_as_they_arrive(world: Delays) -> None:
    routing, locks = routes(world)
    known, other = world.begin("known"), world.begin("other", to_service="another")

    def place(conversation: bytes, begin: Begin) -> Address:
        assert begin.to_service == "store"
        assert conversation in (known, identifier("later"))
        return world.service.address

    routing.find({RouteWanted("replies", "store", None): place})
    later = world.begin("later")
    assert world.receiver(known).held is False, "the owner goes on with its next tick"
    routing.tick()
    world.target.commit(rare=locks.moving.operations())
    world.settle()
    assert (world.bodies(known), world.bodies(later), world.bodies(other)) == ([b"0"], [b"0"], [])
    assert [*world.target.state.delayed] == [world.receiver(other)]
    assert world.receiver(other).held is False


def test_one_commit_sends_no_more_than_the_outbox_holds(world: Delays) -> None:
    routing, locks = routes(world)
    for name in ("a", "b", "c"):
        world.begin(name, messages=4)
    with patch.object(relocations, "OUTBOX_RECORDS_MAX", 8):
        routing.find({RouteWanted("replies", "store", None): lambda *_: world.service.address})
        routing.tick()
        assert len(locks.moving.operations()) == 2
        assert len(locks.moving.operations()) == 1


def test_a_full_link_partition_ingests_no_more(world: Delays) -> None:
    state = world.target.state
    with patch.object(delayed_module, "DELAYED_RECORDS_MAX", 2):
        world.begin("a")
        assert not state.delayed.full
        world.begin("b")
        assert state.delayed.full
    with patch.object(delayed_module, "DELAYED_BYTES_MAX", state.delayed.bytes):
        assert state.delayed.full


def test_a_message_behind_a_lost_one_fails_the_conversation_and_comes_back(world: Delays) -> None:
    """M291 and section 7.7: no message is received behind one that was lost."""
    conversation = world.begin(messages=1)
    suffix = Suffix("order", home=world.home.address)
    world.client.next[world.target.address] += 1  # lost
    header = world.client.message(world.target.address, conversation, suffix=suffix, sequence=2, flags=ACKED)
    world.target.take(header, b"2")
    world.settle()
    initiator = world.initiator(conversation)
    assert initiator.error is not None
    assert world.service.state.ingest_to == 0


def test_many_are_routed_step_by_step_and_one_commit_bounds_those_that_are_locked(world: Delays) -> None:
    routing, locks = routes(world)
    waiting = [world.begin(name) for name in "abcdefg"]
    with patch.object(relocations, "ROUTED_AT_ONCE", 2), patch.object(relocations, "COMMIT_MOVE_ENTRIES_MAX", 5):
        routing.find({RouteWanted("replies", "store", None): lambda *_: world.service.address})
        held = []
        for _ in range(5):
            routing.tick()
            held.append(sum(world.receiver(one).held for one in waiting))
        assert held == [2, 4, 5, 5, 5]
        world.target.commit(rare=locks.moving.operations())
        routing.tick()
    world.target.commit(rare=locks.moving.operations())
    world.settle()
    assert sorted(world.bodies(one) for one in waiting) == [[b"0"]] * 7


# ------------------------------------------------------------------------------------------------------- their memory


def test_hints_for_an_owner_do_not_grow_where_no_owner_looks() -> None:
    waiting, route = DelayedDialogs(), RouteWanted("replies", "store", None)
    for _ in range(100):
        endpoint = endpoint_at(0)
        waiting.begin(endpoint, route)
        waiting.release(endpoint)
    assert len(waiting.fresh) <= FRESH_PART


LARGE = b"x" * 2_000
HEADERS = [("trace", b"7")]
KEPT = [
    DelayedRecord(1, b"a header", b"a body", 10),
    DelayedRecord(2, b"a header", b"", 11),
    DelayedRecord(3, b"a header", None, 12),
    DelayedRecord(4, b"a header", LARGE, 13),
    DelayedRecord(5, b"a header", b"a body", (14, HEADERS)),
    DelayedRecord(6, os.urandom(400), os.urandom(500), 15),
]


@pytest.mark.parametrize("first", range(len(KEPT)))
def test_a_record_comes_out_as_it_was_kept_whether_it_is_the_first_or_a_later_one(first: int) -> None:
    records = [*KEPT[first:], *KEPT[:first]]
    waiting, route = DelayedDialogs(), RouteWanted("replies", "store", None)
    one, other = (endpoint_at(index) for index in (7, 3))
    for endpoint in (one, other):
        waiting.begin(endpoint, route)
    for one_record in records:
        waiting.keep(one, one_record)
        waiting.keep(other, one_record)
    before = waiting.as_of_now()
    assert (waiting.dialogs, waiting.count, waiting.oldest()) == (2, 12, records[0].offset)
    assert waiting.records_of(one) == 6
    assert waiting.release(one) == records
    assert waiting.release(one) == []
    assert [*waiting] == [other]
    assert waiting.release(other) == records
    assert (waiting.dialogs, waiting.count, waiting.bytes, waiting.oldest(), waiting.wanted) == (0, 0, 0, None, [])
    assert [*before] == [(index, record) for index in (3, 7) for record in records]


def endpoint_at(index: int) -> Endpoint:
    address = Address(LINK, 0, bytes(4))
    endpoint = Endpoint(bytes(16), Role.TARGET, State.CONVERSING, Terms("", "", ""), Stream(address, bytes(16)))
    endpoint.index = index
    return endpoint
