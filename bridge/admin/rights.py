"""The Kafka rights of each kind of process, as `konverse acl` prints them and docs/operating.md lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from confluent_kafka.admin import AclOperation, ResourceType

from konverse.schemas.identifiers import (
    catalog_topic,
    consumer_group,
    data_topic,
    instruction_topic,
    journal_topic,
    open_topic,
    snapshot_topic,
    succession_topic,
    transmission_topic,
)

TOPIC: Final = ResourceType.TOPIC
GROUP: Final = ResourceType.GROUP
ANY: Final = "*"
"""At the end of a resource's name: all resources with this prefix."""

_READ, _WRITE, _SETTINGS = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS
_CREATE, _DELETE, _DESCRIBE = AclOperation.CREATE, AclOperation.DELETE, AclOperation.DESCRIBE


class Right(NamedTuple):
    """One operation on one resource of Kafka."""

    resource: ResourceType
    name: str
    operation: AclOperation


class Grant(NamedTuple):
    """Rights that belong together."""

    rights: list[Right]
    purpose: str = ""
    """What they are for; empty: the process does not work without them."""


class ProcessRights:
    """The minimal rights of a process, for the queues that it works with.

    `queues`: the queues that it reads, or whose services it sends for. `to`: the queues to which it sends.
    """

    def __init__(self, instance: str, database: str, queues: Sequence[str], to: Sequence[str] = ()) -> None:
        self._instance = instance
        self._own = [data_topic(instance, database, queue) for queue in queues]
        self._to = [data_topic(instance, database, queue) for queue in to]
        self._transmission = transmission_topic(instance)
        self._knows = on_topic(catalog_topic(instance), _READ, _SETTINGS)
        self._dates = on_topic(open_topic(instance), _WRITE)
        self._listens = on_topic(instruction_topic(instance), _READ)
        self._commands = on_topic(instruction_topic(instance), _READ, _WRITE)

    def of(self, kind: str) -> list[Grant]:
        """The rights of a kind of process, one of `KINDS`: those that it needs, then those for special purposes."""
        return KINDS[kind].grants(self)

    def sender(self) -> list[Grant]:
        """A process that sends on its dialogs, ends them and sets their timers."""
        return [
            Grant(self._sends()),
            Grant(_reads(self._to), "for a new id after 12 hours without an acknowledgement, and for broker.outcome"),
            Grant(_reads(self._own), "for dialog.bounced, while no reader of this process reads the queue"),
        ]

    def client(self) -> list[Grant]:
        """A process with client transactions."""
        return [Grant([*self._sends(), *on_topic(self._transmission, _WRITE), *_owns([self._transmission])])]

    def transmitter(self) -> list[Grant]:
        """`konverse transmit`."""
        return [Grant([*self._sends(), *self._listens, *_owns([self._transmission])])]

    def reader(self) -> list[Grant]:
        """A process that reads queues, whose handlers send to others."""
        journals = [right for topic in self._own for log in logs_of(topic) for right in on_topic(log, _DELETE)]
        groups = [Right(GROUP, f"{consumer_group(topic)}.{ANY}", _DESCRIBE) for topic in self._own]
        needed = [*self._knows, *self._dates, *self._listens, *_owns(self._own), *_writes(self._to)]
        return [Grant(needed), Grant([*journals, *groups], "to delete records that are older than the queue's `keep`")]

    def pool(self) -> list[Grant]:
        """A process with pools, which reads the queue of its own service."""
        return [Grant([*self._sends(), *self._listens, *_owns(self._own)])]

    def unread_pool(self) -> list[Grant]:
        """A process with pools that have `read=False`."""
        return [Grant([*self._sends(), *_reads(self._own)])]

    def operator(self) -> list[Grant]:
        """`konverse suspended`, `suspend`, `resume`, `skip` and `end`."""
        return [Grant([*self._knows, *self._dates, *self._commands, *_reads(self._own)])]

    def auditor(self) -> list[Grant]:
        """`konverse verify`."""
        transmission = Grant(_reads([self._transmission]), "for konverse verify without the name of a queue")
        return [Grant([*self._knows, *_reads(self._own)]), transmission]

    def onlooker(self) -> list[Grant]:
        """`konverse view`, `lag`, `why` and `conversations`."""
        return [
            Grant([*self._knows, *self._dates, *_reads(self._own), *_describes(self._own)]),
            Grant(
                [*_reads([self._transmission]), *_describes([self._transmission])],
                "for konverse lag and view without the name of a queue",
            ),
        ]

    def loss(self) -> list[Grant]:
        """`konverse accept-loss` for the first queue; the others are those of its database."""
        owned = [right for right in _owns(self._own[:1]) if right.resource is not GROUP]
        read = _reads(self._own[1:])
        return [Grant([*self._knows, *self._dates, *read, *owned, *self._commands, *_writes(self._to)])]

    def administrator(self) -> list[Grant]:
        """CREATE, ALTER and DROP."""
        logs = [log for topic in self._own for log in logs_of(topic)]
        return [
            Grant([
                *on_topic(catalog_topic(self._instance), _READ, _WRITE, _SETTINGS),
                *on_topic(open_topic(self._instance), _DESCRIBE),
                *[right for log in logs for right in on_topic(log, _CREATE, _DELETE, _READ)],
            ]),
            Grant(self._dates, "for the lifetime of a route"),
            Grant(
                [*self._dates, *self._commands, *_reads(self._own)],
                "for alter_database(new_broker=True), with all queues of the database",
            ),
        ]  # fmt: skip

    def spark_read(self) -> list[Grant]:
        """`spark.read` and `spark.readStream`."""
        journals = [right for topic in self._own for right in on_topic(journal_topic(topic), _READ)]
        groups = [Right(GROUP, f"{consumer_group(topic)}.spark-{ANY}", _READ) for topic in self._own]
        return [
            Grant([*self._knows, *[right for topic in self._own for right in on_topic(topic, _READ)]]),
            Grant(groups, "for spark.readStream"),
            Grant(journals, "for mode = journal"),
            Grant([*self._dates, *_reads(self._own)], "for mode = conversations or returned, and for groups"),
        ]

    def spark_write(self) -> list[Grant]:
        """`df.write` and `df.writeStream`."""
        settings = [right for log in logs_of(self._transmission) for right in on_topic(log, _SETTINGS)]
        shared = [*on_topic(self._transmission, _WRITE), *_reads([self._transmission]), *settings]
        own = [right for topic in self._own for right in on_topic(topic, _READ)]
        successions = on_topic(succession_topic(self._instance), _READ, _WRITE)
        return [
            Grant([*self._sends(), *shared]),
            Grant([*own, *successions], "for a stream, and with `pool` or `query`"),
        ]

    def spark_route(self) -> list[Grant]:
        """`route` and `route_arrow`."""
        groups = [f"{consumer_group(topic)}-progress-{ANY}" for topic in self._own]
        progress = [Right(GROUP, name, operation) for name in groups for operation in (_READ, _DELETE)]
        return [self.reader()[0], Grant(progress, "for `progress` of route_arrow")]

    def _sends(self) -> list[Right]:
        return [*self._knows, *self._dates, *_writes(self._to), *_writes(self._own)]


