"""`broker.admin`: CREATE, ALTER and DROP of the objects of a database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from konverse.bridge.catalog.judge import rule_of
from konverse.bridge.catalog.objects import SYSTEM_TYPES
from konverse.bridge.client.connection import Connection
from konverse.bridge.client.transmission import NAME
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.runtime.arguments import Seconds, checked
from konverse.bridge.validation.rules import SchemaRule
from konverse.bridge.validation.validator import EncodedRule
from konverse.routing.routes.decision import RouteDecision, RouteQuestion
from konverse.schemas.catalog.objects import (
    KEEP_FOR_EVER,
    Contract,
    DatabaseBroker,
    MessageType,
    Queue,
    SentByClause,
    Service,
    Validation,
)
from konverse.schemas.catalog.priorities import ANY, BrokerPriority
from konverse.schemas.catalog.routes import NEVER, Route, check_lifetime
from konverse.schemas.catalog.routing_tables import RoutingTable, TableChange
from konverse.schemas.catalog.schema_collections import XmlSchemaCollection
from konverse.schemas.errors import (
    AlreadyExists,
    InvalidRoute,
    InvalidSettings,
    NothingChanged,
    NotSupportedYet,
    PriorityTwice,
    SystemObject,
    TopicMismatch,
)
from konverse.schemas.identifiers import check_name, data_topic
from konverse.schemas.levels import DEFAULT_LEVEL
from konverse.schemas.limits import QUEUE_PARTITIONS_MAX
from konverse.schemas.wire.instruction import Action

from .ddl import Ddl, Use
from .instructions import COMMIT_WAIT_S, Instructions, Sweep
from .queue_removal import QueueRemoval
from .routing_tables import Destination, RoutingTableChanges, entries_of, target_of

KEEP: Final = timedelta(days=7)
"""Default time that received messages stay in the topics for other readers: Kafka's own default retention."""


