"""The catalog: the fold of the catalog journal in this process, its lookups, and how it is changed.

A change carries the offset that it expects, and is valid only at exactly this offset (protocol.md section 2.1). Two
administrators at once therefore never lose a change: the later one reads, checks again and appends again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeVar, cast
from uuid import UUID

from confluent_kafka import Message

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.headers import header_of
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.threads import EXPECTED_ERRORS, in_background
from konverse.schemas.catalog.objects import (
    CatalogObject,
    Change,
    Contract,
    DatabaseBroker,
    MessageType,
    Queue,
    Service,
    Written,
    decode_change,
    encode_change,
)
from konverse.schemas.catalog.routes import AUTO_CREATED_LOCAL, Route
from konverse.schemas.catalog.routing_tables import RoutingTable, TableChange, folded
from konverse.schemas.errors import MalformedRecord, NotInContract, TopicMismatch, WrongDirection
from konverse.schemas.identifiers import Role, broker_id, catalog_topic
from konverse.schemas.limits import WAY_ENTRIES_MAX
from konverse.schemas.system_messages import DEFAULT, DIALOG_TIMER, END_DIALOG, ERROR

from .journal import CatalogLog
from .objects import BORN_WITH, MISSING, SYSTEM_TYPES, creator_of, kind_of

log: Final = logging.getLogger("konverse.catalog")

FRESH_EVERY_S: Final = 2.0
ROUTED_FRESH_EVERY_S: Final = 0.2
"""Refresh interval of a process that routes by a table; each refresh is one or two small requests to Kafka."""

Object = TypeVar("Object", bound=CatalogObject)

FIRST_USER_ID: Final = 65_536
"""Smaller numbers belong to the objects that every database starts with."""

_TABLE: Final = kind_of(RoutingTable)
_ROUTED: Final = Service | Queue | Route | DatabaseBroker

_BORN_IDS: Final[dict[tuple[str, str], int]] = {
    ("message type", ERROR): 1,
    ("message type", END_DIALOG): 2,
    ("message type", DIALOG_TIMER): 3,
    ("message type", DEFAULT): 14,
    ("contract", DEFAULT): 1,
    ("route", AUTO_CREATED_LOCAL): 1,
}


class Catalog:
    """The objects of one database, folded from the catalog journal, refreshed when a name is missing. Thread-safe."""

    def __init__(self, kafka: Kafka, instance: str, database: str) -> None:
        self.instance = instance
        self.database = database
        self._log = CatalogLog(kafka, instance)
        self._journal = threading.RLock()
        """Held while the journal is read or appended to, so during requests to Kafka. Taken before `_lock`."""
        self._lock = threading.Lock()
        """Held while the objects change or are copied, never during a wait."""
        self._objects: dict[str, dict[tuple[str, str], CatalogObject | None]] = {}
        """Database -> (kind, name) -> object; None for a dropped object that every database starts with."""
        self._ids: dict[tuple[str, str, str], int] = {}
        """Database, kind and name -> number of the object."""
        self._placed: dict[tuple[str, str], int] = {}
        """Database and service -> offset of the change that put the service on its queue."""
        self._position = 0
        self._deciding = False
        """A change is being decided, by the thread that holds `_journal`."""
        self._unreadable = LogThrottle()
        self.routed_version = 0
        """Rises with each change of a database, service, queue or route: they decide where conversations go."""
        self._keeper: threading.Thread | None = None
        self._closing = False
        self._wake = threading.Event()
        self._every_s = FRESH_EVERY_S
        self._parts: dict[tuple[str, str], list[TableChange]] = {}
        """Database and routing table -> parts of an unfinished change."""
        self._allowed: set[tuple[str, Role, str]] = set()
        """Sends found to be allowed. A change replaces the set, so no earlier result enters the new one."""
        self._ways: dict[tuple[str, str, str, str], tuple[Queue, Queue]] = {}
        """Source, target, contract and database of the target -> queues. Replaced with each change, like `_allowed`."""
        self._sorted: dict[tuple[str, str], Sequence[CatalogObject]] = {}
        """Database and kind -> objects by name: each BEGIN DIALOG looks for priorities. Emptied by each change."""

    # ------------------------------------------------------------------------------------------------------- read

    def find(self, kind: type[Object], name: str) -> Object | None:
        """The object of that name, or None. Reads the journal again before it returns None."""
        found = self._known(kind, name)
        if found is None:
            self.refresh()
            found = self._known(kind, name)
        return found

    def get(self, kind: type[Object], name: str) -> Object:
        """The object of that name. Raises the UnknownObject error of its kind when it does not exist."""
        found = self.find(kind, name)
        if found is None:
            raise MISSING[kind](
                f"there is no {kind_of(kind)} {name!r} in database {self.database!r}; names are compared byte by byte. "
                f"Create it with broker.admin.{creator_of(kind)}(…)"
            )
        return found

    def get_known(self, kind: type[Object], name: str) -> Object | None:
        """The object of that name, as far as known here; Kafka is not asked."""
        return self._known(kind, name)

    def all(self, kind: type[Object]) -> list[Object]:
        """All objects of a kind, sorted by name, after a refresh."""
        self.refresh()
        return self.known(kind)

    def known(self, kind: type[Object]) -> list[Object]:
        """All objects of a kind that are known here, sorted by name; Kafka is not asked."""
        return self.known_in(self.database, kind)

    def known_in(self, database: str, kind: type[Object]) -> list[Object]:
        """All objects of a kind in a database of this instance, as far as known here, sorted by name."""
        with self._lock:
            found = self._sorted.get((database, kind_of(kind)))
            if found is None:
                objects = {**BORN_WITH, **self._objects.get(database, {})}
                found = sorted((o for o in objects.values() if isinstance(o, kind)), key=lambda o: o.name)
                self._sorted[database, kind_of(kind)] = found
        return cast("list[Object]", [*found])

    def queues(self) -> dict[str, Queue]:
        """Data topic -> queue, for all databases of the instance, as far as known here; Kafka is not asked."""
        with self._lock:
            return {q.topic: q for known in self._objects.values() for q in known.values() if isinstance(q, Queue)}

    def database_of(self, topic: str) -> str | None:
        """The database that has the queue of this data topic, as far as known here; None for an unknown topic."""
        with self._lock:
            for database, known in self._objects.items():
                if any(isinstance(one, Queue) and one.topic == topic for one in known.values()):
                    return database
        return None

    def dropped_queue(self, name: str) -> Queue | None:
        """The queue of that name as it was before its last DROP; None if there was none, or it exists again.

        Reads the whole journal.
        """
        found: Queue | None = None
        with self._journal:
            self.refresh()
            for messages in self._log.all():
                for message in _changes_in(messages):
                    with suppress(MalformedRecord):
                        change = decode_change(message.value() or b"")
                        if change.expected_offset != message.offset() or change.database != self.database:
                            continue
                        if change.name == name and isinstance(change.value, Queue):
                            found = change.value
        return found if self._known(Queue, name) is None else None

    def id_of(self, kind: type[Object], name: str) -> int | None:
        """The number of an object, the same in every process: FIRST_USER_ID plus the journal offset of its CREATE.

        An ALTER keeps the number; a new CREATE gives a new one. No number is used twice. Objects that every database
        starts with have fixed numbers. None: not known here.
        """
        if self._known(kind, name) is None:
            return None
        key = (kind_of(kind), name)
        created = self._ids.get((self.database, *key))  # first: a route of a new database can be dropped and created
        return _BORN_IDS.get(key) if created is None else created

    def placed(self, service: str) -> int:
        """A number that changes whenever the service moves to another queue, also when it moves back later."""
        return self._placed.get((self.database, service), -1)

    @property
    def version(self) -> int:
        """Rises with each change that this process reads."""
        return self._position

    @property
    def broker_id(self) -> UUID:
        """The id of this database (`service_broker_guid`), by which routes and BEGIN DIALOG name it."""
        return self.broker_id_of(self.database)

    def broker_id_of(self, database: str) -> UUID:
        """The id of a database of this instance, as far as known here. The database need not exist."""
        return UUID(self.broker_of(database).broker_id)

    def broker_of(self, database: str) -> DatabaseBroker:
        """The broker of a database, as far as known here: as the catalog holds it, or with the id that it will get."""
        known = self._known(DatabaseBroker, database, database)
        return known or DatabaseBroker(database, str(broker_id(self._topic_id(), database)))

    def brokers(self) -> list[DatabaseBroker]:
        """The brokers of all databases that the catalog holds, sorted by name, after a refresh."""
        self.refresh()
        with self._lock:
            found = [one for objects in self._objects.values() for one in objects.values()]
        return sorted((one for one in found if isinstance(one, DatabaseBroker)), key=lambda one: one.name)

    def get_in(self, database: str, kind: type[Object], name: str) -> Object:
        """The object of that name in a database of this instance. Raises as `get`."""
        if database == self.database:
            return self.get(kind, name)
        found = self._known(kind, name, database)
        if found is None:
            self.refresh()
            found = self._known(kind, name, database)
        if found is None:
            raise MISSING[kind](
                f"there is no {kind_of(kind)} {name!r} in database {database!r}; names are compared byte by byte. "
                f"Connect to that database and create it with broker.admin.{creator_of(kind)}(…)"
            )
        return found

    def databases(self) -> list[str]:
        """Names of the databases of this instance that have objects of their own, sorted, after a refresh."""
        self.refresh()
        return self.known_databases()

    def known_databases(self) -> list[str]:
        """Names of the databases that have objects of their own, as far as known here, sorted; Kafka is not asked."""
        with self._lock:
            return sorted(
                name
                for name, objects in self._objects.items()
                if name and any(not isinstance(one, DatabaseBroker) for one in objects.values())
            )

    def queues_of(
        self, from_service: str, to_service: str, contract: str, database: str | None = None
    ) -> tuple[Queue, Queue]:
        """Queues of the initiator and of the target, which is in `database`, or else in this one.

        Raises ServiceNotFound, ContractNotFound, QueueNotFound.
        """
        ways, there = self._ways, self.database if database is None else database
        way = ways.get((from_service, to_service, contract, there))
        if way is None:
            source, target = self.get(Service, from_service), self.get_in(there, Service, to_service)
            self.get(Contract, contract)
            way = self.get(Queue, source.queue), self.get_in(there, Queue, target.queue)
            if len(ways) >= WAY_ENTRIES_MAX:
                ways.clear()
            ways[from_service, to_service, contract, there] = way
        return way

    def check_send(self, contract: str, role: Role, message_type: str) -> None:
        """Raise unless that side may send that type under the contract (behaviours 45 to 47).

        Raises NotInContract, WrongDirection, MessageTypeNotFound, ContractNotFound.
        """
        allowed = self._allowed
        if (contract, role, message_type) in allowed:
            return
        if message_type in SYSTEM_TYPES:
            raise NotInContract(f"{message_type!r} is a system message, which programs cannot send: use `end`")
        self.get(MessageType, message_type)
        sent_by = self.get(Contract, contract).sent_by.get(message_type)
        if sent_by is None:
            raise NotInContract(
                f"message type {message_type!r} is not in contract {contract!r}; "
                f"it has {', '.join(map(repr, self.get(Contract, contract).sent_by))}"
            )
        if not sent_by.allows(role):
            raise WrongDirection(
                f"contract {contract!r} lets only the {sent_by.value.lower()} send {message_type!r}, "
                f"and this side is the {role.name.lower()}; create a contract in which it is sent by ANY",
                8432 if role is Role.INITIATOR else 8434,
            )
        allowed.add((contract, role, message_type))

    def refresh_every(self, every_s: float = FRESH_EVERY_S) -> None:
        """Refresh in the background from now on, at least every `every_s` seconds."""
        with self._lock:
            hurry, self._every_s = every_s < self._every_s, min(every_s, self._every_s)
            if self._keeper is None:
                self._keeper = in_background("konverse-catalog", self._run)
        if hurry:
            self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait(self._every_s)
            self._wake.clear()
            if self._closing:
                return
            try:
                self.refresh()
            except TopicMismatch as error:
                self._log.log_problem(error)
            except EXPECTED_ERRORS as error:  # a lookup that needs the journal raises the error itself
                log.debug("the catalog cannot be read from topic %s: %s", catalog_topic(self.instance), error)
            else:
                self._log.check_settings()

    def refresh(self) -> None:
        """Read new records of the journal. Raises TopicMismatch when its topic was replaced or truncated."""
        with self._journal:
            if self._deciding:
                return  # `change` has just read it, and appends again if another change came meanwhile
            for messages, position in self._log.added(self._position):
                self._take(self._decoded(_changes_in(messages)), position)

    def _take(self, changes: Iterable[tuple[int, Change]], position: int) -> None:
        """Fold changes with their offsets. `position` is the offset behind the last one."""
        known = list(changes)
        with self._lock:
            for offset, change in known:
                self._fold(offset, change)
            self._position = position

    # ------------------------------------------------------------------------------------------------------ change

    def parts_of(self, table: str) -> list[TableChange]:
        """The parts of an unfinished change of a routing table, as far as known here."""
        return list(self._parts.get((self.database, table), ()))

    def change(self, name: str, decide: Callable[[], Written | None], kind: type[Object]) -> None:
        """Append a change: the value that `decide` returns, or a drop when it returns None.

        `decide` checks the catalog and raises to refuse the change. It is called again whenever another change got the
        expected offset first; its lookups do not read the journal again. Raises KafkaUnavailable while an open
        transaction holds up the catalog: no process can read past it, so the expected offset of a change would always
        be taken.
        """
        with self._journal:
            while True:
                self.refresh()
                value = self._decided(decide)
                if self._gave_id(kind):
                    continue  # that was a change of its own
                change = Change(self._position, self.database, kind_of(kind), name, value)
                what = f"the change of {change.kind} {name!r}"
                record = encode_change(change)
                offset = self._log.append(record, what)
                if offset == change.expected_offset:
                    self._take([(offset, decode_change(record))], offset + 1)
                    break
                self._log.check_readable(what)

    def _decided(self, decide: Callable[[], Written | None]) -> Written | None:
        self._deciding = True
        try:
            return decide()
        finally:
            self._deciding = False

    def _gave_id(self, kind: type[object]) -> bool:
        """Write the id of this database in front of its first object. Returns whether it did.

        Until then the id is derived from the id of the catalog's topic, which a copy of the topic does not have.
        """
        if kind is DatabaseBroker or self._known(DatabaseBroker, self.database) is not None:
            return False
        self.change(self.database, lambda: self.broker_of(self.database), DatabaseBroker)
        return True

    # ------------------------------------------------------------------------------------------------------ inside

    def _topic_id(self) -> bytes:
        """Kafka's id of the journal's topic; Kafka is asked once."""
        if not self._log.topic_id:
            with self._journal:
                self._log.open()
        return self._log.topic_id

    def _known(self, kind: type[Object], name: str, database: str | None = None) -> Object | None:
        key = (kind_of(kind), name)
        found = self._objects.get(self.database if database is None else database, {}).get(key, BORN_WITH.get(key))
        return found if isinstance(found, kind) else None

    def _decoded(self, messages: Iterable[Message]) -> Iterator[tuple[int, Change]]:
        """Offset and content of each change. Logs records that this version of konverse cannot read."""
        for message in messages:
            offset = message.offset() or 0
            try:
                yield offset, decode_change(message.value() or b"")
            except MalformedRecord as error:
                if self._unreadable.due():
                    log.warning(
                        "record %d of topic %s cannot be read as a change (%s) and was skipped. If a newer version of "
                        "konverse wrote it, upgrade this one",
                        offset,
                        catalog_topic(self.instance),
                        error,
                    )

    def _fold(self, offset: int, change: Change) -> None:
        if change.expected_offset != offset:
            return  # another change was first; the author of this one appends again
        objects = self._objects.setdefault(change.database, {})
        key = change.kind, change.name
        known, value = objects.get(key), self._value(objects.get(key), change)
        if isinstance(known, Service) and not (isinstance(value, Service) and known.queue == value.queue):
            self._placed.pop((change.database, change.name), None)
        if isinstance(value, Service):
            self._placed.setdefault((change.database, change.name), offset)
        if value is None:
            self._ids.pop((change.database, *key), None)
        elif objects.get(key, BORN_WITH.get(key)) is None:
            self._ids[change.database, *key] = FIRST_USER_ID + offset
        if value is None and key not in BORN_WITH:
            objects.pop(key, None)
        else:
            objects[key] = value
        self._allowed = set()
        self._ways = {}
        self._sorted.clear()
        if isinstance(value if value is not None else known, _ROUTED) or key in BORN_WITH:
            self.routed_version += 1

    def _value(self, known: CatalogObject | None, change: Change) -> CatalogObject | None:
        """The value of an object after a change; None when it is dropped."""
        parts = self._parts.setdefault((change.database, change.name), []) if change.kind == _TABLE else []
        if not isinstance(change.value, TableChange):
            parts.clear()
            return change.value
        return folded(known if isinstance(known, RoutingTable) else None, change.value, parts)

    def close(self) -> None:
        """Close the clients."""
        self._closing = True
        self._wake.set()
        with self._journal:
            self._log.close()


def _changes_in(messages: Iterable[Message]) -> Iterator[Message]:
    """Records that may be changes. A record with konverse's header was meant for a queue, and is left out."""
    return (message for message in messages if header_of(message) is None)