class ProcessKind(NamedTuple):
    """A kind of process that has a principal of its own."""

    grants: Callable[[ProcessRights], list[Grant]]
    words: str
    """What it does."""
    has_queues: bool = True
    """It needs rights to queues of its own."""


KINDS: Final = {
    "sender": ProcessKind(ProcessRights.sender, "begins dialogs and sends"),
    "client": ProcessKind(ProcessRights.client, "sends in client transactions"),
    "transmitter": ProcessKind(ProcessRights.transmitter, "runs konverse transmit", has_queues=False),
    "reader": ProcessKind(ProcessRights.reader, "reads queues, with handlers that send to others"),
    "router": ProcessKind(ProcessRights.reader, "reads a queue and forwards to others"),
    "pool": ProcessKind(ProcessRights.pool, "sends through pools"),
    "unread-pool": ProcessKind(ProcessRights.unread_pool, "sends through pools that have read=False"),
    "operator": ProcessKind(ProcessRights.operator, "runs konverse suspended, resume, skip and end"),
    "auditor": ProcessKind(ProcessRights.auditor, "runs konverse verify"),
    "onlooker": ProcessKind(ProcessRights.onlooker, "runs konverse view, lag, why and conversations"),
    "loss": ProcessKind(ProcessRights.loss, "runs konverse accept-loss for the first queue"),
    "administrator": ProcessKind(ProcessRights.administrator, "creates, alters and drops"),
    "spark-read": ProcessKind(ProcessRights.spark_read, "reads in Spark"),
    "spark-write": ProcessKind(ProcessRights.spark_write, "writes in Spark"),
    "spark-process": ProcessKind(ProcessRights.reader, "receives in Spark (process, map_arrow)"),
    "spark-route": ProcessKind(ProcessRights.spark_route, "routes in Spark"),
}
"""The kinds of processes, by the name that `konverse acl` takes."""


def on_topic(name: str, *operations: AclOperation) -> list[Right]:
    """Rights to one topic."""
    return [Right(TOPIC, name, operation) for operation in operations]


def logs_of(topic: str) -> tuple[str, str, str]:
    """Data topic, journal and snapshot topic of the queue with this data topic."""
    return topic, journal_topic(topic), snapshot_topic(topic)


def _reads(topics: Iterable[str]) -> list[Right]:
    """Rights to read all logs of these queues without changing them."""
    return [right for topic in topics for log in logs_of(topic) for right in on_topic(log, _READ)]


def _describes(topics: Iterable[str]) -> list[Right]:
    """Rights to list the members of the consumer groups of these queues."""
    return [Right(GROUP, consumer_group(topic), _DESCRIBE) for topic in topics]


def _writes(topics: Iterable[str]) -> list[Right]:
    return [right for topic in topics for right in on_topic(topic, _WRITE)]


def _owns(topics: Iterable[str]) -> list[Right]:
    """Rights that the readers of these queues need."""
    found: list[Right] = []
    for topic in topics:
        found += on_topic(topic, _READ, _SETTINGS)
        found += [right for log in logs_of(topic)[1:] for right in on_topic(log, _READ, _WRITE, _SETTINGS)]
        found.append(Right(GROUP, consumer_group(topic), _READ))
    return found
