"""Outputs, the view, and giving a partition back."""

from __future__ import annotations

from typing import Any

import pytest

from konverse.dialog.owner.emitter import REFUSAL_PAUSE_MS, Emit
from konverse.dialog.owner.events import Append, Drained, Effect, Phase, ProducerReplaced, Stopped, Tick, ViewLost
from konverse.dialog.owner.view import Show
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import UNCOMMITTED_MS_MAX
from konverse.schemas.wire.journal import Commit, decode
from tests.kit.builders import Scribe, address_of, conversations, record, records_of
from tests.kit.driver import Driver

HERE, THERE = address_of("here"), address_of("there")


def leading(*homes: Address, **settings: Any) -> Driver:
    """An owner with one conversation for each home, each with a reply in a commit that counts."""
    driver = Driver(**settings)
    driver.lead()
    client = Scribe("client")
    for number, home in enumerate(homes):
        driver.arrive(*conversations(str(number), client=client, home=home))
    return driver


def emitted(effects: list[Effect]) -> dict[Address, list[bytes | None]]:
    return {effect.address: [out[2] for out in records_of(effect)] for effect in effects if isinstance(effect, Emit)}


def commit_of(effects: list[Effect]) -> Commit:
    (append,) = [effect for effect in effects if isinstance(effect, Append)]
    record = decode(append.records[0])
    assert isinstance(record, Commit)
    return record


def shows(effects: list[Effect]) -> list[Show]:
    return [effect for effect in effects if isinstance(effect, Show)]


# --------------------------------------------------------------------------------------------------------- emission


def test_an_owner_whose_outbox_is_full_hands_out_nothing_before_some_of_it_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("konverse.dialog.owner.owner.OUTBOX_RECORDS_MAX", 1)
    driver = leading(HERE, HERE, HERE)
    driver.handle(b"1")
    driver.commit()
    assert driver.owner.congested
    assert driver.owner.take() is None
    driver.step(Drained([HERE]))
    driver.commit()
    assert not driver.owner.congested
    assert driver.owner.take() is not None


def test_the_next_outputs_leave_when_the_last_ones_are_in_the_log() -> None:
    driver = leading(HERE, HERE)
    driver.handle(b"1")
    assert emitted(driver.commit()) == {HERE: [b"1"]}
    driver.handle(b"2")
    assert emitted(driver.commit()) == {}
    assert emitted(driver.step(Drained([HERE]))) == {HERE: [b"2"]}
    assert driver.step(Drained([HERE])) == []
    assert driver.owner.emitter.idle


def test_a_drained_producer_says_nothing_of_destinations_that_it_did_not_have() -> None:
    driver = leading(HERE, THERE)
    driver.handle(b"1")
    driver.handle(b"2")
    assert emitted(driver.commit()) == {HERE: [b"1"], THERE: [b"2"]}
    driver.step(Drained([THERE]))
    assert driver.owner.emitter.acknowledged() == [(THERE, 1)]


def test_acknowledgements_wait_no_longer_than_they_may_for_a_commit() -> None:
    driver = leading(HERE)
    driver.handle(b"1")
    driver.commit()
    driver.now_ms = 1_000
    driver.step(Drained([HERE]))
    driver.now_ms += UNCOMMITTED_MS_MAX - 1
    assert not [effect for effect in driver.step(Tick()) if isinstance(effect, Append)]
    driver.now_ms += 1
    assert commit_of(driver.step(Tick())).output_acks == [(HERE, 1)]


def test_a_destination_that_refused_is_tried_again_after_a_pause() -> None:
    driver = leading(HERE, THERE)
    driver.handle(b"1")
    driver.handle(b"2")
    driver.commit()
    driver.now_ms = 500
    assert emitted(driver.step(ProducerReplaced(THERE))) == {HERE: [b"1"]}
    driver.now_ms += REFUSAL_PAUSE_MS - 1
    assert emitted(driver.step(Tick())) == {}
    driver.now_ms += 1
    assert emitted(driver.step(Tick())) == {THERE: [b"2"]}
    assert emitted(driver.step(Tick())) == {}


