"""An owner with an exception stops for good and reports it once: its state may be no fold of the journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from konverse.dialog.owner.events import DataRead, Drained, Halted, Phase, Recover, Stopped, Tick
from konverse.dialog.owner.handing_out import HandingOut
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.client_transaction import TransactionDialog, TransactionRecord, TransactionStep, encode
from konverse.schemas.wire.records import Kind, Suffix
from tests.kit.builders import Scribe, address_of, begin_block, columns_of, conversations, identifier, record
from tests.kit.driver import Driver

MISTAKE = ZeroDivisionError("a mistake of ours")


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.lead()
    driver.arrive(*conversations("a", messages=2))
    return driver


@contextmanager
def broken(thing: object, name: str, error: BaseException = MISTAKE) -> Iterator[None]:
    """Calls of this method raise after half of their work."""

    def raises(*_: Any, **__: Any) -> Any:
        raise error

    with patch.object(thing, name, raises):
        yield


def is_over(driver: Driver) -> None:
    """No call has an effect any more, and nothing is reported again."""
    owner = driver.owner
    assert owner.phase is Phase.HALTED
    for event in (Tick(), Recover(0, 0), Drained([address_of("replies")]), DataRead(columns_of([], 2))):
        assert owner.step(event, 10**6) == []
    assert owner.commit(10**6) == []
    assert owner.release(10**6) == []
    assert owner.ingest(10**6) == 0
    assert owner.take() is None


def test_a_step_that_raises_halts_for_good_and_says_why(driver: Driver) -> None:
    with broken(driver.owner.emitter, "drained"):
        assert driver.step(Drained([address_of("replies")])) == [Halted("a mistake of ours", MISTAKE)]
    is_over(driver)


def test_a_commit_that_raises_halts_for_good_and_says_why(driver: Driver) -> None:
    driver.handle(b"an answer")
    with broken(driver.owner.trial, "fill"):
        assert driver.owner.commit(0) == [Halted("a mistake of ours", MISTAKE)]
    is_over(driver)
    assert len(driver.journal) == 1, "nothing was written"


def test_a_release_that_raises_halts_for_good_and_says_why(driver: Driver) -> None:
    with broken(driver.owner.staging, "merge"):
        assert driver.owner.release(0) == [Halted("a mistake of ours", MISTAKE)]
    is_over(driver)


def test_an_ingest_that_raises_halts_for_good_and_the_next_step_says_why(driver: Driver) -> None:
    rows = conversations("b", client=Scribe("b"))
    driver.step(DataRead(columns_of(rows, 2)))
    with broken(driver.owner.fold, "ingest_some"):
        assert driver.owner.ingest(0) == 0
    assert driver.owner.take() is None, "half of it may be there"
    assert driver.owner.commit(0) == []
    assert driver.owner.step(Tick(), 0) == [Halted("a mistake of ours", MISTAKE)]
    is_over(driver)


def test_a_contradiction_in_the_logs_is_no_mistake_of_ours(driver: Driver) -> None:
    for thing, name in ((driver.owner.emitter, "drained"), (driver.owner.staging, "merge")):
        driver.owner.phase = Phase.LEADING
        with broken(thing, name, PartitionHalted("the journal was changed")):
            effects = driver.step(Drained([])) if name == "drained" else driver.owner.commit(0)
        assert effects == [Halted("the journal was changed", None)]


def test_a_mistake_without_words_is_named(driver: Driver) -> None:
    mistake = AssertionError()
    with broken(driver.owner.staging, "merge", mistake):
        (halted,) = driver.owner.commit(0)
    assert halted == Halted("AssertionError()", mistake)


def test_an_exception_during_recovery_halts_a_reader_as_well(driver: Driver) -> None:
    driver.commit()
    reader = Driver(driver.journal, driver.data, "a reader")
    with broken(reader.owner.fold, "feed_data"):
        assert reader.recover() == [Halted("a mistake of ours", MISTAKE)]
    is_over(reader)


# --------------------------------------------------------------------- input of dishonest senders is no internal error


def transaction(message_type: str = "order", **changes: Any) -> bytes:
    """The body of a transaction that begins a dialog and sends on it."""
    dialog = TransactionDialog(identifier("t"), begin_block(group=identifier("t"))._replace(**changes))
    return encode(
        TransactionRecord(
            [dialog], [TransactionStep(0, Kind.BEGIN), TransactionStep(0, Kind.MESSAGE, 0, message_type, b"")]
        )
    )


@pytest.mark.parametrize(
    "body",
    [
        transaction(target=Address("orders", 2**40, b"tag!")),
        transaction(home=Address("orders", 2**31, b"tag!")),
        transaction(target=Address("no topic", 0, b"tag!")),
        transaction("t" * 300),
        transaction(to_service="s" * 300),
        transaction(key=bytes(10_000)),
    ],
    ids=["partition of the target", "partition of home", "topic", "message type", "service", "key"],
)
def test_a_transaction_with_impossible_addresses_or_lengths_is_malformed_and_the_owner_continues(
    driver: Driver, body: bytes
) -> None:
    client, here = Scribe("another"), address_of()
    header = client.write(Kind.TRANSACTION, here, identifier("t"), suffix=Suffix(home=address_of("replies")))
    driver.arrive((header, record(body)))
    driver.commit()
    assert driver.state.statistics.malformed == 1
    assert [*driver.state.streams] == [address_of("replies")], "where the conversation before has its home"
    assert driver.state.writers[client.id].next == 1, "its counter is used up"
    driver.handle(b"an answer")
    assert len(driver.commit()) == 2, "outputs, and the view"
    assert driver.owner.phase is Phase.LEADING


INTERRUPTED = "this process was interrupted; the partition must be recovered again"


@pytest.mark.parametrize("where", ["step", "ingest", "commit", "take", "ended"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()], ids=["Ctrl-C", "sys.exit"])
def test_an_owner_that_was_interrupted_leads_no_longer_and_is_recovered_again(
    driver: Driver, where: str, error: BaseException
) -> None:
    """What it would write next may follow from half a step. Only a fold of the journal is sure."""
    owner = driver.owner
    hands = HandingOut()
    hands.join(owner)
    things: dict[str, tuple[Any, str, Any]] = {
        "step": (owner.emitter, "drained", lambda: owner.step(Drained([address_of("replies")]), 0)),
        "ingest": (owner.fold, "ingest_some", lambda: owner.ingest(0)),
        "commit": (owner.view, "due", lambda: owner.commit(0)),
        "take": (owner.staging, "take", owner.take),
        "ended": (owner.staging, "finish", lambda: hands.ended(owner, work, commits=True, error="", now_ms=0)),
    }
    work: Any = owner.take() if where == "ended" else None
    if where == "ended":
        list(work)
    if where == "commit":
        driver.handle(b"an answer")
    driver.step(DataRead(columns_of(conversations("b", client=Scribe("b")), 2)))
    thing, name, call = things[where]
    with broken(thing, name, error), pytest.raises(type(error)):
        call()
    assert owner.phase is Phase.STOPPED
    assert not owner.settled, "its work may be lost"
    assert owner.step(Tick(), 0) == [Stopped(INTERRUPTED, clean=False, fenced=False)]
    assert owner.step(Tick(), 0) == []
    assert owner.take() is None
    assert owner.commit(0) == []
