"""Queues whose topics are changed from outside, and the errors of each client (docs/outside.md)."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from logging import Handler, LogRecord, getLogger
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec

from konverse.bridge.broker import Broker
from konverse.bridge.catalog import journal as catalog_log
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.client.pool.pool import Pool
from konverse.bridge.kafka import topic_watch
from konverse.bridge.kafka.topics import JOURNAL_CONFIG, topics_of
from konverse.bridge.owner import log_starts as beginnings
from konverse.bridge.reader.reader import Reader
from konverse.dialog.owner import snapshots as snapshotting
from konverse.schemas.errors import KonverseError
from konverse.schemas.identifiers import catalog_topic, journal_topic, snapshot_topic, transmission_topic
from konverse.schemas.wire.envelope import HEADER, decode
from tests.kit.oracle import read_raw, snapshots_of
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
    work,
)
from tests.kit.topics import create, delete, set_config

PAGE: Final = Path(__file__).parents[2] / "docs" / "outside.md"
LINE: Final = re.compile(r"^\|(.+)\|$", re.MULTILINE)
POOL_SERVICE: Final = "//sales/PoolService"
READ_SERVICE: Final = "//sales/ReadService"


def table(heading: str = "The queue that is sent to and read") -> dict[tuple[str, str], str]:
    """The table under a heading of the page: (row, column) → cell."""
    part = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    heads, _, *rows = ([cell.strip() for cell in line.split("|")] for line in LINE.findall(part))
    return {(row[0], column): cell for row in rows for column, cell in zip(heads[1:], row[1:], strict=True)}


class LogLines(Handler):
    """Collects the lines of a logger."""

    def __init__(self, logger: str, exits: ExitStack) -> None:
        super().__init__()
        self.lines: list[str] = []
        getLogger(logger).addHandler(self)
        exits.callback(getLogger(logger).removeHandler, self)

    def emit(self, record: LogRecord) -> None:
        """Keep a line."""
        self.lines.append(record.getMessage())


class Logged(NamedTuple):
    """A record of a message in its data log. A message that a pool sends again has several."""

    topic: str
    offset: int
    conversation: UUID
    body: bytes


@dataclass
class Scene:
    """Two queues of a database, one with a reader, and senders to the other."""

    servers: Servers
    admin: AdminClient
    broker: Broker
    exits: ExitStack
    living: Dialog
    waiting: Dialog
    there: Dialog
    """A dialog to the queue of the running reader."""
    pool: Pool
    named: Pool
    reader: Reader
    running: threading.Thread
    said: LogLines
    """Warnings and errors that konverse has logged."""
    acknowledged: dict[bytes, UUID | None] = field(default_factory=dict)
    """Body reported to a sender as being in the log → its conversation; None for a pool and a transaction."""
    before: frozenset[bytes] = frozenset()
    """Bodies of them that were sent before the change."""
    logged: set[Logged] = field(default_factory=set)
    """All records, also those that were deleted since."""
    read: list[bytes] = field(default_factory=list)
    """Bodies received by the running reader."""
    ended: list[BaseException] = field(default_factory=list)
    """Errors that ended the running reader."""
    received: list[bytes] = field(default_factory=list)
    """Bodies received by the next reader."""
    failed: set[UUID] = field(default_factory=set)
    """Conversations of which a side got an Error."""

    @property
    def topics(self) -> list[str]:
        """The data topics that are changed."""
        return [queue_of(self.broker, name).topic for name in ("Orders", "Read")]

    def send(self, dialog: Dialog, body: bytes) -> None:
        """Send a message, wait until Kafka has it, and note that."""
        dialog.send(ORDER, body)
        dialog.flush()
        self.acknowledged[body] = dialog.id

    def note_records(self) -> None:
        """Note the records that are in the data logs now."""
        for topic in self.topics:
            for record in read_raw(self.servers.bootstrap, topic, 0):
                header = dict(record.headers).get(HEADER)
                if header is not None:
                    conversation = UUID(bytes=decode(header).conversation)
                    self.logged.add(Logged(topic, record.offset, conversation, record.value))

    def another(self, **options: Any) -> AbstractContextManager[Broker]:
        """A broker in a later process."""
        settings = self.broker.settings
        return connected(
            self.servers.bootstrap,
            self.broker.database,
            send_timeout_s=settings.send_timeout_s,
            instance=settings.instance,
            **options,
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


def saving(harm: Harm) -> Harm:
    """Change something, and let each commit of a running owner begin a snapshot."""

    def both(scene: Scene) -> None:
        harm(scene)
        save_often(scene.exits)

    return both


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
PARKED: Final = "parked"
"""The messages that wait belong to suspended conversations."""
SAVED: Final = "saved"
"""Messages wait, and each partition has a snapshot of them."""
TRUNCATED: Final = "truncated"
"""The same, and konverse has deleted the records of the journals that the snapshots make superfluous."""

HARMS: Final = {
    "records deleted before they were read": Row(UNREAD, cut("data")),
    "records deleted while they wait": Row(WAITING, cut("data")),
    "records deleted while parked": Row(PARKED, cut("data")),
    "records of the journal deleted": Row(WAITING, cut("journal", 2)),
    "data topic deleted": Row(WAITING, gone("data")),
    "data topic made again": Row(WAITING, again("data")),
    "journal deleted": Row(WAITING, gone("journal")),
    "journal made again": Row(WAITING, again("journal")),
    "snapshot topic deleted": Row(WAITING, gone("snapshot"), created),
    "snapshot topic made again": Row(SAVED, again("snapshot")),
    "snapshot topic made again after a truncation": Row(TRUNCATED, again("snapshot")),
    "records of the snapshot topic deleted": Row(SAVED, cut("snapshot")),
    "records of the snapshot topic deleted after a truncation": Row(TRUNCATED, cut("snapshot")),
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
    "`retention.ms` of the snapshot topic set": _changed("snapshot", "retention.ms", "86400000", "-1"),
    "`max.message.bytes` of the snapshot topic lowered": Row(
        SAVED,
        saving(setting("snapshot", "max.message.bytes", "50")),
        setting("snapshot", "max.message.bytes", "1000000"),
    ),
    "`message.timestamp.type` of the snapshot topic changed": _changed(
        "snapshot", "message.timestamp.type", "CreateTime", "LogAppendTime"
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
    keep = timedelta(0) if before == TRUNCATED else None
    open_shop(broker, keep=keep)
    broker.admin.create_queue("Read", keep=keep)
    broker.admin.create_service(READ_SERVICE, queue="Read", contracts=[ORDERING])
    living = broker.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
    waiting = broker.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
    there = broker.begin_dialog(SHOP_SERVICE, READ_SERVICE, ORDERING)
    broker.admin.create_queue("Pools")
    broker.admin.create_service(POOL_SERVICE, queue="Pools", contracts=[ORDERING])
    pool = broker.pool(POOL_SERVICE, ORDER_SERVICE, ORDERING, end_of_stream=NOTE)
    named = broker.pool(POOL_SERVICE, ORDER_SERVICE, ORDERING, end_of_stream=NOTE, name="named")
    for one, body in ((pool, b"before, in a pool"), (named, b"before, in a named pool")):
        one.send(ORDER, body, key="a key")
    broker.flush()
    scene = Scene(
        servers,
        AdminClient({"bootstrap.servers": servers.bootstrap}),
        broker,
        exits,
        living,
        waiting,
        there,
        pool,
        named,
        broker.reader("Read"),
        threading.Thread(),
        LogLines("konverse", exits),
        {b"before, in a pool": None, b"before, in a named pool": None},
    )
    for dialog, body in ((living, b"before"), (waiting, b"before, waiting"), (there, b"before, there")):
        scene.send(dialog, body)
    scene.running = threading.Thread(target=_run, args=(scene,))
    scene.running.start()
    exits.callback(_stop, scene)
    until(lambda: scene.read, "the reader that runs has received something")
    decided = journal_topic(queue_of(broker, "Read").topic)
    until(lambda: len(read_raw(servers.bootstrap, decided, 0)) > 1, "and has committed that")
    scene.note_records()
    _SITUATIONS[before](scene)
    scene.note_records()
    scene.before = frozenset(scene.acknowledged)
    return scene


def save_often(exits: ExitStack) -> None:
    """Let each commit begin a snapshot."""
    for name in ("SNAPSHOT_EVERY_RECORDS", "RECORDS_PER_ENDPOINT"):
        exits.callback(setattr, snapshotting, name, getattr(snapshotting, name))
        setattr(snapshotting, name, 0)


def begins_at(scene: Scene, topic: str, number: int = 0) -> int:
    """First offset of a log."""
    return _offset(scene, topic, number, OffsetSpec.earliest())  # type: ignore[no-untyped-call]


def is_empty(scene: Scene, topic: str, number: int) -> bool:
    """Whether a log holds no record any more; False for one that never held any."""
    end = _offset(scene, topic, number, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    return 0 < end == begins_at(scene, topic, number)


def _offset(scene: Scene, topic: str, number: int, which: OffsetSpec) -> int:
    place = TopicPartition(topic, number)
    return int(scene.admin.list_offsets({place: which})[place].result(DEADLINE_S).offset)


def _wait(scene: Scene) -> None:
    with scene.broker.reader("Orders", timeout=0.5) as reader:
        fill(reader, 4)
        reader.settle()


def _park(scene: Scene) -> None:
    with scene.broker.reader("Orders", timeout=0.5) as reader:
        fill(reader, 4)
        reader.operations.suspend(scene.waiting.id)
        for transaction in reader:
            with transaction:
                assert scene.waiting.id not in [message.dialog.id for message in transaction]
    scene.reader.operations.suspend(scene.there.id)
    scene.send(scene.there, b"parked")
    until(lambda: [parked(scene, queue) for queue in ("Orders", "Read")] == [[1], [1]], "a message is parked in each")


def parked(scene: Scene, queue: str) -> list[int]:
    """Number of messages that wait on each suspended side of a queue, by its journals."""
    return [side.unread for sides in scene.broker.operations.suspended(queue) for side in sides]


def _save(scene: Scene, done: Callable[[str], object] | None = None) -> None:
    """Send until the reader that runs, and then one that receives nothing, have saved what `done` asks for."""

    def saved(name: str, dialog: Dialog, further: Callable[[], None]) -> bool:
        if done(name) if done is not None else snapshots_of(scene.servers.bootstrap, queue_of(scene.broker, name)):
            return True
        scene.send(dialog, b"more %d" % len(scene.acknowledged))
        further()
        return False

    with ExitStack() as meanwhile:
        save_often(meanwhile)
        until(lambda: saved("Read", scene.there, lambda: None), "the reader that runs has saved its state")
        with scene.broker.reader("Orders", timeout=0.5) as reader:
            fill(reader, 4)
            until(lambda: saved("Orders", scene.waiting, lambda: work(reader)), "the state is saved")
            until(lambda: _pause(reader), "no snapshot is on its way")
            reader.settle()
    until(lambda: is_saved(scene.reader), "no snapshot is on its way")


def is_saved(reader: Reader) -> bool:
    """Whether no snapshot is being made or written."""
    return not any(owner.snapshots.busy for owner in reader.owners)


def _pause(reader: Reader) -> bool:
    work(reader)
    return is_saved(reader)


def _truncate(scene: Scene) -> None:
    _save(scene, lambda name: begins_at(scene, journal_topic(queue_of(scene.broker, name).topic)))


_SITUATIONS: Final[dict[str, Harm]] = {
    UNREAD: lambda _: None,
    WAITING: _wait,
    PARKED: _park,
    SAVED: _save,
    TRUNCATED: _truncate,
}
"""Situation before the change → what brings it about."""


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
