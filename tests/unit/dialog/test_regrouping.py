"""MOVE CONVERSATION: in the fold, in the staging, and at an owner (protocol.md section 7.2)."""

from __future__ import annotations

from uuid import UUID

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.owner.staging import Staging
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.schemas.errors import BadInput, GroupLocked, InvalidGroup, MoveRefused, PartitionHalted
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.operations import Attempt, Move, Suspend, Try
from tests.kit.builders import GROUP, Pair, Scribe, Side, anything, begin_block, conversations, identifier, log_of
from tests.kit.digests import digest
from tests.kit.driver import Driver
from tests.kit.moving import World
from tests.kit.moving import move as relocated
from tests.kit.staging import commit, finds, taken
from tests.kit.trials import endpoint, said, suspended


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.lead()
    return driver


def staging_of(side: Side) -> Staging:
    return finds(Staging(side.state, anything, OwnerSettings()))


def group_of(endpoint: Endpoint) -> UUID:
    return UUID(bytes=endpoint.group_id)


def move(side: Side, endpoint: Endpoint, group: bytes) -> None:
    side.commit(rare=[Move(endpoint.index, group)])


def two_lone(pair: Pair) -> tuple[Endpoint, Endpoint]:
    """Two unrelated targets with a message each."""
    return pair.receiver(pair.begin("one")), pair.receiver(pair.begin("two"))


# ---------------------------------------------------------------------------------------------------------- the fold


def test_waiting_and_later_messages_are_received_with_the_new_group_behaviour_88(pair: Pair) -> None:
    one, two = two_lone(pair)
    move(pair.target, one, two.group_id)
    pair.send(one.conversation, b"later")
    staging = staging_of(pair.target)
    transaction = taken(staging)
    assert transaction.dialogs == [two, one]
    assert [message.body for message in transaction] == [b"0", b"0", b"later"]
    assert staging.take() is None


def test_a_group_that_everybody_has_left_is_no_more(pair: Pair) -> None:
    one, two = pair.answered("one", "two")
    move(pair.home, one, one.conversation)
    move(pair.home, two, two.conversation)
    assert (one.group, two.group, pair.home.state.groups) == (None, None, {})


def test_a_founder_that_left_its_group_is_not_put_back_when_others_join(pair: Pair) -> None:
    one, two = two_lone(pair)
    own = one.group_id
    move(pair.target, one, two.group_id)
    move(pair.target, two, own)
    assert (one.members, two.members) == ([one], [two])
    move(pair.target, one, own)
    assert one.members == [two, one]


def test_a_conversation_can_join_the_private_group_of_another(pair: Pair) -> None:
    one, two = two_lone(pair)
    move(pair.target, one, two.group_id)
    assert two.members == [two, one]
    assert group_of(one) == group_of(two)


def test_a_move_is_state(pair: Pair) -> None:
    one, two = two_lone(pair)
    before = digest(pair.target.state)
    move(pair.target, one, two.group_id)
    assert digest(pair.target.state) != before
    restored = Partition(log_of())
    restore(restored, b"".join(Freeze(pair.target.state).pieces()))
    assert digest(restored) == digest(pair.target.state)
    assert [member.conversation for member in restored.live()[0].members] == [two.conversation, one.conversation]


def test_the_view_learns_of_a_move(pair: Pair) -> None:
    one, two = two_lone(pair)
    pair.target.state.discard_hints()
    move(pair.target, one, two.group_id)
    assert pair.target.state.changed == [one]


def test_a_move_of_a_nonexistent_endpoint_halts_the_partition(pair: Pair) -> None:
    with pytest.raises(PartitionHalted, match="moves endpoint 7"):
        pair.target.commit(rare=[Move(7, GROUP)])


def test_a_target_takes_its_group_along_to_another_partition() -> None:
    world = World()
    one = world.receiver(world.begin("one"))
    move(world.target, one, GROUP)
    assert relocated(world, world.target, one, world.second).group_id == GROUP


# ------------------------------------------------------------------------------------------------------------- locks


