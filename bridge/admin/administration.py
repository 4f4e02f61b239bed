"""CREATE, ALTER and DROP of contracts, queues and services, and the class that unites all statements."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from konverse.bridge.catalog.objects import SYSTEM_TYPES
from konverse.bridge.client.outcomes import Sessions
from konverse.bridge.client.transmission import NAME, drop_queue, find_queue
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.owner.follower import Following, partitions_of
from konverse.bridge.redis.view import forget_view
from konverse.bridge.runtime.arguments import checked
from konverse.bridge.runtime.settings import Settings
from konverse.dialog.state.partition import Partition
from konverse.schemas.catalog.objects import KEEP_FOR_EVER, Contract, MessageType, Queue, SentByClause, Service
from konverse.schemas.catalog.priorities import BrokerPriority
from konverse.schemas.catalog.routing_tables import RoutingTable
from konverse.schemas.errors import (
    InvalidSettings,
    NothingChanged,
    NotSupportedYet,
    PartitionHalted,
    StillUsed,
    SystemObject,
    TopicMismatch,
)
from konverse.schemas.identifiers import check_name, data_topic
from konverse.schemas.limits import QUEUE_PARTITIONS_MAX

from .ddl import Use
from .message_types import MessageTypes
from .priorities import Priorities
from .routes import Routes
from .routing_tables import RoutingTables

KEEP: Final = timedelta(days=7)
"""Default time that received messages stay in the topics for other readers: Kafka's own default retention."""


