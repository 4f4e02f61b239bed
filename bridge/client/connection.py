"""The connection that all parts of one `Broker` share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.network import Network
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.runtime.settings import Settings
from konverse.bridge.validation.validator import Validator


@dataclass(frozen=True, slots=True)
class Connection:
    """Clients of Kafka and the catalog of one database."""

    settings: Settings
    database: str
    kafka: Kafka
    topics: Topics
    catalog: Catalog
    network: Network
    """Routes of the catalog's database."""
    validator: Validator
    check_open: Callable[[], None]
    """Raises BrokerClosed after the broker was closed or its process forked."""
