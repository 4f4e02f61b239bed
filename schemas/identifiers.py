"""Names and addresses: what they may look like, and how topics and Redis keys are named after them.

Names are escaped injectively: two different (instance, database, queue) never share a topic or a key (protocol.md 2).
Letters and digits stand for themselves, `-` is `--`, every other byte of the UTF-8 form is `-XX`. Neither `.` nor `_`
can come out of a name, so `.` separates, and Kafka's own rule that `.` and `_` collide is never met.
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
"""The one subscription of a queue that konverse created; a shop's topic has one per consumer group."""
_OF_QUEUES: Final = frozenset({"journal", "snapshot"})
_OF_INSTANCES: Final = frozenset({"catalog", "instructions", "open", "successions"})
_DATA_COMPONENTS: Final = 3
"""Instance, database and queue; a queue may be called "journal"."""
_PLAIN: Final = frozenset((ascii_letters + digits).encode())
_VERSION_AT: Final = 6
_NAMED: Final = 5
"""Version of an id made of a name, as a pool's groups are; ids that count, or have the time, may begin alike."""
_MARK_BYTES: Final = 8
_POOLED_AT: Final = slice(9, 11)
_POOLED: Final = b"\xc7\x5e"
"""Of an id that begins like one made of a name and goes on by chance: others may make such ids too."""


@dataclass(frozen=True, slots=True)
class Address:
    """One partition of one incarnation of a data topic: where records for an endpoint go."""

    topic: str
    partition: int
    tag: bytes
    """First four bytes of the subscription's incarnation; records with another tag are ignored there."""


def check_name(kind: str, name: str) -> str:
    """Return `name` when it may name a `kind`, else raise InvalidName with the reason and the remedy (behaviour 27)."""
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
    """The broker id of a database, `service_broker_guid`: the same for everybody, and no other database has it.

    `catalog_topic_id` are the 16 bytes of Kafka's id of the topic that holds the catalog.
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
    """Topic that holds what others sent to the queue."""
    return _topic(instance, database, queue)


def _unescape(component: str) -> str:
    plain = re.sub(rb"-(-|[0-9A-F]{2})", lambda found: _byte(found[1]), component.encode())
    return plain.decode("utf-8", "replace")


def _byte(escaped: bytes) -> bytes:
    return b"-" if escaped == b"-" else bytes.fromhex(escaped.decode())


def queue_of(data: str) -> tuple[str, str]:
    """Database and name of the queue whose messages a topic holds; without a database: that of transmission."""
    _, *names = map(_unescape, data.split("."))
    return (names[0] if len(names) > 1 else "", names[-1] if names else data)


def journal_topic(data: str, subscription: str = NATIVE_SUBSCRIPTION) -> str:
    """Topic that holds what the owners of the subscription decided."""
    return _checked(f"{data}.{escape(subscription)}.journal")


def snapshot_topic(data: str, subscription: str = NATIVE_SUBSCRIPTION) -> str:
    """Topic that holds the states from which an owner recovers."""
    return _checked(f"{data}.{escape(subscription)}.snapshot")


def open_topic(instance: str) -> str:
    """Topic whose only use is its clock: a session's id gets its time from it."""
    return _checked(f"{escape(instance)}.open")


def catalog_topic(instance: str) -> str:
    """Topic that holds the CREATE, ALTER and DROP of an instance."""
    return _checked(f"{escape(instance)}.catalog")


def instruction_topic(instance: str) -> str:
    """Topic in which operators tell the owners of queues what to do with suspended conversations."""
    return _checked(f"{escape(instance)}.instructions")


def succession_topic(instance: str) -> str:
    """Topic that says which conversations of keys others have taken the place of, under writes of Spark."""
    return _checked(f"{escape(instance)}.successions")


def transmission_topic(instance: str) -> str:
    """Topic of the queue into which clients write transactions: one for all databases of an instance."""
    return _checked(f"{escape(instance)}.transmission")


