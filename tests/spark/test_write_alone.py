"""Writes where nobody looks after the transmission queue, and Kafka goes away and comes back."""

from __future__ import annotations

import pytest

from konverse.deploy.stack import LocalStack
from konverse.schemas.errors import KafkaUnavailable
from tests.kit.shop import connected, open_shop
from tests.spark.executions import batch_writer, execute, run
from tests.spark.test_write_faults import FEW, check_received, numbered

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.xdist_group("own Kafka"), pytest.mark.timeout(300)]


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
