"""A group that moves is locked, and leaves with the next commit if it still can."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from konverse.dialog.owner import relocations as moving
from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import Append, Tick
from konverse.dialog.state.endpoint import Endpoint
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import (
    COMMIT_BYTES_MAX,
    COMMIT_BYTES_TARGET,
    COMMIT_MOVE_ENTRIES_MAX,
    QUEUE_PARTITIONS_MAX,
    RELOCATION_HOPS_MAX,
    TOPIC_NAME_LENGTH_MAX,
    TRANSACTION_BYTES_MAX,
)
from konverse.schemas.wire.journal import Commit, CommitOperations, encode_commit
from konverse.schemas.wire.operations import Relocate
from tests.kit.builders import GROUP, Row, Scribe, address_of, begin_block, conversations, identifier, record
from tests.kit.driver import Driver
from tests.kit.moving import send_away

ELSEWHERE = address_of("elsewhere")
HERE = address_of("orders")


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.lead()
    driver.arrive(*conversations("first", messages=2), *conversations("second", client=Scribe("another")))
    driver.commit()
    return driver


def endpoint_of(driver: Driver, name: str, role: Role = Role.TARGET) -> Endpoint:
    endpoint = driver.state.endpoint(role, identifier(name))
    assert endpoint is not None
    return endpoint


def test_the_next_commit_moves_the_endpoint(driver: Driver) -> None:
    assert send_away(driver.owner, endpoint_of(driver, "first"), ELSEWHERE)
    effects = driver.commit()
    assert driver.state.endpoint(Role.TARGET, identifier("first")) is None
    assert [effect.address for effect in effects if isinstance(effect, Emit)] == [ELSEWHERE]
    assert driver.owner.commit(0) == [], "and that was all"


def test_an_endpoint_that_will_move_is_not_handed_out(driver: Driver) -> None:
    assert send_away(driver.owner, endpoint_of(driver, "first"), ELSEWHERE)
    transaction = driver.owner.take()
    assert transaction is not None
    assert transaction.dialog.conversation == identifier("second")
    assert driver.owner.take() is None


def stays(driver: Driver, endpoint: Endpoint) -> bool:
    """Whether the endpoint cannot move, and nothing is written about it."""
    return not driver.owner.staging.moving.take_along(endpoint, ELSEWHERE) and driver.owner.commit(0) == []


def test_an_endpoint_that_a_transaction_holds_is_not_moved(driver: Driver) -> None:
    transaction = driver.owner.take()
    assert transaction is not None
    assert stays(driver, transaction.dialog)
    driver.owner.staging.roll_back(transaction)
    assert send_away(driver.owner, transaction.dialog, ELSEWHERE)


def test_a_suspended_endpoint_is_not_moved(driver: Driver) -> None:
    first = endpoint_of(driver, "first")
    driver.state.attempts.count(first)
    driver.state.attempts.suspend(first, "why", 0)
    assert stays(driver, first)


@pytest.mark.parametrize("bound", ["RELOCATION_HOPS_MAX", "STUB_ENTRIES_MAX", "INSTALL_BYTES_MAX"])
def test_moves_are_bounded(driver: Driver, bound: str) -> None:
    with patch.object(moving, bound, 0):
        assert stays(driver, endpoint_of(driver, "first"))


def begun(name: str, group: bytes) -> Row:
    block = begin_block(home="orders", target="replies", group=group)
    return Scribe(name).begin(identifier(name), block), record()


def test_an_endpoint_that_is_over_before_the_commit_does_not_move(driver: Driver) -> None:
    first = endpoint_of(driver, "first")
    assert send_away(driver.owner, first, ELSEWHERE)
    driver.state.forget(first)
    (append,) = driver.owner.commit(0)
    driver.acknowledge(append)
    assert ELSEWHERE not in driver.state.streams


def test_a_move_does_not_wait_for_anything_else(driver: Driver) -> None:
    assert send_away(driver.owner, endpoint_of(driver, "first"), ELSEWHERE)
    (append,) = driver.step(Tick())
    assert isinstance(append, Append)


def moved_by(driver: Driver) -> list[int]:
    """Number of endpoints that each commit moves, until one moves none."""
    moved: list[int] = []
    while found := driver.owner.staging.moving.operations():
        moved.append(len(found))
    return moved


def test_a_commit_moves_a_limited_number_of_endpoints_and_the_next_commit_moves_the_rest(driver: Driver) -> None:
    driver.arrive(begun("one", GROUP), begun("two", GROUP))
    driver.commit()
    moves = driver.owner.staging.moving
    for name, role in ("one", Role.INITIATOR), ("first", Role.TARGET), ("second", Role.TARGET):
        assert moves.take_along(endpoint_of(driver, name, role), ELSEWHERE)
    with patch.object(moving, "COMMIT_MOVE_ENTRIES_MAX", 2):
        assert moved_by(driver) == [2, 2]


def test_a_group_of_more_than_one_commit_moves_stays_and_is_handed_out(driver: Driver) -> None:
    driver.arrive(begun("one", GROUP), begun("two", GROUP))
    driver.commit()
    one = endpoint_of(driver, "one", Role.INITIATOR)
    with patch.object(moving, "COMMIT_MOVE_ENTRIES_MAX", 1):
        assert not driver.owner.staging.moving.take_along(one, ELSEWHERE)
    assert not one.held


def test_no_more_endpoints_leave_than_stubs_are_kept(driver: Driver) -> None:
    """Members of a requested group count one by one."""
    driver.arrive(begun("one", GROUP), begun("two", GROUP))
    driver.commit()
    moves, first = driver.owner.staging.moving, endpoint_of(driver, "first")
    with patch.object(moving, "STUB_ENTRIES_MAX", 2):
        assert moves.take_along(endpoint_of(driver, "one", Role.INITIATOR), ELSEWHERE)
        with patch.object(moving, "STUB_ENTRIES_MAX", 3):
            assert moves.take_along(first, ELSEWHERE)
        assert moved_by(driver) == [2]
    assert not first.held


def test_the_largest_commit_has_room_for_moves_to_the_longest_name() -> None:
    operations = CommitOperations()
    longest = Address("q" * TOPIC_NAME_LENGTH_MAX, QUEUE_PARTITIONS_MAX, b"tag!")
    operations.rare += [
        Relocate(1_000_000 + n, longest, RELOCATION_HOPS_MAX, 32) for n in range(COMMIT_MOVE_ENTRIES_MAX)
    ]
    size = len(encode_commit(Commit(1, b"o" * 16, 1, b"h" * 32, 1, operations, [], [])))
    assert COMMIT_BYTES_TARGET + TRANSACTION_BYTES_MAX + size < COMMIT_BYTES_MAX