def is_internal(topic: str) -> bool:
    """Whether konverse keeps that topic for itself: nobody's messages go there, so no record may name it as a place."""
    *rest, last = topic.split(".")
    return (len(rest) == 1 and last in _OF_INSTANCES) or (len(rest) >= _DATA_COMPONENTS and last in _OF_QUEUES)


def consumer_group(data: str, subscription: str = NATIVE_SUBSCRIPTION) -> str:
    """Kafka consumer group whose assignment suggests owners."""
    return f"{data}.{escape(subscription)}"


def view_key(data: str, subscription: str, partition: int, suffix: str) -> str:
    """Redis key of a partition's view; the braces keep all keys of a partition in one cluster slot."""
    return f"konverse:{{{data}.{escape(subscription)}/{partition}}}:{suffix}"


def mirror_key(catalog: str, database: str) -> str:
    """Redis key of the mirror of a database's catalog; `catalog` is the topic that holds it."""
    return f"konverse:{{{catalog}}}:{escape(database)}"


def pool_key(instance: str, database: str, pool: str) -> str:
    """Redis key of the lease of a named pool; `pool` says all that makes it that one."""
    return f"konverse:{{{escape(instance)}.{escape(database)}}}:pool:{escape(pool)}"


def pool_namespace(database: str, *names: str) -> UUID:
    """What the groups of a pool's keys are made from: the same for every process that opens the pool."""
    return uuid5(UUID(int=0), "\0".join(("konverse pool", database, *names)))


def pool_group(namespace: UUID, key: str) -> bytes:
    """Conversation group of all conversations that a pool ever has for a key."""
    return uuid5(namespace, key).bytes


def mark_of(identifier: bytes) -> bytes:
    """What the ids of a group of a pool and of all conversations that it ever had have in common."""
    return identifier[:_MARK_BYTES]


def conversation_in(group: bytes, chance: bytes) -> bytes:
    """The id of a pooled conversation: half of it is that of its group, so whoever meets it knows where it belongs."""
    return b"".join((mark_of(group), chance[_MARK_BYTES : _POOLED_AT.start], _POOLED, chance[_POOLED_AT.stop :]))


def is_of_pool(conversation: bytes) -> bool:
    """Whether a pool has chosen this id: it costs no byte in any record, and its target knows of no group."""
    return conversation[_VERSION_AT] >> 4 == _NAMED and conversation[_POOLED_AT] == _POOLED


def router_key(catalog: str, database: str, service: str) -> str:
    """Redis key of the figures of a router; `catalog` is the topic that holds its database's catalog."""
    return f"konverse:{{{catalog}}}:{escape(database)}:router:{service}"


def owner_writer(incarnation: bytes, partition: int) -> bytes:
    """Writer id of whoever owns the partition (16 bytes): the same for every owner of one incarnation."""
    return uuid5(UUID(bytes=incarnation), str(partition)).bytes


def session_writer(time_ms: int, chance: int) -> bytes:
    """Writer id of a session: a UUIDv7 (RFC 9562) of a time in milliseconds since 1970 and 74 bits of chance."""
    low = chance & (1 << 62) - 1
    value = time_ms << 80 | 0x7 << 76 | (chance >> 62 & 0xFFF) << 64 | 0b10 << 62 | low
    return value.to_bytes(16, "big")


def time_of_writer(writer: bytes) -> int | None:
    """When a session's id was made, in milliseconds since 1970; None for an id without time, as owners have."""
    if writer[6] >> 4 != 7 or writer[8] >> 6 != 0b10:
        return None
    return int.from_bytes(writer[:6], "big")


def incarnation_tag(incarnation: bytes) -> bytes:
    """The four bytes of an incarnation that every record names."""
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
    """The log that is being folded: logs are found by name, and a name can be given twice (protocol.md section 2)."""

    data_topic: str
    partition: int
    incarnation: bytes
    data_topic_id: bytes
    journal_topic_id: bytes


class Role(IntEnum):
    """A side of a conversation."""

    INITIATOR = 0
    TARGET = 1
