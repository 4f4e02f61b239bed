"""Kafka nodes: their settings, formatted data folders and command line, and when a node is ready."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from konverse.deploy.host.faults import filesystem_faults
from konverse.deploy.host.folders import StackHome, make_folder
from konverse.deploy.host.locks import locked
from konverse.deploy.host.ports import HOST, new_id
from konverse.deploy.host.spawn import Launch
from konverse.deploy.host.tools import run_tool
from konverse.deploy.java.coordinates import KAFKA
from konverse.deploy.java.jars import class_path
from konverse.deploy.java.java import Java
from konverse.schemas.errors import StackError

from .state import ServerState

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

STARTED: Final = b"Kafka Server started"
_CHECKPOINT: Final = "bootstrap.checkpoint"
_LOCK_DEADLINE_S: Final = 60.0
_ANSWER_DEADLINE_S: Final = 1.0
_JVM: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",  # Javas of other vendors lack some of these
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # otherwise half of the start is compilation
    "-XX:-UsePerfData",  # leaves a file in the system's temporary folder after kill -9
)
_LOG4J: Final = """\
status=warn
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %p %m (%c)%n
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
logger.started.name=kafka.server.KafkaRaftServer
logger.started.level=info
"""


def common_settings(brokers: int) -> dict[str, str]:
    """Return the broker settings that do not depend on ports, for a cluster of `brokers` nodes.

    They make a node small. It notices dead brokers within a second, and dead readers within three.
    """
    replicas, in_sync = str(brokers), str(max(1, brokers - 1))
    return {
        "num.network.threads": "2",
        "num.io.threads": "2",
        "num.recovery.threads.per.data.dir": "1",
        "background.threads": "2",
        "log.cleaner.dedupe.buffer.size": "2097152",  # the default takes 128 MB of heap
        "controller.quorum.append.linger.ms": "0",  # else each new topic waits 25 ms
        "auto.create.topics.enable": "false",  # a misspelled topic name is an error
        "log.retention.ms": "-1",  # tests write records with old timestamps
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "1",
        # A killed broker can come back only when its old registration has timed out: after 1 s instead of 9 s.
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
        # Groups: no waiting for further members, and heartbeats, which the broker sets (KIP-848), five times a second:
        # a reader that dies is replaced within 3 s, not 45 s.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.session.timeout.ms": "2000",
        "group.consumer.assignment.interval.ms": "0",
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.heartbeat.interval.ms": "200",
        "group.share.assignment.interval.ms": "0",
    }


@dataclass(frozen=True)
class KafkaProgram:
    """A Java and the jars of the broker."""

    java: Java
    jars: Path
    cache: Path

    def argv(self, main: Sequence[str], jvm: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the command line of a Kafka program."""
        return (str(self.java.executable), *_JVM, *jvm, "-cp", class_path(self.jars), *main)

    def launch(
        self,
        node: ServerState,
        nodes: Sequence[ServerState],
        home: StackHome,
        jvm: Sequence[str],
        settings: Mapping[str, str],
    ) -> Launch:
        """Write the settings of a node, and return how to start it."""
        log4j = home.root / "config" / "log4j2.properties"
        lines = {**_node_settings(node, nodes, home), **common_settings(len(nodes)), **settings}
        with filesystem_faults(home.root):
            log4j.write_text(_LOG4J)
            home.config(node.name).write_text("".join(f"{key}={_escaped(value)}\n" for key, value in lines.items()))
        flags = (
            f"-Dlog4j2.configurationFile={log4j}",
            f"-Djava.io.tmpdir={home.tmp}",  # compression libraries unpack themselves into it
            f"-XX:ErrorFile={home.root}/logs/{node.name}-crash-%p.log",
            *jvm,
        )
        argv = self.argv(("kafka.Kafka", str(home.config(node.name))), flags)
        return Launch(argv, home.log(node.name), dict(os.environ))

    def format(self, node: ServerState, home: StackHome, cluster_id: str) -> None:
        """Prepare the data folder of a node, unless that was done before.

        Kafka's own tool makes the checkpoint, once for all nodes of this version; the rest is a few lines of text.
        """
        data = make_folder(home.data(node.name))
        if (data / "meta.properties").exists():
            return
        checkpoint = self._checkpoint()
        lines = {"version": "1", "cluster.id": cluster_id, "node.id": str(node.node_id), "directory.id": new_id()}
        with filesystem_faults(data):
            shutil.copyfile(checkpoint, data / _CHECKPOINT)
            (data / "meta.properties").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def _checkpoint(self) -> Path:
        place = self.cache / f"{KAFKA.name}.checkpoint"
        if place.exists():
            return place
        with (
            locked(place.with_name(f".{place.name}.lock"), deadline_s=_LOCK_DEADLINE_S),
            filesystem_faults(place),
            tempfile.TemporaryDirectory(prefix=f".{place.name}.partial-", dir=self.cache) as partial,
        ):
            if not place.exists():
                self._run_format(Path(partial)).rename(place)
        return place

    def _run_format(self, folder: Path) -> Path:
        home = StackHome(folder)
        home.create()
        node = ServerState("kafka", "kafka", port=1, node_id=1, controller_port=2)
        launch = self.launch(node, [node], home, (), {})
        tool = ("kafka.tools.StorageTool", "format", "-t", new_id(), "-c", str(home.config(node.name)))
        result = run_tool(list(self.argv(tool)), folder, launch.environ)
        if result.exit_code:
            raise StackError(
                f"Kafka's storage tool cannot format {folder} (exit code {result.exit_code}):\n{result.text}"
            )
        return home.data(node.name) / _CHECKPOINT


class KafkaProbe:
    """Asks whether one node is ready: first its log, which costs nothing, then the node itself."""

    def __init__(self, node: ServerState, log: Path, since_byte: int) -> None:
        self._node = node
        self._log = log
        self._since_byte = since_byte
        self._admin: AdminClient | None = None

    def ready(self) -> bool:
        """Return whether the node has logged its start and lists itself to a client."""
        if self._admin is None and not self._has_started():
            return False
        from confluent_kafka import KafkaException

        try:
            brokers = self._client().list_topics(timeout=_ANSWER_DEADLINE_S).brokers
        except KafkaException:
            return False
        return self._node.node_id in brokers

    def _has_started(self) -> bool:
        with filesystem_faults(self._log), self._log.open("rb") as stream:
            stream.seek(self._since_byte)
            return STARTED in stream.read()

    def _client(self) -> AdminClient:
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            quiet = logging.getLogger(f"{__name__}.client")
            quiet.addHandler(logging.NullHandler())
            quiet.propagate = False
            self._admin = AdminClient({"bootstrap.servers": self._node.address}, logger=quiet)
        return self._admin


def _node_settings(node: ServerState, nodes: Sequence[ServerState], home: StackHome) -> dict[str, str]:
    client = f"PLAINTEXT://{HOST}:{node.port}"
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(f"{n.node_id}@{HOST}:{n.controller_port}" for n in nodes),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{client},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": client,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(home.data(node.name)),
    }


def _escaped(value: str) -> str:
    """A value as Java reads it from a file of properties: in ASCII, other characters as escapes of UTF-16."""
    backslashes = value.replace("\\", "\\\\")
    return "".join(each if each.isascii() else _code_units(each) for each in backslashes)


def _code_units(character: str) -> str:
    data = character.encode("utf-16-be")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))
