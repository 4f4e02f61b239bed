"""The parts of an envelope as values, and the Avro forms of addresses, origins and Begin blocks."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, Final, NamedTuple

from konverse.schemas.identifiers import Address, Role, incarnation_tag, is_internal
from konverse.schemas.limits import (
    KEY_BYTES_MAX,
    NAME_BYTES_MAX,
    TIME_MS_MAX,
    TIMEOUT_MS_MAX,
    TOPIC_NAME_LENGTH_MAX,
    WRITER_RECORDS_MAX,
)

LEGAL_TOPIC: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_NAME_LENGTH_MAX}}}")
"""A topic name that Kafka accepts. After a record for any other name, a producer would refuse all further records."""
PARTITION_MAX: Final = 2**31 - 1
FIRST: Final = 1
"""Flag: this message creates the target's endpoint. One writer sends it, once per conversation."""
RETURNING: Final = 2
"""Flag of a MESSAGE: it bounces when its receiver has ended, where other messages are discarded.

On a PENDING or a REDIRECT the flag is for the message that results.
"""
HEIR: Final = 2
"""Flag of CLOSE_WRITER: its sender is the heir, and resends the unreceived records in order, directly after it."""
REFUSED: Final = 2
"""Flag of END and ERROR: its BEGIN was refused, so it ends only a target that its opener has opened."""
NAMED: Final = 8
"""Flag of BEGIN, of an initiator's messages and of its END: the caller chose the conversation's id.

Both sides remember the end of such a conversation: its id cannot begin another one.
"""
LAST: Final = 4
"""Flag of PENDING: the side of this message ends when it is accepted, after all rows of the batch."""
ACKED: Final = 16
"""Flag of any record with a counter: Kafka had acknowledged all earlier records of its writer to this partition.

If some of them are missing, Kafka has lost them, and they will not be sent again.
"""
FOR_EVER: Final = -1
"""Value of a lifetime that never ends."""
NO_TIMER: Final = 0
"""Timeout that cancels the timer."""
NO_SEQUENCE: Final = -1
"""Value of a sequence number where several writers share a direction, or none is counted."""


class Kind(IntEnum):
    """Kind of a data record, by the numbers of the Avro enum."""

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
    DECISION = 21
    VETO = 22
    FORWARD = 23
    VOID = 24

    LATER = 25
    """All kinds of later versions: the first number that is not assigned yet."""


class BounceReason(IntEnum):
    """Why a message came back."""

    NO_ENDPOINT = 0
    """The conversation does not live at the target: it is over there, or never began."""
    ENDED = 1
    """The message came after the end of its own side, or was to begin a conversation whose id is over or in use."""
    WRITER_CLOSED = 2
    """Its session was closed there: it closed itself, or a successor took over."""
    REFUSED = 3
    """The target did not permit it. No owner uses this reason yet."""
    FINISHED = 4
    """The message came after the FIN of its own side."""
    PEER_ENDED = 5
    """The other side has ended, and the dialog was begun as `returning`."""
    GIVEN_BACK = 6
    """The other side returned the message unreceived: it is for another recipient."""
    REDIRECTED = 7
    """A note of the other side, never sent as a message: names the recipient of the messages given back after it."""


class NoticeReason(IntEnum):
    """Why a destination sends a NOTICE to a writer; a notice is not a verdict about a record."""

    GAP = 0
    PRUNED = 1
    CLOCK = 2
    FORGED = 3
    """Another record with its writer and counter is there: a foreign producer writes under its id."""


class Begin(NamedTuple):
    """Begin block: services, contract, and the partition of each side."""

    from_service: str
    to_service: str
    contract: str
    home: Address
    target: Address
    group: bytes
    key: bytes | None = None
    broker_instance: str | None = None
    lifetime_ms: int = FOR_EVER


class End(NamedTuple):
    """Detail of END and ERROR: opener and home of the conversation, and the highest received counter of each writer."""

    opener: bytes
    home: Address
    received: tuple[tuple[bytes, int], ...] = ()


class Bounce(NamedTuple):
    """Detail of BOUNCE: the record with this writer and counter was not accepted at `at`.

    If an owner wrote it for a session, the suffix of the BOUNCE names the session as origin.
    """

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
    heir: bytes | None = None
    """Writer that resends the others; zeros when none does, None when no record has closed the writer."""


class Pending(NamedTuple):
    """Detail of PENDING: a row of a query's batch. The record's writer is the attempt, its counter the row's number."""

    query: bytes
    batch: int
    begins: bool
    """Whether the row is a BEGIN at its home; else a message."""
    judge: Address
    """Partition of the transmission queue that decides the batches of the query."""
    judge_writer: bytes
    """Writer id of the owners of that partition: no other writer's DECISION concerns this row (M293)."""


class Decision(NamedTuple):
    """Detail of DECISION: the body names the winners of a batch; BEGINs and messages are decided separately."""

    query: bytes
    batch: int
    begins: bool
    final: bool
    """Whether the batch is decided; else the body names attempts that have lost, and decides nothing else."""


class Veto(NamedTuple):
    """Detail of VETO: the partition `at` has no room for the rows of an attempt."""

    query: bytes
    batch: int
    begins: bool
    attempt: bytes
    at: Address


