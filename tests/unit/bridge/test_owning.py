"""Reports of a reader's owners, and outputs that a destination refuses."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message

from konverse.bridge.catalog.destinations import Destinations
from konverse.bridge.catalog.judge import CatalogJudge, Rules
from konverse.bridge.owner.driver import Owning
from konverse.bridge.owner.outputs import Outputs
from konverse.bridge.runtime.log_throttle import Seldom
from konverse.dialog.owner.events import Halted
from konverse.dialog.owner.settings import OwnerSettings
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KafkaUnavailable
from konverse.schemas.identifiers import Address
from tests.kit.driver import Driver


def test_many_refused_outputs_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    outputs: Any = Outputs.__new__(Outputs)
    outputs._refusals = Seldom()
    outputs._kafka = SimpleNamespace(words=lambda error, _need: error.str())
    for number in range(1_000):
        message = SimpleNamespace(topic=lambda: "gone", partition=lambda number=number: number % 2)
        outputs._on_refusal(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), message)
    assert [record.getMessage()[:16] for record in caplog.records] == ["outputs to gone/", "outputs to gone/"]
    assert outputs._refusal == ("gone", 1)


@pytest.fixture
def owning() -> Any:
    """An Owning without Kafka: one leading owner, which made an error while it ingested."""
    driver = Driver()
    driver.lead()
    owning: Any = Owning.__new__(Owning)
    owning.queue = SimpleNamespace(topic="orders")
    owning.owners, owning._stopped = {0: driver.owner}, deque()
    clients: Any = Clients()
    owning._outputs = Outputs(clients, owning.owners, owning._do, Destinations(clients))
    driver.owner._unsaid.append(driver.owner._halt(ZeroDivisionError("a mistake of ours")))
    return owning


class Clients(SimpleNamespace):
    """Producers that deliver at once, and an administrator that does nothing."""

    admin = SimpleNamespace(describe_topics=lambda *_, **__: {})

    def data_producer(self, **_: Any) -> Any:
        class Producer:
            def poll(self, _wait_s: float) -> int:
                return 0

            def purge(self) -> None: ...

            def flush(self, _wait_s: float) -> int:
                return 0

            def __len__(self) -> int:
                return 0

        return Producer()


def stopped(owning: Any) -> list[tuple[int, str]]:
    return [(number, effect.reason) for number, _, effect in owning.stopped() if isinstance(effect, Halted)]


def test_a_mistake_is_not_lost_when_data_come_before_the_next_tick(owning: Any) -> None:
    owning.feed([Message(topic="orders", partition=0, offset=0, value=b"", timestamp=(1, 0))])
    assert stopped(owning) == [(0, "a mistake of ours")]


def test_a_mistake_is_not_lost_when_outputs_are_delivered_before_the_next_tick(owning: Any) -> None:
    owning._outputs._handed.append((owning.owners[0], Address("replies", 0, bytes(4))))
    owning._outputs.pump()
    assert stopped(owning) == [(0, "a mistake of ours")]


def test_a_mistake_is_not_lost_when_the_producer_of_outputs_is_replaced(owning: Any) -> None:
    owning._outputs.replace_producer()
    assert stopped(owning) == [(0, "a mistake of ours")]


def test_nothing_is_opened_before_the_catalog_was_read() -> None:
    """When the read fails, nothing else could be closed."""
    judge = CatalogJudge(cast("Any", Away()), cast("Any", None))
    opened: list[str] = []
    kafka: Any = Opening(opened)
    queue = Queue("Orders", "k.d.Orders", "queue", 1, bytes(16), bytes(16), bytes(16))
    with pytest.raises(KafkaUnavailable):
        Owning(kafka, queue, Rules(lambda *_: None, judge), OwnerSettings(), kafka.view)
    assert opened == []


class Away:
    """Stands in for a catalog that cannot be read."""

    version = 0

    def all(self, _kind: type) -> list[Any]:
        raise KafkaUnavailable("Kafka does not answer")


class Opening:
    """Records every client that is created."""

    def __init__(self, opened: list[str]) -> None:
        self._opened = opened
        self.settings = SimpleNamespace(silence_timeout_s=60.0)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self._opened.append(name)
