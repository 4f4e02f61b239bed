"""What a data record says, as values: the parts of an envelope and their Avro forms."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

from .identifiers import Address, incarnation_tag

FIRST: Final = 1
"""Flag: the record that creates the target's endpoint; sent once per conversation by one writer."""

NO_SEQUENCE: Final = -1
"""In place of a sequence number where several writers share a direction."""


class Kind(IntEnum):
    """What a data record asks of the fold; the numbers are the Avro enum's."""

    MESSAGE = 0
    BEGIN = 1
    END_CALL = 2
    END = 3
    ERROR = 4
    BOUNCE = 5
    NOTICE = 6
    NO_PEER = 7
    CLOSE_WRITER = 8
    WRITER_CLOSED = 9
    FIN = 10
    FIN_ANSWER = 11
    SET_TIMER = 12
    CONFIRM = 13
    REDIRECT = 14
    OPEN = 15
    TRANSACTION = 16
    PENDING = 17
    BATCH = 18
    INSTALL = 19
    CLOSED = 20
    FORWARD = 21


class Role(IntEnum):
    """A side of a conversation."""

    INITIATOR = 0
    TARGET = 1


class BounceReason(IntEnum):
    """Why a message came back."""

    NO_ENDPOINT = 0
    ENDED = 1
    WRITER_CLOSED = 2
    REFUSED = 3


class NoticeReason(IntEnum):
    """What a destination tells a writer; a notice is no verdict."""

    GAP = 0
    PRUNED = 1
    CLOCK = 2


class Begin(NamedTuple):
    """Who talks to whom, where each side lives, and under which contract."""

    from_service: str
    to_service: str
    contract: str
    home: Address
    target: Address
    group: bytes
    key: bytes | None = None
    broker_instance: str | None = None
    lifetime_ms: int = -1


class End(NamedTuple):
    """Detail of END and ERROR: who opened the conversation, and how far the ending side had received."""

    opener: bytes
    home: Address
    received: tuple[tuple[bytes, int], ...] = ()


class Bounce(NamedTuple):
    """Detail of BOUNCE: the record (writer, counter) was not accepted at `at`."""

    writer: bytes
    counter: int
    at: Address
    reason: BounceReason


class Notice(NamedTuple):
    """Detail of NOTICE: `next` is the counter that the destination expects from the writer."""

    writer: bytes
    next: int
    at: Address
    reason: NoticeReason


class WriterClosed(NamedTuple):
    """Detail of WRITER_CLOSED: counters below `closed_at` were received, the others never will be."""

    writer: bytes
    closed_at: int
    at: Address


class Origin(NamedTuple):
    """The place at which a record of an endpoint that has moved was written first."""

    topic: str
    partition: int
    incarnation: bytes
    offset: int

    @property
    def at(self) -> Address:
        """The partition, as bounces name it."""
        return Address(self.topic, self.partition, incarnation_tag(self.incarnation))


class Forwarded(NamedTuple):
    """Detail of FORWARD: a record for an endpoint that has moved, as it was written first."""

    hop: int
    """Generation of the endpoint that it is meant for."""
    origin: Origin
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...]
    """The sender's own Kafka headers."""
    header: bytes
    """The envelope, with writer and counter."""


class Closed(NamedTuple):
    """Detail of CLOSED: the endpoint is forgotten where it lived last, and its stub of this generation may go."""

    generation: int


Detail = End | Bounce | Notice | WriterClosed | Forwarded | Closed | None


class Suffix(NamedTuple):
    """The part of an envelope that repeats from message to message."""

    message_type: str = ""
    fragment: tuple[int, int] | None = None
    home: Address | None = None
    begin: Begin | None = None
    origin: bytes | None = None
    detail: Detail = None


class Envelope(NamedTuple):
    """A decoded header."""

    kind: Kind
    flags: int
    role: Role
    tag: bytes
    writer: bytes
    conversation: bytes
    counter: int
    sequence: int
    suffix: Suffix


