"""What only the tests against real servers need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from konverse.schemas.identifiers import escape
from tests.kit.servers import Servers


@pytest.fixture
def database(database: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database name of the test's own; its topics go afterwards, as a small broker holds a thousand or so."""
    servers: Servers | None = request.getfixturevalue("servers") if "servers" in request.fixturenames else None
    yield database
    if servers is None:
        return
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    with suppress(KafkaException):
        names = [name for name in admin.list_topics(timeout=10).topics if f".{escape(database)}." in name]
        for deleted in (admin.delete_topics(names) if names else {}).values():
            with suppress(KafkaException):
                deleted.result(10)
