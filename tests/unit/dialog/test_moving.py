"""An owner is asked to move an endpoint: it is locked, and the next commit moves it if that is still possible."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from konverse.dialog.owner import relocations as moving
from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import Append, Tick
from konverse.dialog.state.endpoint import Endpoint
from konverse.schemas.errors import BadInput, DialogNotFound, InvalidState, KonverseError, QueueFull
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import (
    COMMIT_BYTES_MAX,
    COMMIT_BYTES_TARGET,
    COMMIT_MOVE_ENTRIES_MAX,
    QUEUE_PARTITIONS_MAX,
    RELOCATION_HOPS_MAX,
    TOPIC_NAME_LENGTH_MAX,
    TRANSACTION_BYTES_MAX,
    UNCOMMITTED_MS_MAX,
)
from konverse.schemas.wire.journal import Commit, Operations, encode_commit
from konverse.schemas.wire.operations import Relocate
from konverse.schemas.wire.records import End, Kind
from tests.kit.builders import GROUP, Row, Scribe, address_of, begin_block, conversations, identifier, record
from tests.kit.driver import Driver

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
    driver.owner.relocate(endpoint_of(driver, "first"), ELSEWHERE, 0)
    effects = driver.commit()
    assert driver.state.endpoint(Role.TARGET, identifier("first")) is None
    assert [effect.address for effect in effects if isinstance(effect, Emit)] == [ELSEWHERE]
    assert driver.owner.commit(0) == [], "and that was all"


def test_an_endpoint_that_will_move_is_not_handed_out(driver: Driver) -> None:
    driver.owner.relocate(endpoint_of(driver, "first"), ELSEWHERE, 0)
    transaction = driver.owner.take()
    assert transaction is not None
    assert transaction.dialog.conversation == identifier("second")
    assert driver.owner.take() is None


def refused(driver: Driver, endpoint: Endpoint, error: type[KonverseError], text: str) -> None:
    with pytest.raises(error, match=text):
        driver.owner.relocate(endpoint, ELSEWHERE, 0)
    assert driver.owner.commit(0) == [], "nothing was written"


def test_an_endpoint_that_a_transaction_holds_is_not_moved(driver: Driver) -> None:
    transaction = driver.owner.take()
    assert transaction is not None
    refused(driver, transaction.dialog, InvalidState, "a transaction holds")
    driver.owner.staging.roll_back(transaction)
    driver.owner.relocate(transaction.dialog, ELSEWHERE, 0)


def test_an_endpoint_is_not_moved_to_where_it_lives(driver: Driver) -> None:
    with pytest.raises(BadInput, match="lives in orders/0"):
        driver.owner.relocate(endpoint_of(driver, "first"), HERE, 0)


def test_an_endpoint_that_is_gone_is_not_moved(driver: Driver) -> None:
    endpoint = endpoint_of(driver, "first")
    driver.owner.relocate(endpoint, ELSEWHERE, 0)
    driver.commit()
    refused(driver, endpoint, DialogNotFound, "lives elsewhere")


def test_an_endpoint_that_failed_or_is_suspended_is_not_moved(driver: Driver) -> None:
    first = endpoint_of(driver, "first")
    driver.state.attempts.count(first)
    refused(driver, first, InvalidState, "has failed 1 times")
    driver.state.attempts.suspend(first, "why", 0)
    refused(driver, first, InvalidState, "it is suspended")


def test_nothing_is_moved_before_everything_that_a_dead_owner_may_have_had_was_tried(driver: Driver) -> None:
    driver.state.attempts.careful = True
    refused(driver, endpoint_of(driver, "first"), InvalidState, "had this partition before died")


@pytest.mark.parametrize(
    ("bound", "error", "text"),
    [
        ("RELOCATION_HOPS_MAX", InvalidState, "has moved 0 times"),
        ("STUB_ENTRIES_MAX", QueueFull, "have moved away"),
        ("INSTALL_BYTES_MAX", InvalidState, "receive some"),
    ],
)
def test_moves_are_bounded(driver: Driver, bound: str, error: type[KonverseError], text: str) -> None:
    with patch.object(moving, bound, 0):
        refused(driver, endpoint_of(driver, "first"), error, text)


def begun(name: str, group: bytes) -> Row:
    block = begin_block(home="orders", target="replies", group=group)
    return Scribe(name).begin(identifier(name), block), record()


def test_a_member_of_a_group_of_several_is_not_moved(driver: Driver) -> None:
    driver.arrive(begun("one", GROUP), begun("two", GROUP))
    driver.commit()
    refused(driver, endpoint_of(driver, "one", Role.INITIATOR), InvalidState, "a group of several")


def test_an_endpoint_whose_group_grows_meanwhile_stays_and_is_handed_out(driver: Driver) -> None:
    driver.arrive(begun("one", GROUP))
    driver.commit()
    one = endpoint_of(driver, "one", Role.INITIATOR)
    driver.owner.relocate(one, ELSEWHERE, 0)
    owner = Scribe("its target")
    driver.arrive(begun("two", GROUP), (owner.message(HERE, one.conversation, role=Role.TARGET), record(b"for one")))
    driver.commit()
    assert driver.state.endpoint(Role.INITIATOR, one.conversation) is one
    assert not any(member.held for member in one.members)
    assert one in driver.state.ready


def test_an_endpoint_that_is_over_before_the_commit_does_not_move(driver: Driver) -> None:
    first = endpoint_of(driver, "first")
    driver.owner.relocate(first, ELSEWHERE, 0)
    driver.state.forget(first)
    (append,) = driver.owner.commit(0)
    driver.acknowledge(append)
    assert ELSEWHERE not in driver.state.streams


def test_a_move_waits_no_longer_than_it_may(driver: Driver) -> None:
    driver.owner.relocate(endpoint_of(driver, "first"), ELSEWHERE, 0)
    driver.now_ms = UNCOMMITTED_MS_MAX
    (append,) = driver.step(Tick())
    assert isinstance(append, Append)


def test_a_group_that_who_moves_has_left_behind_is_let_go(driver: Driver) -> None:
    """A member that joined meanwhile was locked with it."""
    session = Scribe("one")
    block = begin_block(home="orders", target="replies", group=GROUP)
    driver.arrive((session.begin(identifier("one"), block), record()))
    driver.commit()
    one = endpoint_of(driver, "one", Role.INITIATOR)
    driver.owner.relocate(one, ELSEWHERE, 0)
    owner = Scribe("its target")
    end = End(session.id, HERE)
    driver.arrive(
        begun("two", GROUP),
        (owner.message(HERE, identifier("two"), role=Role.TARGET), record(b"for two")),
        (session.write(Kind.END_CALL, HERE, identifier("one")), record()),
        (owner.end(HERE, identifier("one"), end, role=Role.TARGET), record()),
    )
    two = endpoint_of(driver, "two", Role.INITIATOR)
    assert driver.state.endpoint(Role.INITIATOR, identifier("one")) is None
    assert two.held
    driver.commit()
    assert not two.held
    assert two in driver.state.ready
    assert ELSEWHERE not in driver.state.streams


def moved_by(driver: Driver) -> list[int]:
    """Number of endpoints that each commit moves, until one moves none."""
    moved: list[int] = []
    while found := driver.owner.staging.moving.operations():
        moved.append(len(found))
    return moved


def test_a_commit_moves_so_many_endpoints_and_the_next_one_goes_on(driver: Driver) -> None:
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
    operations = Operations()
    longest = Address("q" * TOPIC_NAME_LENGTH_MAX, QUEUE_PARTITIONS_MAX, b"tag!")
    operations.rare += [
        Relocate(1_000_000 + n, longest, RELOCATION_HOPS_MAX, 32) for n in range(COMMIT_MOVE_ENTRIES_MAX)
    ]
    size = len(encode_commit(Commit(1, b"o" * 16, 1, b"h" * 32, 1, operations, [], [])))
    assert COMMIT_BYTES_TARGET + TRANSACTION_BYTES_MAX + size < COMMIT_BYTES_MAX
