"""Commits that are larger than a record of Kafka's default size."""

from __future__ import annotations

import pytest

from konverse.schemas.identifiers import journal_topic
from konverse.schemas.limits import BODY_BYTES_MAX, JOURNAL_PART_BYTES_MAX
from konverse.schemas.wire.journal import Part, decode
from tests.kit.oracle import prove_exactly_once, read_raw
from tests.kit.servers import Servers
from tests.kit.shop import RECEIPT, connected, fill, open_shop, queue_of, receive, send_orders

pytestmark = pytest.mark.stack


def test_a_transaction_of_several_megabytes_is_committed_in_parts_and_read_back(
    servers: Servers, database: str
) -> None:
    bodies = [bytes([number]) * BODY_BYTES_MAX for number in range(4)]
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        sent = send_orders(broker, dialogs=1, messages=4)
        with broker.reader("Orders", timeout=5) as reader:
            fill(reader, 4)
            with next(reader) as transaction:
                for message, body in zip(transaction, bodies, strict=True):
                    transaction.send(message.dialog, RECEIPT, body)
            reader.settle()
        queue = queue_of(broker, "Orders")
        records = read_raw(servers.bootstrap, journal_topic(queue.topic), 0)
        parts = [part for record in records if isinstance(part := decode(record.value), Part)]
        assert [part.part for part in parts] == [*range(4 * BODY_BYTES_MAX // JOURNAL_PART_BYTES_MAX + 1)]
        assert [message.body for message in receive(broker, "Shop", 4)] == bodies
        with broker.reader("Orders", timeout=1) as reader:  # another owner folds the parts
            assert next(reader, None) is None
        prove_exactly_once(servers.bootstrap, queue, queue_of(broker, "Shop"), sent)
