"""The guard with real processes: the fate of servers when their owner ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from konverse.deploy.host.processes import ProcessId
from konverse.deploy.host.spawn import Launch, Spawner
from konverse.schemas.errors import StackError
from konverse.schemas.stack_errors import ServerDied
from tests.kit import until
from tests.unit.deploy.programs import sleeper

OWNER = """
    import sys, time, threading
    from pathlib import Path
    from konverse.deploy.host.spawn import Launch, Spawner
    from tests.unit.deploy.programs import sleeper
    def start():
        spawner = Spawner([Path(sys.argv[1]) / "data"], lasting=sys.argv[2] == "lasting")
        for _ in range(2):
            print(spawner.start(Launch(sleeper(), Path(sys.argv[1]) / "log", {})).pid, flush=True)
        {then}
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def spawner(tmp_path: Path) -> Iterator[Spawner]:
    (tmp_path / "data").mkdir()
    made = Spawner([tmp_path / "data"])
    yield made
    made.stop()


def launch(folder: Path) -> Launch:
    return Launch(sleeper(), folder / "log", {})


def owner(folder: Path, mode: str, then: str = "pass") -> tuple[subprocess.Popen[str], list[ProcessId]]:
    """Start a process that starts two servers in a thread. The thread has ended when this returns."""
    (folder / "data").mkdir()
    program = textwrap.dedent(OWNER).replace("{then}", then)
    command = [sys.executable, "-c", program, str(folder), mode]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
    assert process.stdout is not None
    pids = [int(process.stdout.readline()) for _ in range(2)]
    assert process.stdout.readline() == "ready\n"
    servers = [ProcessId.of(pid) for pid in pids]
    return process, [server for server in servers if server is not None]


def end(process: subprocess.Popen[str], number: signal.Signals = signal.SIGKILL) -> None:
    process.send_signal(number)
    process.communicate()


def guard_of(server: ProcessId) -> int:
    return int(psutil.Process(server.pid).ppid())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("mode", ["once", "lasting"])
def test_servers_and_files_go_with_their_owner(tmp_path: Path, mode: str, number: signal.Signals) -> None:
    process, servers = owner(tmp_path, mode)
    assert len(servers) == 2  # although the thread that started them has ended
    guard = ProcessId.of(guard_of(servers[0]))
    assert guard is not None
    end(process, number)
    until(lambda: not any(each.alive() for each in (*servers, guard)))
    assert not (tmp_path / "data").exists()


def test_servers_go_with_their_owner_although_a_forked_child_of_it_lives(tmp_path: Path) -> None:
    process, servers = owner(tmp_path, "once", "import os; pid = os.fork(); pid or time.sleep(600)")
    children = [child for child in psutil.Process(process.pid).children() if child.pid != guard_of(servers[0])]
    assert len(children) == 1
    end_owner = threading.Thread(target=process.kill)
    end_owner.start()
    try:
        until(lambda: not any(server.alive() for server in servers))
        assert children[0].is_running()
    finally:
        children[0].kill()
        end(process)
        end_owner.join()


def test_released_servers_outlive_their_owner(tmp_path: Path) -> None:
    process, servers = owner(tmp_path, "lasting", "spawner.release()")
    end(process)
    try:
        assert [server.alive() for server in servers] == [True, True]
        assert (tmp_path / "data").exists()
    finally:
        for server in servers:
            server.send(signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux is asked to end them")
def test_servers_go_with_their_guard(tmp_path: Path, spawner: Spawner) -> None:
    server = spawner.start(launch(tmp_path))
    os.kill(guard_of(server), signal.SIGKILL)
    until(lambda: not server.alive())
    with pytest.raises(ServerDied, match="guard of the stack has ended"):
        spawner.start(launch(tmp_path))


def test_a_terminated_guard_stops_its_servers_first(tmp_path: Path, spawner: Spawner) -> None:
    server = spawner.start(launch(tmp_path))
    os.kill(guard_of(server), signal.SIGTERM)
    until(lambda: not server.alive())
    until(lambda: not (tmp_path / "data").exists())


def test_stop_ends_all_and_may_be_called_twice(tmp_path: Path, spawner: Spawner) -> None:
    servers = [spawner.start(launch(tmp_path)) for _ in range(3)]
    spawner.stop()
    assert not any(server.alive() for server in servers)
    assert not (tmp_path / "data").exists()
    spawner.stop()


def test_a_server_that_ended_is_no_zombie_for_long(tmp_path: Path, spawner: Spawner) -> None:
    server = spawner.start(launch(tmp_path))
    server.send(signal.SIGKILL)
    until(lambda: not psutil.pid_exists(server.pid))


def test_several_threads_may_start_servers(tmp_path: Path, spawner: Spawner) -> None:
    started: list[ProcessId] = []
    threads = [threading.Thread(target=lambda: started.append(spawner.start(launch(tmp_path)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({server.pid for server in started}) == 8
    assert all(server.alive() for server in started)


def test_a_program_that_is_not_there_is_an_error_that_names_it(tmp_path: Path, spawner: Spawner) -> None:
    with pytest.raises(StackError, match=r"/no/such/program cannot be started: .*No such file"):
        spawner.start(Launch(("/no/such/program",), tmp_path / "log", {}))


def test_a_log_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path, spawner: Spawner) -> None:
    with pytest.raises(StackError, match="missing/log"):
        spawner.start(Launch(sleeper(), tmp_path / "missing" / "log", {}))
