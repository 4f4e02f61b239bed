"""Records that a task makes of its rows, without Spark and Kafka."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from konverse.dialog.batch.task import Task, TaskOf
from konverse.schemas.wire.envelope import decode
from konverse.spark.write.plan import Plan
from konverse.spark.write.rows import TaskRows
from tests.kit.batches import JUDGE, JUDGE_WRITER
from tests.kit.builders import address_of, identifier

SERVICE: Final = "//sales/OrderService"
ORDER: Final = "//sales/Order"
NO_QUEUE: Final[Any] = None


def task_rows() -> TaskRows:
    """The rows of one execution that may write orders to the two partitions of a service."""
    targets = tuple(address_of("orders", number) for number in range(2))
    names = ("sales", "//sales/ShopService", "//sales/Ordering")
    homes = (address_of("shop"),)
    plan = Plan(identifier("run"), *names, NO_QUEUE, homes, {SERVICE: targets}, {ORDER: True}, {}, None)
    task = TaskOf(identifier("query"), JUDGE, JUDGE_WRITER, identifier("run"), 0, 0)
    return TaskRows(plan, Task(task, identifier("attempt")))


def rows_of(keys: list[bytes], first: int = 0) -> pa.RecordBatch:
    """A row for each of these keys, with its number, from `first` on, as its body."""
    columns: dict[str, list[str] | list[bytes]] = {
        "to_service": [SERVICE] * len(keys),
        "message_type": [ORDER] * len(keys),
        "body": [b"%d" % number for number in range(first, first + len(keys))],
        "key": keys,
    }
    kinds = {"to_service": pa.string(), "message_type": pa.string(), "body": pa.binary(), "key": pa.binary()}
    return pa.RecordBatch.from_pydict({name: pa.array(column, kinds[name]) for name, column in columns.items()})


def test_each_row_has_its_key_or_without_one_its_conversation_as_the_key_of_its_record() -> None:
    keys = [b"one", b"two", b"one", b"", b"one", b"", b"two"]
    made = task_rows()
    batches = [rows_of(keys[:4]), rows_of(keys[4:], 4)]
    found: dict[int, tuple[bytes, bytes]] = {}
    begun: set[bytes] = set()
    for batch in batches:
        for records in made.of(batch):
            for envelope, key, body in zip(records.envelopes, records.keys, records.bodies, strict=True):
                if body is None:
                    begun.add(key)
                else:
                    found[int(body)] = (key, decode(envelope).conversation)
    assert [found[number][0] for number in range(len(keys))] == [key or found[3][1] for key in keys]
    assert len({conversation for _, conversation in found.values()}) == 3
    assert begun == {b"one", b"two", found[3][1]}
