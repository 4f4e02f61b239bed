"""MOVE CONVERSATION to a group of another partition: one commit decides, a later one carries it out (section 7.2)."""

from __future__ import annotations

from unittest.mock import patch
from uuid import UUID

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.owner import relocations as moving
from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import Tick
from konverse.dialog.owner.relocations import LOOK_EVERY_MS, found_in
from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.owner.staging import Staging
from konverse.dialog.queries.standing import standing
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.transaction.received import GroupPlace
from konverse.schemas.errors import InvalidGroup, InvalidState, QueueFull
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.journal import CommitOperations
from konverse.schemas.wire.operations import Move, MoveAway, Relocate, Resume, Suspend
from tests.kit.builders import GROUP, Scribe, address_of, anything, conversations, identifier, log_of
from tests.kit.digests import digest
from tests.kit.driver import Driver
from tests.kit.moving import World, bodies, living
from tests.kit.staging import commit, finds, taken

ELSEWHERE = GroupPlace(address_of("orders", 1), "//sales/OrderService")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.lead()
    driver.arrive(*conversations("one", messages=2), *conversations("two", client=Scribe("another")))
    driver.commit()
    return driver


def staging_of(world: World, service: str | None = None) -> Staging:
    """Staging of the targets' first partition. Searched groups live in the second partition."""
    staging = Staging(world.target.state, anything, OwnerSettings())
    known = next(iter(world.target.state.live())).service if service is None else service
    finds(staging, lambda _: GroupPlace(world.second.address, known))
    return staging


def move_away(world: World, one: Endpoint, group: bytes = GROUP) -> None:
    world.target.commit(rare=[MoveAway(one.index, group, world.second.address)])


def moves_one(staging: Staging, world: World, group: bytes = GROUP) -> Endpoint:
    """A handler moves the next conversation to a group in another partition, and commits."""
    transaction = taken(staging)
    dialog = transaction.dialog
    transaction.receive(1)
    transaction.move(dialog, UUID(bytes=group))
    staging.finish(transaction)
    assert MoveAway(dialog.index, group, world.second.address) in commit(staging, world.target).rare
    return dialog


# --------------------------------------------------------------------------------------------------------- the moves


def test_a_conversation_that_moves_to_a_remote_group_is_received_with_it_behaviour_88(world: World) -> None:
    mate = world.receiver(world.begin("mate"))
    world.target.commit(rare=[Move(mate.index, GROUP)])
    world.target.commit(rare=[Relocate(mate.index, world.second.address, 0, 1)])
    world.settle()
    one = world.receiver(world.begin("one", messages=2))
    staging = staging_of(world)
    moves_one(staging, world)
    world.send(one.conversation, b"later")
    assert staging.take() is None
    assert commit(staging, world.target).rare == [Relocate(one.index, world.second.address, 0, 1)]
    world.send(one.conversation, b"last")
    world.settle()
    there = living(world.second, Role.TARGET, one.conversation)
    assert there.members == [living(world.second, Role.TARGET, mate.conversation), there]
    assert bodies(there) == [b"1", b"later", b"last"]
    assert (world.target.state.groups, world.target.state.moves.leaving) == ({}, {})


def test_an_order_that_waits_for_a_handler_comes_before_the_group_leaves(world: World) -> None:
    """The handler that an operator's SUSPEND waits for moves the conversation to a group elsewhere."""
    one = world.receiver(world.begin("one", messages=2))
    staging = staging_of(world)
    transaction = taken(staging)
    transaction.receive(1)
    transaction.move(one, UUID(bytes=GROUP))
    orders = staging.locks.orders
    orders.add(one, Suspend(one.index, "maintenance", ordered=True))
    staging.finish(transaction)
    commit(staging, world.target)
    assert orders.due
    assert staging.take() is None
    operations = CommitOperations()
    orders.fill(operations)
    world.target.commit(rare=operations.rare)
    orders.release()
    assert (one.suspended, one.held) == (True, True)
    assert commit(staging, world.target).rare == [], "a suspended conversation stays (M192)"
    resume = Resume(one.index)
    orders.add(one, resume)
    operations = CommitOperations()
    orders.fill(operations)
    assert operations.rare == [resume]
    world.target.commit(rare=operations.rare)
    orders.release()
    assert staging.take() is None
    commit(staging, world.target)
    world.settle()
    assert living(world.second, Role.TARGET, one.conversation).group_id == GROUP


def test_a_conversation_leaves_its_group_and_the_others_stay(world: World) -> None:
    one, two = world.receiver(world.begin("one")), world.receiver(world.begin("two"))
    world.target.commit(rare=[Move(one.index, two.group_id)])
    own, staging = two.group_id, staging_of(world)
    transaction = taken(staging)
    list(transaction)
    transaction.move(one, UUID(bytes=GROUP))
    staging.finish(transaction)
    commit(staging, world.target)
    assert (two.members, two.group_id, two.held) == ([two], own, False)
    assert (one.members, one.group_id, one.held) == ([one], GROUP, True)
    commit(staging, world.target)
    world.settle()
    assert living(world.second, Role.TARGET, one.conversation).group_id == GROUP


