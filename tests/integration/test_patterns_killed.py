"""Programs of the patterns, whose workers are killed at given points: the promises in the programs' docstrings hold.

A worker reads all queues of the pattern's application. The next worker starts when it is dead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

import psutil
import pytest

from examples.patterns import asynchronous_call, fan_out_fan_in, saga, scheduled_work
from examples.patterns.tables import tables
from konverse.bridge.broker import Broker
from tests.integration import killed_news
from tests.integration.pattern_worker import Deaths
from tests.kit.answering import Run
from tests.kit.servers import Servers
from tests.kit.shop import connected, pumped, queue_of, until
from tests.kit.workers import Worker

pytestmark = [pytest.mark.nightly, pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(240)]

WAIT_S: Final = 30.0

BEFORE: Final = "before the COMMIT is produced"
"""The handler has returned and its tables are changed, and the journal does not have its COMMIT."""

BEHIND: Final = "after the COMMIT is in the journal, before its acknowledgement is handled"
"""The handler's COMMIT counts, and none of its messages has been sent."""

Death = tuple[str, int]
"""A point of death, and its occurrence."""

Play = Callable[..., list[str]]


@pytest.fixture
def broker(servers: Servers, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A connection to the database that the programs and their workers use."""
    monkeypatch.setenv("KONVERSE_KAFKA", f"kafka://{servers.bootstrap}")
    monkeypatch.setenv("KONVERSE_DATABASE", database)
    monkeypatch.setenv("EXAMPLES_TABLES", str(tmp_path))
    with connected(servers.bootstrap, database) as broker:
        yield broker


@pytest.fixture
def play(
    broker: Broker,
    servers: Servers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Play:
    """Plays a pattern until no conversation is open. Returns the printed text."""

    def to_the_end(pattern: ModuleType, home: str, deaths: Sequence[Death]) -> None:
        job = Deaths(servers.bootstrap, broker.database, str(tmp_path / "log"), pattern.__name__, deaths=deaths)
        with ThreadPoolExecutor(1) as pool, Worker(job, module="tests.integration.pattern_worker") as worker:
            program = pool.submit(pattern.main)
            for number in range(len(deaths)):
                worker.wait_for("killed", number + 1, WAIT_S)
            until(program.done, "the program ends", WAIT_S)
            program.result()
            with broker.reader(home) as reader, pumped(reader):  # the initiator hears the ends too
                until(lambda: not open_sides(broker), "nothing is left open", WAIT_S)

    def play(pattern: ModuleType, home: str, *deaths: Death) -> list[str]:
        monkeypatch.setattr(pattern, "PATIENCE_S", WAIT_S)
        pattern.create(broker)
        with telling(broker):
            to_the_end(pattern, home, deaths)
        queues = [queue_of(broker, row.name) for row in broker.views.service_queues()]
        assert broker.operations.verification(queues).run()[1] == []
        return capsys.readouterr().out.splitlines()

    return play


@contextmanager
def telling(broker: Broker) -> Iterator[None]:
    """Add the open conversations and undelivered messages to an exception of the block."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"open: {open_sides(broker)}\non their way: {[*broker.views.transmission_queue()]}")
        raise


def open_sides(broker: Broker) -> list[str]:
    """The remaining sides of conversations, closed ones included."""
    rows = broker.views.conversation_endpoints(columns=("conversation_id", "state", "far_service"))
    return [f"{row.conversation_id} {row.state} to {row.far_service}" for row in rows]


def test_a_saga_goes_through_or_back_and_each_step_counts_once(play: Play) -> None:
    assert play(saga, "Tourists", (BEFORE, 2), (BEHIND, 3), (BEFORE, 4), (BEFORE, 8)) == [
        "Oslo: booked",
        "Venice: no car in Venice",
        *("flight booked", "hotel booked", "car booked"),
        *("flight booked", "hotel booked", "hotel taken back", "flight taken back"),
    ]
    with tables(saga.inbox, "travel", *saga.TABLES) as steps:
        booked = steps.execute("SELECT service, place FROM bookings ORDER BY rowid").fetchall()
    assert booked == [(step, "Oslo") for step in saga.STEPS]


def test_a_saga_goes_back_when_konverse_run_loses_its_readers(broker: Broker, servers: Servers, tmp_path: Path) -> None:
    saga.create(broker)
    with (
        telling(broker),
        ThreadPoolExecutor(1) as pool,
        tables(saga.inbox, "travel", *saga.TABLES) as steps,
        Run(servers, broker.database, tmp_path, app="examples.patterns.saga:app") as program,
    ):

        def deeds() -> list[str]:
            return [text for (text,) in steps.execute("SELECT text FROM deeds ORDER BY number")]

        trip = pool.submit(saga.travel, broker, b"Venice")
        until(lambda: len(deeds()) >= 2, "two steps are done", WAIT_S)
        for readers in psutil.Process(program.process.pid).children():
            readers.kill()
        until(trip.done, f"an answer, behind {deeds()}", WAIT_S)
        assert program.said("by signal SIGKILL")
        assert trip.result() == "no car in Venice"
        assert deeds() == ["flight booked", "hotel booked", "hotel taken back", "flight taken back"]


def test_a_schedule_continues_after_crashes_and_each_run_is_done_exactly_once(play: Play) -> None:
    lines = play(scheduled_work, "Owners", (BEFORE, 2), (BEHIND, 1), (BEFORE, 2))
    assert lines == [f"round {number}: all is well" for number in (1, 2, 3)]


def test_a_function_is_called_again_and_its_result_comes_once(play: Play) -> None:
    assert play(asynchronous_call, "Results", (BEFORE, 1), (BEHIND, 1)) == [
        "result: 3.0",
        "result: ['to', 'be', 'or', 'not']",
        "raised: error 1, ZeroDivisionError: division by zero",
        "raised: error 2, no function 'eval' is registered",
    ]


def test_each_inquiry_is_answered_once_from_the_offers_received_in_time(play: Play) -> None:
    lines = play(fan_out_fan_in, "Shippers", (BEFORE, 1), (BEHIND, 1), (BEFORE, 3))
    assert len(lines) == 2
    for pallets, line in zip((3, 4), lines, strict=True):
        found = re.fullmatch(rf"{pallets} pallets: (no offer|(\d+) by (//freight/\w+), of [123] offers)", line)
        assert found is not None, line
        if found[2]:
            assert int(found[2]) == pallets * fan_out_fan_in.PRICES[found[3]]
    with tables(fan_out_fan_in.inbox, "freight", fan_out_fan_in.OFFERS) as desk:
        offers = Counter(desk.execute("SELECT inquiry, carrier FROM offers"))
    assert set(offers.values()) <= {1}


def test_each_subscriber_gets_each_article_once_and_in_order(play: Play) -> None:
    assert play(killed_news, "Subscribers", (BEFORE, 1), (BEHIND, 1), (BEFORE, 2)) == [
        "%: A,B: one; B: two; A: three",
        "A: A,B: one; A: three",
        "B: A,B: one; B: two",
        "C: ",
    ]
