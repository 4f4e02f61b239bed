"""The levels of sides and the order in which their groups are received (behaviours 67, 216 to 219)."""

from __future__ import annotations

from collections import deque
from typing import Final

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.owner.owner import highest_first
from konverse.dialog.session.dialogs import BeginOptions
from konverse.dialog.session.session import Session
from konverse.dialog.session.transactions import StagedTransaction as ClientTransaction
from konverse.dialog.state.endpoint import Endpoint, Terms
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.ready import Ranked
from konverse.dialog.transaction.received import Clauses
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Role
from konverse.schemas.levels import DEFAULT_LEVEL
from konverse.schemas.system_messages import Rejection
from konverse.schemas.wire.envelope import decode as decode_envelope
from konverse.schemas.wire.journal import Commit, CommitOperations, decode, encode_commit
from konverse.schemas.wire.operations import Prioritize
from konverse.schemas.wire.records import NO_SEQUENCE, Begin, Kind, Suffix
from tests.kit.builders import Pair, Scribe, Side, address_of, begin_block, conversations, identifier, log_of
from tests.kit.digests import digest
from tests.kit.driver import Driver
from tests.kit.moving import World, move

LEVELS: Final = {"high": 10, "low": 1, "middle": 7}
"""Levels of sides that talk to a service of that name."""


class AdmissionPolicy:
    """Accepts everything. Priorities depend on the remote service."""

    def __init__(self) -> None:
        self.levels = {**LEVELS}

    def verdict(self, _terms: Terms, _role: Role, _message_type: str, _body: bytes | None) -> Rejection | None:
        return None

    def level(self, _contract: str, _local_service: str, remote_service: str) -> int:
        return self.levels.get(remote_service, DEFAULT_LEVEL)

    def examines(self, _message_type: str) -> bool:
        return False


class Ordered(Driver):
    """An owner with priorities, and a client. A conversation's name is the service that began it."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self.judge = AdmissionPolicy()
        self.client = Scribe("client")
        self.owner.staging.judge = self.judge
        self.lead()

    def begin(self, *services: str, messages: int = 1) -> None:
        """Each service begins a conversation and sends on it."""
        for service in services:
            self.arrive(*conversations(service, messages=messages, client=self.client, from_service=service))

    def more(self, service: str) -> None:
        """One more message of that service."""
        number = self.side(service).received
        header = self.client.message(address_of(), identifier(service), sequence=number)
        self.arrive((header, (b"more", 0)))

    def side(self, service: str) -> Endpoint:
        endpoint = self.state.endpoint(Role.TARGET, identifier(service))
        assert endpoint is not None, f"no conversation with {service} lives here"
        return endpoint

    def take(self) -> Transaction:
        transaction = self.owner.take()
        assert transaction is not None, "no group is ready"
        return transaction

    def received(self) -> list[str]:
        """Services in order of receipt, group by group, without returning any group."""
        order = []
        while (transaction := self.owner.take()) is not None:
            order.append(transaction.dialog.far_service)
        return order

    def said(self) -> list[Prioritize]:
        """The levels in the last COMMIT."""
        commit = decode(self.journal[-1])
        assert isinstance(commit, Commit)
        return [operation for operation in commit.operations.rare if isinstance(operation, Prioritize)]

    def heir(self) -> Driver:
        """The next owner, which knows no priorities."""
        heir = Driver(self.journal, self.data, "heir")
        heir.snapshots = self.snapshots
        heir.lead()
        return heir


@pytest.fixture
def owner() -> Ordered:
    return Ordered()


@pytest.fixture
def pair() -> Pair:
    return Pair()


# -------------------------------------------------------------------------------------------------------------- levels


def test_a_side_has_its_level_from_its_beginning_and_the_commit_says_it(owner: Ordered) -> None:
    owner.begin("low", "shop", "high")
    assert [owner.side(name).level for name in ("low", "shop", "high")] == [1, DEFAULT_LEVEL, 10]
    owner.commit()
    assert owner.said() == [Prioritize([owner.side("low").index, owner.side("high").index], bytes((1, 10)))]
    owner.more("high")
    owner.commit()
    assert owner.said() == [], "it is said once"


def test_commits_record_no_levels_when_all_are_the_default(owner: Ordered) -> None:
    owner.begin("shop", "another")
    owner.commit()
    assert owner.said() == []
    assert isinstance(owner.state.ready, deque)


def test_later_changes_of_priorities_do_not_affect_existing_conversations_behaviour_216(owner: Ordered) -> None:
    owner.begin("low", "shop")
    owner.judge.levels = {"low": 9, "shop": 9}
    owner.more("low")
    owner.begin("middle")
    assert [owner.side(name).level for name in ("low", "shop", "middle")] == [1, DEFAULT_LEVEL, DEFAULT_LEVEL]


def test_the_next_owner_has_the_same_levels(owner: Ordered) -> None:
    owner.begin("low", "shop", "high")
    owner.commit()
    heir = owner.heir()
    assert heir.recovered == digest(owner.state)
    assert [endpoint.level for endpoint in heir.state.live()] == [1, DEFAULT_LEVEL, 10]


def test_a_level_that_was_not_committed_is_found_anew(owner: Ordered) -> None:
    owner.begin("low")
    assert owner.heir().state.live() == []


def test_a_handlers_dialog_has_its_level_with_its_commit(owner: Ordered) -> None:
    def begin(clauses: Clauses) -> tuple[bytes, Begin]:
        near, far, contract, *_ = clauses
        conversation = identifier(f"to {far}")
        return conversation, Begin(near, far, contract, address_of(), address_of("depot"), conversation, None)

    owner.owner.staging.context.begin = begin
    owner.begin("gone", "shop")
    transaction = owner.take()
    list(transaction)
    for far in ("depot", "middle", "high"):
        transaction.send(transaction.begin("store", far, "contract"), "pick", b"")
    owner.owner.finish(transaction)
    owner.commit()
    begun = {far: owner.state.endpoint(Role.INITIATOR, identifier(f"to {far}")) for far in ("depot", "middle", "high")}
    assert {far: side and side.level for far, side in begun.items()} == {"depot": 5, "middle": 7, "high": 10}
    assert [endpoint.level for endpoint in owner.heir().state.live()] == [5, 5, 5, 7, 10]


def test_a_priority_for_a_nonexistent_endpoint_is_ignored(pair: Pair) -> None:
    """Its index may be another endpoint's, or free."""
    target = pair.receiver(pair.begin())
    pair.target.commit(rare=[Prioritize([target.index, 77], bytes((9, 9)))])
    assert target.level == 9