class Administration:
    """Statements that change the catalog of one database. `broker.admin` is one.

    Each statement is checked against the catalog and appended to it; when another administrator's change came first, it
    is checked again. Readers and senders of other processes notice a change within two seconds.
    """

    def __init__(self, connection: Connection, prepare_ids: Callable[[], None]) -> None:
        """`prepare_ids` creates the topic that senders need for their ids; called before a queue is created."""
        self._check_open = connection.check_open
        self._catalog = connection.catalog
        self._network = connection.network
        self._validator = connection.validator
        self._topics = connection.topics
        self._settings = connection.settings
        self._database = connection.database
        self._kafka = connection.kafka
        self._prepare_ids = prepare_ids
        self._ddl = Ddl(connection)
        self._instructions = Instructions(connection)
        self._removal = QueueRemoval(connection)
        self._tables = RoutingTableChanges(connection)

    # ----------------------------------------------------------------------- message types and XML schema collections

    @checked
    def create_message_type(
        self,
        name: str,
        validation: str | Validation = Validation.NONE,
        *,
        schema_collection: str = "",
        schema: str = "",
        if_not_exists: bool = False,
    ) -> MessageType:
        """CREATE MESSAGE TYPE: bodies may be anything ("NONE"), or must be "EMPTY", "WELL_FORMED_XML" or fit a schema.

        "VALID_XML" validates against the XML schema collection named `schema_collection`. Extensions of konverse are
        "JSON_SCHEMA" and "AVRO" (a body is one datum in binary encoding), which validate against `schema`, a JSON
        document. All three need `pip install 'konverse[validation]'` wherever such messages are received.
        The receiver validates (behaviours 2 to 6): a message with an invalid body is not received, and its sender gets
        an Error.
        With `if_not_exists` (here and in the other CREATE statements), an existing object with the same definition is
        returned; for another definition, AlreadyExists says what differs.
        Raises InvalidValidation, InvalidSchema, SchemaCollectionNotFound, ValidatorUnavailable, AlreadyExists.
        """
        value = MessageType.of(name, validation, schema_collection, schema)
        return self._ddl.create(value, lambda: self._check_schema(value), if_not_exists=if_not_exists)

    @checked
    def alter_message_type(
        self, name: str, validation: str | Validation, *, schema_collection: str = "", schema: str = ""
    ) -> MessageType:
        """ALTER MESSAGE TYPE: changes the validation. Receivers notice this within seconds and apply it from then on.

        Queued messages are not validated again (behaviour 7). Raises MessageTypeNotFound, SystemObject, and the errors
        of CREATE about the validation.
        """
        value = MessageType.of(name, validation, schema_collection, schema)

        def altered(_known: MessageType) -> MessageType:
            if name in SYSTEM_TYPES:
                raise SystemObject(
                    f"{name!r} is a system message, whose bodies the broker defines; it cannot be altered"
                )
            self._check_schema(value)
            return value

        return self._ddl.alter(MessageType, name, altered)

    @checked
    def drop_message_type(self, name: str) -> None:
        """DROP MESSAGE TYPE. Raises MessageTypeNotFound, StillUsed as long as a contract contains it."""
        self._ddl.drop(MessageType, name, Use(Contract, lambda contract: name in contract.sent_by))

    @checked
    def create_xml_schema_collection(
        self, name: str, documents: list[str] | tuple[str, ...], *, if_not_exists: bool = False
    ) -> XmlSchemaCollection:
        """CREATE XML SCHEMA COLLECTION: XML Schema documents, of one or several namespaces.

        Imports of other namespaces are resolved within the collection; schemaLocation is ignored, nothing is fetched.
        Raises InvalidSchema, ValidatorUnavailable, AlreadyExists.
        """
        value = XmlSchemaCollection.of(name, documents)
        return self._ddl.create(value, lambda: self._check_collection(value), if_not_exists=if_not_exists)

    @checked
    def alter_xml_schema_collection(self, name: str, *, add: list[str] | tuple[str, ...]) -> XmlSchemaCollection:
        """ALTER XML SCHEMA COLLECTION ADD: adds documents. Receivers notice this within seconds.

        Raises SchemaCollectionNotFound, InvalidSchema, NothingChanged, ValidatorUnavailable.
        """

        def altered(known: XmlSchemaCollection) -> XmlSchemaCollection:
            if not add:
                raise NothingChanged(f"ALTER of XML schema collection {name!r} adds nothing; name a document")
            value = XmlSchemaCollection.of(name, (*known.documents, *add))
            self._check_collection(value)
            return value

        return self._ddl.alter(XmlSchemaCollection, name, altered)

    @checked
    def drop_xml_schema_collection(self, name: str) -> None:
        """DROP XML SCHEMA COLLECTION. Raises SchemaCollectionNotFound, StillUsed as long as a message type names it."""
        self._ddl.drop(XmlSchemaCollection, name, Use(MessageType, lambda kind: kind.schema_collection == name))

    # --------------------------------------------------------------------------------- contracts, queues and services

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
                self._catalog.get(MessageType, kind)

        return self._ddl.create(value, check, if_not_exists=if_not_exists)

    @checked
    def drop_contract(self, name: str) -> None:
        """DROP CONTRACT. Its open conversations fail on both sides (-8487; behaviour 15).

        Raises ContractNotFound, StillUsed as long as a service lists it or a broker priority names it (14).
        """
        self._ddl.drop(
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
        `status=False` no messages can be received until `alter_queue` turns it on (behaviour 23 gives the defaults).
        Raises InvalidSettings for an impossible number of partitions or `keep`, TopicMismatch when topics of these
        names exist and do not match, AlreadyExists, NotSupportedYet for `retention=True` and
        `poison_message_handling=False`.
        """
        self._check_open()
        _check_supported(name, retention=retention, poison_message_handling=poison_message_handling)
        check_name("queue", name)
        if not 1 <= partitions <= QUEUE_PARTITIONS_MAX:
            raise InvalidSettings(
                f"queue {name!r} cannot have {partitions} partitions; 1 to {QUEUE_PARTITIONS_MAX} are allowed"
            )
        if keep is not None and keep < timedelta():
            raise InvalidSettings(f"queue {name!r} cannot keep received messages for {keep}; give 0 or more")
        keep_ms = KEEP_FOR_EVER if keep is None else keep // timedelta(milliseconds=1)
        topic = data_topic(self._settings.instance, self._database, name)
        known = self._catalog.find(Queue, name)
        if known is not None:
            wanted = replace(known, topic=topic, partitions=partitions, keep_ms=keep_ms, status=status)
            return self._ddl.existing(wanted, if_not_exists=if_not_exists)
        self._prepare_ids()
        try:
            value = replace(self._topics.make_queue(name, topic, partitions, keep_ms), status=status)
        except TopicMismatch:
            known = self._catalog.find(Queue, name)
            if known is None:
                raise
            value = replace(known, topic=topic, partitions=partitions, keep_ms=keep_ms, status=status)
        return self._ddl.create(value, lambda: None, if_not_exists=if_not_exists)

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

        return self._ddl.alter(Queue, name, altered)

    @checked
    def drop_queue(self, name: str, *, force: bool = False) -> None:
        """DROP QUEUE, with its topics and all their records. Readers of it get QueueNotFound (behaviour 78).

        Raises QueueNotFound. Raises StillUsed as long as a service is on it (22), or a conversation has not ended on
        both sides: after DROP SERVICE, a reader of the queue sends the far sides an Error. Raises TopicMismatch and
        PartitionHalted when its topics were deleted, created again or truncated. Raises KafkaUnavailable when its
        topics could not be deleted: the queue is dropped then, and another call deletes the remaining topics.
        With `force` it is dropped together with everything that lives on it, whatever happened to its topics, even if
        others were created in their place. Far sides are not notified: end them WITH CLEANUP. The name can be used
        again.
        If the database has no queue "transmission", this name means the transmission queue of the instance. It can only
        be dropped with `force`, together with all undelivered transactions; a later transaction creates it again.
        """
        self._check_open()
        if name == NAME and self._catalog.find(Queue, name) is None and self._removal.drop_transmission(force=force):
            return
        gone = self._catalog.dropped_queue(name) if self._catalog.find(Queue, name) is None else None
        if gone is not None and self._topics.remain(gone):  # an earlier drop has failed half-way
            self._removal.delete(gone)
            return
        use = Use(Service, lambda service: service.queue == name)
        self._ddl.check_unused(Queue, name, use)
        queue = self._catalog.get(Queue, name)
        if not force:
            self._removal.check(queue)
        self._ddl.drop(Queue, name, use)
        self._removal.delete(queue)

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
            self._catalog.get(Queue, queue)
            for contract in contracts:
                self._catalog.get(Contract, contract)

        return self._ddl.create(value, check, if_not_exists=if_not_exists)

    @checked
    def alter_service(
        self,
        name: str,
        *,
        queue: str | None = None,
        add: list[str] | tuple[str, ...] = (),
        drop: list[str] | tuple[str, ...] = (),
    ) -> Service:
        """ALTER SERVICE: changes its queue or its contracts. Readers notice this within seconds; then it takes effect.

        Conversations under a dropped contract fail when this service receives their next message (-8408).
        Conversations on the old queue move to the new one with their waiting messages; a suspended one moves when it is
        resumed. The old queue must exist until the conversations that began there are over; if it has no reader,
        processes that read the new queue keep it working (behaviour 19).
        Raises ServiceNotFound, QueueNotFound, ContractNotFound, ContractTwice (8404), NothingChanged (8493; 18).
        """

        def altered(known: Service) -> Service:
            for contract in (*add, *drop):
                self._catalog.get(Contract, contract)
            value = Service.of(name, known.queue, (*(one for one in known.contracts if one not in drop), *add))
            there = known if queue is None else known.on_queue(self._catalog.get(Queue, queue).name)
            if set(value.contracts) == set(known.contracts) and there is known:
                raise NothingChanged(
                    f"service {name!r} is on this queue, with just these contracts; name another queue, or a contract "
                    "to add or to drop"
                )
            return replace(there, contracts=value.contracts)

        return self._ddl.alter(Service, name, altered)

    @checked
    def drop_service(self, name: str) -> None:
        """DROP SERVICE. Readers of its queue end its conversations within seconds: far sides get Error -8470.

        Waiting messages are discarded (behaviour 20). Raises ServiceNotFound, StillUsed as long as a broker priority
        names it as the local service (21), or a routing table uses it.
        """
        self._ddl.drop(
            Service,
            name,
            Use(BrokerPriority, lambda priority: priority.local_service == name),
            Use(RoutingTable, lambda table: self._tables.leads_here(table, name)),
        )

    # ---------------------------------------------------------------------------------------------- broker priorities

    @checked
    def create_broker_priority(  # noqa: PLR0913  # the clauses of CREATE BROKER PRIORITY
        self,
        name: str,
        *,
        contract: str = ANY,
        local_service: str = ANY,
        remote_service: str = ANY,
        level: int = DEFAULT_LEVEL,
        if_not_exists: bool = False,
    ) -> BrokerPriority:
        """CREATE BROKER PRIORITY: a level, 1 (low) to 10, for endpoints with this contract and these services.

        "ANY" matches every contract or service. A new side gets the level of the most specific priority (217); readers
        notice a new priority within seconds. Ready groups of a higher level are received first (219).
        Raises InvalidPriority (33302), PriorityTwice (33303) when another priority has the same contract and services,
        ContractNotFound, ServiceNotFound for the local service (the remote one may be anywhere), AlreadyExists.
        """
        value = BrokerPriority.of(BrokerPriority(name, contract, local_service, remote_service, level))
        return self._ddl.create(value, lambda: self._check_priority(value), if_not_exists=if_not_exists)

    @checked
    def alter_broker_priority(  # the clauses of ALTER BROKER PRIORITY
        self,
        name: str,
        *,
        contract: str | None = None,
        local_service: str | None = None,
        remote_service: str | None = None,
        level: int | None = None,
    ) -> BrokerPriority:
        """ALTER BROKER PRIORITY: clauses that are not given stay; "ANY" removes a criterion.

        Existing endpoints keep their level (behaviour 216). Raises PriorityNotFound, NothingChanged when no clause is
        given, and the errors of CREATE.
        """
        given = {"contract": contract, "local_service": local_service, "remote_service": remote_service, "level": level}
        changes = {clause: value for clause, value in given.items() if value is not None}
        if not changes:
            raise NothingChanged(f"ALTER of broker priority {name!r} names nothing to alter; name one of its clauses")

        def altered(known: BrokerPriority) -> BrokerPriority:
            value = BrokerPriority.of(replace(known, **changes))  # type: ignore[arg-type]
            self._check_priority(value)
            return value

        return self._ddl.alter(BrokerPriority, name, altered)

    @checked
    def drop_broker_priority(self, name: str) -> None:
        """DROP BROKER PRIORITY. Existing endpoints keep their level (behaviour 216). Raises PriorityNotFound."""
        self._ddl.drop(BrokerPriority, name)

    # ------------------------------------------------------------------------------------------------------- database

    @checked
    def alter_database(
        self,
        *,
        new_broker: bool = False,
        broker_id: UUID | str | None = None,
        enabled: bool | None = None,
        timeout: Seconds = COMMIT_WAIT_S,
    ) -> DatabaseBroker:
        """ALTER DATABASE: gives this database another broker id, or enables or disables its broker.

        `new_broker` (NEW_BROKER) removes all conversations of the database without notifying their peers, which get
        Error -8462 with their next message (behaviour 222). When the owners of all partitions have committed the
        removal, the database gets a random id, and its broker is enabled. Routes with the old id then lead nowhere.
        `broker_id` sets the id by which partners know a database that was moved here. `enabled=False`
        (DISABLE_BROKER): no dialog begins in the database or with its services (behaviour 176); its other dialogs
        go on. Raises AlreadyExists (9772, behaviour 223) when an enabled database of this instance has the id,
        InvalidSettings for an id that is not a UUID, NothingChanged. While conversations cannot be removed, the id
        stays: OutcomeUnknown when some are still there after `timeout` seconds (their removal stays valid for ten
        minutes), PartitionHalted or TopicMismatch when a partition cannot be read. Repeat the statement then.
        """
        if not new_broker and broker_id is None and enabled is None:
            raise NothingChanged("ALTER DATABASE names nothing to alter: give new_broker, broker_id or enabled")
        if new_broker and broker_id is not None:
            raise InvalidSettings("new_broker draws the id of the database: leave out broker_id, or new_broker")
        wanted = str(uuid4()) if new_broker else None if broker_id is None else _id_in(broker_id)

        def altered() -> DatabaseBroker:
            known = self._catalog.broker_of(self._database)
            is_enabled = (new_broker or known.enabled) if enabled is None else enabled
            value = replace(known, broker_id=wanted or known.broker_id, enabled=is_enabled)
            self._check_broker(value)
            return value

        self._check_open()
        if new_broker:
            self._instructions.sweep(Sweep(Action.CLEANUP, lambda _: True, everywhere=True), None, timeout)
        self._catalog.change(self._database, altered, DatabaseBroker)
        return self._catalog.broker_of(self._database)

    def _check_broker(self, value: DatabaseBroker) -> None:
        """Raise AlreadyExists (9772) when an enabled broker of another database has this id."""
        for other in self._catalog.brokers() if value.enabled else ():
            if other.name != value.name and other.enabled and other.broker_id == value.broker_id:
                raise AlreadyExists(
                    f"the broker of database {value.name!r} cannot be enabled: that of database {other.name!r} "
                    f"is enabled and has the same id {value.broker_id}. Give one of them another id with "
                    "broker.admin.alter_database(new_broker=True)",
                    9772,
                )

    # --------------------------------------------------------------------------------------------------------- routes

    @checked
    def create_route(  # noqa: PLR0913  # the clauses of CREATE ROUTE
        self,
        name: str,
        address: str,
        *,
        service_name: str | None = None,
        broker_instance: UUID | str | None = None,
        lifetime: timedelta | None = None,
        mirror_address: str | None = None,
        if_not_exists: bool = False,
    ) -> Route:
        """CREATE ROUTE: the address of a service. A new dialog finds its target by the routes of its database.

        Routes lead to databases of this instance only: a dialog whose route has a network address is refused.

        `address` is "LOCAL" (this instance), "TRANSPORT" (the address that the service's name begins with) or
        "TCP://host[:port][/]" (port 4022 by default), and is kept as written; `mirror_address` has the last form.
        Without `service_name` the route is for any service, without `broker_instance` (the id of a database) for any
        database. After `lifetime` a route is not used any more, but it stays. A database starts with the route
        "AutoCreatedLocal" (behaviour 155). Raises InvalidRoute (9659 to 9662, 9743 to 9747; 174, 192), InvalidName,
        AlreadyExists.
        """
        expires_ms = NEVER if lifetime is None else self._expiry(name, lifetime)
        value = _with(Route(name, address, expires_ms=expires_ms), service_name, broker_instance, mirror_address)
        return self._ddl.create(Route.of(value), lambda: None, if_not_exists=if_not_exists)

    @checked
    def alter_route(  # noqa: PLR0913  # the clauses of ALTER ROUTE
        self,
        name: str,
        *,
        address: str | None = None,
        service_name: str | None = None,
        broker_instance: UUID | str | None = None,
        lifetime: timedelta | None = None,
        mirror_address: str | None = None,
    ) -> Route:
        """ALTER ROUTE: clauses that are not given stay (behaviour 175). A new lifetime revives an expired route (163).

        A service, an instance or a lifetime can be changed but not removed: for that, drop the route and create it
        again. Raises RouteNotFound, NothingChanged when no clause is given, and the errors of CREATE.
        """
        given = (address, service_name, broker_instance, lifetime, mirror_address)
        if all(clause is None for clause in given):
            raise NothingChanged(f"ALTER of route {name!r} names nothing to alter; name one of its clauses")

        def altered(known: Route) -> Route:
            value = known if address is None else replace(known, address=address)
            if lifetime is not None:
                value = replace(value, expires_ms=self._expiry(name, lifetime))
            return Route.of(_with(value, service_name, broker_instance, mirror_address))

        return self._ddl.alter(Route, name, altered)

    @checked
    def drop_route(self, name: str) -> None:
        """DROP ROUTE; "AutoCreatedLocal" can be dropped too. Raises RouteNotFound."""
        self._ddl.drop(Route, name)

    @checked
    def explain_route(
        self, service: str, *, broker_id: UUID | None = None, arrived: bool = False, reply: bool = False
    ) -> RouteDecision:
        """Where messages for a service would go by the routes of this database, and why. Nothing is sent.

        `broker_id` is the id that a conversation names. `arrived`: the message comes from outside the instance, so the
        routes of database `msdb` apply; `reply`: it also comes from the target of a conversation. Among equal
        routes one is drawn, as for a new conversation. Raises InvalidName; InvalidSettings for a reply without an id.
        """
        check_name("service", service)
        if reply and broker_id is None:
            raise InvalidSettings("a reply names the broker id of the initiator's database: give the broker id as well")
        outside = arrived or reply
        question = RouteQuestion(service, broker_id, "" if outside else self._catalog.database, outside, reply)
        return self._network.explain(question)

    # ------------------------------------------------------------------------------------------------- routing tables

    @checked
    def create_routing_table(
        self,
        name: str,
        entries: Mapping[str, Destination],
        *,
        default: Destination | None = None,
        routers: Sequence[str] = (),
        if_not_exists: bool = False,
    ) -> RoutingTable:
        """Create a routing table: key -> service, or `Target` with a broker instance; `default` for all other keys.

        `routers` are the services whose routers use the table: no entry may lead back to one of them, directly or
        through tables of other routers. The whole table takes effect at once, whatever its size (at most 1,000,000
        keys). Raises ServiceNotFound for a service that no database of this instance has (with the id of another
        database it is not checked), InvalidRoute for an impossible table, naming the path of a loop, InvalidName,
        AlreadyExists.
        """
        wanted = TableChange.of(
            name, entries_of(entries), default=target_of(default), routers=(*routers,), creates=True
        )
        try:
            return self._tables.change(wanted)
        except AlreadyExists:
            return self._ddl.existing(RoutingTable(name).changed(wanted), if_not_exists=if_not_exists)

    @checked
    def alter_routing_table(  # noqa: PLR0913  # what can be altered
        self,
        name: str,
        *,
        set: Mapping[str, Destination] | None = None,  # noqa: A002  # the word for it
        remove: Sequence[str] = (),
        default: Destination | None = None,
        without_default: bool = False,
        routers: Sequence[str] | None = None,
    ) -> RoutingTable:
        """Set and remove entries of a routing table; others stay. All changes take effect at once; `version` rises.

        Routers apply it to new conversations within a fraction of a second; conversations that were already classified
        keep their service. Raises RoutingTableNotFound, NothingChanged when nothing is given, InvalidRoute for a key to
        remove that does not exist, and the errors of CREATE.
        """
        change = TableChange.of(
            name,
            entries_of(set or {}),
            (*remove,),
            default=target_of(default),
            without_default=without_default,
            routers=None if routers is None else (*routers,),
        )
        if change.is_empty:
            raise NothingChanged(f"ALTER of routing table {name!r} names nothing to alter; set or remove an entry")
        return self._tables.change(change)

    @checked
    def drop_routing_table(self, name: str) -> None:
        """Drop a routing table. Raises RoutingTableNotFound.

        Conversations routed by it fail until the table exists again, and are suspended after five attempts (see
        `konverse resume`).
        """
        self._ddl.drop(RoutingTable, name)

    @checked
    def routing_table(self, name: str) -> RoutingTable:
        """The present state of a routing table, after a refresh. Raises RoutingTableNotFound."""
        self._check_open()
        self._catalog.refresh()
        return self._catalog.get(RoutingTable, name)

    # --------------------------------------------------------------------------------------------------------- inside

    def _check_schema(self, value: MessageType) -> None:
        """Raise InvalidSchema when the type's schema cannot be used for validation."""
        rule = rule_of(self._catalog, value)
        if rule is not None:
            self._validator.check(EncodedRule.of(rule))

    def _check_collection(self, value: XmlSchemaCollection) -> None:
        self._validator.check(EncodedRule.of(SchemaRule(Validation.VALID_XML, value.documents)))

    def _check_priority(self, value: BrokerPriority) -> None:
        if value.contract != ANY:
            self._catalog.get(Contract, value.contract)
        if value.local_service != ANY:
            self._catalog.get(Service, value.local_service)
        for other in self._catalog.all(BrokerPriority):
            if other.name != value.name and other.criteria == value.criteria:
                raise PriorityTwice(
                    f"broker priority {other.name!r} has the contract and services of {value.name!r}; alter that one"
                )

    def _expiry(self, name: str, lifetime: timedelta) -> int:
        """Time at which the route expires, in milliseconds of Kafka's clock. Raises InvalidRoute for a bad lifetime."""
        lifetime_ms = lifetime // timedelta(milliseconds=1)
        check_lifetime(name, lifetime_ms)
        return kafka_time_ms(self._kafka) + lifetime_ms


def _check_supported(name: str, *, retention: bool, poison_message_handling: bool) -> None:
    if retention:
        raise NotSupportedYet(
            f"queue {name!r}: RETENTION ON is not supported yet; use `keep`, which keeps received messages readable"
        )
    if not poison_message_handling:
        raise NotSupportedYet(
            f"queue {name!r}: POISON_MESSAGE_HANDLING OFF is not supported yet; a conversation that fails five times "
            "is suspended, and the other conversations of its queue continue"
        )


def _id_in(given: UUID | str) -> str:
    """A broker id in its canonical form."""
    try:
        return str(UUID(str(given)))
    except ValueError:
        raise InvalidSettings(f"the broker id {given!r} is not a UUID, such as {uuid4()}") from None


def _with(
    route: Route, service_name: str | None, broker_instance: UUID | str | None, mirror_address: str | None
) -> Route:
    """The route with the given clauses replaced. Raises InvalidRoute (9659) for an empty clause."""
    given = {"service_name": service_name, "broker_instance": broker_instance, "mirror_address": mirror_address}
    changes: dict[str, Any] = {clause: str(value) for clause, value in given.items() if value is not None}
    if "" in changes.values():
        raise InvalidRoute(f"a clause of route {route.name!r} is empty; leave it out", 9659)
    return replace(route, **changes)
