"""Rows with large headers: a row that fits into a record is received, and one that does not is named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from konverse.bridge.broker import Broker
from konverse.schemas.errors import BodyTooLarge
from konverse.schemas.limits import BODY_BYTES_MAX, ROW_BYTES_MAX
from konverse.spark.log.headers import HEADERS_TYPE
from tests.kit.servers import Servers
from tests.kit.shop import drain, receive
from tests.spark import executions
from tests.spark.executions import batch_writer, execute, run

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.xdist_group("spark writes"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("transmitting"),
]

BODY = bytes(BODY_BYTES_MAX - 7)
KEY, NAME = "one", "trace"
VALUE_BYTES_MAX = ROW_BYTES_MAX - len(BODY) - len(KEY) - len(NAME) - 10


def with_headers(monkeypatch: pytest.MonkeyPatch, *values: bytes) -> None:
    """Give each row of the executions a header with one of these values."""
    batches_of = executions.batches_of

    def made(rows: Any, size: int = 1_000) -> Iterator[pa.RecordBatch]:
        for batch in batches_of(rows, size):
            headers = pa.array([[{"key": NAME, "value": value}] for value in values], HEADERS_TYPE)
            yield batch.append_column("headers", headers)

    monkeypatch.setattr(executions, "batches_of", made)


def test_headers_that_fit_beside_the_largest_body_are_received_and_larger_ones_are_named(
    servers: Servers, shop: Broker, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(KEY, b"small"), (KEY, BODY)]
    with monkeypatch.context() as patched:
        with_headers(patched, b"", bytes(VALUE_BYTES_MAX + 1))
        words = (
            rf"row 1 of task 0, column 'headers': it has {VALUE_BYTES_MAX + 16} bytes; at most {VALUE_BYTES_MAX + 15} "
            r"fit into one message beside the row's body and key\. Nothing of this batch is received"
        )
        with pytest.raises(BodyTooLarge, match=words):
            execute(batch_writer(servers.bootstrap, database), rows)
    with_headers(monkeypatch, b"", bytes(VALUE_BYTES_MAX))
    run(batch_writer(servers.bootstrap, database), rows)
    assert [message.body for message in receive(shop, "Orders", 2)] == [b"small", BODY]
    assert drain(shop, "Orders") == []