class FinAnswer(NamedTuple):
    """Detail of FIN_ANSWER: the highest counter received from each writer of the finished direction, latest first."""

    asker: bytes
    """Writer of the FIN: every record before the FIN in its log has a verdict."""
    received: tuple[tuple[bytes, int], ...] = ()


class BounceId(NamedTuple):
    """Detail of CONFIRM and REDIRECT: identifies a bounce by the record that came back."""

    writer: bytes
    counter: int
    at: Address


class Opened(NamedTuple):
    """Detail of a FIRST that names the writer of the BEGIN, when its own writer is another one."""

    opener: bytes


class Origin(NamedTuple):
    """Place at which a record of a moved endpoint was first written."""

    topic: str
    partition: int
    incarnation: bytes
    offset: int

    @property
    def at(self) -> Address:
        """The partition, in the form that bounces name."""
        return Address(self.topic, self.partition, incarnation_tag(self.incarnation))


class Forwarded(NamedTuple):
    """Detail of FORWARD: a record for a moved endpoint, as it was first written."""

    hop: int
    """Generation of the endpoint for which the record is meant."""
    origin: Origin
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...]
    """The sender's own Kafka headers."""
    header: bytes
    """The original envelope, with writer and counter."""


class Closed(NamedTuple):
    """Detail of CLOSED: the endpoint is forgotten in its last place, so its stub of this generation may go."""

    generation: int
    cleaned: Address | None = None
    """Home of a target that was ended WITH CLEANUP: it is notified when it sends something (behaviour 121)."""
    awaits_home: bool = False
    """The target has ended and its home has not: a FIRST of the home may still come to the first place (M289)."""


class Timer(NamedTuple):
    """Detail of SET_TIMER: due `timeout_ms` after the record's log-append time; NO_TIMER cancels the timer."""

    timeout_ms: int
    end_of_stream: str | None = None
    """For a conversation of a pool: type of the message by which its home then closes it (protocol.md section 6)."""


Detail = (
    End
    | Bounce
    | Notice
    | WriterClosed
    | Pending
    | Decision
    | Veto
    | FinAnswer
    | BounceId
    | Opened
    | Forwarded
    | Closed
    | Timer
    | None
)


class Suffix(NamedTuple):
    """The end of an envelope, which repeats from message to message."""

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
    """An Address from its Avro form; ValueError when it names no data partition."""
    topic, partition = value["topic"], value["partition"]
    if not LEGAL_TOPIC.fullmatch(topic) or not 0 <= partition <= PARTITION_MAX:
        raise ValueError(f"partition {partition} of {topic!r} is not a valid place in Kafka")
    if is_internal(topic):
        raise ValueError(f"{topic} holds no messages, and an owner writes nowhere else in the name of a record")
    return Address(topic, partition, value["tag"])


def origin_from_avro(value: dict[str, Any]) -> Origin:
    """An Origin from its Avro form; ValueError when it names no data partition."""
    address_from_avro({**value, "tag": b""})  # it must be a data partition
    return Origin(**value)


def checked_timeout(timeout_ms: int) -> int:
    """The timeout of a timer or a lifetime, in milliseconds, if it is valid; else ValueError."""
    if not 0 < timeout_ms <= TIMEOUT_MS_MAX:
        raise ValueError(f"{timeout_ms} ms is not a valid time for a timer or a lifetime")
    return timeout_ms


def checked_timer(timeout_ms: int) -> int:
    """The timeout of a timer, or NO_TIMER, if it is valid; else ValueError."""
    return timeout_ms if timeout_ms == NO_TIMER else checked_timeout(timeout_ms)


def checked_time(time_ms: int) -> int:
    """The time in milliseconds since 1970, or -1, if it is valid; else ValueError."""
    if not -1 <= time_ms <= TIME_MS_MAX:
        raise ValueError(f"{time_ms} ms since 1970 is not a valid time")
    return time_ms


def checked_generation(generation: int) -> int:
    """The generation of an endpoint that has moved, if it is valid; else ValueError."""
    if not 0 < generation < WRITER_RECORDS_MAX:
        raise ValueError(f"an endpoint that has moved has no generation {generation}")
    return generation


def checked_name(name: str | None) -> str | None:
    """The name of a message type, or None, if it is valid; else ValueError."""
    if len((name or "").encode()) > NAME_BYTES_MAX:
        raise ValueError("a name that is too long")  # a record that repeats it would not fit
    return name


def begin_to_avro(begin: Begin) -> dict[str, Any]:
    """A Begin block in its Avro form."""
    value = begin._asdict()
    value["home"] = address_to_avro(begin.home)
    value["target"] = address_to_avro(begin.target)
    return value


def begin_from_avro(value: dict[str, Any]) -> Begin:
    """A Begin block from its Avro form; ValueError when it is invalid."""
    names = (value["from_service"], value["to_service"], value["contract"], value["broker_instance"] or "")
    if any(len(name.encode()) > NAME_BYTES_MAX for name in names) or len(value["key"] or b"") > KEY_BYTES_MAX:
        raise ValueError("a Begin block with a name or a key that is too long")
    if value["lifetime_ms"] != FOR_EVER:
        checked_timeout(value["lifetime_ms"])
    return Begin(**{**value, "home": address_from_avro(value["home"]), "target": address_from_avro(value["target"])})
