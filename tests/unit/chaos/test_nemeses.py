"""Faults count only when their effect was seen, and a run needs enough of them."""

from __future__ import annotations

import errno
import json
import random
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from konverse.deploy.host.ports import HOST, free_port
from tests.chaos import nemeses
from tests.chaos.campaign import ALL, PLACES, PROFILES
from tests.chaos.clock import TIME_OF_DAY, UPTIME
from tests.chaos.crew import Crew
from tests.chaos.disk import small_disk
from tests.chaos.history import Scribe, read
from tests.chaos.nemeses import DAY_S, WORKS, Arena, NotNow, _cut, shift_clock, skip_time
from tests.chaos.process import Part
from tests.chaos.proxy import Proxy, Way
from tests.chaos.rig import Rig


def test_a_profile_knows_every_fault_and_how_many_it_needs() -> None:
    assert set(PROFILES) == {"smoke", "matrix"}
    for effective_min, cells in PROFILES.values():
        assert {name for cell in cells for name in cell.faults} == set(ALL)
        assert effective_min >= 40
        assert all(set(cell.weights) <= set(cell.faults) for cell in cells)
    assert len(PROFILES["matrix"][1]) == 8


def test_a_cut_through_which_nothing_wanted_to_pass_does_not_count() -> None:
    with socket.create_server((HOST, 0)) as server:
        upstream = server.getsockname()[1]
        with Proxy(free_port(()), upstream) as proxy:
            assert _cut(proxy, (Way.TO_SERVER,), 0.01) == ""
            cut = threading.Event()

            def talk() -> None:
                with socket.create_connection((HOST, proxy.port)) as client:
                    while not cut.wait(0.01):  # bytes before the cut pass
                        client.sendall(bytes([0, 0, 0, 1, 7]))

            with ThreadPoolExecutor(1) as pool:
                talking = pool.submit(talk)
                assert "bytes were held back" in _cut(proxy, tuple(Way), 0.2)
                cut.set()
                talking.result()


def test_a_place_is_for_one_fault_at_a_time() -> None:
    arena = Arena(Rig(None, {}, None), Crew({}), None, random.Random(1), Path(), {})  # type: ignore[arg-type]
    with arena.taken("owner-0"):
        with arena.taken("kafka", "redis"):
            pass
        with pytest.raises(NotNow), arena.taken("kafka", "owner-0"):
            pass
        with arena.taken("kafka"):
            pass
    with pytest.raises(NotNow), arena.process():
        pass
    assert all(place.partition("-")[0] in WORKS for place in PLACES)


def test_a_disk_that_is_full_takes_nothing_until_there_is_room_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        if disk is None:
            pytest.skip("nobody may mount anything here")
        written = disk.root / "written"
        written.write_bytes(b"before")
        disk.fill()
        with pytest.raises(OSError, match="No space left") as error:
            (disk.root / "more").write_bytes(bytes(10_000))
        assert error.value.errno == errno.ENOSPC
        disk.free()
        (disk.root / "more").write_bytes(bytes(10_000))
        assert written.read_bytes() == b"before"
    assert not (tmp_path / "disk" / "more").exists()


def test_a_history_is_read_in_time_order_without_unfinished_lines(tmp_path: Path) -> None:
    scribes = [Scribe(tmp_path / f"{name}.jsonl", name) for name in ("a", "b")]
    for number in range(6):
        scribes[number % 2].invoke("send", n=number)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"t": 1, "process": "a", "op": "se')
    assert [line["n"] for line in read(tmp_path.glob("*.jsonl"))] == [*range(6)]
    for scribe in scribes:
        scribe.close()


class Sleeper:
    """A process that sets its clocks as told, and reads them or not."""

    name = "client-0.1"
    alive = True

    def __init__(self, clocks: Path, reader: str) -> None:
        self._clocks = clocks
        self._reader = reader
        self._lines: list[dict[str, Any]] = [{"op": "start"}]

    def send(self, _number: signal.Signals) -> None:
        for clock, error_s in json.loads(self._clocks.read_text()).items():
            line = {"op": "clock", "clock": clock, "error_s": error_s}
            self._lines.append({**line, "type": "invoke"})
            if self._reader:
                self._lines.append({**line, "type": "ok", "reader": self._reader})

    def lines(self, op: str) -> list[dict[str, Any]]:
        return [line for line in self._lines if line["op"] == op]


def sleeping(folder: Path, reader: str) -> Arena:
    crew = Crew({"client-0": Part("client-0", "client", str(folder), "", "")})
    crew.members["client-0"] = Sleeper(folder / "client-0.clocks", reader)  # type: ignore[assignment]
    return Arena(Rig(None, {}, None), crew, None, random.Random(1), folder, {})  # type: ignore[arg-type]


def test_a_wrong_clock_counts_when_the_product_has_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nemeses, "CLOCK_READ_S", 0.05)
    assert "konverse.bridge.runtime.clock has read it" in skip_time(sleeping(tmp_path, "konverse.bridge.runtime.clock"))
    with pytest.raises(AssertionError, match=r"client-0.1 to read the .*: not within"):
        skip_time(sleeping(tmp_path, ""))
    assert "of client-0.1 is wrong" in shift_clock(sleeping(tmp_path, ""))


def test_time_that_was_skipped_does_not_come_back(tmp_path: Path) -> None:
    arena = sleeping(tmp_path, "konverse.bridge.runtime.clock")
    skipped = [0.0]
    for _ in range(5):
        shift_clock(arena)
        skip_time(arena)
        errors = json.loads((tmp_path / "client-0.clocks").read_text())
        skipped.append(errors[UPTIME])
        assert abs(errors[TIME_OF_DAY]) <= DAY_S
    assert skipped == sorted(skipped)
