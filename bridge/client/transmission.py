"""The transmission queue of an instance: clients write their transactions to it, and its owners carry them out.

It is an ordinary queue without receivers: its owners expand each transaction into outputs. A process that commits
transactions owns a share of the queue in the background, so that it depends on no other process. `konverse transmit`
owns the queue for short-lived clients.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.judge import Rules
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.owner.driver import OwnerDriver
from konverse.bridge.owner.follower import Follower
from konverse.bridge.reader.reader import Reader
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.settings import ReaderOptions
from konverse.bridge.runtime.threads import AGAIN_S, EXPECTED_ERRORS, in_background, is_transient
from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.session.session import Session
from konverse.routing.partitioning import choose_partition
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import AlreadyExists, BrokerClosed, KafkaUnavailable, PartitionHalted, TopicMismatch
from konverse.schemas.identifiers import transmission_topic

if TYPE_CHECKING:
    from .sender import Sender

log: Final = logging.getLogger("konverse.transmission")

NAME: Final = "transmission"
WHOLE_INSTANCE: Final = ""
"""Database whose catalog has the transmission queue. No user database can have an empty name."""

PARTITIONS: Final = 4
KEEP_MS: Final = 7 * 24 * 3_600_000
"""Expanded transactions are kept this long for the verifier."""

DECIDE_WITHIN_MS: Final = 10
"""Commit soon: there are no receivers to batch for, and senders wait for the outputs."""

LOOK_EVERY_S: Final = 0.1
"""Interval of reading the journal, to find out whether the outputs of transactions have arrived."""
ARRIVAL_CHECK_URGENT_S: Final = 0.01
"""The same interval while a caller waits for outputs to arrive."""

ARRIVAL_S: Final = 5.0
"""On close, wait this long for the outputs of the transactions. They arrive without this process, too."""


def find_queue(kafka: Kafka, instance: str) -> Queue | None:
    """The transmission queue; None before the first transaction of the instance."""
    catalog = Catalog(kafka, instance, WHOLE_INSTANCE)
    try:
        return catalog.find(Queue, NAME)
    finally:
        catalog.close()


def ensure_queue(kafka: Kafka, instance: str) -> Queue:
    """The transmission queue, created if there is none."""
    found = find_queue(kafka, instance)
    if found is not None:
        Topics(kafka).check_queue(found)
        return found
    try:
        queue = Topics(kafka).make_queue(NAME, transmission_topic(instance), PARTITIONS, KEEP_MS)
    except TopicMismatch:
        found = find_queue(kafka, instance)
        if found is None:
            raise
        return found  # another process created it meanwhile and has already written to it
    catalog = Catalog(kafka, instance, WHOLE_INSTANCE)

    def decide() -> Queue:
        if catalog.find(Queue, NAME) is not None:
            raise AlreadyExists
        return queue

    try:
        with suppress(AlreadyExists):
            catalog.change(NAME, decide, Queue)
        return catalog.get(Queue, NAME)
    finally:
        catalog.close()


def drop_queue(kafka: Kafka, topics: Topics, instance: str) -> bool:
    """Drop the transmission queue with the transactions that it holds; False when there is none.

    The next transaction of a new process creates the queue again. A drop that failed half-way is completed.
    """
    with closing(Catalog(kafka, instance, WHOLE_INSTANCE)) as catalog:
        found = catalog.find(Queue, NAME)
        if found is not None:
            catalog.change(NAME, lambda: None, Queue)
        else:
            found = catalog.dropped_queue(NAME)
            if found is None or not topics.remain(found):
                return False
        topics.delete(found)
    return True


def transmitter(kafka: Kafka, queue: Queue, catalog: Catalog | None = None) -> Reader:
    """A reader that owns a share of the transmission queue. Iterating over it sends transactions and yields nothing."""
    rules = Rules(lambda *_: None, catalog=catalog)
    driver = OwnerDriver(kafka, queue, rules, OwnerSettings(uncommitted_ms=DECIDE_WITHIN_MS))
    return Reader(kafka, driver, ReaderOptions(), lambda _: None)


class Transmission:
    """The transactions of one sender: chooses their partition, and checks whether their outputs have arrived."""

    def __init__(self, kafka: Kafka, queue: Queue, sender: Sender, catalog: Catalog, *, own: bool) -> None:
        """With `own` this process also owns a share of the queue, in the background."""
        self._kafka = kafka
        self._sender = sender
        self._instance = kafka.settings.instance
        self._closed = threading.Event()
        partition = choose_partition(sender.session.writer, queue.partitions)
        sender.session.transmit_to(queue.address(partition))
        self._reader = transmitter(kafka, queue, catalog) if own else None
        self._away = LogThrottle()
        works = [partial(self._listen, queue, partition)]
        if self._reader is not None:
            works.append(partial(self._transmit, self._reader))
        self._threads = [in_background("konverse-transmission", work) for work in works]

    def settle(self) -> None:
        """Wait up to `ARRIVAL_S` for the outputs of committed transactions to arrive."""
        if not self._sender.wait_for(lambda: self._sender.session.may_close, ARRIVAL_S):
            log.warning(
                "session %s ends before the outputs of its transactions have arrived; the next owner of the "
                "transmission queue of instance %r delivers them (`konverse transmit`)",
                self._sender.session.writer.hex(),
                self._instance,
            )

    def close(self) -> None:
        """Give up the share of the queue and stop the threads. Safe to call twice."""
        self._closed.set()
        if self._reader is not None:
            self._reader.close()
        for thread in self._threads:
            thread.join()

    def after_fork(self) -> None:
        """Mark as closed in a forked child (`bridge.runtime.forks`)."""
        self._closed = threading.Event()  # a thread of the parent may hold the lock of the old event
        self._closed.set()
        if self._reader is not None:
            self._reader.after_fork()

    def _transmit(self, reader: Reader) -> None:
        with reader:  # however the loop ends, the partitions must go to another owner
            while not self._closed.is_set():
                try:
                    for _ in reader:
                        pass
                except BrokerClosed:
                    return  # closed before the first iteration
                except EXPECTED_ERRORS as error:
                    if not is_transient(error):
                        log.error(  # noqa: TRY400  # no traceback
                            "this process no longer transmits transactions of instance %r: %s", self._instance, error
                        )
                        return
                    self._log_unreachable("transactions cannot be transmitted", error)
                    self._closed.wait(AGAIN_S)
                else:
                    return

    def _log_unreachable(self, what: str, error: Exception) -> None:
        if self._away.due(what):
            log.warning("instance %r: %s, retrying: %s", self._instance, what, error)

    def _follower(self, queue: Queue, partition: int) -> Follower | None:
        """Follows the partition of the transactions; None when this object was closed before there was a client."""
        while not self._closed.is_set():
            try:
                return Follower(self._kafka, queue, partition)
            except KafkaUnavailable as error:  # this process has no file or thread left for a client
                self._log_unreachable("the journal of the transmission queue cannot be read", error)
                self._closed.wait(AGAIN_S)
        return None

    def _listen(self, queue: Queue, partition: int) -> None:
        """While transactions are on their way, report to the session whether their outputs have arrived."""
        session, follower = self._sender.session, self._follower(queue, partition)
        if follower is None:
            return
        with follower as following:
            while not self._closed.is_set():
                awaited = self._sender.awaits_arrival.wait(LOOK_EVERY_S)
                self._closed.wait(ARRIVAL_CHECK_URGENT_S if awaited else 0.0)
                if not session.transactions.flying:
                    continue
                try:
                    state = following.catch_up()
                    self._sender.decide(partial(Session.transmitted, state=state))
                except BrokerClosed:
                    return
                except PartitionHalted as error:  # until an operator applies the error's remedy
                    self._log_unreachable("the arrival of transactions cannot be checked", error)
                    following.begin_anew()
                    self._closed.wait(AGAIN_S)
                except EXPECTED_ERRORS as error:
                    if not is_transient(error):
                        log.error(  # noqa: TRY400  # no traceback
                            "this process no longer checks in %s/%d whether transactions have arrived: %s",
                            queue.topic,
                            partition,
                            error,
                        )
                        return
                    self._log_unreachable("the journal of the transmission queue cannot be read", error)
                    self._closed.wait(AGAIN_S)
                else:
                    self._away.over("the journal of the transmission queue cannot be read")
