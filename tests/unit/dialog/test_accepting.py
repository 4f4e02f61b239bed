"""An operator accepts the loss of ingested data, and the partition goes on (protocol.md section 7.7)."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from konverse.dialog.owner import snapshots as snapshotting
from konverse.dialog.owner.events import Append, DataGone, Effect, Feed, Follow, Halted, Leading, Recover, Stopped
from konverse.dialog.rules.accepted_loss import AcceptedLoss, command, expected_by
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.journal import Commit, decode
from konverse.schemas.wire.operations import Lost
from konverse.schemas.wire.records import Envelope, Kind, Suffix
from tests.kit.builders import Scribe, address_of, conversations, identifier
from tests.kit.digests import digest
from tests.kit.driver import Driver


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with patch.object(snapshotting, "SNAPSHOT_CHUNK_BYTES_MAX", 200):
        yield


@pytest.fixture
def before() -> Driver:
    """A leading owner with a conversation of two messages in a snapshot, and one of two messages behind it."""
    driver = Driver()
    driver.lead()
    driver.arrive(*conversations("a", messages=2))
    with patch.multiple(snapshotting, SNAPSHOT_EVERY_RECORDS=0, RECORDS_PER_ENDPOINT=0):
        driver.commit()
    driver.make_snapshot()
    driver.arrive(*conversations("b", messages=2, client=Scribe("b")))
    driver.commit()
    return driver


def next_of(driver: Driver, claim: str = "next", acceptance: AcceptedLoss | None = None) -> Driver:
    """Another owner of the same logs, as they are."""
    after = Driver(list(driver.journal), list(driver.data), claim)
    after.snapshots = list(driver.snapshots)
    after.owner.recovery.acceptance = acceptance
    return after


def bounds(driver: Driver, data_start: int) -> Recover:
    return Recover(0, len(driver.journal), data_start, 0, len(driver.snapshots), len(driver.data))


def accept(driver: Driver, data_start: int, acceptance: AcceptedLoss | None = None) -> Driver:
    """An owner that has accepted the loss in its journal, with a snapshot behind it."""
    after = next_of(driver, "operator", acceptance or AcceptedLoss())
    (claim,) = after.step(Recover(*bounds(driver, data_start)))
    effects = after.acknowledge(claim)
    (append,) = [effect for effect in effects if isinstance(effect, Append)]
    after.acknowledge(append)
    after.make_snapshot()
    return after


def said_lost(driver: Driver) -> list[Lost]:
    return [
        one
        for data in driver.journal
        if isinstance(commit := decode(data), Commit)
        for one in commit.operations.rare
        if isinstance(one, Lost)
    ]


def halt_of(effects: list[Effect]) -> str:
    (halted,) = effects
    assert isinstance(halted, Halted)
    return halted.reason


def test_an_owner_halts_when_waiting_records_were_deleted_and_names_the_command(before: Driver) -> None:
    reason = halt_of(next_of(before).step(Recover(*bounds(before, 3))))
    assert "does not hold offset 2 any more, which its journal has ingested" in reason
    assert "konverse accept-loss orders 0" in reason


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("konverse.default.Orders", "konverse accept-loss Orders 3"),
        ("konverse.sales.Or-20ders", "konverse accept-loss 'Or ders' 3 --database sales"),
        ("konverse.transmission", "konverse accept-loss transmission 3"),
    ],
)
def test_the_command_names_queue_partition_and_database(topic: str, expected: str) -> None:
    assert command(topic, 3) == expected


def test_an_accepted_loss_reaches_from_the_last_snapshot_to_the_last_commit_and_work_continues(before: Driver) -> None:
    acceptance = AcceptedLoss()
    after = accept(before, 3, acceptance)
    assert (acceptance.first_offset, acceptance.ingested_to, acceptance.commits) == (2, 4, 1)
    assert said_lost(after) == [Lost(2, 4)]
    ((alarm, _),) = after.owner.fold.journal.alarms
    assert "LOST: the records 2 to 3" in alarm
    endpoint = after.state.endpoint(Role.TARGET, identifier("a"))
    assert endpoint is not None
    assert endpoint.state.code == "ER"
    assert [entry[2] for entry in endpoint.queue] == [b"0", b"1"], "nobody has received what a snapshot holds"
    after.arrive(*conversations("c", client=Scribe("c")))
    after.commit()
    known = after.state.endpoint(Role.TARGET, identifier("c"))
    assert known is not None
    assert known.state.code == "CO"


def test_the_next_owner_and_a_follower_recover_from_the_snapshot_behind_it(before: Driver) -> None:
    after = accept(before, 3)
    reader = next_of(after, "reader")
    reader.step(Follow(bounds(after, 3)))
    assert digest(reader.state) == digest(after.state)


def test_a_follower_stops_when_an_operator_accepts_the_loss_of_records_it_has_folded(before: Driver) -> None:
    """It has folded records that no other process can read. Its next commits must rest on records that all have."""
    follower = next_of(before, "follower")
    follower.step(Follow(bounds(before, 0)))
    after = accept(before, 3)
    follower.journal, follower.snapshots = after.journal, after.snapshots
    (stopped,) = follower.step(Follow(bounds(after, 3)))
    assert isinstance(stopped, Stopped)
    assert "an operator has accepted" in stopped.reason


def test_without_its_snapshot_the_partition_halts_again_and_may_be_given_up_again(before: Driver) -> None:
    after = accept(before, 3)
    after.snapshots = before.snapshots
    assert "accept-loss" in halt_of(next_of(after).step(Recover(*bounds(after, 3))))
    again = accept(after, 3)
    assert said_lost(again) == [Lost(2, 4), Lost(2, 4)]


def test_possibly_received_messages_are_not_redelivered_after_an_accepted_loss(before: Driver) -> None:
    received = before.handle(b"an answer")
    assert len(received) == 2
    before.commit()
    acceptance = AcceptedLoss()
    after = accept(before, 3, acceptance)
    endpoint = after.state.endpoint(Role.TARGET, identifier("a"))
    assert endpoint is not None
    assert not endpoint.queue


def test_outputs_continue_at_the_counter_that_their_destination_expects(before: Driver) -> None:
    before.handle(b"an answer")
    before.commit()
    home = address_of("home")
    (stream,) = before.state.streams.values()
    home = stream.address
    after = accept(before, 3, AcceptedLoss({home: 7}))
    told = after.state.streams[home]
    assert (told.acked, told.next) == (7, 8), "the Error of the conversation is the next that home hears"


def test_an_end_that_is_gone_is_not_given_up(before: Driver) -> None:
    """New records would get offsets that were counted as lost."""
    after = next_of(before, "operator", AcceptedLoss())
    reason = halt_of(after.step(Recover(0, len(before.journal), 3, 0, len(before.snapshots), 3)))
    assert "its end was deleted" in reason


def test_no_loss_is_accepted_when_no_record_is_missing(before: Driver) -> None:
    acceptance = AcceptedLoss()
    after = next_of(before, "operator", acceptance)
    (claim,) = after.step(Recover(*bounds(before, 0)))
    assert any(isinstance(effect, Leading) for effect in after.acknowledge(claim))
    assert not acceptance.needed
    assert said_lost(after) == []


@pytest.mark.parametrize("data_start", [3, 4])
def test_ingested_records_that_were_deleted_are_saved_in_a_snapshot_at_once(before: Driver, data_start: int) -> None:
    assert before.owner.snapshots.rests_on(data_start)
    assert before.step(DataGone(data_start)) == [Feed()]
    assert before.owner.snapshots.urgent
    (append,) = before.owner.commit(0)
    before.acknowledge(append)
    before.make_snapshot()
    assert not before.owner.snapshots.urgent
    assert not before.owner.snapshots.rests_on(data_start)
    reader = next_of(before, "reader")
    reader.step(Follow(bounds(before, data_start)))
    assert digest(reader.state) == digest(before.state)
    assert not before.owner.fold.journal.alarms


@pytest.mark.parametrize(
    ("counters", "data_start", "expected"),
    [
        ([], 0, 0),
        ([0, 1, 2], 0, 3),
        ([0, 1, 1, 0], 0, 2),
        ([0, 1, 3, 4], 0, 2),
        ([0, 1, 3, 2], 0, 3),
        ([4], 0, 0),
        ([0, 1, 3, 4], 1, 5),
        ([4], 1, 5),
    ],
)
def test_the_counter_that_a_destination_expects_skips_a_gap_only_after_a_data_loss(
    before: Driver, counters: list[int], data_start: int, expected: int
) -> None:
    """It drops records behind a gap, unless data was lost: then it passes over the gap."""
    there = Driver()
    heard = [envelope_of(before.state.writer_id, there.state.address, counter) for counter in counters]
    assert expected_by(there.state, before.state, heard, data_start) == expected


def envelope_of(writer: bytes, address: Address, counter: int) -> Envelope:
    return Envelope(Kind.END, 0, Role.TARGET, address.tag, writer, identifier("a"), counter, -1, Suffix())
