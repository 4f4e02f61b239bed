"""Conversations follow a service that moved to another queue (behaviour 19)."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from konverse.dialog.owner import relocations as moving
from konverse.dialog.owner.events import Append
from konverse.dialog.rules.relocation import moved_of
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.relocations import Arrival
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.journal import Commit
from konverse.schemas.wire.journal import decode as decode_journal
from konverse.schemas.wire.moved import Moved
from konverse.schemas.wire.operations import Relocate, Resume
from tests.kit.builders import GROUP, Row, Scribe, address_of, begin_block, conversations, identifier, record
from tests.kit.driver import Driver

ELSEWHERE = address_of("elsewhere")
SERVICE = begin_block().to_service


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.lead()
    driver.arrive(*conversations("first", messages=2), *conversations("second", client=Scribe("another")))
    driver.commit()
    return driver


def to_elsewhere(_group: bytes) -> Address:
    return ELSEWHERE


def alter(driver: Driver, service: str = SERVICE) -> None:
    driver.owner.staging.altering.find({service: to_elsewhere}, {**driver.state.moves.arrivals})


def moved(driver: Driver) -> list[int]:
    """The endpoints that the next commit moves; the commit counts."""
    effects = driver.owner.commit(0)
    if not effects:
        return []
    (append,) = effects
    assert isinstance(append, Append)
    commit = decode_journal(append.records[0])
    assert isinstance(commit, Commit)
    driver.acknowledge(append)
    return [operation.endpoint for operation in commit.operations.rare if isinstance(operation, Relocate)]


def endpoint_of(driver: Driver, name: str, role: Role = Role.TARGET) -> Endpoint:
    endpoint = driver.state.endpoint(role, identifier(name))
    assert endpoint is not None
    return endpoint


def begun(name: str, **options: bytes) -> Row:
    block = begin_block(home="orders", target="replies", **options)
    return Scribe(name).begin(identifier(name), block), record()


def test_the_conversations_of_the_service_follow_it(driver: Driver) -> None:
    driver.arrive(begun("of another service"))
    driver.commit()
    alter(driver)
    assert driver.owner.take() is None
    assert len(moved(driver)) == 2
    assert [one.conversation for one in driver.state.live()] == [identifier("of another service")]
    assert moved(driver) == [], "and that was all"


def test_a_conversation_in_a_handler_follows_its_service_after_the_handler(driver: Driver) -> None:
    transaction, second = driver.owner.take(), endpoint_of(driver, "second")
    assert transaction is not None
    alter(driver)
    assert moved(driver) == [second.index]
    driver.owner.staging.roll_back(transaction)
    assert driver.owner.take() is None
    assert moved(driver) == [transaction.dialog.index]


def test_nothing_that_can_follow_is_handed_out(driver: Driver) -> None:
    """Including messages that came since the last look, and conversations requested by id."""
    alter(driver)
    assert len(moved(driver)) == 2
    driver.arrive(*conversations("third", "fourth", client=Scribe("late")))
    assert driver.owner.take(endpoint_of(driver, "third")) is None
    assert driver.owner.take() is None
    assert len(moved(driver)) == 2


@pytest.mark.parametrize("bound", ["RELOCATION_HOPS_MAX", "STUB_ENTRIES_MAX", "INSTALL_BYTES_MAX"])
def test_conversations_that_cannot_move_continue_in_their_old_partition(driver: Driver, bound: str) -> None:
    with patch.object(moving, bound, 0):
        alter(driver)
        assert driver.owner.take() is not None
        assert moved(driver) == []


def test_conversations_that_grow_too_large_to_move_are_handled_in_place(driver: Driver) -> None:
    alter(driver)
    with patch.object(moving, "INSTALL_BYTES_MAX", 0):
        assert moved(driver) == []
        assert driver.owner.take() is not None


def test_a_full_outbox_is_waited_for(driver: Driver) -> None:
    alter(driver)
    with patch.object(moving, "OUTBOX_RECORDS_MAX", 0):
        assert moved(driver) == []
        assert driver.owner.take() is None
    assert len(moved(driver)) == 2


def test_so_many_groups_move_with_one_commit(driver: Driver) -> None:
    alter(driver)
    with patch.object(moving, "COMMIT_MOVE_ENTRIES_MAX", 1):
        assert len(moved(driver)) == 1
        assert len(moved(driver)) == 1


def test_a_group_follows_its_service_together_with_conversations_that_join_it_during_the_move(driver: Driver) -> None:
    driver.arrive(begun("one", group=GROUP), begun("two", group=GROUP))
    driver.commit()
    alter(driver, begin_block().from_service)
    driver.arrive(begun("three", group=GROUP))
    assert len(moved(driver)) == 3
    assert driver.state.groups == {}


def test_a_group_of_several_services_stays(driver: Driver) -> None:
    driver.arrive(begun("one", group=GROUP), begun("two", group=GROUP))
    driver.commit()
    one = endpoint_of(driver, "one", Role.INITIATOR)
    one.terms = driver.state.terms_of("another service", one.far_service, one.contract)
    alter(driver, begin_block().from_service)
    assert moved(driver) == []


def test_a_suspended_conversation_follows_its_service_when_it_is_resumed(driver: Driver) -> None:
    first, second = endpoint_of(driver, "first"), endpoint_of(driver, "second")
    driver.state.attempts.suspend(first, "why", 0)
    alter(driver)
    assert moved(driver) == [second.index]
    driver.owner.trial.order(first, Resume(first.index))
    assert moved(driver) == []
    assert driver.owner.take() is None
    assert moved(driver) == [first.index]


def test_failures_are_forgotten_when_the_service_moves_to_another_queue(driver: Driver) -> None:
    first = endpoint_of(driver, "first")
    driver.state.attempts.count(first)
    driver.state.attempts.careful = True
    alter(driver)
    assert len(moved(driver)) == 2
    assert driver.state.attempts.troubled == {}


def test_a_service_that_comes_back_is_received_here_again(driver: Driver) -> None:
    alter(driver)
    driver.owner.staging.altering.find({}, {})
    assert len(moved(driver)) == 2, "what was locked goes, and is sent back"
    driver.arrive(*conversations("third", client=Scribe("late")))
    assert driver.owner.take() is not None


def test_a_conversation_from_another_partition_stays_until_the_catalog_is_read_again(driver: Driver) -> None:
    alter(driver)
    moved(driver)
    driver.arrive(*conversations("third", client=Scribe("late")))
    third = endpoint_of(driver, "third")
    driver.state.moves.arrivals[third.index] = Arrival(1, ELSEWHERE, ELSEWHERE)
    transaction = driver.owner.take()
    assert transaction is not None
    assert transaction.dialog is third, "whoever sent it here may know better"
    driver.owner.staging.roll_back(transaction)
    alter(driver)
    assert driver.owner.take() is None
    assert moved(driver) == [third.index]


def test_a_conversation_too_large_to_move_is_packed_again_only_after_more_of_it_was_received(driver: Driver) -> None:
    driver.arrive(*conversations("large", messages=2 * moving.AGAIN_PART, client=Scribe("late")))
    packed: list[Endpoint] = []

    def pack(state: Partition, endpoint: Endpoint) -> Moved:
        packed.append(endpoint)
        return moved_of(state, endpoint)

    large = endpoint_of(driver, "large")
    with patch.object(moving, "INSTALL_BYTES_MAX", 0), patch.object(moving, "moved_of", pack):
        alter(driver)
        for _ in range(3):
            transaction = driver.owner.take(large)
            assert transaction is not None
            driver.owner.staging.roll_back(transaction)
        alter(driver)
        assert packed.count(large) == 1
        for left in (31, 30, 29):
            transaction = driver.owner.take(large)
            assert transaction is not None
            next(iter(transaction))
            driver.owner.finish(transaction)
            driver.commit()
            assert len(large.queue) == left
        assert packed.count(large) == 2
    while driver.owner.take(large) is not None:
        pass
    assert large.index in moved(driver)
    driver.state.forget(endpoint_of(driver, "first"))
    alter(driver)
    assert {one.conversation for one in driver.owner.staging.moving._too_large} <= {identifier("second")}
