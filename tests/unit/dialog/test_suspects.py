"""Several killing messages, and other messages meanwhile: suspects are tried alone, and not at once."""

from __future__ import annotations

import pytest

from konverse.dialog.owner.events import Recover
from konverse.dialog.owner.poison import SUSPECTS_AFTER_MS
from konverse.dialog.rules.attempts import claimed
from konverse.schemas.limits import ATTEMPTS_MAX
from konverse.schemas.wire.operations import Try
from tests.kit.builders import Pair, Scribe, address_of, conversations, identifier, record
from tests.kit.driver import Driver
from tests.kit.trials import said, successor


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.lead()
    return driver


def test_other_groups_receive_new_messages_until_suspects_are_tried(driver: Driver) -> None:
    client = Scribe("client")
    driver.arrive(*conversations("a", "b", client=client))
    driver.commit()
    after = successor(driver, handlers=1)
    after.try_groups()
    last = Driver(after.journal, after.data, "last", handlers=1)
    (append,) = last.step(Recover(0, len(after.journal), data_end=len(after.data)))
    last.acknowledge(append)
    for sequence in range(1, 4):
        last.try_groups()
        assert said(last) == [Try([1])], "not the suspect"
        last.handle()
        last.commit()
        last.arrive((client.message(address_of(), identifier("b"), sequence=sequence), record(b"")))
    last.now_ms += SUSPECTS_AFTER_MS
    last.owner.trial.tick(last.now_ms)
    last.commit()
    assert said(last) == [Try([0])]


def test_a_death_is_no_attempt_of_one_group_when_the_other_group_of_its_try_has_ended_meanwhile() -> None:
    """The session ends the dialog of a handler that works, so nothing waits for it when it kills the process (M154)."""
    pair = Pair()
    innocent, deadly = (pair.begin(name) for name in ("innocent", "deadly"))
    for conversation in (innocent, deadly):
        pair.target.send(pair.receiver(conversation), b"answer")
    pair.target.deliver(pair.home)
    sides = [pair.initiator(conversation) for conversation in (innocent, deadly)]
    pair.home.commit(rare=[Try([one.index for one in sides])])
    pair.end_call(deadly)
    pair.home.commit()
    claimed(pair.home.state, clean=False)
    assert [one.trouble for one in sides] == [None, None]
    assert [*pair.home.state.attempts.suspects] == [sides[0].index]


@pytest.mark.parametrize("handlers", [1, 2, 64])
@pytest.mark.parametrize("killers", [1, 2, 3, 5])
def test_each_of_several_messages_that_kill_dies_with_others_once(driver: Driver, killers: int, handlers: int) -> None:
    """So each is suspended after six deaths, and one more before anything is known."""
    names = [f"{number:03}" for number in range(16)]
    deadly = {identifier(name) for name in names[:: 16 // killers][:killers]}
    driver.arrive(*conversations(*names))
    driver.commit()
    handled: list[bytes] = []
    deaths = 1
    while True:
        after = Driver(driver.journal, driver.data, f"owner {deaths}", handlers=handlers)
        (append,) = after.step(Recover(0, len(after.journal), data_end=len(after.data)))
        after.acknowledge(append)
        driver = after
        if not _handles_all(after, deadly, handled):
            deaths += 1
            continue
        break
    assert sorted([*handled, *deadly]) == sorted(map(identifier, names)), "each of the others once"
    assert deaths <= 1 + killers * (ATTEMPTS_MAX + (handlers > 1))
    assert all(one.suspended == (one.conversation in deadly) for one in driver.state.live())


def _handles_all(driver: Driver, deadly: set[bytes], handled: list[bytes]) -> bool:
    """False when one of the handlers has killed the process; then no other handler's work counts."""
    while driver.owner.trial.careful:
        if not driver.owner.trial.due:
            driver.now_ms += SUSPECTS_AFTER_MS
            driver.owner.trial.tick(driver.now_ms)
        driver.try_groups()
        transactions = []
        while (transaction := driver.owner.take()) is not None:
            transactions.append(transaction)
        if any(one.dialog.conversation in deadly for one in transactions):
            return False
        for one in transactions:
            assert list(one)
            handled.append(one.dialog.conversation)
            driver.owner.finish(one)
    return True