def test_both_groups_are_locked_until_the_commit_behaviour_90(pair: Pair) -> None:
    one, two = two_lone(pair)
    staging = staging_of(pair.target)
    transaction = taken(staging)
    list(transaction)
    transaction.move(one, group_of(two))
    assert staging.take() is None
    staging.finish(transaction)
    assert staging.take() is None
    operations = commit(staging, pair.target)
    assert operations.rare == [Move(one.index, two.group_id)]
    assert taken(staging).dialogs == [two, one]


def test_remaining_members_of_a_group_are_unlocked_too(pair: Pair) -> None:
    one, two = pair.answered("one", "two", messages=2)
    other = pair.begin("other")
    staging = staging_of(pair.home)
    transaction = taken(staging)
    transaction.move(one, UUID(bytes=other))
    staging.finish(transaction)
    commit(staging, pair.home)
    assert {taken(staging).dialog, taken(staging).dialog} == {one, two}


def test_a_conversation_that_joins_a_locked_group_which_its_founder_leaves_is_let_go(pair: Pair) -> None:
    founder = pair.begin("founder")
    other = pair.begin("other")
    pair.target.send(pair.receiver(founder), b"reply")
    pair.target.deliver(pair.home)
    staging = staging_of(pair.home)
    transaction = taken(staging)
    transaction.move(pair.initiator(founder), UUID(bytes=other))
    related = pair.initiator(pair.begin("related", group=founder))
    assert related.held
    staging.finish(transaction)
    commit(staging, pair.home)
    assert not related.held
    assert related.members == [related]


def test_a_dialog_begun_in_a_group_that_its_transaction_leaves_is_unlocked(pair: Pair) -> None:
    one, two = two_lone(pair)
    staging = staging_of(pair.target)
    block = begin_block(from_service=one.service, home="orders", target="replies", group=one.group_id)
    staging.context.begin = lambda _: (identifier("begun"), block)
    transaction = taken(staging)
    begun = transaction.begin(one.service, "//far", related_to=one)
    transaction.move(one, group_of(two))
    staging.finish(transaction)
    commit(staging, pair.target)
    lives = pair.target.state.endpoint(Role.INITIATOR, begun.conversation)
    assert lives is not None
    assert (lives.held, lives.group_id, one.group_id) == (False, begun.group_id, two.group_id)


@pytest.mark.parametrize("comes_back", ["rolled back", "finished without it"])
def test_a_group_is_let_go_when_nothing_moves_there(pair: Pair, comes_back: str) -> None:
    one, two = two_lone(pair)
    staging = staging_of(pair.target)
    transaction = taken(staging)
    transaction.move(one, group_of(two))
    if comes_back == "rolled back":
        staging.roll_back(transaction)
    else:
        transaction.move(one, group_of(one))
        assert transaction.moves == []
        list(transaction)
        staging.finish(transaction)
        commit(staging, pair.target)
    assert not two.held
    assert one.members == [one]


def test_ending_a_conversation_cancels_its_move_and_refuses_another(pair: Pair) -> None:
    one, two = two_lone(pair)
    staging = staging_of(pair.target)
    transaction = taken(staging)
    transaction.move(one, group_of(two))
    assert transaction.group_of(one) == two.group_id
    transaction.end(one)
    assert transaction.moves == []
    with pytest.raises(MoveRefused) as refused:
        transaction.move(one, group_of(two))
    assert refused.value.number == 8438


def test_the_last_move_rules(pair: Pair) -> None:
    one, two = two_lone(pair)
    three = pair.receiver(pair.begin("three"))
    staging = staging_of(pair.target)
    transaction = taken(staging)
    transaction.move(one, group_of(two))
    transaction.move(one, group_of(three))
    assert transaction.moves == [Move(one.index, three.group_id)]
    staging.finish(transaction)
    commit(staging, pair.target)
    assert (two.held, three.members) == (False, [three, one])


def test_a_move_to_an_empty_group_or_a_group_of_another_service_is_refused_behaviour_89(pair: Pair) -> None:
    one = pair.receiver(pair.begin("one"))
    foreign = pair.receiver(pair.begin("two", to_service="//another"))
    transaction = taken(staging_of(pair.target))
    for group in (UUID(int=7), group_of(foreign)):
        with pytest.raises(InvalidGroup) as refused:
            transaction.move(one, group)
        assert refused.value.number == 8439
    with pytest.raises(BadInput, match="a UUID"):
        transaction.move(one, one.group_id)  # type: ignore[arg-type]
    assert not foreign.held


