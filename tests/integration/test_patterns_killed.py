"""Patterns of the examples whose handlers are killed in each of their transactions: what they promise holds."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from examples.patterns import asynchronous_call, fan_out_fan_in, saga, scheduled_work
from examples.patterns.tables import tables
from konverse.bridge.broker import Broker
from konverse.schemas.catalog import Queue
from tests.kit.servers import Servers
from tests.kit.shop import connected, until

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(400)]

PATIENCE_S = 180.0

Killed = Callable[[ModuleType], int]


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


def settled(broker: Broker) -> bool:
    """No side of a conversation is left."""
    return not list(broker.views.conversation_endpoints())


@pytest.fixture
def killed(servers: Servers, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Killed:
    """Plays a pattern whose handlers die once in each transaction; returns how many transactions there were."""
    monkeypatch.setenv("KONVERSE_KAFKA", f"kafka://{servers.bootstrap}")
    monkeypatch.setenv("KONVERSE_DATABASE", database)
    monkeypatch.setenv("EXAMPLES_TABLES", str(tmp_path))
    marks = tmp_path / "marks"
    marks.mkdir()

    def play(pattern: ModuleType) -> int:
        monkeypatch.setattr(pattern, "PATIENCE_S", PATIENCE_S)
        worker = [sys.executable, "-m", "tests.integration.pattern_worker", pattern.__name__]
        over = threading.Event()
        with connected(servers.bootstrap, database) as broker, ThreadPoolExecutor(1) as pool:
            pattern.create(broker)
            codes = pool.submit(started_again, [*worker, servers.bootstrap, database, str(marks)], over)
            try:
                pattern.main()
                until(lambda: settled(broker), "nothing is left open", PATIENCE_S)
            finally:
                over.set()
            assert set(codes.result()) == {-signal.SIGKILL}
            queues = [broker.catalog.get(Queue, row.name) for row in broker.views.service_queues()]
            assert broker.verification(queues).run()[1] == []
        transactions = len(list(marks.iterdir()))
        assert transactions // 2 < len(codes.result()) <= transactions  # one death may be that of several threads
        return transactions

    return play


def test_a_saga_goes_through_or_back_and_each_step_counts_once(
    killed: Killed, capsys: pytest.CaptureFixture[str]
) -> None:
    # Agency: an order and what comes of three steps; steps: orders and ends. Then the same with two taken back.
    assert killed(saga) == (1 + 3) + (3 + 3) + (1 + 3 + 2) + (3 + 2 + 2)
    assert capsys.readouterr().out.splitlines() == [
        "Oslo: booked",
        "Venice: no car in Venice",
        *("flight booked", "hotel booked", "car booked"),
        *("flight booked", "hotel booked", "hotel taken back", "flight taken back"),
    ]
    with tables(saga.inbox, "travel", *saga.TABLES) as steps:
        booked = steps.execute("SELECT service, place FROM bookings ORDER BY rowid").fetchall()
    assert booked == [(step, "Oslo") for step in saga.STEPS]


def test_a_schedule_goes_on_and_no_run_is_left_out_or_done_twice(
    killed: Killed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert killed(scheduled_work) >= 1 + scheduled_work.ROUNDS
    assert capsys.readouterr().out.splitlines() == [f"round {number}: all is well" for number in (1, 2, 3)]


def test_a_function_is_called_again_and_its_result_comes_once(
    killed: Killed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert killed(asynchronous_call) >= 4
    assert capsys.readouterr().out.splitlines() == [
        "result: 3.0",
        "result: ['to', 'be', 'or', 'not']",
        "raised: error 1, ZeroDivisionError: division by zero",
        "raised: error 2, no function 'eval' is registered",
    ]


def test_every_inquiry_is_answered_once_with_what_came_in_time(
    killed: Killed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert killed(fan_out_fan_in) >= 2 * (1 + len(fan_out_fan_in.CARRIERS))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for pallets, line in zip((3, 4), lines, strict=True):
        assert re.fullmatch(rf"{pallets} pallets: (no offer|\d+ by //freight/\w+, of [123] offers)", line)
