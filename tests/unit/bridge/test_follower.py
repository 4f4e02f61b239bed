"""A follower's errors when its logs cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.owner import follower as module
from konverse.bridge.owner.follower import Follower
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KafkaUnavailable, TopicMismatch
from tests.kit.builders import identifier

QUEUE = Queue("Orders", "orders", "queue", 1, identifier("incarnation"), identifier("data"), identifier("journal"))


def deleted(_queue: Queue) -> None:
    raise TopicMismatch("topic orders does not exist any more")


def away(_queue: Queue) -> None:
    raise KafkaUnavailable("Kafka is away")


def there(_queue: Queue) -> None:
    pass


@pytest.mark.parametrize(("end", "bare", "behind"), [(0, False, 0), (3, False, 3), (3, True, 0)])
def test_a_log_that_ends_with_the_marker_of_a_transaction_is_not_behind(end: int, bare: bool, behind: int) -> None:
    """Else its queue could never be dropped, and would never count as drained."""
    reading: Any = SimpleNamespace(whole_data_end=lambda _: end, is_bare=lambda *_: bare)
    kafka: Any = None
    assert Follower(kafka, QUEUE, 0, reading).behind() == behind


@pytest.mark.parametrize(
    ("afterwards", "error"), [(deleted, TopicMismatch), (away, KafkaUnavailable), (there, KafkaUnavailable)]
)
def test_a_topic_that_is_deleted_before_its_first_read_is_named_and_not_called_unreadable(
    afterwards: Callable[[Queue], None], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker of a cluster may still know the topic at the first check, when the partition's leader does not."""
    checks = [there, afterwards]

    class Reading:
        def bounds(self, _partition: int) -> Any:
            raise KafkaUnavailable("the ends of orders/0 cannot be read")

    def same_queue(queue: Queue) -> None:
        checks.pop(0)(queue)

    monkeypatch.setattr(module, "Topics", lambda _kafka: SimpleNamespace(same_queue=same_queue))
    following = Follower(None, QUEUE, 0, Reading())  # type: ignore[arg-type]  # neither is asked for more
    with pytest.raises(error) as caught:
        following.catch_up()
    assert checks == []
    if error is KafkaUnavailable:
        assert "the ends of orders/0 cannot be read" in str(caught.value)
