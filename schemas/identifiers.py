"""Names, addresses and ids; topics, consumer groups and Redis keys are named here.

Names are escaped injectively: two different (instance, database, queue) never share a topic or a key (protocol.md 2).
Letters and digits stand for themselves, `-` becomes `--`, every other byte of the UTF-8 form becomes `-XX`. An escaped
name contains neither `.` nor `_`. So `.` can separate names, and Kafka's collision of `.` with `_` cannot occur.

A writer id identifies a sender: an owner's id follows from incarnation and partition, a session's id is a UUIDv7 that
contains the time at which it was made. The id of a pooled conversation contains half of the id of its group.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import IntEnum
from string import ascii_letters, digits
from typing import Final
from uuid import UUID, uuid5

from .errors import InvalidName
from .limits import NAME_BYTES_MAX, TOPIC_NAME_LENGTH_MAX

NATIVE_SUBSCRIPTION: Final = "queue"
"""Subscription of a queue that konverse created, its only one."""
NO_WRITER: Final = bytes(16)
"""Stands for no writer where a writer id is expected. No record may be written under it."""

_OF_QUEUES: Final = frozenset({"journal", "snapshot"})
_OF_INSTANCES: Final = frozenset({"catalog", "instructions", "open", "successions"})
_DATA_COMPONENTS: Final = 3
"""Components of a data topic: instance, database, queue. So a queue may be called "journal"."""
_PLAIN: Final = frozenset((ascii_letters + digits).encode())
_VERSION_AT: Final = 6
_NAMED: Final = 5
"""UUID version of ids made from a name, such as those of a pool's groups. Ids that contain a count or the time may
share their first bytes; ids of this version do not."""
_MARK_BYTES: Final = 8
_POOLED_AT: Final = slice(9, 11)
_POOLED: Final = b"\xc7\x5e"
"""Mark of a pool in a conversation id: other programs may make ids of this version too."""


@dataclass(frozen=True, slots=True)
class Address:
    """One partition of one incarnation of a data topic: the destination of records for an endpoint."""

    topic: str
    partition: int
    tag: bytes
    """First four bytes of the subscription's incarnation. A record with another tag is ignored there."""


def check_name(kind: str, name: str) -> str:
    """Return `name` if it may name a `kind`, else raise InvalidName with the reason and the remedy (behaviour 27)."""
    if not name:
        raise InvalidName(f"the {kind} name is empty; give it at least one character")
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > NAME_BYTES_MAX:
        raise InvalidName(
            f"the {kind} name {name[:40]!r}… has {size} bytes; at most {NAME_BYTES_MAX} are allowed; shorten it"
        )
    if kind == "queue" and name.startswith("#"):
        raise InvalidName(f"the queue name {name!r} begins with #, as a temporary object's does; none is temporary")
    for character in name:
        if unicodedata.category(character) in {"Cc", "Cs"}:
            raise InvalidName(f"the {kind} name {name!r} holds the control character {character!r}; remove it")
    if unicodedata.normalize("NFC", name) != name:
        raise InvalidName(f"the {kind} name {name!r} is not in Unicode form NFC; normalise it first")
    return name


def broker_id(catalog_topic_id: bytes, database: str) -> UUID:
    """Broker id of a database, `service_broker_guid`: equal in every process, and different for each database.

    `catalog_topic_id` is Kafka's id of the topic that holds the catalog, 16 bytes.
    """
    return uuid5(UUID(bytes=catalog_topic_id), database)


def escape(name: str) -> str:
    """The name as one component of a topic name or Redis key. Injective."""
    out: list[str] = []
    for byte in name.encode("utf-8"):
        if byte in _PLAIN:
            out.append(chr(byte))
        else:
            out.append("--" if byte == ord("-") else f"-{byte:02X}")
    return "".join(out)


def data_topic(instance: str, database: str, queue: str) -> str:
    """Topic that holds the messages for the queue."""
    return _topic(instance, database, queue)


def _unescape(component: str) -> str:
    plain = re.sub(rb"-(-|[0-9A-F]{2})", lambda found: _byte(found[1]), component.encode())
    return plain.decode("utf-8", "replace")


def _byte(escaped: bytes) -> bytes:
    return b"-" if escaped == b"-" else bytes.fromhex(escaped.decode())


def queue_of(data: str) -> tuple[str, str]:
    """Database and name of the queue of a data topic; the transmission queue has an empty database."""
    _, *names = map(_unescape, data.split("."))
    return (names[0] if len(names) > 1 else "", names[-1] if names else data)


def journal_topic(data: str, subscription: str = NATIVE_SUBSCRIPTION) -> str:
    """Topic that holds the decisions of the subscription's owners."""
    return _checked(f"{data}.{escape(subscription)}.journal")


def snapshot_topic(data: str, subscription: str = NATIVE_SUBSCRIPTION) -> str:
    """Topic that holds the snapshots from which an owner recovers."""
    return _checked(f"{data}.{escape(subscription)}.snapshot")


