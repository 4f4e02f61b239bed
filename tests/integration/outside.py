"""Queues whose topics are changed from outside, and the errors of each client (docs/outside.md)."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from konverse.bridge.broker import Broker
from konverse.bridge.catalog import journal as catalog_log
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.client.pool.pool import Pool
from konverse.bridge.kafka import topic_watch
from konverse.bridge.kafka.topics import JOURNAL_CONFIG, topics_of
from konverse.bridge.owner import log_starts as beginnings
from konverse.bridge.reader.reader import Reader
from konverse.schemas.errors import KonverseError
from konverse.schemas.identifiers import catalog_topic, journal_topic, snapshot_topic, transmission_topic
from tests.integration.test_faults_topics import create, delete, set_config
from tests.kit.oracle import read_raw
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    NOTE,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    SHOP_SERVICE,
    connected,
    fill,
    open_shop,
    queue_of,
    until,
)

PAGE: Final = Path(__file__).parents[2] / "docs" / "outside.md"
LINE: Final = re.compile(r"^\|(.+)\|$", re.MULTILINE)
POOL_SERVICE: Final = "//sales/PoolService"
READ_SERVICE: Final = "//sales/ReadService"


def table(heading: str = "The queue that is sent to and read") -> dict[tuple[str, str], str]:
    """The table under a heading of the page: (row, column) → cell."""
    part = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    heads, _, *rows = ([cell.strip() for cell in line.split("|")] for line in LINE.findall(part))
    return {(row[0], column): cell for row in rows for column, cell in zip(heads[1:], row[1:], strict=True)}


@dataclass
class Scene:
    """Two queues of a database, one with a reader, and senders to the other."""

    servers: Servers
    admin: AdminClient
    broker: Broker
    exits: ExitStack
    living: Dialog
    waiting: Dialog
    pool: Pool
    named: Pool
    reader: Reader
    running: threading.Thread
    acknowledged: dict[bytes, UUID | None] = field(default_factory=dict)
    """Body reported to a sender as being in the log → its conversation."""
    read: list[bytes] = field(default_factory=list)
    """Bodies received by the running reader."""
    ended: list[BaseException] = field(default_factory=list)
    """Errors that ended the running reader."""
    received: list[bytes] = field(default_factory=list)
    """Bodies received by the next reader."""
    failed: set[UUID] = field(default_factory=set)
    """Conversations whose initiator got an Error."""

    @property
    def topics(self) -> list[str]:
        """The data topics that are changed."""
        return [queue_of(self.broker, name).topic for name in ("Orders", "Read")]

    def another(self) -> AbstractContextManager[Broker]:
        """A broker in a later process."""
        settings = self.broker.settings
        return connected(
            self.servers.bootstrap,
            self.broker.database,
            send_timeout_s=settings.send_timeout_s,
            instance=settings.instance,
        )


Harm = Callable[[Scene], None]


def _each(scene: Scene, part: str) -> dict[str, dict[str, str]]:
    """Topic → settings with which it is created."""
    instance = scene.broker.settings.instance
    if part == "catalog":
        return {catalog_topic(instance): JOURNAL_CONFIG}
    queues = [transmission_topic(instance)] if part.startswith("transmission") else scene.topics
    kind = ("data", "journal", "snapshot").index(part.removeprefix("transmission "))
    return dict([*topics_of(queue).items()][kind] for queue in queues)


def _partitions(scene: Scene, topic: str) -> int:
    return len(scene.admin.list_topics(topic, timeout=10).topics[topic].partitions)


def cut(part: str, offset: int | None = None) -> Harm:
    """Delete the beginning of a log; all of it without `offset`."""

    def harm(scene: Scene) -> None:
        for topic in _each(scene, part):
            for number in range(_partitions(scene, topic)):
                place = TopicPartition(topic, number, -1 if offset is None else offset)
                scene.admin.delete_records([place])[place].result(DEADLINE_S)

    return harm


def gone(part: str) -> Harm:
    """Delete the topic."""

    def harm(scene: Scene) -> None:
        for topic in _each(scene, part):
            delete(scene.admin, topic)

    return harm


def again(part: str) -> Harm:
    """Delete the topic, and create another with its name."""

    def harm(scene: Scene) -> None:
        for topic, config in _each(scene, part).items():
            partitions = _partitions(scene, topic)
            delete(scene.admin, topic)
            create(scene.admin, topic, partitions, config)

    return harm


def grown(*parts: str) -> Harm:
    """Add partitions to every topic."""

    def harm(scene: Scene) -> None:
        for topic in (name for part in parts for name in _each(scene, part)):
            more = NewPartitions(topic, _partitions(scene, topic) + 2)
            scene.admin.create_partitions([more])[topic].result(DEADLINE_S)

    return harm


def setting(part: str, name: str, value: str, *, mended: str | None = None) -> Harm:
    """Change a setting; with `mended`, change it back afterwards."""

    def harm(scene: Scene) -> None:
        for topic in _each(scene, part):
            set_config(scene.admin, topic, name, value)
            if mended is not None:
                set_config(scene.admin, topic, name, mended)

    return harm


def created(scene: Scene) -> None:
    """Create the missing snapshot topics."""
    for data in scene.topics:
        topic = snapshot_topic(data)
        create(scene.admin, topic, 1, dict(topics_of(data)[topic]))


class Row(NamedTuple):
    """The situation before, the change, and the administrator's remedy."""

    before: str
    harm: Harm
    mend: Harm | None = None