# ----------------------------------------------------------------------------------------------------------- Avro


def address_to_avro(address: Address | None) -> dict[str, Any] | None:
    """The Avro form of an Address."""
    if address is None:
        return None
    return {"topic": address.topic, "partition": address.partition, "tag": address.tag}


def address_from_avro(value: dict[str, Any]) -> Address:
    """An Address from its Avro form."""
    topic, partition = value["topic"], value["partition"]
    if not topic or "\0" in topic or partition < 0:
        raise ValueError(f"partition {partition} of {topic!r} is no place in Kafka")
    return Address(topic, partition, value["tag"])


def origin_from_avro(value: dict[str, Any]) -> Origin:
    """An Origin from its Avro form."""
    address_from_avro({**value, "tag": b""})  # it must be a place in Kafka
    return Origin(**value)


def begin_to_avro(begin: Begin) -> dict[str, Any]:
    """A Begin block in its Avro form."""
    value = begin._asdict()
    value["home"] = address_to_avro(begin.home)
    value["target"] = address_to_avro(begin.target)
    return value


def begin_from_avro(value: dict[str, Any]) -> Begin:
    """A Begin block from its Avro form."""
    return Begin(**{**value, "home": address_from_avro(value["home"]), "target": address_from_avro(value["target"])})


def _detail_to_avro(detail: Detail) -> tuple[str, dict[str, Any]] | None:
    if detail is None:
        return None
    value = detail._asdict()
    if isinstance(detail, End):
        value["home"] = address_to_avro(detail.home)
        value["received"] = [{"writer": writer, "counter": counter} for writer, counter in detail.received]
    elif isinstance(detail, Forwarded):
        value["origin"] = detail.origin._asdict()
        value["headers"] = [{"name": name, "value": content} for name, content in detail.headers]
    elif not isinstance(detail, Closed):
        value["at"] = address_to_avro(detail.at)
    if isinstance(detail, Bounce | Notice):
        value["reason"] = detail.reason.name
    return f"konverse.{type(detail).__name__}", value


def _detail_from_avro(value: tuple[str, dict[str, Any]] | None) -> Detail:
    if value is None:
        return None
    name, fields = value
    if name == "konverse.End":
        received = tuple((item["writer"], item["counter"]) for item in fields["received"])
        return End(fields["opener"], address_from_avro(fields["home"]), received)
    if name == "konverse.Forwarded":
        headers = tuple((item["name"], item["value"]) for item in fields["headers"])
        return Forwarded(**{**fields, "origin": origin_from_avro(fields["origin"]), "headers": headers})
    if name == "konverse.Closed":
        return Closed(**fields)
    at = address_from_avro(fields["at"])
    if name == "konverse.Bounce":
        return Bounce(fields["writer"], fields["counter"], at, BounceReason[fields["reason"]])
    if name == "konverse.Notice":
        return Notice(fields["writer"], fields["next"], at, NoticeReason[fields["reason"]])
    return WriterClosed(fields["writer"], fields["closed_at"], at)


def suffix_to_avro(suffix: Suffix) -> dict[str, Any]:
    """A suffix in its Avro form."""
    return {
        "message_type": suffix.message_type,
        "fragment": suffix.fragment and {"index": suffix.fragment[0], "count": suffix.fragment[1]},
        "home": address_to_avro(suffix.home),
        "begin": suffix.begin and begin_to_avro(suffix.begin),
        "origin": suffix.origin,
        "detail": _detail_to_avro(suffix.detail),
    }


def suffix_from_avro(value: dict[str, Any]) -> Suffix:
    """A suffix from its Avro form."""
    return Suffix(
        value["message_type"],
        value["fragment"] and (value["fragment"]["index"], value["fragment"]["count"]),
        value["home"] and address_from_avro(value["home"]),
        value["begin"] and begin_from_avro(value["begin"]),
        value["origin"],
        _detail_from_avro(value["detail"]),
    )
