"""Dynamic routing: a directory service creates routes to services that announce themselves in a compacted topic.

    python -m examples.directory

A database with a route to the service SQL/ServiceBroker/BrokerConfiguration asks that service for each route that it
lacks. Here a directory answers. Its knowledge is a Kafka topic with the last announcement of each service, so any
number of directories may run, and a new one knows at once what the others know. Use it when services come and go while
others already send to them. When the services are known beforehand, create their routes instead.

A route from the directory expires. The database then asks again, so a service that has moved is found at its new place.

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from typing import Final, NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import konverse
from konverse.schemas.catalog.broker_configuration import MISSING_ROUTE, NOTICE
from konverse.schemas.catalog.routes import BROKER_CONFIGURATION
from konverse.schemas.errors import AlreadyExists

READING: Final = "//weather/Reading"
REPORTING: Final = "//weather/Reporting"
STATION: Final = "//weather/Station"
OFFICE: Final = "//weather/Office"

ASK: Final = "AskTheDirectory"
TOPIC: Final = "directory.services"
ROUTES_LIVE: Final = timedelta(hours=1)
PATIENCE_S: Final = 30.0


class Announcement(NamedTuple):
    """Where a service is."""

    address: str
    """As in CREATE ROUTE: LOCAL, or TCP://host:port."""
    broker_instance: str | None = None
    """The id of its database; None: any database."""


class Directory:
    """The announcements in a topic with one partition, which is compacted."""

    def __init__(self, bootstrap: str, topic: str = TOPIC) -> None:
        """Create the topic, unless it exists."""
        self._topic = topic
        self._known: dict[str, Announcement] = {}
        admin = AdminClient({"bootstrap.servers": bootstrap})
        new = NewTopic(topic, num_partitions=1, config={"cleanup.policy": "compact"})
        try:
            admin.create_topics([new])[topic].result()
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "directory",  # required, and not used: nothing is committed
                "enable.auto.commit": False,
            }
        )
        self._next = 0
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def announce(self, service: str, announcement: Announcement | None) -> None:
        """Tell all directories where a service is; None: it is gone. Returns when Kafka has it."""
        value = None if announcement is None else json.dumps(announcement._asdict())
        errors: list[KafkaError | None] = []
        self._producer.produce(self._topic, key=service, value=value, on_delivery=lambda error, _: errors.append(error))
        self._producer.flush()
        if errors[0] is not None:
            raise KafkaException(errors[0])

    def find(self, service: str) -> Announcement | None:
        """Where the service is, by the present end of the topic."""
        _, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=PATIENCE_S)
        while self._next < end:
            record = self._consumer.poll(PATIENCE_S)
            if record is None:
                raise TimeoutError(f"topic {self._topic} was not read up to {end} within {PATIENCE_S:.0f} s")
            if record.error() is not None:
                raise KafkaException(record.error())
            offset, key, value = record.offset(), record.key(), record.value()
            assert offset is not None
            assert key is not None  # Kafka refuses a record without a key in such a topic
            self._next = offset + 1
            if value is None:
                self._known.pop(key.decode(), None)
            else:
                self._known[key.decode()] = Announcement(**json.loads(value))
        return self._known.get(service)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def route_of(service: str, broker_instance: UUID | None) -> str:
    """Name of the route for a request. It fits, whatever the length of the service's name."""
    return f"Directory.{uuid5(NAMESPACE_URL, f'{service} {broker_instance}')}"


def answer(transaction: konverse.Transaction, broker: konverse.Broker, directory: Directory) -> None:
    """Answer requests. Killed before the commit, it does the same again: the route is then altered to what it is."""
    for message in transaction:
        if message.type == MISSING_ROUTE:
            wanted = konverse.read_missing_route(message.body)
            found = directory.find(wanted.service)
            if found is not None:
                create_route(broker, wanted.service, wanted.broker_instance, found)
            transaction.end(message.dialog)  # without a route, the database asks again after a minute
        elif message.type in (konverse.END_DIALOG, konverse.ERROR):
            transaction.end(message.dialog)


def create_route(broker: konverse.Broker, service: str, wanted: UUID | None, found: Announcement) -> None:
    """Create the route, or revive the one of an earlier request."""
    name, instance = route_of(service, wanted), found.broker_instance or wanted
    try:
        broker.admin.create_route(
            name, found.address, service_name=service, broker_instance=instance, lifetime=ROUTES_LIVE
        )
    except AlreadyExists:
        broker.admin.alter_route(name, address=found.address, broker_instance=instance, lifetime=ROUTES_LIVE)


def create(broker: konverse.Broker) -> None:
    """A weather office, a station, and the service of the directory. No request is made before there is a route."""
    broker.admin.create_message_type(READING, if_not_exists=True)
    broker.admin.create_contract(REPORTING, {READING: "INITIATOR"}, if_not_exists=True)
    for queue in ("Office", "Station", "Directory"):
        broker.admin.create_queue(queue, if_not_exists=True)
    broker.admin.create_service(OFFICE, queue="Office", contracts=[REPORTING], if_not_exists=True)
    broker.admin.create_service(STATION, queue="Station", if_not_exists=True)
    broker.admin.create_service(BROKER_CONFIGURATION, queue="Directory", contracts=[NOTICE], if_not_exists=True)


@contextmanager
def running(broker: konverse.Broker, directory: Directory) -> Iterator[None]:
    """A server of the instance, like `konverse server`, and a directory, each in a thread."""
    with ExitStack() as exits:
        server = exits.enter_context(broker.server())
        reader = exits.enter_context(broker.reader("Directory"))
        threads = [
            threading.Thread(target=server.run),
            threading.Thread(target=reader.run, args=(lambda transaction: answer(transaction, broker, directory),)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            server.stop()
            reader.stop()
            for thread in threads:
                thread.join()


def report(broker: konverse.Broker) -> None:
    """A station reports to an office. In the first run the database has no route to it."""
    dialog = broker.begin_dialog(STATION, OFFICE, REPORTING)
    dialog.send(READING, b"12 degrees")
    dialog.flush()
    for row in broker.views.transmission_queue():
        if row.conversation_handle == dialog.id and row.transmission_status:
            print(f"the report to {row.to_service_name} waits")


def receive(broker: konverse.Broker) -> None:
    """The office receives the report."""
    with broker.reader("Office", timeout=PATIENCE_S) as reader:
        for transaction in reader:
            with transaction:
                print("the office has it:", *(message.body.decode() for message in transaction))
                transaction.end(transaction.dialog)
            return
    print("the report did not arrive")


def main() -> None:
    """The database asks the directory, which creates the route, and the report arrives."""
    with konverse.connect() as broker, closing(Directory(broker.settings.bootstrap)) as directory:
        create(broker)
        broker.admin.create_route(ASK, "LOCAL", service_name=BROKER_CONFIGURATION, if_not_exists=True)
        report(broker)
        directory.announce(OFFICE, Announcement("LOCAL"))
        with running(broker, directory):
            receive(broker)
        for route in broker.views.routes():
            if route.remote_service_name == OFFICE:
                print(f"the route to {OFFICE} is {route.address}")
        broker.admin.drop_route(ASK)  # from now on, the database finds all services of the instance by itself again


if __name__ == "__main__":
    main()
