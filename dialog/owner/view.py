"""The view of a partition in Redis: a header, and one packed row per endpoint (protocol.md section 8).

A row is at most 64 bytes, so that Redis keeps it packed: journal offset (8 bytes, the fencing token), state (1 byte),
then Avro longs: sent, received, consumed, unread, error waiting, counter of the peer's writer, timer, and failed
attempts (times two, plus one when the conversation is suspended).
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID
from zlib import crc32

from konverse.dialog.fold.fold import Fold
from konverse.dialog.state.endpoint import NO_TIME, Endpoint
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import VIEW_BUCKETS, VIEW_VALUE_BYTES_MAX
from konverse.schemas.wire.varint import read_varint, varint

ROLE_NAMES: Final = ("I", "T")


class ViewRow(NamedTuple):
    """An endpoint as the view shows it."""

    conversation: UUID
    role: Role
    state: State
    journal_offset: int
    send_sequence: int
    """Sequence number of the next message of this side; -1 where a session numbers them."""
    receive_sequence: int
    """Accepted messages of the peer."""
    consumed: int
    """Messages that COMMITs have received."""
    unread: int
    error_waits: bool
    writer_counter: int
    """Highest accepted counter of the peer's last writer; -1 for none."""
    timer_due_ms: int
    """By the partition's time; -1: no timer, or one that was just set and has no time yet."""
    attempts: int
    """Failed attempts of handlers in a row."""
    suspended: bool
    """Its messages wait until an operator resumes, skips or ends it."""


class Show(NamedTuple):
    """Effect: write this to the view, unless the view holds something newer."""

    claim_offset: int
    journal_offset: int
    owner: bytes
    rows: list[tuple[bytes, bytes]]
    """Field (conversation and role) and packed value."""
    gone: list[bytes]
    """Fields of endpoints that were forgotten."""
    unread: int
    open: int
    """Number of endpoints that live."""
    whole: bool
    """Whether `rows` has all endpoints, so that everything else in the view is stale."""


def field_of(endpoint: Endpoint) -> bytes:
    """Redis field: conversation and role."""
    return endpoint.conversation + ROLE_NAMES[endpoint.role].encode()


def bucket_of(field: bytes) -> int:
    """Number of the hash that holds the field."""
    return crc32(field) % VIEW_BUCKETS


def pack(endpoint: Endpoint) -> bytes:
    """The value of a row without its first eight bytes, the journal offset, which is known only with the COMMIT."""
    lane = endpoint.lane
    numbers = (
        endpoint.sent,
        endpoint.received,
        endpoint.consumed,
        len(endpoint.queue),
        endpoint.error is not None,
        lane.last if lane else -1,
        NO_TIME if endpoint.clock is None else endpoint.clock.timer_ms,
        endpoint.attempts << 1 | endpoint.suspended,
    )
    return bytes((endpoint.committed,)) + b"".join(map(varint, numbers))


def unpack(field: bytes, value: bytes) -> ViewRow:
    """A row from Redis. Raises MalformedRecord for anything else: the view is never trusted."""
    if len(value) > VIEW_VALUE_BYTES_MAX:
        raise MalformedRecord(f"a row of the view with {len(value)} bytes; at most {VIEW_VALUE_BYTES_MAX} are allowed")
    try:
        numbers = []
        at = 9
        while at < len(value):
            number, at = read_varint(value, at)
            numbers.append(number)
        sent, received, consumed, unread, error, counter, timer, attempts = numbers
        return ViewRow(
            UUID(bytes=field[:16]),
            Role(ROLE_NAMES.index(field[16:].decode("ascii"))),
            State(value[8]),
            int.from_bytes(value[:8], "big"),
            sent,
            received,
            consumed,
            unread,
            bool(error),
            counter,
            timer,
            attempts >> 1,
            bool(attempts & 1),
        )
    except (ValueError, IndexError) as error:
        raise MalformedRecord("a malformed row of the view") from error


class ViewFeed:
    """Collects changes for the view, and packs them at most every `interval_ms`; None: there is no view."""

    def __init__(self, fold: Fold, interval_ms: int | None) -> None:
        self._fold = fold
        self._interval_ms = interval_ms
        self._shown_at_ms: int | None = None
        self._whole = True

    def lost(self) -> None:
        """Redis has no header of this view: show everything, at once."""
        self._whole = True
        self._shown_at_ms = None

    def due(self, now_ms: int, *, last: bool = False) -> Show | None:
        """The next write of the view; None when it is too early or nothing has changed. The state must be verified.

        With `last` it is never too early: the partition is given back.
        """
        state, head = self._fold.state, self._fold.head
        if self._interval_ms is None:
            state.changed.clear()  # `Endpoint.changed` stays set, so `touch` reports no endpoint twice
            state.forgotten.clear()
            return None
        if not last and self._shown_at_ms is not None and now_ms - self._shown_at_ms < self._interval_ms:
            return None
        if not (self._whole or state.changed or state.forgotten):
            return None
        shown = state.live() if self._whole else state.changed
        rows = [(field_of(e), pack(e)) for e in shown if state.table[e.index] is e]
        gone = [field_of(e) for e in state.forgotten if state.endpoint(e.role, e.conversation) is None]
        living = sum(map(len, state.sides))
        show = Show(head.claim_offset, head.offset, head.owner, rows, gone, state.unread, living, self._whole)
        for endpoint in state.changed:
            endpoint.changed = False
        state.changed = []
        state.forgotten = []
        self._whole = False
        self._shown_at_ms = now_ms
        return show