@pytest.mark.parametrize(("endpoints", "levels"), [([1], b""), ([], b"\x05"), ([1], b"\x00"), ([1], b"\x0b")])
def test_levels_that_do_not_exist_are_malformed(endpoints: list[int], levels: bytes) -> None:
    operations = CommitOperations(rare=[Prioritize(endpoints, levels)])
    data = encode_commit(Commit(1, bytes(16), 1, bytes(32), 0, operations))
    with pytest.raises(MalformedRecord):
        decode(data)


def test_a_snapshot_holds_levels(owner: Ordered) -> None:
    owner.begin("low", "shop", "high")
    owner.commit()
    other = Partition(log_of())
    restore(other, b"".join(Freeze(owner.state).pieces()))
    assert [endpoint.level for endpoint in other.live()] == [1, DEFAULT_LEVEL, 10]
    assert digest(other) == digest(owner.state)


def test_an_endpoint_moves_with_its_level() -> None:
    world = World()
    target = world.receiver(world.begin())
    world.target.commit(rare=[Prioritize([target.index], bytes((10,)))])
    moved = move(world, world.target, target, world.second)
    assert moved.level == 10
    assert isinstance(world.second.state.ready, Ranked)


# --------------------------------------------------------------------------------------------------------------- order


def test_groups_of_the_highest_level_are_received_first_behaviour_219(owner: Ordered) -> None:
    owner.begin("shop", "low", "middle", "high", "another")
    assert owner.received() == ["high", "middle", "shop", "another", "low"]


def test_a_later_message_overtakes_waiting_messages_of_a_lower_level(owner: Ordered) -> None:
    owner.begin("low", "shop", "middle")
    assert owner.take().dialog.far_service == "middle"
    owner.begin("high")
    assert owner.received() == ["high", "shop", "low"]


def test_a_group_that_comes_back_has_its_level_still(owner: Ordered) -> None:
    owner.begin("shop", "high")
    transaction = owner.take()
    owner.owner.staging.roll_back(transaction)
    assert owner.received() == ["high", "shop"]


def test_a_low_one_waits_once_however_often_it_comes_back(owner: Ordered) -> None:
    owner.begin("low", "high")
    high, low = owner.side("high"), owner.side("low")
    ready = Ranked([high, low])
    for _ in range(5):
        assert ready.popleft() is high
        ready.extend([high, low])
    assert [*ready] == [high, low]


def test_a_group_held_by_a_handler_is_skipped(owner: Ordered) -> None:
    owner.begin("high", "shop")
    assert owner.take().dialog.far_service == "high"
    owner.more("high")
    assert owner.take().dialog.far_service == "shop"


