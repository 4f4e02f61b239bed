"""Kafka clients that fail for good, as idempotent producers do: they are replaced, and nothing is lost or doubled."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.owning import Owning
from konverse.bridge.sending import Sender
from tests.kit.oracle import prove_exactly_once
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, ORDER, answer_once, begin, connected, fill, open_shop, queue_of, send_orders

pytestmark = pytest.mark.stack


class Broken:
    """A producer after a fatal error: it takes `healthy` more records and loses them, then it takes nothing."""

    def __init__(self, healthy: int = 0) -> None:
        self._healthy = healthy
        self._lost: list[Any] = []

    def produce(self, *record: Any) -> None:
        if len(self._lost) >= self._healthy:
            raise KafkaException(KafkaError(KafkaError._FATAL, "broken for the test", fatal=True))
        self._lost.append(record)

    def poll(self, _timeout: float = 0) -> int:
        return 0

    def flush(self, _timeout: float = 0) -> int:
        return len(self._lost)

    def purge(self) -> None:
        pass

    def __len__(self) -> int:
        return len(self._lost)


def owning_of(reader: object) -> Owning:
    return reader._owning  # type: ignore[attr-defined, no-any-return]


def test_a_journal_producer_that_breaks_is_replaced_and_the_work_done_again(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        sent = send_orders(broker, dialogs=6, messages=12)
        with broker.reader("Orders", timeout=2) as reader:
            fill(reader, 12)
            owning_of(reader)._journal_producer = Broken()  # type: ignore[assignment]
            assert answer_once(reader) > 12, "no work was done again"
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
    assert proof.replies == 12


@pytest.mark.parametrize("healthy", [0, 3])
def test_a_producer_of_outputs_that_breaks_is_replaced_and_all_outputs_arrive(
    servers: Servers, database: str, healthy: int
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        sent = send_orders(broker, dialogs=6, messages=12)
        with broker.reader("Orders", timeout=2, batch=2) as reader:
            fill(reader, 12)
            owning_of(reader)._output_producer = Broken(healthy)  # type: ignore[assignment]
            assert answer_once(reader) == 12
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
    assert proof.replies == 12


@pytest.mark.parametrize("healthy", [0, 5])
def test_a_senders_producer_that_breaks_is_replaced_and_everything_goes_again(
    servers: Servers, database: str, healthy: int
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"0")
        dialog.flush()
        sender: Sender = dialog._sender
        broken = Broken(healthy)
        with sender._lock:
            sender._producer = broken  # type: ignore[assignment]
            sender._produce = broken.produce  # type: ignore[assignment]
            assert [dialog.send(ORDER, b"%d" % number) for number in range(1, 20)] == [*range(1, 20)]
        dialog.flush(DEADLINE_S)
        with broker.reader("Orders", timeout=2) as reader:
            answer_once(reader)
        sent = {dialog.id.bytes: [b"%d" % number for number in range(20)]}
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
    assert proof.messages == 20
