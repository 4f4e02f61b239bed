"""Reads the state of a partition without claiming it, for tools, views and queries about outcomes.

The state is a fold of the journal: it does not contain data that the owner has ingested but not committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topics import Topics
from konverse.dialog.fold.fold import Fold, Overtaken
from konverse.dialog.fold.journal import JournalHead
from konverse.dialog.owner.events import DataRead, JournalRead, OutOfRange, ReadData, SnapshotsRead
from konverse.dialog.owner.recovery import Recovery
from konverse.dialog.rules.accepted_loss import AcceptedLoss
from konverse.dialog.state.partition import Partition
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KafkaUnavailable, PartitionHalted, TopicMismatch
from konverse.schemas.identifiers import Address, LogIdentity
from konverse.schemas.limits import VIEW_AHEAD_BYTES_MAX, VIEW_AHEAD_RECORDS_MAX
from konverse.schemas.wire.journal import Commit

from .logs import QueueLogs

if TYPE_CHECKING:
    from types import TracebackType

    from konverse.dialog.state.partition import AdmissionPolicy

CATCH_UP_S: Final = 30.0

UNREADABLE: Final = (PartitionHalted, TopicMismatch)
"""Errors of `Follower.catch_up` that concern one queue: a search continues in the other queues."""


class Ahead(NamedTuple):
    """The state that an owner would find if it took the partition over now."""

    state: Partition
    head: JournalHead
    """End of the journal: nothing was committed after it."""
    committed: dict[Address, int]
    """Output stream -> its first counter that is not in the journal; outputs from there on are predictions."""
    unseen: int
    """Number of data offsets not read: more than VIEW_AHEAD_… allows, deleted, or held up by an open transaction."""


class _Observed(Fold):
    """A fold that reports each COMMIT before it applies it."""

    def __init__(self, identity: LogIdentity, see: Callable[[Partition, Commit], None]) -> None:
        super().__init__(identity)
        self._see = see

    def apply(self, commit: Commit) -> None:
        self._see(self.state, commit)
        super().apply(commit)


def partitions_of(queues: Iterable[Queue]) -> Iterator[tuple[Queue, int]]:
    """All partitions of these queues, for a search that does not know where a conversation lives."""
    return ((queue, number) for queue in queues for number in range(queue.partitions))


class Follower:
    """The state of one partition of a queue, folded from its journal. Not thread-safe."""

    def __init__(
        self,
        kafka: Kafka,
        queue: Queue,
        partition: int,
        reading: QueueLogs | None = None,
        *,
        accepts_loss: bool = False,
    ) -> None:
        """`reading` is shared with other followers, which use it one at a time; this follower does not close it.

        With `accepts_loss` the state ends where data that the journal has ingested were deleted: see `acceptance`.
        """
        self.accepts_loss = accepts_loss
        self._check = partial(Topics(kafka).same_queue, queue)
        self._checked = False
        """Whether the topics were found to be the queue's."""
        self._identity = queue.log_identity(partition)
        self._reading = reading or QueueLogs(kafka, queue)
        self._own = reading is None
        self.on_commit: Callable[[Partition, Commit], None] | None = None
        """Called before each valid COMMIT is applied, with the state before it and the COMMIT."""
        self.begin_anew()

    def __repr__(self) -> str:
        return f"<Follower of {self._identity.data_topic}/{self._identity.partition}>"

    def begin_anew(self) -> None:
        """Discard the state; the next `catch_up` reads the logs again."""
        self._fold = _Observed(self._identity, self._see)
        self._recovery = Recovery(self._fold)
        self._recovery.acceptance = self.acceptance = AcceptedLoss() if self.accepts_loss else None

    def _see(self, state: Partition, commit: Commit) -> None:
        if self.on_commit is not None:
            self.on_commit(state, commit)

    @property
    def state(self) -> Partition:
        """State as of the last `catch_up`. The next one may replace the object."""
        return self._fold.state

    @property
    def head(self) -> JournalHead:
        """Position in the journal that the state belongs to."""
        return self._fold.head

    def catch_up(self, timeout_s: float = CATCH_UP_S) -> Partition:
        """Fold up to the journal's present end. Begins at the newest snapshot the first time and after a truncation.

        Raises KafkaUnavailable when Kafka does not answer or the logs are not read within `timeout_s`, PartitionHalted
        when they contradict themselves, TopicMismatch when the topics are no longer the queue's. It may be called again
        after any of these.
        """
        if not self._checked:  # else a missing topic would be awaited, or a recreated one mistaken for the queue's
            self._check()
            self._checked = True
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._fold_on(deadline)
            except Exception as error:
                self.begin_anew()  # a read cannot be continued after a failure
                if isinstance(error, KafkaUnavailable):
                    with suppress(KafkaUnavailable):
                        self._check()  # the client may have waited for a topic that was deleted since the first check
                if not isinstance(error, Overtaken):
                    raise
            else:
                return self.state

    def _fold_on(self, deadline: float) -> None:
        number = self._identity.partition
        questions: list[Any] = self._recovery.start(self._reading.bounds(number))
        while questions:
            questions = self._answered(self._reading.answer(number, questions[0]), deadline)

    def _answered(self, event: Any, deadline: float) -> list[Any]:
        """Pass an answer to the recovery. Returns its next questions."""
        recovery = self._recovery
        if isinstance(event, OutOfRange):
            recovery.out_of_range(event)
        handler = _HANDLERS.get(type(event))
        where = self.head.where
        if handler is None:
            raise self._reading.unreadable(f"the logs of {where}")
        if time.monotonic() > deadline:
            raise KafkaUnavailable(f"the logs of {where} were not read to their end in time; pass a longer timeout")
        return handler(recovery, event)

    def fold_uncommitted(self, judge: AdmissionPolicy | None, now_ms: int, timeout_s: float = CATCH_UP_S) -> Ahead:
        """Catch up, then fold the data that no commit has ingested yet, as an owner that took over now would.

        `now_ms` is the present on Kafka's clock; `judge` decides which messages are rejected; None rejects none. The
        result only predicts that owner's decisions, so this follower does not keep it: the next `catch_up` reads the
        logs again. Raises the errors of `catch_up`.
        """
        state = self.catch_up(timeout_s)
        fold, number = self._fold, self._identity.partition
        self.begin_anew()
        committed = {address: stream.next for address, stream in state.streams.items()}
        end = self._reading.data_end(number)
        if end is None:
            raise KafkaUnavailable(f"Kafka did not report the end of the data log of {fold.head.where}; try again")
        whole = self._reading.whole_data_end(number)
        state.now_ms = max(state.now_ms, now_ms)  # the time of the CLAIM that an owner begins with
        state.rejected, state.recent.contested = {}, {}
        if judge is not None:
            state.judged_by(judge)
        records, size = 0, 0
        while fold.data_to < end and records < VIEW_AHEAD_RECORDS_MAX and size < VIEW_AHEAD_BYTES_MAX:
            span = ReadData(fold.data_to, min(end, fold.data_to + VIEW_AHEAD_RECORDS_MAX - records))
            read = self._reading.answer(number, span)
            if not isinstance(read, DataRead) or fold.feed_data(read.columns):
                break
            records += len(read.columns.offsets)
            size += sum(len(body) for body in read.columns.bodies if body)
            fold.ingest_to(fold.data_to)
        return Ahead(state, fold.head, committed, whole - state.ingest_to)

    def behind(self) -> int:
        """Number of data offsets, up to the log's present end, that no commit has ingested.

        Offsets that an open transaction holds up count, for Kafka has acknowledged their records. 0 if the offsets hold
        no record that can be read, now or later: no owner ingests what foreign transactions leave at the end of a log.
        Raises KafkaUnavailable.
        """
        number, start = self._identity.partition, self.state.ingest_to
        end = self._reading.whole_data_end(number)
        return 0 if start >= end or self._reading.is_bare(number, start, end) else end - start

    def close(self) -> None:
        """Close the client, unless it is shared."""
        if self._own:
            self._reading.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


_HANDLERS: Final[dict[type, Callable[[Recovery, Any], list[Any]]]] = {
    SnapshotsRead: Recovery.snapshots_read,
    JournalRead: Recovery.journal_read,
    DataRead: Recovery.data_read,
}
