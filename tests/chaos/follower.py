"""A process that only follows a queue. It claims nothing, and makes a snapshot when no owner does."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Final

from konverse.bridge.broker import Broker
from konverse.bridge.catalog.judge import Rules
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.owner.driver import OwnerDriver
from konverse.dialog.owner.owner import Owner
from konverse.dialog.owner.settings import OwnerSettings
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.identifiers import journal_topic
from tests.kit.shop import until

POLL_S: Final = 0.1


def follow(broker: Broker, queue: Queue, over: Callable[[], bool], tell: Callable[[Owner], None]) -> None:
    """Follow every partition until `over`, then pass each caught-up follower to `tell`."""
    with closing(OwnerDriver(broker._kafka, queue, Rules(broker.catalog.check_send), OwnerSettings())) as driver:
        driver.stand_by()
        while not over():
            time.sleep(POLL_S)
        for number in range(queue.partitions):
            follower = until(partial(_caught_up, broker, driver, number), f"{queue.topic}/{number} is followed")
            assert follower is not None
            tell(follower)


def _caught_up(broker: Broker, driver: OwnerDriver, number: int) -> Owner | None:
    """The follower of a partition, once it has folded the journal to its end."""
    assert driver._standby is not None
    follower = driver._standby._followers.get(number)
    with closing(LogReader(broker._kafka)) as log:
        end = log.ends(journal_topic(driver.queue.topic, driver.queue.subscription), number)[1]
    return follower if follower is not None and follower.fold.head.offset >= end - 1 else None
