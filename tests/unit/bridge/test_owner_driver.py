"""Reports of a reader's owners, and outputs that a destination refuses."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message

from konverse.bridge.catalog.destinations import Destinations
from konverse.bridge.catalog.judge import CatalogJudge, Rules
from konverse.bridge.owner.driver import OwnerDriver
from konverse.bridge.owner.outputs import Outputs
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.dialog.owner.events import Halted
from konverse.dialog.owner.settings import OwnerSettings
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KafkaUnavailable
from konverse.schemas.identifiers import Address
from tests.kit.driver import Driver


def test_many_refused_outputs_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    outputs: Any = Outputs.__new__(Outputs)
    outputs._refusals = LogThrottle()
    outputs._kafka = SimpleNamespace(words=lambda error, _need: error.str())
    for number in range(1_000):
        message = SimpleNamespace(topic=lambda: "gone", partition=lambda number=number: number % 2)
        outputs._on_refusal(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), message)
    assert [record.getMessage()[:16] for record in caplog.records] == ["outputs to gone/", "outputs to gone/"]
    assert outputs._refusal == ("gone", 1)


@pytest.fixture
def driver() -> Any:
    """An OwnerDriver without Kafka: one leading owner, which made an error while it ingested."""
    simulated = Driver()
    simulated.lead()
    driver: Any = OwnerDriver.__new__(OwnerDriver)
    driver.queue = SimpleNamespace(topic="orders")
    driver.owners, driver._stopped = {0: simulated.owner}, deque()
    clients: Any = Clients()
    driver._outputs = Outputs(clients, driver.owners, driver._step, Destinations(clients))
    simulated.owner._unsaid.append(simulated.owner._halt(ZeroDivisionError("a mistake of ours")))
    return driver


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


def stopped(driver: Any) -> list[tuple[int, str]]:
    return [(number, effect.reason) for number, _, effect in driver.stopped() if isinstance(effect, Halted)]


def test_a_mistake_is_not_lost_when_data_come_before_the_next_tick(driver: Any) -> None:
    driver.feed([Message(topic="orders", partition=0, offset=0, value=b"", timestamp=(1, 0))])
    assert stopped(driver) == [(0, "a mistake of ours")]


def test_a_mistake_is_not_lost_when_outputs_are_delivered_before_the_next_tick(driver: Any) -> None:
    driver._outputs._handed.append((driver.owners[0], Address("replies", 0, bytes(4))))
    driver._outputs.pump()
    assert stopped(driver) == [(0, "a mistake of ours")]


def test_a_mistake_is_not_lost_when_the_producer_of_outputs_is_replaced(driver: Any) -> None:
    driver._outputs.replace_producer()
    assert stopped(driver) == [(0, "a mistake of ours")]


def test_nothing_is_opened_before_the_catalog_was_read() -> None:
    """When the read fails, nothing else could be closed."""
    judge = CatalogJudge(cast("Any", Away()), cast("Any", None))
    opened: list[str] = []
    kafka: Any = Opening(opened)
    queue = Queue("Orders", "k.d.Orders", "queue", 1, bytes(16), bytes(16), bytes(16))
    with pytest.raises(KafkaUnavailable):
        OwnerDriver(kafka, queue, Rules(lambda *_: None, judge), OwnerSettings(), kafka.view)
    assert opened == []


def test_no_view_is_opened_when_a_kafka_client_cannot_be_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller never gets a view that it could close, so its thread would never end."""
    opened: list[str] = []
    kafka: Any = Opening(opened)
    kafka.settings = SimpleNamespace(silence_timeout_s=60.0, connect_timeout_s=1.0, append_timeout_s=1.0)
    monkeypatch.setattr(kafka, "data_producer", refuse, raising=False)
    queue = Queue("Orders", "k.d.Orders", "queue", 1, bytes(16), bytes(16), bytes(16))
    with pytest.raises(KafkaUnavailable, match="too many clients"):
        OwnerDriver(kafka, queue, Rules(lambda *_: None), OwnerSettings(), kafka.view)
    assert "view" not in opened


def refuse(**_: Any) -> None:
    raise KafkaUnavailable("too many clients")


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