def test_a_destination_that_refused_does_not_hold_up_commits_or_others() -> None:
    driver = leading(HERE, THERE, HERE)
    driver.handle(b"1")
    driver.handle(b"2")
    driver.commit()
    driver.step(ProducerReplaced(THERE))
    driver.step(Drained([HERE]))
    driver.handle(b"3")
    assert emitted(driver.commit()) == {HERE: [b"3"]}


# --------------------------------------------------------------------------------------------------------- the view


def test_the_view_is_shown_with_the_commit_that_changed_it() -> None:
    driver = leading(HERE, HERE)
    driver.handle(b"1")
    (append,) = driver.owner.commit(0)
    assert driver.step(Tick()) == [], "nothing is shown before it counts"
    (show,) = shows(driver.acknowledge(append))
    assert (show.journal_offset, show.claim_offset, show.whole) == (1, 0, False)
    assert len(show.rows) == 2
    assert show.unread == 1


def test_the_view_is_written_no_more_often_than_its_interval() -> None:
    driver = leading(HERE, HERE, view_interval_ms=100)
    driver.now_ms = 99
    driver.handle()
    assert shows(driver.commit()) == []
    driver.now_ms = 100
    (show,) = shows(driver.step(Tick()))
    assert show.journal_offset == 1
    assert shows(driver.step(Tick())) == []


def test_the_last_view_of_an_owner_that_releases_is_never_too_early() -> None:
    driver = leading(HERE, HERE, view_interval_ms=1_000)
    driver.handle()
    (append,) = driver.owner.release(0)
    (show,) = shows(driver.acknowledge(append))
    assert (show.journal_offset, show.unread) == (1, 1)


def test_the_view_shows_only_state_committed_in_the_journal() -> None:
    driver = leading(HERE)
    assert driver.step(Tick()) == [], "the records that were ingested are not committed yet"
    driver.commit()
    driver.arrive((None, record()))
    assert shows(driver.step(ViewLost())) == []


def test_a_lost_view_is_written_whole_at_once() -> None:
    driver = leading(HERE, HERE, view_interval_ms=1_000)
    driver.commit()
    (show,) = shows(driver.step(ViewLost()))
    assert (show.whole, len(show.rows), show.journal_offset) == (True, 2, 1)


# ------------------------------------------------------------------------------------------------------------ release


def test_a_release_is_journaled_and_then_the_owner_stops() -> None:
    driver = leading(HERE)
    effects = driver.owner.release(0)
    assert commit_of(effects).release
    assert driver.owner.phase is Phase.LEADING
    assert driver.acknowledge(effects[0])[-1] == Stopped("released", clean=True)


def test_a_release_includes_finished_transactions() -> None:
    driver = leading(HERE, HERE)
    driver.handle(b"1")
    effects = driver.owner.release(0)
    commit = commit_of(effects)
    assert (commit.release, commit.operations.sends) == (True, [(0, "reply", [b"1"])])
    assert emitted(driver.acknowledge(effects[0])) == {HERE: [b"1"]}


def test_nothing_is_handed_out_while_the_partition_is_given_back() -> None:
    driver = leading(HERE)
    driver.owner.release(0)
    assert driver.owner.take() is None


def test_a_release_waits_for_the_commit_that_is_on_its_way() -> None:
    driver = leading(HERE)
    (append,) = driver.owner.commit(0)
    assert driver.owner.release(0) == []
    driver.acknowledge(append)
    assert driver.owner.phase is Phase.LEADING
    assert commit_of(driver.owner.release(0)).release


def test_a_release_that_does_not_count_is_no_clean_end() -> None:
    driver = leading(HERE)
    (append,) = driver.owner.release(0)
    Driver(driver.journal, driver.data, "other").lead()
    stopped = driver.acknowledge(append)[-1]
    assert isinstance(stopped, Stopped)
    assert (stopped.clean, stopped.fenced) == (False, True)


def test_messages_of_an_unfinished_handler_are_received_again_after_a_release() -> None:
    driver = leading(HERE)
    transaction = driver.owner.take()
    assert transaction is not None
    list(transaction)
    (append,) = driver.owner.release(0)
    driver.acknowledge(append)
    other = Driver(driver.journal, driver.data, "other")
    other.lead()
    assert [message.body for message in other.handle()] == [b"0"]
