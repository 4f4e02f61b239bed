"""`broker.views`: Service Broker's views of a database, one method for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final
from uuid import UUID

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.client.outgoing import Names, Outgoing, TransmissionQueueRow, missing_names
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.owner.follower import partitions_of
from konverse.bridge.runtime.arguments import checked, did_you_mean
from konverse.bridge.validation.validator import Validator
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import BadInput
from konverse.schemas.identifiers import Role

from . import objects
from .contents import Contents
from .endpoints import NOT_IN_REDIS, endpoints, groups, shown_endpoint
from .outbox import outputs
from .partitions import Folded, StateReader
from .rows import (
    ConversationEndpointRow,
    ConversationGroupRow,
    ConversationPriorityRow,
    DatabaseRow,
    QueueRow,
    RouteRow,
    ServiceContractMessageUsageRow,
    ServiceContractRow,
    ServiceContractUsageRow,
    ServiceMessageTypeRow,
    ServiceQueueRow,
    ServiceQueueUsageRow,
    ServiceRow,
)
from .view_result import Source, View

if TYPE_CHECKING:
    from konverse.bridge.client.sender import Sender


class Views:
    """The views of one database: each method is a view, and returns a `View` of the rows as they are now.

    Views of the catalog are cheap. The others read each partition of the database, or of one queue, one after the
    other; they consume and claim nothing. Where Redis does not hold the columns asked for, a partition is folded in
    memory from its newest snapshot and its logs, including data that no owner has ingested yet. That takes about 0.1 s
    for a small partition, and as long as an owner's recovery for a large one. `view.sources` says which partitions
    were folded. Raises KafkaUnavailable when Kafka does not answer, PartitionHalted when logs contradict themselves,
    TopicMismatch when topics are no longer those of their queue.
    """

    def __init__(
        self,
        kafka: Kafka,
        catalog: Catalog,
        validator: Validator,
        sender: Callable[[], Sender | None],
        transmission: Callable[[], Queue | None],
    ) -> None:
        """`sender` raises BrokerClosed when the broker was closed."""
        self._kafka = kafka
        self._catalog = catalog
        self._validator = validator
        self._sender = sender
        self._transmission = transmission

    # ------------------------------------------------------------------------------------------------ conversations

    @checked
    def conversation_endpoints(
        self, queue: str | None = None, columns: Collection[str] | None = None
    ) -> View[ConversationEndpointRow]:
        """`sys.conversation_endpoints`: each side of each conversation, of one queue or all.

        `columns` names the columns that are needed; by default all. Redis holds states, sequences and timers, and
        answers when no other column is needed; the columns that it does not hold (`NOT_IN_REDIS`) are then None.
        Raises BadInput for an unknown column, QueueNotFound.
        """
        wanted = ConversationEndpointRow._fields if columns is None else columns
        if isinstance(wanted, str | bytes):
            raise BadInput(f"conversation_endpoints takes a list of columns, not {wanted!r}; write columns=[…]")
        for column in wanted:
            if column not in ConversationEndpointRow._fields:
                like = did_you_mean(str(column), ConversationEndpointRow._fields)
                has = like or f"; it has {', '.join(ConversationEndpointRow._fields)}"
                raise BadInput(f"conversation_endpoints has no column {column!r}{has}")
        unheld = sorted(NOT_IN_REDIS.intersection(wanted))
        rows: list[ConversationEndpointRow] = []
        alone = self._catalog.databases() in ([], [self._catalog.database])
        broker_id = str(self._catalog.broker_id) if alone else None
        sources: list[Source] = []
        with closing(self._looking()) as looking:
            for place in partitions_of(self._queues(queue)):
                shown = f"Redis does not hold {', '.join(unheld)}" if unheld else looking.shown(*place)
                if isinstance(shown, str):
                    folded = looking.fold(*place)
                    rows += endpoints(folded.ahead.state, self._catalog)
                    sources.append(folded.source(shown))
                else:
                    rows += (shown_endpoint(row, broker_id) for row in shown)
                    sources.append(Source(place[0].name, place[1], from_redis=True))
        return View(rows, sources)

    @checked
    def conversation_groups(self, queue: str | None = None) -> View[ConversationGroupRow]:
        """`sys.conversation_groups`: groups of one queue or all. A group ends with its last conversation (93)."""
        rows: list[ConversationGroupRow] = []
        sources: list[Source] = []
        for folded in self._folds(self._queues(queue)):
            rows += groups(folded.ahead.state, self._catalog)
            sources.append(folded.source())
        return View(rows, sources)

    @checked
    def contents(self, queue: str) -> View[QueueRow]:
        """The messages in a queue, with RECEIVE's columns, without consuming them (behaviours 25, 86).

        In `queuing_order` within a partition. Messages that a handler has received but not committed are included.
        Messages that no owner has ingested yet are judged by the present catalog: rejected ones are left out.
        """
        contents = Contents(self._catalog)
        rows: list[QueueRow] = []
        sources: list[Source] = []
        for folded in self._folds(self._queues(queue)):
            rows += contents.rows(folded.ahead.state)
            sources.append(folded.source())
        return View(rows, sources)

    def transmission_queue(self) -> View[TransmissionQueueRow]:
        """`sys.transmission_queue`: messages, ends and errors not known to have arrived (behaviours 150, 151).

        These are records that this process has sent and Kafka has not acknowledged, client transactions that have not
        been expanded, and outputs in the outboxes of partitions. An owner records an arrival in its next commit, so an
        output may stay listed until then. A conversation or message that a reader moves to another partition is in no
        view while it is on its way.
        """
        queues = self._queues(None)
        topics = {queue.topic for queue in queues}
        sender, shared = self._sender(), self._transmission()
        found: list[Outgoing] = sender.undelivered() if sender is not None else []
        sources: list[Source] = []
        known: dict[tuple[Role, bytes], Names] = {}
        wanted = missing_names(found)
        with closing(self._looking()) as looking:
            for place in partitions_of([*([shared] if shared is not None else []), *queues]):
                folded = looking.fold(*place)
                put = [*outputs(folded, looking.no_owner_reason(folded), topics)]
                found += put
                wanted |= missing_names(put)
                sources.append(folded.source())
                for side in list(wanted):
                    endpoint = folded.ahead.state.endpoint(*side)
                    if endpoint is not None:
                        known[side] = Names.at(endpoint)
                        wanted.discard(side)
        return View([one.row(known.get((one.role, one.conversation))) for one in found], sources)

    @checked
    def transmission_status(self, conversation: UUID) -> str:
        """GET_TRANSMISSION_STATUS: what holds up an output of a conversation (behaviour 150).

        Empty when nothing does, and for an unknown conversation. Costs as much as `transmission_queue`.
        """
        rows = self.transmission_queue()
        return next(
            (
                row.transmission_status
                for row in rows
                if row.conversation_handle == conversation and row.transmission_status
            ),
            "",
        )

    # ------------------------------------------------------------------------------------------------------ catalog

    def databases(self) -> View[DatabaseRow]:
        """`sys.databases`: this database, and those of the instance that have objects of their own."""
        return View(objects.databases(self._known))

    def services(self) -> View[ServiceRow]:
        """`sys.services`."""
        return View(objects.services(self._known))

    def service_queues(self) -> View[ServiceQueueRow]:
        """`sys.service_queues`."""
        return View(objects.service_queues(self._known))

    def service_contracts(self) -> View[ServiceContractRow]:
        """`sys.service_contracts`."""
        return View(objects.service_contracts(self._known))

    def service_message_types(self) -> View[ServiceMessageTypeRow]:
        """`sys.service_message_types`, the system's own types included."""
        return View(objects.service_message_types(self._known))

    def service_contract_message_usages(self) -> View[ServiceContractMessageUsageRow]:
        """`sys.service_contract_message_usages`: which side may send which types under a contract."""
        return View(objects.service_contract_message_usages(self._known))

    def service_contract_usages(self) -> View[ServiceContractUsageRow]:
        """`sys.service_contract_usages`: the contracts of services."""
        return View(objects.service_contract_usages(self._known))

    def service_queue_usages(self) -> View[ServiceQueueUsageRow]:
        """`sys.service_queue_usages`: the queues of services."""
        return View(objects.service_queue_usages(self._known))

    def routes(self) -> View[RouteRow]:
        """`sys.routes`: by these routes BEGIN DIALOG finds the database of a service in this instance."""
        return View(objects.routes(self._known))

    def conversation_priorities(self) -> View[ConversationPriorityRow]:
        """`sys.conversation_priorities`: the broker priorities, which give new sides their level."""
        return View(objects.conversation_priorities(self._known))

    # ------------------------------------------------------------------------------------------------------- inside

    def _queues(self, name: str | None) -> list[Queue]:
        """One queue, or all."""
        known = self._known
        queues = known.all(Queue)
        return queues if name is None else [known.get(Queue, name)]

    @property
    def _known(self) -> Catalog:
        self._sender()
        return self._catalog

    def _looking(self) -> StateReader:
        return StateReader(self._kafka, self._catalog, self._validator, self._kafka.settings.redis)

    def _folds(self, queues: list[Queue]) -> Iterator[Folded]:
        with closing(self._looking()) as looking:
            for place in partitions_of(queues):
                yield looking.fold(*place)


COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "conversation_endpoints": ConversationEndpointRow._fields,
    "conversation_groups": ConversationGroupRow._fields,
    "contents": QueueRow._fields,
    "transmission_queue": TransmissionQueueRow._fields,
    "databases": DatabaseRow._fields,
    "services": ServiceRow._fields,
    "service_queues": ServiceQueueRow._fields,
    "service_contracts": ServiceContractRow._fields,
    "service_message_types": ServiceMessageTypeRow._fields,
    "service_contract_message_usages": ServiceContractMessageUsageRow._fields,
    "service_contract_usages": ServiceContractUsageRow._fields,
    "service_queue_usages": ServiceQueueUsageRow._fields,
    "routes": RouteRow._fields,
    "conversation_priorities": ConversationPriorityRow._fields,
}
"""Method of `Views` -> columns of its rows, for every view that `konverse view` can show."""
