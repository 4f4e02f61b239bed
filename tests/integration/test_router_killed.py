"""Two routers with random decisions, killed at every step: each message arrives once, in order, at one service."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from konverse.schemas.catalog.objects import Queue
from tests.kit.regions import answer_rounds, check_replies, open_regions, send_round
from tests.kit.servers import Servers
from tests.kit.shop import ORDER_SERVICE, ORDERING, SHOP_SERVICE, connected, open_shop, receive
from tests.kit.workers import POINTS, Job, Worker

pytestmark = [pytest.mark.nightly, pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(480)]

INITIATORS: Final = {SHOP_SERVICE: "Shop", "//sales/WebShop": "WebShop"}
DIALOGS: Final = 24
"""Dialogs of each initiator."""

NOT_REACHED: Final = ("view", "snapshot")
"""Words of the points that a short-lived router without Redis does not reach."""

DEATHS: Final = [point for point in POINTS if not any(word in point for word in NOT_REACHED)]


def test_two_initiators_two_routers_three_targets_and_a_kill_in_every_step(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    with connected(servers.bootstrap, database) as one, connected(servers.bootstrap, database) as two:
        open_shop(one, partitions=2)
        open_regions(one)
        one.admin.create_queue("WebShop")
        one.admin.create_service("//sales/WebShop", queue="WebShop")
        dialogs = [
            broker.begin_dialog(service, ORDER_SERVICE, ORDERING)
            for broker, service in zip((one, two), INITIATORS, strict=True)
            for _ in range(DIALOGS)
        ]

        def router(partition: int, **options: Any) -> Worker:
            """The router of a partition. With small commits it can die in the middle."""
            return Worker(
                Job(
                    servers.bootstrap,
                    database,
                    str(tmp_path / "log"),
                    "route",
                    partitions=[partition],
                    batch=4,
                    max_messages=1,
                    **options,
                )
            )

        rounds = [*zip(DEATHS[::2], [*DEATHS[1::2], DEATHS[0]], strict=False)]
        for number, points in enumerate(rounds):
            send_round(dialogs, number)
            one.flush()
            two.flush()
            workers = [router(place, die_at=point, idle_s=None) for place, point in enumerate(points)]
            for worker in workers:
                with worker:
                    assert worker.wait(90) == -9, (worker.job.die_at, worker.events)
        for worker in [router(0), router(1)]:
            with worker:
                assert worker.wait(90) == 0, worker.events

        arrived = answer_rounds(one, len(dialogs), len(rounds))
        for worker in [router(0), router(1)]:
            with worker:
                assert worker.wait(90) == 0, worker.events
        replies = [reply for queue in INITIATORS.values() for reply in receive(one, queue, DIALOGS * len(rounds))]
        check_replies(replies, dialogs, arrived, len(rounds))
        _, findings = one.operations.verification(one.catalog.all(Queue)).run()
        assert findings == []
