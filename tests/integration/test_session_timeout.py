"""Each way to read a queue names a long session timeout of Kafka once, as `konverse run` does at its start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from konverse.bridge.broker import Broker
from tests.kit.answering import Run
from tests.kit.servers import Servers
from tests.kit.shop import connected, open_shop, until

pytestmark = pytest.mark.stack

WARNING = "the partitions of a killed worker wait 45 s for another worker (session.timeout.ms"
CLASSIC = {"KONVERSE_GROUP_PROTOCOL": "classic"}
"""In the classic protocol each client has a session timeout, whose default is 45 s."""


def iterate(broker: Broker) -> None:
    with broker.reader("Orders", timeout=0) as reader:
        assert list(reader) == []


def run(broker: Broker) -> None:
    with broker.reader("Orders", timeout=0) as reader:
        reader.run(lambda _: None)


def transmit(broker: Broker) -> None:
    with broker.transmitter():
        pass


def name_partitions(broker: Broker) -> None:
    with broker.reader("Orders", timeout=0, partitions=(0,)) as reader:
        assert list(reader) == []


@pytest.mark.parametrize(("read", "times"), [(iterate, 1), (run, 1), (transmit, 1), (name_partitions, 0)])
def test_a_connection_names_a_long_session_timeout_with_its_first_reader_of_a_group(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture, read: Callable[[Broker], None], times: int
) -> None:
    with connected(servers.bootstrap, database, group_protocol="classic") as broker:
        open_shop(broker)
        read(broker)
        read(broker)
    assert sum(WARNING in message for message in caplog.messages) == times


def test_konverse_transmit_names_a_long_session_timeout_once(servers: Servers, instance: str, tmp_path: Path) -> None:
    where = {"KONVERSE_KAFKA": f"kafka://{servers.bootstrap}", "KONVERSE_INSTANCE": instance}
    environment = os.environ | CLASSIC | where
    log = tmp_path / "log"
    start = [sys.executable, "-c", "from konverse.bridge.cli.main import app; app()", "transmit"]
    with log.open("wb") as errors, subprocess.Popen(start, env=environment, stderr=errors) as process:
        try:
            until(lambda: "transmitting for instance" in log.read_text("utf-8"), "it transmits")
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text("utf-8")
    assert log.read_text("utf-8").count(WARNING) == 1


def test_konverse_run_names_a_long_session_timeout_once_for_all_its_processes(
    servers: Servers, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CLASSIC.items():
        monkeypatch.setenv(name, value)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        with Run(servers, database, tmp_path, "--readers", "processes") as worker:
            worker.wait_for("reading queue 'Orders'", 2)
        assert len(worker.said(WARNING)) == 1
