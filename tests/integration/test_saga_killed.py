"""The saga of the examples, killed in each of its transactions: it goes through, or back, and each step counts once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from examples.patterns import saga
from examples.patterns.tables import tables
from konverse.schemas.catalog import Queue
from tests.kit.servers import Servers
from tests.kit.shop import connected, until

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(400)]

PATIENCE_S = 180.0

TRANSACTIONS = (1 + 3) + (3 + 3) + (1 + 3 + 2) + (3 + 2 + 2)
"""Of the agency (an order, and what comes of three steps) and the steps (orders and ends), for the trip that is booked;
and for the one that is not, where two steps are taken back."""


def ended(worker: subprocess.Popen[bytes], over: threading.Event) -> bool:
    return over.is_set() or worker.poll() is not None


def started_again(command: list[str], over: threading.Event) -> list[int]:
    """Start it whenever it has died, until all is over; the exit codes of those that died."""
    codes: list[int] = []
    while not over.is_set():
        worker = subprocess.Popen(command, start_new_session=True)
        try:
            until(partial(ended, worker, over), "it dies, or all is over", PATIENCE_S)
        finally:
            if worker.poll() is None:
                worker.kill()
            else:
                codes.append(worker.returncode)
            worker.wait()
    return codes


def test_a_saga_that_is_killed_in_each_transaction_goes_through_or_back_and_each_step_counts_once(
    servers: Servers, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLES_TABLES", str(tmp_path))
    monkeypatch.setattr(saga, "PATIENCE_S", PATIENCE_S)
    marks = tmp_path / "marks"
    marks.mkdir()
    command = [sys.executable, "-m", "tests.integration.saga_worker", servers.bootstrap, database, str(marks)]
    over = threading.Event()
    with connected(servers.bootstrap, database) as broker, ThreadPoolExecutor(1) as pool:
        saga.create(broker)
        deaths = pool.submit(started_again, command, over)
        try:
            assert saga.travel(broker, b"Oslo") == "booked"
            assert saga.travel(broker, b"Venice") == "no car in Venice"
            until(lambda: not list(broker.views.conversation_endpoints()), "nothing is left open")
        finally:
            over.set()
        codes = deaths.result()
        assert set(codes) == {-signal.SIGKILL}
        assert len(list(marks.iterdir())) == TRANSACTIONS
        assert TRANSACTIONS // 2 < len(codes) <= TRANSACTIONS  # a death may be that of two threads at work
        queues = [broker.catalog.get(Queue, name) for name in ("Travellers", "Agency", "Steps")]
        assert broker.verification(queues).run()[1] == []
    with tables(saga.inbox, "travel", *saga.TABLES) as database_of_steps:
        assert [text for (text,) in database_of_steps.execute("SELECT text FROM deeds ORDER BY number")] == [
            *("flight booked", "hotel booked", "car booked"),
            *("flight booked", "hotel booked", "hotel taken back", "flight taken back"),
        ]
        booked = "SELECT service, place FROM bookings ORDER BY rowid"
        assert database_of_steps.execute(booked).fetchall() == [(step, "Oslo") for step in saga.STEPS]