def open_topic(instance: str) -> str:
    """Topic that serves as a clock only: the time in a session's id is that of an acknowledgement from it."""
    return _checked(f"{escape(instance)}.open")


def catalog_topic(instance: str) -> str:
    """Topic that holds the catalog of an instance: CREATE, ALTER and DROP of its objects."""
    return _checked(f"{escape(instance)}.catalog")


def instruction_topic(instance: str) -> str:
    """Topic that holds the instructions of operators to the owners of queues."""
    return _checked(f"{escape(instance)}.instructions")


def succession_topic(instance: str) -> str:
    """Topic of Spark's writes: names conversations of keys that are over and have to be replaced."""
    return _checked(f"{escape(instance)}.successions")


def transmission_topic(instance: str) -> str:
    """Data topic of the transmission queue, to which clients write transactions: one per instance."""
    return _checked(f"{escape(instance)}.transmission")


def is_internal(topic: str) -> bool:
    """Whether a topic is internal to konverse: it holds no messages, so no record may name it as a destination."""
    *rest, last = topic.split(".")
    return (len(rest) == 1 and last in _OF_INSTANCES) or (len(rest) >= _DATA_COMPONENTS and last in _OF_QUEUES)


def consumer_group(data: str, subscription: str = NATIVE_SUBSCRIPTION) -> str:
    """Kafka consumer group whose assignment suggests owners of partitions."""
    return f"{data}.{escape(subscription)}"


def view_key(data: str, subscription: str, partition: int, suffix: str) -> str:
    """Redis key of a partition's view; the braces keep all keys of a partition in one cluster slot."""
    return f"konverse:{{{data}.{escape(subscription)}/{partition}}}:{suffix}"


def pool_key(instance: str, database: str, pool: str) -> str:
    """Redis key of the lease of a named pool; `pool` holds everything that distinguishes it from other pools."""
    return f"konverse:{{{escape(instance)}.{escape(database)}}}:pool:{escape(pool)}"


def pool_namespace(database: str, *names: str) -> UUID:
    """Namespace of the group ids of a pool: the same in every process that opens the pool."""
    return uuid5(UUID(int=0), "\0".join(("konverse pool", database, *names)))


def pool_group(namespace: UUID, key: str) -> bytes:
    """Group of all conversations that a pool ever has for a key."""
    return uuid5(namespace, key).bytes


def mark_of(identifier: bytes) -> bytes:
    """The bytes that the id of a pool's group shares with the ids of all its conversations."""
    return identifier[:_MARK_BYTES]


def conversation_in(group: bytes, chance: bytes) -> bytes:
    """Id of a pooled conversation: its first half is that of its group, so any reader of the id can find the group.

    `chance` is 16 random bytes.
    """
    return b"".join((mark_of(group), chance[_MARK_BYTES : _POOLED_AT.start], _POOLED, chance[_POOLED_AT.stop :]))


def is_of_pool(conversation: bytes) -> bool:
    """Whether a pool made this id.

    The mark in the id costs no byte in any record, and can be read at the target, which does not know the group.
    """
    return conversation[_VERSION_AT] >> 4 == _NAMED and conversation[_POOLED_AT] == _POOLED


def router_key(catalog: str, database: str, service: str) -> str:
    """Redis key of the figures of a router; `catalog` is the topic of its database's catalog."""
    return f"konverse:{{{catalog}}}:{escape(database)}:router:{service}"


def owner_writer(incarnation: bytes, partition: int) -> bytes:
    """Writer id of the partition's owners, 16 bytes: the same for every owner of one incarnation."""
    return uuid5(UUID(bytes=incarnation), str(partition)).bytes


def session_writer(time_ms: int, chance: int) -> bytes:
    """Writer id of a session: a UUIDv7 (RFC 9562) of a time in milliseconds since 1970 and 74 random bits."""
    low = chance & (1 << 62) - 1
    value = time_ms << 80 | 0x7 << 76 | (chance >> 62 & 0xFFF) << 64 | 0b10 << 62 | low
    return value.to_bytes(16, "big")


def time_of_writer(writer: bytes) -> int | None:
    """Time in a session's id, in milliseconds since 1970; None for an id without time, such as an owner's."""
    if writer[6] >> 4 != 7 or writer[8] >> 6 != 0b10:
        return None
    return int.from_bytes(writer[:6], "big")


def incarnation_tag(incarnation: bytes) -> bytes:
    """The four bytes of an incarnation that every record contains."""
    return incarnation[:4]


def _topic(*names: str) -> str:
    return _checked(".".join(escape(name) for name in names))


def _checked(topic: str) -> str:
    if len(topic) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidName(
            f"the topic name {topic!r} has {len(topic)} characters; Kafka allows {TOPIC_NAME_LENGTH_MAX}. "
            "Shorten the instance, database or queue name"
        )
    return topic


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Identity of a log. Logs are found by name, and a name can be reused (protocol.md section 2)."""

    data_topic: str
    partition: int
    incarnation: bytes
    data_topic_id: bytes
    journal_topic_id: bytes


class Role(IntEnum):
    """A side of a conversation."""

    INITIATOR = 0
    TARGET = 1
