"""Dynamic routing: asks the broker configuration service of a database for routes (behaviours 184 to 191).

There is one request at a time for a database and a service (N30), whichever servers run: the id of its dialog follows
from both names and the number of earlier requests, so all servers begin the same dialog. Its home is a partition of the
link queue. A timer of that dialog rings there once, and the owner of the partition then sends MissingRoute, so it is
sent once. When the dialog has ended and the conversations still wait, the next request comes after AGAIN_MS.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.network import Network
from konverse.bridge.client.client import Client
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.owner.follower import Follower
from konverse.dialog.session.dialogs import BeginOptions
from konverse.dialog.state.partition import Partition
from konverse.routing.partitioning import choose_home, choose_partition
from konverse.schemas.catalog.broker_configuration import NOTICE, REQUESTING_SERVICE, MissingRoute
from konverse.schemas.catalog.objects import Queue, Service
from konverse.schemas.catalog.routes import BROKER_CONFIGURATION
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.records import Begin, Timer

AGAIN_MS: Final = 60_000
"""Pause between the end of a request and the next one for the same service, by Kafka's clock."""
_REQUESTS: Final = UUID("6f4e2a52-70f5-5d7e-9a53-6a3c7d1d2b08")
_NO_HOMES: Final = frozenset[int]()


class RequestKey(NamedTuple):
    """A request, as the key of its dialog names it."""

    database: str
    wanted: MissingRoute

    def encode(self) -> bytes:
        """The bytes of the key."""
        instance = self.wanted.broker_instance
        return "\0".join((self.database, self.wanted.service, "" if instance is None else str(instance))).encode()

    @classmethod
    def decode(cls, key: bytes) -> RequestKey:
        """The request of a key."""
        database, service, instance = key.decode().split("\0")
        return cls(database, MissingRoute(service, UUID(instance) if instance else None))


Begins = Callable[[str, bytes, Address, bytes], None]
"""Begins the dialog of a request: database, conversation id, home and key (`RequestDialogs.begin`)."""


class RequestDialogs:
    """Begins the dialogs of requests."""

    def __init__(self, kafka: Kafka, catalog: Catalog, client: Client) -> None:
        self._kafka = kafka
        self._catalog = catalog
        self._client = client

    def begin(self, database: str, conversation: bytes, home: Address, key: bytes) -> None:
        """Begin the dialog with this id and home, and set its timer. An id that lives already is not begun again."""
        network = Network(self._kafka, self._catalog, database)

        def queue_in(there: str) -> Queue:
            return self._catalog.get_in(there, Queue, self._catalog.get_in(there, Service, BROKER_CONFIGURATION).queue)

        queue = network.placed(BROKER_CONFIGURATION, None, conversation, queue_in, network.link)
        target = queue.address(choose_partition(conversation, queue.partitions))
        begin = Begin(REQUESTING_SERVICE, BROKER_CONFIGURATION, NOTICE, home, target, conversation, key)
        sender = self._client.open_sender()
        sender.set_timer(sender.begin(conversation, begin, BeginOptions(named=True)), Timer(1))


class RouteRequests:
    """The requests of an instance. Not thread-safe."""

    def __init__(self, kafka: Kafka, link: Queue, begin: Begins) -> None:
        self._kafka = kafka
        self._link = link
        self._begin = begin
        self._homes: dict[int, Follower] = {}

    def request(self, database: str, wanted: MissingRoute) -> None:
        """Ask for a route, unless a request for the service has not ended, or has ended just now."""
        key = RequestKey(database, wanted)
        for number in count():
            conversation = uuid5(_REQUESTS, f"{database}\0{wanted.service}\0{number}").bytes
            home = self._link.address(choose_home(conversation, self._link.partitions, _NO_HOMES))
            state, side = self._state(home.partition), (Role.INITIATOR, conversation)
            if state.endpoint(*side) is not None:
                return
            over = state.named.over.get(side)
            if over is None:
                self._begin(database, conversation, home, key.encode())
                return
            if kafka_time_ms(self._kafka) < over.at_ms + AGAIN_MS:
                return

    def _state(self, partition: int) -> Partition:
        follower = self._homes.get(partition)
        if follower is None:
            follower = self._homes[partition] = Follower(self._kafka, self._link, partition)
        return follower.catch_up()

    def close(self) -> None:
        """Close the clients."""
        for follower in self._homes.values():
            follower.close()
