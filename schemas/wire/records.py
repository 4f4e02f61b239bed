"""What a data record says, as values: the parts of an envelope and their Avro forms."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, Final, NamedTuple

from konverse.schemas.identifiers import Address, Role, incarnation_tag, is_internal
from konverse.schemas.limits import KEY_BYTES_MAX, NAME_BYTES_MAX, TIME_MS_MAX, TIMEOUT_MS_MAX, TOPIC_NAME_LENGTH_MAX

LEGAL_TOPIC: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_NAME_LENGTH_MAX}}}")
"""What Kafka takes for a topic. A producer that is given another one refuses everything."""
PARTITION_MAX: Final = 2**31 - 1
FIRST: Final = 1
"""Flag: the record that creates the target's endpoint; sent once per conversation by one writer."""
RETURNING: Final = 2
"""Flag of a MESSAGE: it comes back when its receiver has ended, where others are discarded.

Of a PENDING: be accepted so; of a REDIRECT: send so.
"""
HEIR: Final = 2
"""Flag of CLOSE_WRITER: what the closed writer sent in vain comes again under this one, in order, directly behind."""
REFUSED: Final = 2
"""Flag of END: its BEGIN was refused, so it ends nothing but what its opener has opened."""
NAMED: Final = 8
"""Flag of BEGIN, of the messages of an initiator and of its END: the caller has chosen the conversation's id.

What ends of such an id is remembered: it is not begun again unasked.
"""
ANEW: Final = 16
"""Flag of BEGIN and FIRST: the caller wants a new conversation although one with this id may be over."""
LAST: Final = 4
"""Flag of PENDING: when this message is accepted its side ends, behind all rows of the batch."""
FOR_EVER: Final = -1
"""In place of a lifetime."""
NO_TIMER: Final = 0
"""In place of the time of a timer: none is set any more."""
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
    DECISION = 21
    VETO = 22
    FORWARD = 23
    VOID = 24

    LATER = 25
    """The first number that is not given yet, for all of them: nobody here knows what a later version means by one."""


class BounceReason(IntEnum):
    """Why a message came back."""

    NO_ENDPOINT = 0
    """The conversation does not live at the target: it is over there, or it never came to be."""
    ENDED = 1
    """It came behind the end of its own side."""
    WRITER_CLOSED = 2
    """Its session was closed there: it said goodbye, or a successor took over."""
    REFUSED = 3
    """The target did not permit it. No owner says so yet."""
    FINISHED = 4
    """It stands behind the FIN of its own side."""
    PEER_ENDED = 5
    """The other side has ended, and its dialog was begun as `returning`."""
    GIVEN_BACK = 6
    """The other side had it and has not received it: it is for somebody else."""
    REDIRECTED = 7
    """It was never sent: the other side says for whom that is which it gives back behind it."""


class NoticeReason(IntEnum):
    """What a destination tells a writer; a notice is no verdict."""

    GAP = 0
    PRUNED = 1
    CLOCK = 2
    FORGED = 3
    """Another record with its writer and counter is there: a stranger writes in its name."""


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
    lifetime_ms: int = FOR_EVER


class End(NamedTuple):
    """Detail of END and ERROR: who opened the conversation, and how far the ending side had received."""

    opener: bytes
    home: Address
    received: tuple[tuple[bytes, int], ...] = ()


class Bounce(NamedTuple):
    """Detail of BOUNCE: the record (writer, counter) was not accepted at `at`.

    Where an owner wrote it for a session, the suffix of the BOUNCE names that as origin.
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
    """Who sends the others again: zeros when nobody does, None when no record has closed it."""


class Pending(NamedTuple):
    """Detail of PENDING: a row of a query's batch; the attempt is the record's writer, the row's number its counter."""

    query: bytes
    batch: int
    begins: bool
    """The row is a BEGIN at its home, else a message."""
    judge: Address
    """Partition of the transmission queue that decides the batches of the query."""


class Decision(NamedTuple):
    """Detail of DECISION: who won a batch, as its body says; BEGINs are decided apart from messages."""

    query: bytes
    batch: int
    begins: bool
    final: bool
    """The batch is decided; else the attempts that the body names have lost, and no more."""


class Veto(NamedTuple):
    """Detail of VETO: the partition `at` has no room for the rows of an attempt."""

    query: bytes
    batch: int
    begins: bool
    attempt: bytes
    at: Address


class FinAnswer(NamedTuple):
    """Detail of FIN_ANSWER: how far each writer of the finished direction was received, the latest writers first."""

    asker: bytes
    """Whose FIN it was: all that stood before that in its log has a verdict."""
    received: tuple[tuple[bytes, int], ...] = ()


class BounceId(NamedTuple):
    """Detail of CONFIRM and REDIRECT: which bounce, by the record that came back."""

    writer: bytes
    counter: int
    at: Address


class Opened(NamedTuple):
    """Detail of a FIRST that comes under another id than its BEGIN: the id of the BEGIN.

    Where the caller has chosen the id of the conversation, also of other messages, FIN and END_CALL of a session.
    """

    opener: bytes


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


class Timer(NamedTuple):
    """Detail of SET_TIMER: the timer of this side is due so long after the record's log-append time, or NO_TIMER."""

    timeout_ms: int
    end_of_stream: str | None = None
    """Of a conversation of a pool: type of the message by which its home closes it then (protocol.md section 6)."""


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
    if not LEGAL_TOPIC.fullmatch(topic) or not 0 <= partition <= PARTITION_MAX:
        raise ValueError(f"partition {partition} of {topic!r} is no place in Kafka")
    if is_internal(topic):
        raise ValueError(f"{topic} holds no messages, and an owner writes nowhere else in the name of a record")
    return Address(topic, partition, value["tag"])


def origin_from_avro(value: dict[str, Any]) -> Origin:
    """An Origin from its Avro form."""
    address_from_avro({**value, "tag": b""})  # it must be a place in Kafka
    return Origin(**value)


def checked_timeout(timeout_ms: int) -> int:
    """The time of a timer or a lifetime."""
    if not 0 < timeout_ms <= TIMEOUT_MS_MAX:
        raise ValueError(f"{timeout_ms} ms is no time that a timer or a lifetime can have")
    return timeout_ms


def checked_timer(timeout_ms: int) -> int:
    """The time of a timer, or NO_TIMER."""
    return timeout_ms if timeout_ms == NO_TIMER else checked_timeout(timeout_ms)


def checked_time(time_ms: int) -> int:
    """Milliseconds since 1970, or -1."""
    if not -1 <= time_ms <= TIME_MS_MAX:
        raise ValueError(f"{time_ms} ms since 1970 is no time of this age")
    return time_ms


def begin_to_avro(begin: Begin) -> dict[str, Any]:
    """A Begin block in its Avro form."""
    value = begin._asdict()
    value["home"] = address_to_avro(begin.home)
    value["target"] = address_to_avro(begin.target)
    return value


def begin_from_avro(value: dict[str, Any]) -> Begin:
    """A Begin block from its Avro form."""
    names = (value["from_service"], value["to_service"], value["contract"], value["broker_instance"] or "")
    if any(len(name.encode()) > NAME_BYTES_MAX for name in names) or len(value["key"] or b"") > KEY_BYTES_MAX:
        raise ValueError("a Begin block with a name or a key that is too long")
    if value["lifetime_ms"] != FOR_EVER:
        checked_timeout(value["lifetime_ms"])
    return Begin(**{**value, "home": address_from_avro(value["home"]), "target": address_from_avro(value["target"])})
