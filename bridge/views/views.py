"""`broker.views`: Service Broker's views of a database, to be read."""

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
from .listing import Source, View
from .outbox import outputs
from .partitions import Folded, Looking
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

if TYPE_CHECKING:
    from konverse.bridge.client.sender import Sender


class Views:
    """The views of one database: each method is one, and gives a `View` of rows as they stand now.

    Views of the catalog cost nothing much. The others look at each partition of the database, or of one queue, one
    after the other, and consume, claim and disturb nothing. Where Redis does not hold what is asked for, a partition is
    folded from its logs: from the newest snapshot on, then for a moment in memory, with what nobody has ingested yet.
    That takes some 0.1 s for a small one, and as long as an owner's recovery for a large one. `view.sources` says which
    it was. Raises KafkaUnavailable when Kafka is silent, PartitionHalted when logs contradict themselves.
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

        `columns` are those that are wanted, else all. Redis holds states, sequences and timers, and answers when no
        other column is wanted; those that it does not hold (`NOT_IN_REDIS`) are None then. Raises BadInput for a name
        that is no column, QueueNotFound.
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
        broker_id = str(self._catalog.broker_id)
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
        """`sys.conversation_groups`: the groups of those conversations. They are gone with the last one (93)."""
        rows: list[ConversationGroupRow] = []
        sources: list[Source] = []
        for folded in self._folds(self._queues(queue)):
            rows += groups(folded.ahead.state, self._catalog)
            sources.append(folded.source())
        return View(rows, sources)

    @checked
    def contents(self, queue: str) -> View[QueueRow]:
        """What waits in a queue, with RECEIVE's columns, without consuming it (behaviours 25, 86).

        In the order of `queuing_order` within a partition. What a handler has in its hands and has not committed is
        among it. What nobody has ingested yet is judged by the catalog of now: rejected messages are not there.
        """
        contents = Contents(self._catalog)
        rows: list[QueueRow] = []
        sources: list[Source] = []
        for folded in self._folds(self._queues(queue)):
            rows += contents.rows(folded.ahead.state)
            sources.append(folded.source())
        return View(rows, sources)

    def transmission_queue(self) -> View[TransmissionQueueRow]:
        """`sys.transmission_queue`: what was said and is not known to have arrived (behaviours 150, 151).

        That is what this process has sent and Kafka has not acknowledged, transactions of clients that nobody has
        expanded, and what stands in the outboxes of partitions: an owner notes that something has arrived with its next
        commit. What a reader relocates, or sends to its group in another partition, stands in no view while it is on
        its way.
        """
        queues = self._queues(None)
        topics = {queue.topic for queue in queues}
        silence_s = self._kafka.settings.silence_timeout_s
        sender, shared = self._sender(), self._transmission()
        found: list[Outgoing] = sender.undelivered() if sender is not None else []
        sources: list[Source] = []
        known: dict[tuple[Role, bytes], Names] = {}
        wanted = missing_names(found)
        for folded in self._folds([*([shared] if shared is not None else []), *queues]):
            put = [*outputs(folded, silence_s, topics)]
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
        """GET_TRANSMISSION_STATUS: what keeps something that was said on a conversation (behaviour 150).

        Empty when nothing does, and for a conversation that is not known. Costs as much as `transmission_queue`.
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
        """`sys.databases`: those of this instance in which something was created, and this one."""
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
        """`sys.service_message_types`, those of the system among them."""
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
        """`sys.routes`: they are kept, and nothing is sent by them yet."""
        return View(objects.routes(self._known))

    def conversation_priorities(self) -> View[ConversationPriorityRow]:
        """`sys.conversation_priorities`: the levels of sides that begin."""
        return View(objects.conversation_priorities(self._known))

    # ------------------------------------------------------------------------------------------------------- inside

    def _queues(self, name: str | None) -> list[Queue]:
        """One queue, or all; what is known of the catalog is what it says now."""
        known = self._known
        queues = known.all(Queue)
        return queues if name is None else [known.get(Queue, name)]

    @property
    def _known(self) -> Catalog:
        self._sender()
        return self._catalog

    def _looking(self) -> Looking:
        return Looking(self._kafka, self._catalog, self._validator, self._kafka.settings.redis)

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
"""The methods of `Views` that give rows, and the columns of those: what `konverse view` knows by name."""
