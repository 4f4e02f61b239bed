"""Processes of `konverse run`: exit codes that end it, exit codes that restart a process, and the pauses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from konverse.bridge.runtime.presence import Presence, PresenceReader
from konverse.bridge.worker import supervisor as supervising
from konverse.bridge.worker.process import DRAINED, PERMANENT_FAILURE, STOPPED, Job
from konverse.bridge.worker.supervisor import (
    BACK_OFF_S,
    BACK_OFF_S_MAX,
    Child,
    Supervisor,
    _signal_name,
    back_off_s,
)
from tests.kit.shop import until

JOB = Job("shop:app", None, until_drained=True, grace_s=0.1, as_json=False)

NAMED = "import os, sys, time; open(sys.argv[1] + '/' + str(os.getpid()), 'w'); "
WAITS = f"sys.stdin.read(); sys.exit({STOPPED})"


@pytest.fixture
def supervise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A supervisor of processes that run these programs, the last one repeatedly."""

    def make(*programs: str, grace_s: float = 30.0) -> Supervisor:
        left = list(programs)

        def command(_job: Job, file: int) -> list[str]:
            program = left.pop(0) if len(left) > 1 else left[0]
            return [sys.executable, "-c", NAMED + program, str(tmp_path), str(file)]

        monkeypatch.setattr(supervising, "command", command)
        return Supervisor([JOB], grace_s)

    return make


def signalled(folder: Path, *numbers: signal.Signals, processes: int = 1) -> threading.Thread:
    """Sends this process these signals as soon as `processes` children have started."""

    def send() -> None:
        until(lambda: len(list(folder.iterdir())) >= processes, "the processes are there")
        for number in numbers:
            os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_a_process_is_started_again_ever_later_and_not_later_than_in_half_a_minute() -> None:
    assert [back_off_s(deaths) for deaths in (1, 2, 3)] == [BACK_OFF_S, 2 * BACK_OFF_S, 4 * BACK_OFF_S]
    assert back_off_s(7) == back_off_s(10**9) == BACK_OFF_S_MAX


@pytest.mark.parametrize(("code", "expected"), [(DRAINED, 0), (PERMANENT_FAILURE + 2, 2), (PERMANENT_FAILURE + 7, 7)])
def test_a_permanent_exit_code_of_a_process_ends_the_supervisor(supervise: Any, code: int, expected: int) -> None:
    assert supervise(f"sys.exit({code})").run() == expected


def test_a_process_that_ends_for_any_other_reason_is_restarted(
    supervise: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "BACK_OFF_S", 0.01)
    assert (
        supervise("os._exit(0)", "os.kill(os.getpid(), 9)", f"sys.exit({STOPPED})", f"sys.exit({DRAINED})").run() == 0
    )
    said = [record.getMessage() for record in caplog.records]
    assert ["with code 0" in said[0], "by signal SIGKILL" in said[1], f"with code {STOPPED}" in said[2]] == [True] * 3
    assert len(said) == 3


def test_a_signal_lets_processes_finish_and_its_previous_handler_is_restored(supervise: Any, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    sending = signalled(tmp_path, signal.SIGTERM)
    assert supervise(WAITS).run() == 0
    sending.join()
    assert signal.getsignal(signal.SIGTERM) is before


TWICE = """
import os, signal, sys
from konverse.bridge.worker import supervisor as supervising

def command(job, file):
    os.kill(os.getpid(), signal.SIGINT)
    return [sys.executable, "-c", "import sys; sys.stdin.read()"]

supervising.command = command
job = supervising.Job("shop:app", None, False, 30.0, False)
code = supervising.Supervisor([job], 30.0, ends_process=True).run()
for number in (signal.SIGINT, signal.SIGTERM):
    os.kill(os.getpid(), number)
sys.exit(code)
"""


def test_a_second_signal_that_comes_when_all_is_over_does_not_change_the_exit_code() -> None:
    assert subprocess.run([sys.executable, "-c", TWICE], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("signals", "grace_s"), [((signal.SIGTERM,), 0.1), ((signal.SIGTERM, signal.SIGINT), 600.0)], ids=["time", "signal"]
)
@pytest.mark.parametrize(("last", "code"), [("\\1", 8), ("\\0", 7)], ids=["in a handler", "away from Kafka"])
def test_a_process_that_does_not_finish_is_killed(  # noqa: PLR0917  # fixtures and cases
    supervise: Any,
    tmp_path: Path,
    signals: tuple[signal.Signals, ...],
    grace_s: float,
    last: str,
    code: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    program = f"os.pwrite(int(sys.argv[2]), b'{last}', 0); time.sleep(600)"
    sending = signalled(tmp_path, *signals)
    assert supervise(program, grace_s=grace_s).run() == code
    assert ("killed running handlers of" in caplog.text) is (code == 8)
    sending.join()
    (pid,) = tmp_path.iterdir()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.name), 0)


def test_a_process_that_a_signal_without_a_name_has_ended_is_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = f"import os; os.kill(os.getpid(), {signal.SIGRTMIN + 1})"
    monkeypatch.setattr(supervising, "command", lambda _job, _file: [sys.executable, "-c", program])
    child = Child(JOB)
    child.poll()
    until(lambda: not child.alive, "the process has died")
    child.poll()
    assert child.code is None
    assert f"by signal {signal.SIGRTMIN + 1};" in caplog.text
    assert _signal_name(signal.SIGKILL) == "SIGKILL"


@pytest.mark.parametrize(
    ("last", "pauses"), [("\\1", [0.5, 0.5, 0.5]), ("\\0", [0.5, 1.0, 2.0])], ids=["in", "outside"]
)
def test_after_a_death_in_a_handler_the_pauses_begin_anew(
    last: str, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The killing message is suspended in the end. A process that cannot even start is not retried all the time."""
    program = f"import os, sys; os.pwrite(int(sys.argv[1]), b'{last}', 0); os.kill(os.getpid(), 9)"
    monkeypatch.setattr(supervising, "command", lambda _job, file: [sys.executable, "-c", program, str(file)])
    child, found = Child(JOB), list[float]()
    for deaths in range(1, 4):
        child._start_at = 0.0
        child.poll()
        until(lambda: not child.alive, "it has died")
        child.poll()
        found.append(back_off_s(child._deaths))
        assert child._deaths in (1, deaths)
    assert found == pauses


def test_a_handler_that_comes_back_is_no_longer_at_work_and_one_that_exits_is() -> None:
    seen = PresenceReader()
    presence = Presence(os.dup(seen.file))
    with presence, presence:
        assert seen.in_a_handler()
    assert not seen.in_a_handler()
    with pytest.raises(ValueError, match="no"), presence:
        raise ValueError("no")
    assert not seen.in_a_handler()
    with pytest.raises(SystemExit), presence:
        sys.exit(1)
    assert seen.in_a_handler()
    seen.close()
