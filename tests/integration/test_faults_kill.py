"""A worker dies with SIGKILL at every point of its work; the next one finishes, and the logs prove exactly once."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.oracle import executions, prove_exactly_once
from tests.kit.servers import Servers
from tests.kit.shop import connected, open_shop, queue_of, send_orders
from tests.kit.workers import POINTS, Job, Worker, read_diary

pytestmark = pytest.mark.stack

TWICE = ("handler", "COMMIT")
"""Points that every batch of orders passes; the first occurrence is skipped."""


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_killed_at_any_point_loses_and_doubles_nothing(
    servers: Servers, database: str, tmp_path: Path, point: str
) -> None:
    job = Job(
        servers.bootstrap,
        database,
        str(tmp_path / "diary"),
        partitions=[0],
        batch=2,
        settings={"redis": servers.redis_url},
        snapshot_every=10,
        die_at=point,
        die_on=2 if any(word in point for word in TWICE) else 1,
    )
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        sent = send_orders(broker, dialogs=8, messages=24)
        with Worker(job) as first:
            assert first.wait() == -signal.SIGKILL, first.errors
            assert [event["point"] for event in first.said("dies")] == [point]
        sent |= send_orders(broker, dialogs=2, messages=4)
        with Worker(replace(job, idle_s=1.0, die_at="")) as second:
            assert second.wait() == 0, second.errors
            assert second.said("done")
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
    assert (proof.messages, proof.replies) == (28, 28)
    assert proof.claims == 2
    for (conversation, sequence), runs in executions(read_diary(tmp_path / "diary")).items():
        assert len({run["id"] for run in runs}) == 1, f"message {sequence} of {conversation} changed its id"
        assert len({run["nonce"] for run in runs}) == len(runs)
