"""Two routers that decide by chance, killed at every step: each message arrives once, in order, at one service."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.dialog import Dialog
from konverse.schemas.catalog import Queue
from tests.kit.regions import REGIONS, open_regions
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, ORDER_SERVICE, ORDERING, RECEIPT, SHOP_SERVICE, connected, open_shop, receive
from tests.kit.workers import POINTS, Job, Worker

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(480)]

INITIATORS: Final = {SHOP_SERVICE: "Shop", "//sales/WebShop": "WebShop"}
DIALOGS: Final = 24
"""Of each initiator."""

NOT_REACHED: Final = ("view", "snapshot")
"""Words of the points that a router without Redis, which lives for a moment, does not come to."""

DEATHS: Final = [point for point in POINTS if not any(word in point for word in NOT_REACHED)]


def send_round(dialogs: list[Dialog], number: int) -> None:
    """Another message on each dialog."""
    for which, dialog in enumerate(dialogs):
        dialog.send(ORDER, b"%d %d" % (which, number))
    for dialog in dialogs:
        dialog.flush()


def answered(broker: Broker, region: str) -> dict[Any, list[str]]:
    """The region answers what is there; what it got, by its conversations."""
    got: defaultdict[Any, list[str]] = defaultdict(list)
    with broker.reader(region.capitalize(), timeout=2.0) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    got[message.dialog.id].append(message.body.decode())
                    transaction.send(message.dialog, RECEIPT, f"{region} {message.body.decode()}".encode())
    return dict(got)


def test_two_initiators_two_routers_three_targets_and_a_kill_in_every_step(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    with connected(servers.bootstrap, database) as one, connected(servers.bootstrap, database) as two:
        open_shop(one, partitions=2)
        open_regions(one)
        one.create_queue("WebShop")
        one.create_service("//sales/WebShop", queue="WebShop")
        dialogs = [
            broker.begin_dialog(service, ORDER_SERVICE, ORDERING)
            for broker, service in zip((one, two), INITIATORS, strict=True)
            for _ in range(DIALOGS)
        ]

        def router(partition: int, **options: Any) -> Worker:
            """The router of a partition; who commits little at a time can die in the middle."""
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
            workers = [router(place, die_at=point, idle_s=None) for place, point in enumerate(points)]
            for worker in workers:
                with worker:
                    assert worker.wait(90) == -9, (worker.job.die_at, worker.events)
        for worker in [router(0), router(1)]:
            with worker:
                assert worker.wait(90) == 0, worker.events

        arrived: dict[int, str] = {}
        for region in REGIONS:
            for bodies in answered(one, region).values():
                which = int(bodies[0].split()[0])
                assert bodies == [f"{which} {number}" for number in range(len(rounds))], "once, in order, together"
                assert arrived.setdefault(which, region) == region
        assert sorted(arrived) == [*range(len(dialogs))]

        for worker in [router(0), router(1)]:
            with worker:
                assert worker.wait(90) == 0, worker.events
        replies: defaultdict[Any, list[str]] = defaultdict(list)
        for queue in INITIATORS.values():
            for message in receive(one, queue, DIALOGS * len(rounds)):
                replies[message.dialog.id].append(message.body.decode())
        for which, dialog in enumerate(dialogs):
            assert replies[dialog.id] == [f"{arrived[which]} {which} {number}" for number in range(len(rounds))]
        _, findings = one.verification(one.catalog.all(Queue)).run()
        assert findings == []