def test_a_conversation_that_arrives_after_its_group_is_gone_founds_it_again(world: World) -> None:
    one = world.receiver(world.begin("one", messages=2))
    staging = staging_of(world)
    moves_one(staging, world)
    commit(staging, world.target)
    world.settle()
    assert living(world.second, Role.TARGET, one.conversation).group_id == GROUP


def test_a_conversation_that_arrives_at_a_suspended_group_is_suspended_with_it(world: World) -> None:
    mate = world.receiver(world.begin("mate"))
    world.target.commit(rare=[Move(mate.index, GROUP)])
    world.target.commit(rare=[Relocate(mate.index, world.second.address, 0, 1)])
    world.settle()
    world.second.commit(
        rare=[Suspend(living(world.second, Role.TARGET, mate.conversation).index, "why", ordered=False)]
    )
    one = world.receiver(world.begin("one", messages=2))
    staging = staging_of(world)
    moves_one(staging, world)
    commit(staging, world.target)
    world.settle()
    assert living(world.second, Role.TARGET, one.conversation).suspended


def test_a_conversation_that_returns_to_its_own_group_joins_its_members_elsewhere(world: World) -> None:
    one, two = world.receiver(world.begin("one", messages=2)), world.receiver(world.begin("two"))
    own = one.group_id
    world.target.commit(rare=[Move(two.index, own)])
    world.target.commit(rare=[Move(one.index, GROUP)])
    world.target.commit(rare=[Relocate(two.index, world.second.address, 0, 1)])
    world.settle()
    staging = staging_of(world)
    transaction = staging.take_from(one, whole=True)
    assert transaction is not None
    transaction.receive(1)
    transaction.move(one, UUID(bytes=own))
    staging.finish(transaction)
    for _ in range(2):
        commit(staging, world.target)
    world.settle()
    mates = living(world.second, Role.TARGET, two.conversation).members
    assert [mate.conversation for mate in mates] == [two.conversation, one.conversation]


def test_a_conversation_that_returns_to_its_own_empty_group_founds_it(world: World) -> None:
    one = world.receiver(world.begin("one"))
    own = one.group_id
    world.target.commit(rare=[Move(one.index, GROUP)])
    staging = staging_of(world)
    finds(staging, lambda _: None)
    transaction = taken(staging)
    transaction.move(one, UUID(bytes=own))
    staging.finish(transaction)
    assert Move(one.index, own) in commit(staging, world.target).rare
    assert (one.group_id, one.members, one.held) == (own, [one], False)


def test_a_group_that_leaves_is_found_where_it_goes(world: World) -> None:
    one = world.receiver(world.begin("one"))
    found = found_in(world.target.state, one.group_id)
    assert found == (world.target.address, one.service)
    move_away(world, one)
    assert found_in(world.target.state, GROUP) == (world.second.address, one.service)
    assert found_in(world.second.state, GROUP) is None


def test_a_conversation_that_moves_to_an_arriving_group_founds_it_here(world: World) -> None:
    world.begin("one")
    staging = staging_of(world)
    service = world.target.state.live()[0].service
    finds(staging, lambda _: GroupPlace(world.target.address, service))
    transaction = taken(staging)
    dialog = transaction.dialog
    transaction.move(dialog, UUID(bytes=GROUP))
    staging.finish(transaction)
    assert Move(dialog.index, GROUP) in commit(staging, world.target).rare
    assert world.target.state.moves.leaving == {}


def test_a_move_to_the_own_group_is_restored_from_a_snapshot(world: World) -> None:
    one = world.receiver(world.begin("one"))
    own = one.group_id
    world.target.commit(rare=[Move(one.index, GROUP)])
    move_away(world, one, own)
    restored = Partition(log_of())
    restore(restored, b"".join(Freeze(world.target.state).pieces()))
    assert digest(restored) == digest(world.target.state)
    staging = Staging(restored, anything, OwnerSettings())
    staging.leaving.find()
    assert staging.merge()[0].rare == [Relocate(one.index, world.second.address, 0, 1)]


def test_a_conversation_that_joins_a_leaving_group_moves_with_it(world: World) -> None:
    one, two = world.receiver(world.begin("one")), world.receiver(world.begin("two"))
    move_away(world, one)
    world.target.commit(rare=[Move(two.index, GROUP)])
    staging = staging_of(world)
    staging.leaving.find()
    commit(staging, world.target)
    world.settle()
    assert living(world.second, Role.TARGET, two.conversation).members[1].conversation == two.conversation


