"""Drivers whose groups fail, and the journal records of these failures."""

from __future__ import annotations

from typing import Any

from konverse.dialog.owner.events import Recover, Tick
from konverse.dialog.owner.poison import PAUSE_FACTOR, PAUSE_MS, SUSPECTS_AFTER_MS
from konverse.dialog.state.endpoint import Endpoint
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import ATTEMPTS_MAX
from konverse.schemas.wire.journal import Commit, decode
from konverse.schemas.wire.operations import Rare
from tests.kit.builders import (
    conversations,
    identifier,
)
from tests.kit.driver import Driver


def successor(before: Driver, claim: str = "next", **settings: Any) -> Driver:
    """Another process leads after the first has died, and has led long enough to try suspects."""
    after = Driver(before.journal, before.data, claim, **settings)
    (append,) = after.step(Recover(0, len(before.journal), data_end=len(before.data)))
    after.acknowledge(append)
    after.now_ms += SUSPECTS_AFTER_MS
    after.owner.trial.tick(after.now_ms)
    return after


def said(driver: Driver) -> list[Rare]:
    """The rare operations of the last COMMIT."""
    commit = decode(driver.journal[-1])
    assert isinstance(commit, Commit)
    return commit.operations.rare


def endpoint(driver: Driver, name: str) -> Endpoint:
    found = driver.state.endpoint(Role.TARGET, identifier(name))
    assert found is not None
    return found


def fail(driver: Driver) -> None:
    """The next group fails and its pause passes."""
    transaction = driver.owner.take()
    assert transaction is not None
    driver.owner.trial.fail(transaction, "ValueError: no such order")
    driver.commit()
    driver.now_ms += PAUSE_MS * PAUSE_FACTOR**ATTEMPTS_MAX
    driver.step(Tick())


def taken(driver: Driver) -> list[bytes]:
    """Take every group that can be taken. Returns the conversations; their handlers do not finish."""
    found = []
    while (transaction := driver.owner.take()) is not None:
        found.append(transaction.dialog.conversation)
    return found


def suspended(driver: Driver) -> Endpoint:
    """A suspended conversation with three messages."""
    driver.arrive(*conversations("a", messages=3))
    for _ in range(ATTEMPTS_MAX):
        fail(driver)
    return endpoint(driver, "a")
