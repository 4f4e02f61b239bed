"""The position of a conversation, in words."""

from __future__ import annotations

import pytest

from konverse.dialog.queries.standing import _STATES, standing
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import ATTEMPTS_MAX
from konverse.schemas.wire.operations import Attempt, Suspend
from tests.kit.builders import Pair, Scribe, Side, begin_block, conversations, identifier
from tests.kit.driver import Driver


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.lead()
    return driver


def told(driver: Driver, name: str = "a") -> list[str]:
    endpoint = driver.state.endpoint(Role.TARGET, identifier(name))
    assert endpoint is not None
    return [*standing(driver.state, endpoint)]


def test_there_are_words_for_every_state_that_lasts() -> None:
    assert {*_STATES} == {*State} - {State.CLOSED}


def test_the_explanation_reports_waiting_messages_and_sent_replies(driver: Driver) -> None:
    driver.arrive(*conversations("a", messages=2))
    (_, waits) = told(driver)
    assert waits.startswith("To be received: 2 messages. No handler of service")
    driver.handle(b"one", b"two")
    driver.commit()
    (_, nothing, sent) = told(driver)
    assert nothing == "Nothing waits to be received."
    assert sent.endswith(": 2 records.")
    assert "known to have arrived in replies" in sent


def test_attempts_that_failed(driver: Driver) -> None:
    driver.arrive(*conversations("a"))
    for attempt in range(1, ATTEMPTS_MAX + 1):
        transaction = driver.owner.take()
        assert transaction is not None
        driver.owner.trial.fail(transaction)
        driver.commit()
        driver.now_ms += 60_000
        driver.owner.trial.tick(driver.now_ms)
        if attempt == 1:
            assert told(driver)[1].endswith("after 1 failed attempt.")
    assert "is suspended after 5 failed attempts" in told(driver)[1]


def test_a_suspension_is_described_even_when_no_message_waits(driver: Driver) -> None:
    driver.arrive(*conversations("a"))
    driver.handle()
    driver.commit()
    one = driver.state.endpoint(Role.TARGET, identifier("a"))
    assert one is not None
    driver.owner.trial.order(one, Suspend(one.index, "look into it", ordered=True))
    driver.commit()
    assert one.suspended
    assert "Later messages will wait until an operator resumes" in told(driver)[1]


def test_a_suspension_is_not_blamed_on_a_handler_that_never_failed(driver: Driver) -> None:
    driver.arrive(*conversations("a"))
    one = driver.state.endpoint(Role.TARGET, identifier("a"))
    assert one is not None
    driver.owner.trial.order(one, Suspend(one.index, "look into it", ordered=True))
    driver.commit()
    assert told(driver)[1].endswith("end the conversation first: its group is suspended.")


def test_the_failed_attempts_are_those_of_the_group_that_a_conversation_has_joined() -> None:
    pair = Pair()
    one, two = pair.answered("one", "two")
    pair.home.commit(rare=[Attempt([one.index])])
    assert "tries again, after 1 failed attempt." in [*standing(pair.home.state, two)][1]
    pair.home.commit(rare=[Attempt([one.index]), Suspend(one.index, "it failed", ordered=False)])
    assert "its group is suspended after 2 failed attempts." in [*standing(pair.home.state, two)][1]


def test_a_group_is_handed_out_as_one() -> None:
    pair = Pair()
    one, _ = pair.answered("one", "two")
    (*_, group) = standing(pair.home.state, one)
    assert group == "It is handed out together with the messages of 1 other conversation of its group."


def test_what_the_other_side_has_sent_in_the_same_partition_is_not_counted() -> None:
    side, client, conversation = Side("orders"), Scribe("client"), identifier("to itself")
    block = begin_block(home="orders", group=conversation)
    side.take(client.begin(conversation, block))
    side.take(client.first(side.address, conversation, block))
    initiator, target = (side.state.endpoint(role, conversation) for role in Role)
    assert initiator is not None
    assert target is not None
    side.send(target, b"a reply", b"another")
    assert [*standing(side.state, target)][-1] == "Sent and not known to have arrived in orders/0: 2 records."
    assert [*standing(side.state, initiator)][-1] == "Nothing waits to be received."
