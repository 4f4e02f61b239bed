"""`df.write.format("konverse")` and `df.writeStream.format("konverse")`: rows become messages, each exactly once.

Rows are void when tasks write them. The driver puts a list, with one execution for each task, into the transmission
queue, and the journal there shows which driver's list came first (protocol.md section 9b). So it does not matter how
often a task is executed, whether it has the same rows each time, or which process is killed when.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final, cast

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.network import LocatedService, Network
from konverse.bridge.client.transmission import ensure_queue
from konverse.bridge.kafka.clock import WriterIds, kafka_time_ms
from konverse.bridge.kafka.topics import Topics, topic_ids
from konverse.dialog.batch.task import Report, Task, TaskOf
from konverse.schemas.catalog.objects import Contract, Queue, Service
from konverse.schemas.counting import counted
from konverse.schemas.errors import InvalidSettings, KafkaUnavailable, NotSupportedYet, ServiceNotFound
from konverse.schemas.identifiers import Address, Role
from konverse.spark.connection.case_rule import CASE_SENSITIVE
from konverse.spark.connection.clients import check_topics, kafka_of

from .checks import as_named, check_columns
from .decision import BatchDecision
from .delivery import Delivery
from .micro_batch import QUERY_ID, stream_of
from .plan import Plan, name_id, stream_id, tied_id
from .returned_rows import LOOK_WAIT_S, look_for
from .rows import TaskRows
from .settings import WriteSettings, query_id
from .successions import Successions

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

log: Final = logging.getLogger("konverse.spark")

_BATCH_ID: Final = "streaming.sql.batchId"
"""Local property in which Spark numbers the micro-batch of a task."""

_COMMITTER: Final = "pyspark.sql.worker.python_streaming_sink_runner"
"""Worker in which Spark makes a stream's writer again, to commit. The plan comes back with the tasks' reports."""


class Written(WriterCommitMessage):
    """A task's message to the driver: its report, and the plan by which it worked."""

    def __init__(self, plan: Plan, report: Report) -> None:
        self.plan = plan
        self.report = report


class _Writer:
    """The part that both writers share: tasks write and report, the driver decides."""

    def __init__(self, settings: WriteSettings, plan: Plan | None) -> None:
        self._settings = settings
        self._plan = plan

    def _write(self, batches: Iterator[RecordBatch], query: bytes, batch: int) -> Written:
        plan = self._plan
        assert plan is not None, "a task has its plan from the driver"
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        of = TaskOf(query, *plan.judge(query), plan.run, batch, context.partitionId())
        task = Task(of, os.urandom(16))
        rows, delivery = TaskRows(plan, task), Delivery(self._settings)
        case_sensitive = context.getLocalProperty(CASE_SENSITIVE)
        for some in batches:
            for records in rows.of(as_named(some, case_sensitive)):
                delivery.hand(records)
        task.acknowledged(delivery.finish())
        report = task.report()
        if report is None:
            rows_left = counted(task.unacknowledged, "row")
            raise KafkaUnavailable(f"Kafka has not acknowledged {rows_left} of task {of.number}")
        return Written(plan, report)

    def _decide(
        self, messages: Sequence[WriterCommitMessage | None], batch: int, wait_s: float = 0.0
    ) -> tuple[bool, int]:
        """Get the batch decided. Returns whether the rows of these tasks won, and the query's highest decided batch.

        Then looks for rows that came back, after `wait_s`. A write with conversations of its own need not look: none of
        them can have ended before.
        """
        written = cast("list[Written]", list(messages))
        if not written:
            return True, batch
        plan, query = written[0].plan, written[0].report.task.query
        check_topics(self._settings, plan.topics)  # an error here leaves the rows void
        with BatchDecision(kafka_of(self._settings), plan, query) as deciding:
            ours = deciding.decide(batch, [one.report for one in written])
            if query == plan.run:  # the id is new, and no other write has it
                deciding.end()
            goes_on = query != plan.run or plan.pool is not None
            if goes_on and not wait_s:
                look_for(self._settings, plan, wait_s)  # meanwhile the decision reaches the queues
            check_topics(self._settings, plan.topics)  # a topic that was created again never gets it
            deciding.settle()
        if goes_on and wait_s:
            look_for(self._settings, plan, wait_s)
        check_topics(self._settings, plan.topics)
        return ours, deciding.highest