def _changed(part: str, name: str, value: str, needed: str) -> Row:
    return Row(WAITING, setting(part, name, value), setting(part, name, needed))


UNREAD: Final = "unread"
WAITING: Final = "waiting"

HARMS: Final = {
    "records deleted before they were read": Row(UNREAD, cut("data")),
    "records deleted while they wait": Row(WAITING, cut("data")),
    "records of the journal deleted": Row(WAITING, cut("journal", 2)),
    "data topic deleted": Row(WAITING, gone("data")),
    "data topic made again": Row(WAITING, again("data")),
    "journal deleted": Row(WAITING, gone("journal")),
    "journal made again": Row(WAITING, again("journal")),
    "snapshot topic deleted": Row(WAITING, gone("snapshot"), created),
    "snapshot topic made again": Row(WAITING, again("snapshot")),
    "partitions added": Row(WAITING, grown("data", "journal", "snapshot")),
    "journal compacted": _changed("journal", "cleanup.policy", "compact", "delete"),
    "journal compacted, and not any more": Row(
        WAITING, setting("journal", "cleanup.policy", "compact", mended="delete")
    ),
    "data topic compacted": _changed("data", "cleanup.policy", "compact", "delete"),
    "snapshot topic compacted": _changed("snapshot", "cleanup.policy", "compact", "delete"),
    "`retention.ms` set": _changed("data", "retention.ms", "86400000", "-1"),
    "`retention.bytes` set": _changed("data", "retention.bytes", "100000000", "-1"),
    "`max.message.bytes` lowered": _changed("data", "max.message.bytes", "900000", "1000000"),
    "`min.insync.replicas` raised": _changed("data", "min.insync.replicas", "2", "1"),
    "`message.timestamp.type` of the journal changed": _changed(
        "journal", "message.timestamp.type", "CreateTime", "LogAppendTime"
    ),
}
"""Row of the page → the change."""

QUICK: Final = (
    "records deleted before they were read",
    "records deleted while they wait",
    "data topic made again",
)


def begin_scene(servers: Servers, database: str, before: str, exits: ExitStack, *, instance: str = "konverse") -> Scene:
    """Set up all clients, before anything is changed."""
    for module in (topic_watch, beginnings, catalog_log):
        exits.callback(setattr, module, "WATCH_EVERY_S", module.WATCH_EVERY_S)
        setattr(module, "WATCH_EVERY_S", 0.2)  # noqa: B010  # a constant, for the checkers
    broker = exits.enter_context(
        connected(servers.bootstrap, database, redis=servers.redis_url, send_timeout_s=4, instance=instance)
    )
    open_shop(broker)
    broker.admin.create_queue("Read")
    broker.admin.create_service(READ_SERVICE, queue="Read", contracts=[ORDERING])
    living = broker.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
    waiting = broker.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
    there = broker.begin_dialog(SHOP_SERVICE, READ_SERVICE, ORDERING)
    broker.admin.create_queue("Pools")
    broker.admin.create_service(POOL_SERVICE, queue="Pools", contracts=[ORDERING])
    pool = broker.pool(POOL_SERVICE, ORDER_SERVICE, ORDERING, end_of_stream=NOTE)
    named = broker.pool(POOL_SERVICE, ORDER_SERVICE, ORDERING, end_of_stream=NOTE, name="named")
    for dialog in (living, waiting, there):
        dialog.send(ORDER, b"before")
    for one in (pool, named):
        one.send(ORDER, b"before", key="a key")
    broker.flush()
    if before == WAITING:
        with broker.reader("Orders", timeout=0.5) as reader:
            fill(reader, 4)
            reader.settle()
    reader = broker.reader("Read")
    scene = Scene(
        servers,
        AdminClient({"bootstrap.servers": servers.bootstrap}),
        broker,
        exits,
        living,
        waiting,
        pool,
        named,
        reader,
        threading.Thread(),
    )
    scene.running = threading.Thread(target=_run, args=(scene,))
    scene.running.start()
    exits.callback(_stop, scene)
    until(lambda: scene.read, "the reader that runs has received something")
    decided = journal_topic(queue_of(broker, "Read").topic)
    until(lambda: len(read_raw(servers.bootstrap, decided, 0)) > 1, "and has committed that")
    return scene


def forget(servers: Servers, instance: str) -> None:
    """Delete the topics of an instance, because a small broker holds about a thousand."""
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    with suppress(KafkaException):
        names = [name for name in admin.list_topics(timeout=10).topics if name.startswith(f"{instance}.")]
        for deleted in (admin.delete_topics(names) if names else {}).values():
            with suppress(KafkaException):
                deleted.result(10)


def _run(scene: Scene) -> None:
    try:
        for transaction in scene.reader:
            with transaction:
                scene.read.extend(message.body for message in transaction)
    except KonverseError as error:
        scene.ended.append(error)


def _stop(scene: Scene) -> None:
    try:
        scene.reader.close()
    except KonverseError as error:
        scene.ended.append(error)
    scene.running.join(DEADLINE_S)
