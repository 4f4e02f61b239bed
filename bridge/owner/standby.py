"""Followers of the partitions that a reader does not own, in a thread beside its work (protocol.md section 7.6).

Each follower is an `Owner` that has claimed nothing. When the partition is assigned to the reader, the follower becomes
its owner and keeps the state that it has folded. A follower makes a snapshot when no other process seems to make any.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.runtime.clock import now_ms
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.threads import EXPECTED_ERRORS, in_background, is_transient
from konverse.dialog.owner.events import (
    AppendSnapshot,
    Effect,
    Follow,
    Halted,
    Phase,
    ReadData,
    ReadJournal,
    ReadSnapshots,
    Stopped,
    Tick,
)
from konverse.dialog.owner.owner import Owner
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KafkaUnavailable
from konverse.schemas.identifiers import snapshot_topic

from .effects import EffectMethod, run_effects
from .logs import Question, QueueLogs
from .snapshots import SnapshotTopic

log: Final = logging.getLogger("konverse.standby")

EVERY_S: Final = 0.2
"""Interval at which followers read, so that a new owner has little left to fold. A read costs a few ms."""

PIECES_S: Final = 0.05
"""Longest time spent on pieces of a snapshot before the journals are read again."""

CLOSE_S: Final = 2.0
"""How long `close` waits for the thread, which may be waiting for Kafka."""


class Standby:
    """Followers of all partitions of a queue, except those that were taken over."""

    def __init__(self, kafka: Kafka, queue: Queue, make: Callable[[int], Owner], taken: set[int]) -> None:
        self._queue = queue
        self._make = make
        self._taken = taken
        self._followers: dict[int, Owner] = {}
        self._locks = [threading.Lock() for _ in range(queue.partitions)]
        """Held while a partition is folded, and while its follower is taken."""
        self._gone: deque[Owner] = deque()
        """Followers that were taken; the thread will forget their snapshots."""
        self._reading = QueueLogs(kafka, queue)
        self._snapshots = SnapshotTopic(kafka, snapshot_topic(queue.topic, queue.subscription))
        self._away = LogThrottle()
        self._stop = threading.Event()
        self._thread = in_background("konverse-standby", self._run)

    # ----------------------------------------------------------------------------------------- the reader's thread

    def take(self, number: int) -> Owner | None:
        """Take a partition's follower, whose next event is `Recover`; None when it has none, or one that halted."""
        with self._locks[number]:
            self._taken.add(number)
            follower = self._followers.pop(number, None)
        if follower is None:
            return None
        self._gone.append(follower)
        return follower if follower.phase is Phase.FOLLOWING else None

    def follow_again(self, number: int) -> None:
        """Follow again a partition that this reader has lost."""
        self._taken.discard(number)

    def close(self) -> None:
        """Stop following."""
        self._stop.set()
        self._thread.join(CLOSE_S)

    # ----------------------------------------------------------------------------------------- the standby thread

    def _run(self) -> None:
        try:
            while not self._stop.wait(EVERY_S):
                try:
                    self._follow_all()
                except EXPECTED_ERRORS as error:
                    if not is_transient(error):
                        raise
                    self._log_unreachable(error)
        finally:
            self._snapshots.close()
            self._reading.close()

    def _follow_all(self) -> None:
        for number, lock in enumerate(self._locks):
            with lock:
                if self._stop.is_set():
                    return
                if number not in self._taken:
                    self._follow(number)
        self._report_snapshots()

    def _follow(self, number: int) -> None:
        follower = self._followers.get(number)
        if follower is None:
            follower = self._followers[number] = self._make(number)
        elif follower.phase is Phase.HALTED:
            return
        try:
            bounds = self._reading.bounds(number)
        except KafkaUnavailable as error:
            self._log_unreachable(error)
            return
        self._run_effects(follower, follower.step(Follow(bounds), now_ms()))
        until = time.monotonic() + PIECES_S
        while follower.snapshots.to_be_made and time.monotonic() < until:
            self._run_effects(follower, follower.step(Tick(), now_ms()))
        if follower.phase is Phase.STOPPED:
            del self._followers[number]

    def _log_unreachable(self, error: Exception) -> None:
        if self._away.due():
            log.warning("the standby cannot follow %s, retrying: %s", self._queue.topic, error)

    def _report_snapshots(self) -> None:
        """Report the outcomes of snapshots to their followers."""
        while self._gone:
            self._snapshots.forget(self._gone.popleft())
        fates = self._snapshots.poll()
        while fates:
            follower, fate = fates.popleft()
            number = follower.identity.partition
            with self._locks[number]:
                if self._followers.get(number) is follower:
                    follower.step(fate, now_ms())

    def _run_effects(self, follower: Owner, effects: list[Effect]) -> None:
        run_effects(_EFFECTS, self, follower, effects)

    def _read(self, number: int, follower: Owner, effect: Question) -> list[Effect]:
        return follower.step(self._reading.answer(number, effect), now_ms())

    def _append_snapshot(self, _number: int, follower: Owner, effect: AppendSnapshot) -> None:
        self._snapshots.append(follower, effect)

    def _stopped(self, number: int, follower: Owner, effect: Stopped | Halted) -> None:
        self._snapshots.forget(follower)
        halted = isinstance(effect, Halted)
        log.log(logging.ERROR if halted else logging.INFO, "%s/%d: %s", self._queue.topic, number, effect.reason)


_EFFECTS: Final[dict[type, EffectMethod[Standby]]] = {
    ReadJournal: Standby._read,  # noqa: SLF001  # the table belongs to the class
    ReadData: Standby._read,  # noqa: SLF001
    ReadSnapshots: Standby._read,  # noqa: SLF001
    AppendSnapshot: Standby._append_snapshot,  # noqa: SLF001
    Stopped: Standby._stopped,  # noqa: SLF001
    Halted: Standby._stopped,  # noqa: SLF001
}