class BatchWriter(_Writer, DataSourceArrowWriter):
    """One `df.write`: all of its rows are received, or none."""

    def __init__(self, settings: WriteSettings, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise InvalidSettings("sent messages cannot be overwritten; use mode('append')")
        check_columns(schema, settings.for_all_rows)
        super().__init__(settings, plan_of(settings))

    @property
    def _query(self) -> bytes:
        settings, plan = self._settings, self._plan
        assert plan is not None
        if settings.query is None:
            return plan.run
        known = query_id(settings.query)
        if known is not None:
            return known
        services = (settings.from_service, settings.contract, *sorted(settings.to_services or ()))
        return name_id(settings.database, settings.query, services)

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """In a task: write its rows, which are void until the driver has decided.

        In `foreachBatch` a named query is tied to the stream, so that its checkpoint tells which batches were written.
        An id of the application's own is never tied. Raises InvalidSettings for a name that cannot be tied.
        """
        context, name, query = TaskContext.get(), self._settings.query, self._query
        assert context is not None, "Spark calls this in a task"
        stream = None if name is None or query_id(name) is not None else stream_of(context, name)
        return self._write(iterator, query if stream is None else tied_id(query, stream), self._settings.batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver: get the write decided. If another run of the query has decided it, that is logged.

        Raises InvalidSettings for a number below the last one, as it is not known whether that number was written.
        """
        settings = self._settings
        ours, highest = self._decide(messages, settings.batch, LOOK_WAIT_S)
        if ours:
            return
        if highest > settings.batch:
            raise InvalidSettings(
                f"option 'batch' is {settings.batch}, and batch {highest} of query {settings.query!r} was written "
                f"before: numbers rise from write to write, and whether {settings.batch} was written is not known. "
                f"Nothing of this write is received; give {highest + 1}, or another 'query'"
            )
        if cast("Written", messages[0]).report.task.query != self._query:
            log.warning(
                "batch %d of query %r was written before in this stream; the rows of this run are not received. After "
                "a restart this is normal; otherwise give each frame that a micro-batch writes a 'query' of "
                "its own",
                settings.batch,
                settings.query,
            )
        else:
            log.warning(
                "batch %d of query %r was written before; the rows of this run are not received. If they are new "
                "rows, as those of a stream with a new checkpoint are, give another 'query'",
                settings.batch,
                settings.query,
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver: a task failed for good. Drop the rows of a write without `query`, which is never repeated."""
        if self._settings.query is not None or None not in messages or self._plan is None:
            return  # a repetition decides; or all tasks reported, and the batch may be decided
        with BatchDecision(kafka_of(self._settings), self._plan, self._query) as deciding:
            deciding.give_up(self._settings.batch)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A streaming query: each micro-batch is received once, however often its tasks run."""

    def __init__(self, settings: WriteSettings, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise InvalidSettings("sent messages cannot be taken back; use outputMode('append') or 'update'")
        if not settings.checkpoint:
            raise InvalidSettings(
                "option 'checkpointLocation' is missing; give it to the stream itself, not to the session: its path "
                "tells a copy of a checkpoint from the original; otherwise the two would drop each other's rows"
            )
        check_columns(schema, settings.for_all_rows)
        super().__init__(settings, None if _commits() else plan_of(settings))

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """In a task: write its rows, which are void until the driver has decided."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise InvalidSettings(
                "Spark does not say which query this task belongs to; use a newer Spark, or `df.write`"
            )
        return self._write(iterator, stream_id(query, self._settings.checkpoint), int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """In the driver: get the micro-batch decided.

        Raises InvalidSettings if a later one was decided before: Spark repeats only its last micro-batch, so the
        checkpoint is older than the stream, and nothing tells which of its rows were written.
        """
        ours, highest = self._decide(messages, batchId)
        if not ours and highest > batchId:
            raise InvalidSettings(
                f"this stream has written micro-batch {highest}, and its checkpoint {self._settings.checkpoint!r} is "
                f"at {batchId}: it was restored from an older copy, or another driver runs the stream. Nothing of "
                "micro-batch "
                f"{batchId} is received. Start with a new 'checkpointLocation' at offsets that you choose"
            )
        if not ours:
            log.info(
                "batch %d of query %s was already decided by the previous run, with the rows of that run",
                batchId,
                cast("Written", messages[0]).report.task.query.hex(),
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """In the driver: a task failed for good. The query's next run decides the batch, which drops these rows."""


def plan_of(settings: WriteSettings) -> Plan:
    """The plan of a write, from the catalog, with a new id for this run.

    Raises ServiceNotFound, ContractNotFound, QueueNotFound, KafkaUnavailable, and for a message type that is given for
    all rows MessageTypeNotFound, NotInContract, WrongDirection; TopicMismatch when a topic of a queue was deleted, or
    deleted and created again.
    """
    kafka = kafka_of(settings)
    kafka.check()
    began_ms = kafka_time_ms(kafka)
    with closing(Catalog(kafka, settings.instance, settings.database)) as catalog:
        network = Network(kafka, catalog)
        contract = catalog.get(Contract, settings.contract)
        home = catalog.get(Queue, catalog.get(Service, settings.from_service).queue)
        services = {
            name: catalog.get_in(there.database, Queue, there.service.queue)
            for name, there in _services(settings, network).items()
        }
        if "message_type" in settings.for_all_rows:
            catalog.check_send(settings.contract, Role.INITIATOR, settings.for_all_rows["message_type"])
    transmission = ensure_queue(kafka, settings.instance)
    topics = tuple({pair for queue in (transmission, home, *services.values()) for pair in topic_ids(queue).items()})
    check_topics(settings, topics)
    goes_on = settings.pool is not None or settings.query is not None or bool(settings.checkpoint)
    over = Successions(kafka, settings.instance, _partitions(home)[0]).over() if goes_on else frozenset[bytes]()
    run, _ = WriterIds(kafka, Topics(kafka)).new()
    return Plan(
        run=run,
        database=settings.database,
        from_service=settings.from_service,
        contract=settings.contract,
        transmission=transmission,
        homes=_partitions(home),
        services={name: _partitions(queue) for name, queue in services.items()},
        types={name: sent_by.allows(Role.INITIATOR) for name, sent_by in contract.sent_by.items()},
        for_all_rows=settings.for_all_rows,
        pool=settings.pool,
        began_ms=began_ms,
        topics=topics,
        over=over,
    )


def _services(settings: WriteSettings, network: Network) -> dict[str, LocatedService]:
    """The target services of the write, where the routes lead: all rows of a write for one service go to one queue.

    Of several databases that have a service, the writes of a query or a pool go to the same one.
    """
    lot = (settings.pool or settings.query or "").encode()
    if settings.to_services is not None:
        return {name: network.service(name, lot=lot) for name in settings.to_services}
    services = [service for service in network.catalog.all(Service) if settings.contract in service.contracts]
    found: dict[str, LocatedService] = {}
    for service in services:
        with suppress(ServiceNotFound, NotSupportedYet):  # a route leads elsewhere; only rows that name it are refused
            found[service.name] = network.service(service.name, lot=lot)
    if not found:
        raise ServiceNotFound(
            f"no service of database {settings.database!r} may be a target of contract {settings.contract!r}; create "
            "one with broker.admin.create_service(…, contracts=[…])"
        )
    return found


def _partitions(queue: Queue) -> tuple[Address, ...]:
    return tuple(queue.address(number) for number in range(queue.partitions))


def _commits() -> bool:
    """Whether Spark has made the writer only to commit. A wrong answer costs a little time."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _COMMITTER in sys.modules or (main is not None and main.name == _COMMITTER)