def test_in_a_group_all_of_the_higher_level_come_first_behaviour_67(pair: Pair) -> None:
    one, two, three = pair.answered("one", "two", "three", messages=2)
    pair.home.commit(rare=[Prioritize([one.index, three.index], bytes((1, 8)))])
    driver = Driver()
    driver.owner.staging.state = pair.home.state
    transaction = driver.owner.staging.take()
    assert transaction is not None
    assert [message.dialog for message in transaction] == [three, three, two, two, one, one]
    assert [message.priority for message in transaction.receive()] == []
    assert transaction.dialogs == [three, two, one]


def test_a_group_counts_for_those_of_its_members_that_have_messages_behaviour_219(pair: Pair) -> None:
    silent, speaking = pair.answered("silent", "speaking")
    lone = pair.initiator(pair.begin("lone", group=identifier("another group")))
    pair.target.send(pair.receiver(identifier("lone")), b"reply")
    pair.target.deliver(pair.home)
    levels = Prioritize([silent.index, speaking.index, lone.index], bytes((10, 2, 4)))
    pair.home.commit(rare=[levels])
    pair.home.receive(silent)
    pair.home.state.ready.clear()
    pair.home.state.ready.extend([speaking, lone])
    driver = Driver()
    driver.owner.staging.state = pair.home.state
    taken = [driver.owner.staging.take(), driver.owner.staging.take()]
    assert [transaction and transaction.dialog for transaction in taken] == [lone, speaking]


def test_of_several_partitions_the_one_with_the_highest_group_is_asked_first() -> None:
    plain, first, second = Ordered(), Ordered(), Ordered()
    owners = [plain.owner, first.owner, second.owner]
    assert highest_first(owners) == owners
    plain.begin("shop")
    first.begin("low")
    assert highest_first(owners) == [plain.owner, first.owner, second.owner]
    second.begin("middle")
    assert highest_first(owners) == [second.owner, plain.owner, first.owner]
    second.take()
    assert highest_first(owners) == [plain.owner, first.owner, second.owner], "nothing is left there"


def test_after_a_crash_groups_are_tried_by_level_and_each_is(owner: Ordered) -> None:
    owner.begin("low", "shop", "high")
    owner.commit()
    heir = owner.heir()
    heir.owner.staging.judge = heir.state.judge = owner.judge
    heir.try_groups()
    order = []
    while (transaction := heir.owner.take()) is not None:
        order.append(transaction.dialog.far_service)
        list(transaction)
        heir.owner.finish(transaction)
    assert order == ["high", "shop", "low"]
    heir.commit()
    assert not heir.owner.trial.careful


def test_ready_endpoints_are_ordered_by_level() -> None:
    terms = Terms("a", "b", "c")
    stream = Partition(log_of()).stream_to(address_of())
    one, two, three = (Endpoint(identifier(name), Role.TARGET, 0, terms, stream) for name in "abc")  # type: ignore[arg-type]
    two.level = 10
    ready = Ranked([one, two, three])
    assert ([*ready], len(ready), bool(ready), ready[0], ready[2]) == ([two, one, three], 3, True, two, three)
    assert ready.popleft() is two
    ready.clear()
    assert (len(ready), bool(ready)) == (0, False)


# ------------------------------------------------------------------------------------------- the level of an initiator


@pytest.mark.parametrize(("given", "level"), [(10, 10), (5, 5), (1, 1), (NO_SEQUENCE, 7), (0, 7), (11, 7)])
def test_a_begin_brings_the_level_of_its_side(owner: Ordered, given: int, level: int) -> None:
    """Whatever the catalog's priorities are when its home reads it. A number that is no level has no effect."""
    conversation = identifier("a conversation")
    block = Begin("shop", "middle", "orders", owner.state.address, address_of("orders"), conversation)
    header = owner.client.write(Kind.BEGIN, block.home, conversation, sequence=given, suffix=Suffix(begin=block))
    owner.arrive((header, (None, 0)))
    endpoint = owner.state.endpoint(Role.INITIATOR, conversation)
    assert endpoint is not None
    assert endpoint.level == level


@pytest.mark.parametrize("way", ["direct", "transaction"])
def test_a_session_says_the_level_that_its_broker_knows(way: str) -> None:
    session, block = Session(identifier("session")), begin_block()
    session.transmit_to(address_of("transmission"))
    if way == "direct":
        _, (hand,) = session.begin(identifier("a"), block, BeginOptions(level=9))
        envelope = decode_envelope(hand.records[0][0])
    else:
        transaction = ClientTransaction(session)
        transaction.begin(identifier("a"), block, BeginOptions(level=9))
        session.commit(transaction)
        transmitting = session.transactions.lane
        assert transmitting is not None
        transmission = Side("transmission")
        header = Scribe("session").write(Kind.TRANSACTION, transmission.address, identifier("a"))
        transmission.take(header, transmitting.bodies[-1])
        (sent,) = transmission.outputs(block.home)
        envelope = sent.envelope
    assert (envelope.kind, envelope.sequence) == (Kind.BEGIN, 9)
