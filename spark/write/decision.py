"""The driver's part of a write: put BATCH into the transmission queue and wait until its journal has the decision.

The state machine `konverse.dialog.batch.driver` chooses each step; this module does the I/O. The owner of the partition
of the transmission queue decides the batch. If no owner seems to be at work, this process owns a share of the queue
itself, for as long as it waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final, Self

from confluent_kafka import KafkaException, Producer

from konverse.bridge.client.transmission import transmitter
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.refusals import Need
from konverse.bridge.owner.follower import Follower
from konverse.bridge.reader.reader import Reader
from konverse.bridge.runtime.threads import EXPECTED_ERRORS, in_background
from konverse.dialog.batch.driver import Again, BatchRefused, BatchStart, Close, Decided, Driver, Put, Unclear, observe
from konverse.dialog.batch.task import Report
from konverse.dialog.state.partition import Partition
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import AccessDenied, KafkaUnavailable, OutcomeUnknown, TransactionTooLarge
from konverse.schemas.wire.envelope import HEADER
from konverse.spark.connection.cached_clients import IdleClients
from konverse.spark.connection.clients import KAFKAS_MAX

from .plan import Plan
from .settings import shown_id

log: Final = logging.getLogger("konverse.spark")

LOOK_EVERY_S: Final = 0.02
AGAIN_EVERY_S: Final = 2.0
"""Interval at which a BATCH that is not decided is appended again."""

ALONE_S: Final = 1.5
"""After this long without a decision, or without its arrival, this process owns a share of the transmission queue."""

HELP_AGAIN_S: Final = 5.0
"""A process that failed to own a share tries again after this long."""

DECIDE_S: Final = 300.0
"""A batch that is not decided within this time has an unknown outcome."""

_PRODUCERS: Final[dict[Kafka, Producer]] = {}
"""Kept, as a new producer waits half a second until Kafka has given it an id. The oldest goes when there are many."""

_FOLLOWINGS: Final = IdleClients(Follower.close)
"""Followers of journals in which batches were decided. The next batch continues reading at their positions."""


class BatchDecision:
    """One batch of a query, from the reports of its tasks until all partitions of the query have the decision.

    Use it in a `with` statement.
    """

    def __init__(self, kafka: Kafka, plan: Plan, query: bytes) -> None:
        judge, _ = plan.judge(query)
        self._kafka = kafka
        self._driver = Driver(query, plan.run, judge, plan.homes, plan.targets)
        self._queue = plan.transmission
        self._key = (kafka, judge.topic, self._queue.incarnation, judge.partition)
        self._following = _FOLLOWINGS.take(self._key) or Follower(kafka, self._queue, judge.partition)
        self._helper = _Helper(kafka, self._queue, self._title)
        self._put_at = 0.0
        self._left = False
        """Kafka has acknowledged a record of this driver, so its batch may be decided."""
        self.highest = -1
        """Highest decided batch of the query when ours was found decided; -1 before."""

    @property
    def _title(self) -> str:
        """The query and its instance, in a log line."""
        return f"query {self._driver.query.hex()} of instance {self._kafka.settings.instance!r}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._helper.close()
        if kind is None:
            _FOLLOWINGS.keep(self._key, self._following)
        else:
            self._following.close()

    def decide(self, batch: int, reports: Sequence[Report], timeout_s: float = DECIDE_S) -> bool:
        """Wait until the batch is decided. Returns whether the rows of these reports have won.

        If they have not, another run of the query has decided the batch with rows of its own, and these rows are void.
        Raises TransactionTooLarge when nothing of the batch can be received, AccessDenied when this principal may not
        write to the transmission queue, and OutcomeUnknown when there is no decision in time, when Kafka does not say
        what was decided, or when other runs have gone on since this run appended its BATCH.
        """
        driver = self._driver
        self._run_effects(driver.step(BatchStart(batch, len(reports))))
        for report in reports:
            self._run_effects(driver.step(report))
        deadline, alone_at = time.monotonic() + timeout_s, time.monotonic() + ALONE_S
        while True:
            try:
                state = self._look(deadline)
            except KafkaUnavailable as error:
                raise self._unknown(batch, timeout_s, f"Kafka cannot be asked ({error})") from error
            seen = observe(state, driver.query, driver.run, driver.places)
            decided = self._run_effects(driver.step(seen))
            if decided is not None:
                self.highest = seen.decided
                return decided.ours
            if time.monotonic() > deadline:
                raise self._unknown(batch, timeout_s, "no process has decided it")
            if time.monotonic() > alone_at:
                self._helper.help()
            if time.monotonic() > self._put_at + AGAIN_EVERY_S:
                self._run_effects(driver.step(Again()))
            time.sleep(LOOK_EVERY_S)

    def settle(self, timeout_s: float = DECIDE_S) -> None:
        """Wait until every partition of the query has the decision. The next batch cannot be sent before that.

        The outcome is known already. If Kafka does not answer, or the time is over, this is logged and not raised.
        """
        driver, deadline, alone_at = self._driver, time.monotonic() + timeout_s, time.monotonic() + ALONE_S
        outputs = observe(self._following.state, driver.query, driver.run, driver.places).outputs
        made = {place: count for place, (_, count) in outputs.items()}
        while True:
            try:
                seen = observe(self._look(deadline), driver.query, driver.run, driver.places)
            except KafkaUnavailable as error:
                log.warning(
                    "batch %d of %s is decided, but this process cannot check whether all queues have the decision: %s",
                    driver.batch,
                    self._title,
                    error,
                )
                return
            if all(seen.outputs[place][0] >= count for place, count in made.items() if place in seen.outputs):
                return
            if time.monotonic() > deadline:
                log.warning(
                    "batch %d of %s is decided, but not all queues have the decision yet; the next owner of the "
                    "transmission queue sends it to them (`konverse transmit`)",
                    driver.batch,
                    self._title,
                )
                return
            if time.monotonic() > alone_at:  # the owner that decided may be gone
                self._helper.help()
            time.sleep(LOOK_EVERY_S)

    def give_up(self, batch: int) -> None:
        """Ask for a decision without rows, so that waiting rows are dropped. Does not wait for the decision."""
        self._run_effects(self._driver.step(BatchStart(batch, 0)))
        state = self._look(time.monotonic())
        self._run_effects(self._driver.step(observe(state, self._driver.query, self._driver.run, self._driver.places)))

    def end(self) -> None:
        """Close the query: no batch follows the decided one, so the transmission queue can forget the query.

        Does not wait. If the record is lost, the query is forgotten later, by its age.
        """
        self._run_effects(self._driver.step(Close()))

    def _look(self, deadline: float) -> Partition:
        """The state according to the journal. KafkaUnavailable is raised only after the deadline."""
        while True:
            try:
                return self._following.catch_up()
            except KafkaUnavailable as error:  # waiting does not grant a right
                if isinstance(error, AccessDenied) or time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_EVERY_S)

    def _run_effects(self, effects: Sequence[Put | Decided | BatchRefused | Unclear]) -> Decided | None:
        decided = None
        for effect in effects:
            if isinstance(effect, Put):
                self._put(effect)
            elif isinstance(effect, BatchRefused):
                raise TransactionTooLarge(f"batch {effect.batch} is not received: {effect.reason}")
            elif isinstance(effect, Unclear):
                raise OutcomeUnknown(
                    f"whether batch {effect.batch} of query {shown_id(self._driver.query)} is received is unknown: "
                    f"this run had submitted it for decision, and {effect.reason}. Check whether its rows are there "
                    "before you write them again: under another number they are received a second time"
                )
            else:
                decided = effect
        return decided

    def _put(self, effect: Put) -> None:
        self._put_at = time.monotonic()
        place = effect.address
        producer = _PRODUCERS.get(self._kafka)
        if producer is None:
            if len(_PRODUCERS) >= KAFKAS_MAX:
                del _PRODUCERS[next(iter(_PRODUCERS))]
            producer = _PRODUCERS[self._kafka] = self._kafka.journal_producer()
        answers: list[object] = []

        def answered(error: object, _message: object) -> None:
            answers.append(error)
            if error is None:  # maybe late, while records of a later call are waited for
                self._left = True

        try:
            for header, key, body in effect.records:
                producer.produce(
                    place.topic,
                    body,
                    key,
                    place.partition,
                    answered,
                    headers={HEADER: header},
                )
            producer.flush(AGAIN_EVERY_S)
        except (BufferError, KafkaException) as error:  # the record is appended again later
            _PRODUCERS.pop(self._kafka, None)
            answers.append(error.args[0])
        failures = [answer for answer in answers if answer is not None]
        if not self._left:  # else the outcome is unknown
            self._kafka.check_written(place.topic, failures)
        if failures:
            why = self._kafka.words(failures[0], Need.topic("WRITE", place.topic))
            log.warning(
                "batch %d of %s cannot be submitted for decision, retrying: %s", self._driver.batch, self._title, why
            )

    def _unknown(self, batch: int, timeout_s: float, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"whether batch {batch} of query {shown_id(self._driver.query)} is received is unknown after "
            f"{timeout_s:.0f} s: {why}. Check that Kafka runs and that a process serves the transmission queue "
            f"(`konverse transmit`). To write the same rows again without duplicates, give 'query' = "
            f"'{shown_id(self._driver.query)}' and 'batch' = '{batch}' (a stream does so by itself, and "
            "foreachBatch does with the options that it had)"
        )


class _Helper:
    """Owns a share of the transmission queue in the background, once its help was asked for."""

    def __init__(self, kafka: Kafka, queue: Queue, title: str) -> None:
        """`title` describes the query and its instance in log lines."""
        self._kafka = kafka
        self._queue = queue
        self._title = title
        self._again_at = 0.0
        self._working: tuple[Reader, threading.Thread] | None = None

    def help(self) -> None:
        """Begin to own a share. Further calls have no effect, unless the helper has failed since."""
        if time.monotonic() < self._again_at or (self._working is not None and self._working[1].is_alive()):
            return
        self._again_at = time.monotonic() + HELP_AGAIN_S
        log.info(
            "the transmission queue seems to have no owner; this process owns it while it waits for a decision on %s. "
            "`konverse transmit` avoids this delay",
            self._title,
        )
        try:
            reader = transmitter(self._kafka, self._queue)
        except EXPECTED_ERRORS as error:
            log.warning("this process cannot own the transmission queue for %s: %s", self._title, error)
            return
        self._working = reader, in_background("konverse-deciding", lambda: self._work(reader))

    def _work(self, reader: Reader) -> None:
        try:
            with reader:
                for _ in reader:
                    pass
        except EXPECTED_ERRORS as error:  # `decide` and `settle` ask again
            log.warning("this process no longer owns the transmission queue for %s: %s", self._title, error)

    def close(self) -> None:
        """Give the share back."""
        if self._working is not None:
            reader, thread = self._working
            reader.stop()
            thread.join()
