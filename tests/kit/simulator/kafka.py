"""A simulated Kafka: logs with offsets, and requests that are lost, delayed, duplicated, or lose their answer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from .choices import Choices
from .sometimes import Sometimes
from .swarm import Swarm

Payload = tuple[bytes | None, bytes, bytes | None]
"""Header, key and body of a record to append."""

CLOCK_JITTER_MS: Final = 200
"""Log-append times of one log may go back by this much, because leaders' clocks differ."""


class Record:
    """A record in a log."""

    __slots__ = ("body", "header", "key", "offset", "order", "timestamp_ms")

    def __init__(self, payload: Payload, offset: int, order: int, timestamp_ms: int) -> None:
        self.header, self.key, self.body = payload
        self.offset = offset
        self.order = order
        """Position among all appends to all logs."""
        self.timestamp_ms = timestamp_ms

    @property
    def body_bytes(self) -> int:
        """Bytes of the value."""
        return len(self.body or b"")


class Log:
    """One topic partition."""

    __slots__ = ("end", "held", "is_journal", "name", "offsets", "read_to", "records", "sequences", "start")

    def __init__(self, name: tuple[str, int], *, is_journal: bool = False) -> None:
        self.name = name
        self.is_journal = is_journal
        self.records: list[Record] = []
        self.offsets: list[int] = []
        self.start = 0
        """First offset that can be read. Deleted records before it stay in `records` for the checks."""
        self.end = 0
        """Offset of the next record, or of the marker before it."""
        self.read_to = 0
        """Offset up to which some process has read."""
        self.held: int | None = None
        """First offset of a stranger's open transaction. Readers of committed data get nothing from there on."""
        self.sequences: dict[int, int] = {}
        """Producer id → number of its next batch, as the broker remembers it."""

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return self.end if self.held is None else self.held

    def lose(self, choices: Choices) -> list[Record]:
        """Lose records that no process has read: some of them, or all up to the end. Returns the lost records."""
        first = bisect_left(self.offsets, max(self.read_to, self.start))
        count = len(self.records) - first
        if not count:
            return []
        lost = {first + choices.choose(count) for _ in range(1 + choices.choose(count))}
        if choices.choose(2):
            lost = {*range(min(lost), len(self.records))}
        gone = [self.records[at] for at in sorted(lost)]
        self.records = [one for at, one in enumerate(self.records) if at not in lost]
        self.offsets = [one.offset for one in self.records]
        return gone

    def between(self, start: int, end: int) -> list[Record]:
        """The records whose offsets are in start … end-1."""
        return self.records[bisect_left(self.offsets, start) : bisect_left(self.offsets, end)]


class Slice(NamedTuple):
    """The result of a read."""

    records: list[Record]
    next_offset: int


class Outcome(IntEnum):
    """A request's fate, as far as its sender can know yet."""

    ACKNOWLEDGED = 0
    SILENT = 1
    """No answer will come. The request was lost, or it was carried out and its answer was lost."""
    LATE = 2
    """No answer has come yet. The request may land at any time, or never."""


class Request:
    """Records on their way to one log."""

    __slots__ = ("abandoned", "landed", "log", "on_landed", "payloads", "pid", "sequence")

    def __init__(self, log: Log, payloads: Sequence[Payload], pid: int = 0, sequence: int = 0) -> None:
        self.log = log
        self.payloads = payloads
        self.pid = pid
        """Id of an idempotent producer, else 0."""
        self.sequence = sequence
        self.landed: list[Record] = []
        """The first record of each time that the request landed."""
        self.abandoned = False
        """The sender is gone or has stopped waiting."""
        self.on_landed: Callable[[Record], None] | None = None
        """Called when a late request lands and its sender still listens."""


class Kafka:
    """All logs, and the requests under way."""

    def __init__(self, choices: Choices, swarm: Swarm, sometimes: Sometimes) -> None:
        self.swarm = swarm
        self.calm = False
        """No more faults."""
        self.delivering = False
        """A late request is being delivered."""
        self.now_ms = 1_700_000_000_000
        self.logs: dict[tuple[str, int], Log] = {}
        self.late: list[Request] = []
        self.on_append: Callable[[Log, Record], None] = lambda _log, _record: None
        self._choices = choices
        self._sometimes = sometimes
        self._order = 0
        self._pids = 0

    def new_pid(self) -> int:
        """An unused producer id."""
        self._pids += 1
        return self._pids

    # ------------------------------------------------------------------------------------------------------ write

    def append(self, log: Log, payload: Payload) -> Record:
        """Append one record."""
        swarm, choices = self.swarm, self._choices
        if swarm.holes and not log.is_journal and not self.calm and choices.chance(swarm.holes):
            log.end += 1 + choices.choose(2)
            self._sometimes.happened("hole")
        self._order += 1
        timestamp_ms = self.now_ms - (choices.choose(CLOCK_JITTER_MS) if log.is_journal else 0)
        record = Record(payload, log.end, self._order, timestamp_ms)
        log.records.append(record)
        log.offsets.append(record.offset)
        log.end += 1
        self.on_append(log, record)
        return record

    def send(self, request: Request) -> Outcome:
        """Carry a request out, lose it, delay it, or lose its answer."""
        if self.calm:
            return Outcome.ACKNOWLEDGED if self.land(request) else Outcome.SILENT
        swarm, choices = self.swarm, self._choices
        if choices.chance(swarm.lost):
            return Outcome.SILENT
        if choices.chance(swarm.delayed):
            self.late.append(request)
            return Outcome.LATE
        if not self.land(request):
            return Outcome.SILENT
        if not request.pid and choices.chance(swarm.doubled):
            self.land(request)
            if request.log.is_journal:
                self._sometimes.happened("append twice")
        return Outcome.SILENT if choices.chance(swarm.ack_lost) else Outcome.ACKNOWLEDGED

    def land(self, request: Request) -> bool:
        """Append the request's records. False when the broker refuses the producer's sequence number."""
        log = request.log
        if request.pid:
            expected = log.sequences.get(request.pid, 0)
            if request.sequence != expected:
                return request.sequence < expected  # the log has it already
            log.sequences[request.pid] = expected + 1
        first = self.append(log, request.payloads[0])
        request.landed.append(first)
        for payload in request.payloads[1:]:
            self.append(log, payload)
        return True

    def deliver_late(self) -> None:
        """Deliver one of the late requests; sometimes the request stays and arrives again."""
        index = self._choices.choose(len(self.late))
        request = self.late[index]
        if request.pid or not self._choices.chance(200):
            del self.late[index]
        count = len(request.landed)
        self.delivering = True
        self.land(request)
        self.delivering = False
        if len(request.landed) == count:
            return
        if not request.log.is_journal:
            self._sometimes.happened("late data")
            if request.abandoned:
                self._sometimes.happened("late data of the dead")
        if request.on_landed is not None and not request.abandoned:
            request.on_landed(request.landed[-1])

    # ------------------------------------------------------------------------------------------------------- read

    def read(self, log: Log, start: int, end: int) -> Slice:
        """The records of start … end-1, or a prefix of them when the read is short."""
        records = log.between(start, end)
        log.read_to = max(log.read_to, end)
        choices = self._choices
        if not self.calm and records and choices.chance(self.swarm.short_reads):
            self._sometimes.happened("short read")
            count = choices.choose(len(records) + 1)
            following = records[count].offset if count < len(records) else end
            records = records[:count]
            first = records[-1].offset + 1 if records else start
            return Slice(records, first + choices.choose(following - first + 1))
        return Slice(records, end)