def test_moving_to_a_group_locked_by_another_transaction_raises_group_locked(pair: Pair) -> None:
    one, two = two_lone(pair)
    staging = staging_of(pair.target)
    transaction, other = taken(staging), taken(staging)
    with pytest.raises(GroupLocked) as locked:
        transaction.move(one, group_of(two))
    assert (locked.value.number, locked.value.retriable) == (1222, True)
    list(other)
    staging.finish(other)
    commit(staging, pair.target)
    transaction.move(one, group_of(two))


def test_a_group_that_went_and_came_again_meanwhile_is_another_ones(pair: Pair) -> None:
    one, two = two_lone(pair)
    group = two.group_id
    staging = staging_of(pair.target)
    transaction = taken(staging)
    list(transaction)
    transaction.move(one, UUID(bytes=group))
    two.held = False
    three = pair.receiver(pair.begin("three"))
    move(pair.target, two, identifier("elsewhere"))
    move(pair.target, three, group)
    three.held = True  # by another transaction
    staging.finish(transaction)
    assert commit(staging, pair.target).rare == []
    assert (len(staging.overtaken), three.held, one.held) == (1, True, False)


# ---------------------------------------------------------------------------------------------------------- at an owner


def test_a_group_that_steps_back_is_handed_out_again_later_without_a_counted_attempt(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    one, other = driver.owner.take(), driver.owner.take()
    assert one is not None
    assert other is not None
    with pytest.raises(GroupLocked):
        one.move(one.dialog, group_of(other.dialog))
    assert one.more is not None
    one.more.steps_back = True
    driver.owner.trial.fail(one)
    assert not one.dialog.held
    assert driver.owner.trial.resting
    other.move(other.dialog, group_of(one.dialog))  # the handler that goes on gets it
    list(other)
    driver.owner.finish(other)
    driver.commit()
    assert not [operation for operation in said(driver) if isinstance(operation, Attempt)]
    driver.now_ms += 50
    driver.owner.trial.tick(driver.now_ms)
    again = driver.owner.take()
    assert again is not None
    assert set(again.dialogs) == {one.dialog, other.dialog}
    assert driver.owner.take() is None


def test_nothing_moves_to_a_suspended_group(driver: Driver) -> None:
    suspended(driver)
    driver.arrive(*conversations("b", client=Scribe("another")))
    transaction = driver.owner.take()
    assert transaction is not None
    with pytest.raises(MoveRefused, match="is suspended"):
        transaction.move(transaction.dialog, group_of(endpoint(driver, "a")))


def test_after_a_crash_a_group_that_waits_is_tried_first() -> None:
    before = Driver()
    before.lead()
    before.arrive(*conversations("a", "b"))
    before.commit()
    after = Driver(before.journal, before.data, claim="another")
    after.lead()
    after.try_groups()
    one = after.owner.take()
    assert one is not None
    other = next(each for each in after.state.live() if each is not one.dialog)
    with pytest.raises(GroupLocked):
        one.move(one.dialog, group_of(other))
    assert Try([0, 1]) in said(after)


def test_attempts_go_with_the_conversation(pair: Pair) -> None:
    one, two = two_lone(pair)
    for _ in range(5):
        pair.target.commit(rare=[Attempt([one.index])])
    move(pair.target, one, two.group_id)
    pair.target.commit(rare=[Suspend(one.index, "why", ordered=False)])
    assert (two.suspended, one.suspended) == (True, True)


def test_a_group_that_is_let_go_is_ready_once_for_each_of_its_members(pair: Pair) -> None:
    founder = pair.begin("founder")
    members = [founder, *(pair.begin(name, group=founder) for name in ("second", "third", "fourth"))]
    lone = pair.begin("lone")
    for one in (*members, lone):
        pair.target.send(pair.receiver(one), b"reply")
    pair.target.deliver(pair.home)
    staging = staging_of(pair.home)
    transaction = staging.take_from(pair.initiator(lone), whole=True)
    assert transaction is not None
    staging.state.ready.clear()
    transaction.move(pair.initiator(lone), UUID(bytes=founder))
    staging.roll_back(transaction)
    assert len(staging.state.ready) == len(members) + 1
