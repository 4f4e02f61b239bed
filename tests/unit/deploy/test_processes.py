from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from konverse.deploy.host.processes import ProcessId, end_all, wait_for_end
from tests.kit import until
from tests.unit.deploy.programs import sleeper

IGNORES_SIGTERM = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(sleeper()) as process:
        yield process
        process.kill()


def identity(process: subprocess.Popen[bytes]) -> ProcessId:
    found = ProcessId.of(process.pid)
    assert found is not None
    return found


def test_a_process_is_alive_until_it_has_ended_even_if_its_parent_has_not_waited_for_it(
    child: subprocess.Popen[bytes],
) -> None:
    process = identity(child)
    assert process.alive()
    assert process.send(signal.SIGKILL)
    until(lambda: not process.alive())  # a zombie by now
    assert child.returncode is None
    assert ProcessId.of(child.pid) is None


def test_a_recycled_pid_gets_no_signal(child: subprocess.Popen[bytes]) -> None:
    stranger = ProcessId(child.pid, "started at another time")
    assert not stranger.alive()
    assert not stranger.send(signal.SIGKILL)
    assert stranger.memory_bytes() is None
    end_all([stranger], 0)
    assert child.poll() is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_recycled_pid_of_a_program_whose_name_is_not_utf_8_gets_no_signal() -> None:
    name = "import time; open('/proc/self/comm', 'wb').write('überlängenprüfer'.encode()); print(flush=True)"
    command = [sys.executable, "-I", "-S", "-c", f"{name}; time.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert not ProcessId(process.pid, "started at another time").alive()
            assert identity(process).alive()
        finally:
            process.kill()


def test_an_unused_pid_gets_no_signal() -> None:
    assert ProcessId.of(0) is None
    assert not ProcessId(2**22 + 1, "never").send(signal.SIGTERM)


def test_a_process_that_ignores_sigterm_is_killed_after_the_deadline() -> None:
    command = [sys.executable, "-I", "-S", "-c", IGNORES_SIGTERM]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        end_all([identity(process)], 0.1)
        assert process.wait() == -signal.SIGKILL


def test_processes_end_by_sigterm_if_they_can(child: subprocess.Popen[bytes]) -> None:
    end_all([identity(child)], 10.0)
    assert child.wait() == -signal.SIGTERM


def test_waiting_returns_those_that_still_run_at_the_deadline(child: subprocess.Popen[bytes]) -> None:
    process = identity(child)
    assert wait_for_end([process], 0.05) == [process]


def test_this_process_has_memory() -> None:
    process = ProcessId.of(os.getpid())
    assert process is not None
    assert (process.memory_bytes() or 0) > 1_000_000