class Administration(MessageTypes, Routes, RoutingTables, Priorities):
    """The part of a broker for CREATE, ALTER and DROP statements."""

    settings: Settings
    _kafka: Kafka
    _topics: Topics
    _sessions: Sessions

    @checked
    def create_contract(self, name: str, sent_by: SentByClause, *, if_not_exists: bool = False) -> Contract:
        """CREATE CONTRACT: message type -> "INITIATOR", "TARGET" or "ANY", as a mapping or as pairs.

        Raises InvalidContract (8492) when the initiator may send nothing, TypeTwice (8403), MessageTypeNotFound,
        SystemObject for a system message type, AlreadyExists. Behaviours 11, 12, 17.
        """
        value = Contract.of(name, sent_by)

        def check() -> None:
            for kind in value.sent_by:
                if kind in SYSTEM_TYPES:
                    raise SystemObject(f"contract {name!r}: {kind!r} is a system message, which every contract has")
                self.catalog.get(MessageType, kind)

        return self._create(value, check, if_not_exists=if_not_exists)

    @checked
    def drop_contract(self, name: str) -> None:
        """DROP CONTRACT. Its open conversations fail on both sides (-8487; behaviour 15).

        Raises ContractNotFound, StillUsed as long as a service lists it or a broker priority names it (14).
        """
        self._drop(
            Contract,
            name,
            Use(Service, lambda service: name in service.contracts),
            Use(BrokerPriority, lambda priority: priority.contract == name),
        )

    @checked
    def create_queue(  # noqa: PLR0913  # the clauses of CREATE QUEUE
        self,
        name: str,
        *,
        partitions: int = 1,
        keep: timedelta | None = KEEP,
        status: bool = True,
        retention: bool = False,
        poison_message_handling: bool = True,
        if_not_exists: bool = False,
    ) -> Queue:
        """CREATE QUEUE: creates its topics, with a new incarnation. The number of partitions cannot be changed later.

        Received messages stay in the topics for other readers, for at least `keep` (None: for ever). With
        `status=False` no messages can be received before an `alter_queue` (behaviour 23 gives the defaults).
        Raises InvalidSettings for an impossible number of partitions or `keep`, TopicMismatch when topics of these
        names exist and do not fit, AlreadyExists, NotSupportedYet for `retention=True` and
        `poison_message_handling=False`.
        """
        self._check_open()
        _check_supported(name, retention=retention, poison_message_handling=poison_message_handling)
        check_name("queue", name)
        if not 1 <= partitions <= QUEUE_PARTITIONS_MAX:
            raise InvalidSettings(
                f"queue {name!r} cannot have {partitions} partitions; 1 to {QUEUE_PARTITIONS_MAX} can be"
            )
        if keep is not None and keep < timedelta():
            raise InvalidSettings(f"queue {name!r} cannot keep what was received for {keep}; give 0 or more")
        keep_ms = KEEP_FOR_EVER if keep is None else keep // timedelta(milliseconds=1)
        topic = data_topic(self.settings.instance, self.database, name)
        known = self.catalog.find(Queue, name)
        if known is not None:
            wanted = replace(known, topic=topic, partitions=partitions, keep_ms=keep_ms, status=status)
            return self._existing(wanted, if_not_exists=if_not_exists)
        self._sessions.ids.prepare()
        try:
            value = replace(self._topics.make_queue(name, topic, partitions, keep_ms), status=status)
        except TopicMismatch:
            known = self.catalog.find(Queue, name)
            if known is None:
                raise
            value = replace(known, topic=topic, partitions=partitions, keep_ms=keep_ms, status=status)
        return self._create(value, lambda: None, if_not_exists=if_not_exists)

    @checked
    def alter_queue(
        self,
        name: str,
        *,
        status: bool | None = None,
        retention: bool | None = None,
        poison_message_handling: bool | None = None,
    ) -> Queue:
        """ALTER QUEUE: attributes not given stay. Readers of this broker see the change at once, others within seconds.

        While `status` is off (False), receiving raises QueueDisabled (9617); arriving messages wait until it is on
        again (behaviours 58, 77, 78, 152). Raises QueueNotFound, NothingChanged when no attribute is given,
        NotSupportedYet for `retention=True` and `poison_message_handling=False`.
        """
        if status is None and retention is None and poison_message_handling is None:
            raise NothingChanged(f"ALTER of queue {name!r} names nothing to alter; name one of its attributes")
        _check_supported(
            name, retention=retention or False, poison_message_handling=poison_message_handling is not False
        )

        def altered(known: Queue) -> Queue:
            return known if status is None else replace(known, status=status)

        return self._alter(Queue, name, altered)

    @checked
    def create_service(
        self, name: str, *, queue: str, contracts: list[str] | tuple[str, ...] = (), if_not_exists: bool = False
    ) -> Service:
        """CREATE SERVICE on a queue; `contracts` are those for which it may be a target (behaviours 16, 17).

        "DEFAULT" must be listed like any other contract. Without contracts the service can only begin dialogs.
        Raises QueueNotFound, ContractNotFound, ContractTwice (8404), AlreadyExists.
        """
        value = Service.of(name, queue, contracts)

        def check() -> None:
            self.catalog.get(Queue, queue)
            for contract in contracts:
                self.catalog.get(Contract, contract)

        return self._create(value, check, if_not_exists=if_not_exists)

    @checked
    def alter_service(
        self,
        name: str,
        *,
        queue: str | None = None,
        add: list[str] | tuple[str, ...] = (),
        drop: list[str] | tuple[str, ...] = (),
    ) -> Service:
        """ALTER SERVICE: another queue, other contracts; it takes effect when readers have noticed, within seconds.

        Conversations under a dropped contract fail when this service receives their next message (-8408).
        Conversations on the old queue move to the new one with their waiting messages; a suspended one moves when it is
        resumed. The old queue must exist until the conversations that began there are over; readers of the new queue
        look after it if it has no reader (behaviour 19).
        Raises ServiceNotFound, QueueNotFound, ContractNotFound, ContractTwice (8404), NothingChanged (8493; 18).
        """

        def altered(known: Service) -> Service:
            for contract in (*add, *drop):
                self.catalog.get(Contract, contract)
            value = Service.of(name, known.queue, (*(one for one in known.contracts if one not in drop), *add))
            there = known if queue is None else known.on_queue(self.catalog.get(Queue, queue).name)
            if set(value.contracts) == set(known.contracts) and there is known:
                raise NothingChanged(
                    f"service {name!r} is on this queue, with just these contracts; name another queue, or a contract "
                    "to add or to drop"
                )
            return replace(there, contracts=value.contracts)

        return self._alter(Service, name, altered)

    @checked
    def drop_service(self, name: str) -> None:
        """DROP SERVICE. Readers of its queue end its conversations within seconds: far sides get Error -8470.

        Waiting messages are discarded (behaviour 20). Raises ServiceNotFound, StillUsed as long as a broker priority
        names it as the local service (21), or a routing table uses it.
        """
        self._drop(
            Service,
            name,
            Use(BrokerPriority, lambda priority: priority.local_service == name),
            Use(RoutingTable, lambda table: self._leads_here(table, name)),
        )

    @checked
    def drop_queue(self, name: str, *, force: bool = False) -> None:
        """DROP QUEUE, with its topics and all their records. Readers of it get QueueNotFound (behaviour 78).

        Raises QueueNotFound. Raises StillUsed as long as a service is on it (22), or a conversation is not over on both
        sides: after DROP SERVICE, a reader of the queue tells the far sides that the service is gone. Raises
        TopicMismatch and PartitionHalted when its topics were deleted, created again or truncated. Raises
        KafkaUnavailable when its topics could not be deleted: the queue is dropped then, and another call deletes the
        rest of the topics.
        With `force` it is dropped whatever lives on it, and whatever became of its topics, also when others were
        created in their place. Far sides are not told: end them WITH CLEANUP. The name can be used again.
        If the database has no queue "transmission", this name means the transmission queue of the instance. It can only
        be dropped with `force`, together with all undelivered transactions; a later transaction creates it again.
        """
        self._check_open()
        if name == NAME and self.catalog.find(Queue, name) is None and self._drop_transmission(force=force):
            return
        gone = self.catalog.dropped_queue(name) if self.catalog.find(Queue, name) is None else None
        if gone is not None and self._topics.remain(gone):  # an earlier drop has failed half-way
            self._delete(gone)
            return
        use = Use(Service, lambda service: service.queue == name)
        self._check_unused(Queue, name, use)
        queue = self.catalog.get(Queue, name)
        if not force:
            self._check_droppable(queue)
        self._drop(Queue, name, use)
        self._delete(queue)

    def _drop_transmission(self, *, force: bool) -> bool:
        if not force and find_queue(self._kafka, self.settings.instance) is not None:
            raise StillUsed(
                f"queue {NAME!r} is the transmission queue of all databases of instance {self.settings.instance!r}; "
                f"drop_queue({NAME!r}, force=True) gives up the transactions in it"
            )
        return force and drop_queue(self._kafka, self._topics, self.settings.instance)

    def _check_droppable(self, queue: Queue) -> None:
        try:
            self._topics.same_queue(queue)
            for number in range(queue.partitions):
                with Following(self._kafka, queue, number) as following:
                    _check_over(queue, following.catch_up(), following.behind())
        except (TopicMismatch, PartitionHalted) as error:
            raise type(error)(
                f"{error}. Nobody can tell what lives on queue {queue.name!r}; to drop it all the same: "
                f"drop_queue({queue.name!r}, force=True)"
            ) from None
        self._check_awaited(queue)

    def _delete(self, queue: Queue) -> None:
        self._topics.delete(queue)
        if self.settings.redis:
            forget_view(self.settings.redis, queue)

    def _check_awaited(self, queue: Queue) -> None:
        """Raise StillUsed when former queues of services on this queue still send conversations or records to it."""
        services = [service for service in self.catalog.all(Service) if queue.name in service.queues_before]
        names = {name for service in services for name in (service.queue, *service.queues_before)} - {queue.name}
        for other, number in partitions_of(known for known in self.catalog.all(Queue) if known.name in names):
            with Following(self._kafka, other, number) as following:
                state = following.catch_up()
                stubs = sum(
                    stub.to.topic == queue.topic for chain in state.moves.stubs.values() for stub in chain.values()
                )
                waiting = sum(stream.waiting for to, stream in state.streams.items() if to.topic == queue.topic)
            if stubs or waiting:
                raise StillUsed(
                    f"partition {number} of queue {other.name!r} has sent {stubs} conversations to queue "
                    f"{queue.name!r} that are not over, and has {waiting} records for it: let them end first"
                )


def _check_supported(name: str, *, retention: bool, poison_message_handling: bool) -> None:
    if retention:
        raise NotSupportedYet(
            f"queue {name!r}: RETENTION ON is not supported yet; `keep` keeps what was received readable"
        )
    if not poison_message_handling:
        raise NotSupportedYet(
            f"queue {name!r}: POISON_MESSAGE_HANDLING OFF is not supported yet; what fails five times is suspended, "
            "and its queue goes on"
        )


def _check_over(queue: Queue, state: Partition, behind: int) -> None:
    """Raise StillUsed for a partition with conversations, moved conversations, pending outputs or uningested data.

    A conversation that has ended only on this side counts too: its far side would answer to a queue that is gone.
    """
    living, waiting, moved = len(state.live()), state.waiting, state.moves.count
    if living or waiting or behind or moved:
        began = f"{moved} that moved to other queues and are not over, " if moved else ""
        raise StillUsed(
            f"partition {state.identity.partition} of queue {queue.name!r} has {living} conversations not over on both "
            f"sides, {began}{waiting} records that have not arrived, and {behind} that nobody has looked at: let "
            "a reader of the queue run, and the far sides end, until that is done"
        )
