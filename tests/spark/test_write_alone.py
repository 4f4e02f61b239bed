"""Writes without an owner of the transmission queue, while Kafka goes away and comes back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from konverse.deploy import LocalStack
from konverse.schemas.errors import KafkaUnavailable, OutcomeUnknown
from konverse.spark.write import decision as deciding
from tests.kit.shop import connected, open_shop
from tests.spark import executions
from tests.spark.executions import batch_writer, execute, run
from tests.spark.test_write_faults import FEW, check_received, numbered

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(300)]


def test_rows_that_kafka_does_not_take_in_time_fail_the_task_and_a_driver_that_is_alone_decides(
    own_stack: LocalStack,
) -> None:
    with connected(own_stack.bootstrap, "alone", transmit=False) as shop:
        open_shop(shop)
        writer = batch_writer(own_stack.bootstrap, "alone", deliveryTimeout="3", query="one", batch="0")
        own_stack.kill("kafka")
        with pytest.raises(KafkaUnavailable, match=r"not .* within 3\.0 s.*Nothing of this batch is received"):
            execute(writer, numbered("refused"))
        own_stack.restart("kafka")
        run(writer, numbered("again"))
        run(batch_writer(own_stack.bootstrap, "alone", query="one", batch="0"), FEW)
        check_received(shop, numbered("again"))


def test_a_task_continues_when_the_broker_is_restarted_during_its_write(
    own_stack: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, batches_of = numbered("through"), executions.batches_of

    def restarting(rows: Any, size: int = 1_000) -> Iterator[pa.RecordBatch]:
        first, *others = batches_of(rows, size)
        yield first
        own_stack.kill("kafka")
        yield from others[:-1]
        own_stack.restart("kafka")
        yield others[-1]

    with connected(own_stack.bootstrap, "restarted", transmit=False) as shop:
        open_shop(shop)
        writer = batch_writer(own_stack.bootstrap, "restarted")
        monkeypatch.setattr(executions, "batches_of", restarting)
        writer.commit([execute(writer, rows)])
        check_received(shop, rows)


def test_a_write_whose_outcome_is_unknown_says_how_to_repeat_it_and_is_then_received_once(
    own_stack: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(own_stack.bootstrap, "unknown", transmit=False) as shop:
        open_shop(shop)
        writer = batch_writer(own_stack.bootstrap, "unknown")
        written = execute(writer, numbered("first"))
        monkeypatch.setattr(deciding.BatchDecision.decide, "__defaults__", (1.0,))  # before it would help out
        with pytest.raises(OutcomeUnknown, match=r"is unknown after 1 s: no process has decided it") as caught:
            writer.commit([written])
        monkeypatch.undo()
        named = re.search(r"give 'query' = '(id:\w+)' and 'batch' = '(\d+)'", str(caught.value))
        assert named is not None
        query, batch = named.groups()
        run(batch_writer(own_stack.bootstrap, "unknown", query=query, batch=batch), numbered("again"))
        check_received(shop, numbered("first"))