def test_two_that_move_to_one_group_in_one_commit_leave_together(world: World) -> None:
    for name in ("one", "two"):
        world.begin(name)
    staging = staging_of(world)
    first, second = taken(staging), taken(staging)
    for transaction in (first, second):
        list(transaction)
        transaction.move(transaction.dialog, UUID(bytes=GROUP))
        staging.finish(transaction)
    commit(staging, world.target)
    assert staging.take() is None
    assert [type(operation) for operation in commit(staging, world.target).rare] == [Relocate, Relocate]
    assert not staging.waiting


def test_a_handler_that_fails_moves_nothing(world: World) -> None:
    one = world.receiver(world.begin("one"))
    staging = staging_of(world)
    transaction = taken(staging)
    transaction.move(one, UUID(bytes=GROUP))
    staging.roll_back(transaction)
    assert staging.merge()[0].rare == []
    assert (taken(staging).dialog, one.group_id) == (one, transaction.dialog.group_id)


# ----------------------------------------------------------------------------------------------------------- refusals


def test_a_group_elsewhere_of_another_service_is_refused_behaviour_89(world: World) -> None:
    world.begin("one")
    transaction = taken(staging_of(world, "//sales/Another"))
    with pytest.raises(InvalidGroup, match="another service") as refused:
        transaction.move(transaction.dialog, UUID(bytes=GROUP))
    assert refused.value.number == 8439


@pytest.mark.parametrize(
    ("bound", "value", "error"),
    [
        ("RELOCATION_HOPS_MAX", 0, InvalidState),
        ("STUB_ENTRIES_MAX", 0, QueueFull),
        ("INSTALL_BYTES_MAX", 1, InvalidState),
    ],
)
def test_moving_a_conversation_that_cannot_leave_its_partition_is_refused(
    world: World, bound: str, value: int, error: type[Exception]
) -> None:
    world.begin("one")
    transaction = taken(staging_of(world))
    with patch.object(moving, bound, value), pytest.raises(error):
        transaction.move(transaction.dialog, UUID(bytes=GROUP))
    assert transaction.idle


# ------------------------------------------------------------------------------------------------- events in between


def test_a_group_that_leaves_is_state(world: World) -> None:
    one = world.receiver(world.begin("one"))
    world.target.commit(rare=[Move(one.index, GROUP)])
    before = digest(world.target.state)
    move_away(world, one)
    assert digest(world.target.state) != before
    restored = Partition(log_of())
    restore(restored, b"".join(Freeze(world.target.state).pieces()))
    assert digest(restored) == digest(world.target.state)
    assert restored.moves.leaving == {GROUP: world.second.address}


def test_the_next_owner_completes_the_move(driver: Driver) -> None:
    finds(driver.owner.staging, lambda _: ELSEWHERE._replace(service=driver.state.live()[0].service))
    transaction = driver.owner.take()
    assert transaction is not None
    list(transaction)
    transaction.move(transaction.dialog, UUID(bytes=GROUP))
    driver.owner.finish(transaction)
    driver.commit()
    assert GROUP in driver.state.moves.leaving
    next_one = Driver(driver.journal, driver.data, "next")
    next_one.lead()
    assert next_one.owner.staging.moving
    effects = next_one.commit()
    assert [effect.address for effect in effects if isinstance(effect, Emit)] == [ELSEWHERE.address]
    assert next_one.state.endpoint(Role.TARGET, identifier("one")) is None
    assert next_one.state.moves.leaving == {}


def test_a_conversation_that_cannot_leave_continues_in_place_until_it_can(driver: Driver) -> None:
    one = driver.state.endpoint(Role.TARGET, identifier("one"))
    assert one is not None
    with patch.object(moving, "STUB_ENTRIES_MAX", 0):
        finds(driver.owner.staging, lambda _: ELSEWHERE._replace(service=one.service))
        transaction = driver.owner.take(one)
        assert transaction is not None
        transaction.receive(1)
        with patch.object(moving, "STUB_ENTRIES_MAX", 9):
            transaction.move(one, UUID(bytes=GROUP))
        driver.owner.finish(transaction)
        driver.commit()
        again = driver.owner.take(one)
        assert again is not None
        assert [message.body for message in again] == [b"1"]
        driver.owner.finish(again)
        driver.commit()
    assert GROUP in driver.state.moves.leaving
    driver.now_ms += LOOK_EVERY_MS
    append, *_ = driver.owner.step(Tick(), driver.now_ms)
    driver.acknowledge(append)
    assert driver.state.endpoint(Role.TARGET, identifier("one")) is None


def test_the_end_of_a_conversation_that_leaves_is_the_end_of_its_going(world: World) -> None:
    one = world.receiver(world.begin("one", messages=2))
    staging = staging_of(world)
    moves_one(staging, world)
    world.target.end(one)
    world.end_call(one.conversation)
    world.home.deliver(world.target)
    assert world.target.state.moves.leaving == {}
    assert commit(staging, world.target).rare == []


def test_why_says_that_it_is_about_to_move(world: World) -> None:
    one = world.receiver(world.begin("one"))
    move_away(world, one)
    assert any("about to move to second/0" in sentence for sentence in standing(world.target.state, one))
