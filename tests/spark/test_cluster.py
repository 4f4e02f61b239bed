"""A Spark cluster of several processes: local operations also work there, and survive the death of an executor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from konverse.bridge.broker import Broker
from konverse.deploy.java.java import find_java, spark_java_home
from tests.kit import until
from tests.kit.servers import Servers
from tests.kit.shop import drain
from tests.kit.spark_cluster import executor_of, spark_cluster
from tests.spark import speculating_job
from tests.spark.cluster_job import ORDERS

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(400),
]

ROOT = Path(__file__).resolve().parents[2]


def test_orders_are_written_answered_and_verified_by_a_cluster_that_loses_an_executor(
    servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    with spark_cluster(tmp_path) as url:
        command = [sys.executable, "-m", "tests.spark.cluster_job", url, servers.bootstrap, database, str(tmp_path)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
            until((tmp_path / "working").exists, deadline_s=120.0)
            os.kill(executor_of(int((tmp_path / "working").read_text())), signal.SIGKILL)
            (tmp_path / "killed").touch()
            said, complained = job.communicate(timeout=200)
        assert job.returncode == 0, complained[-3_000:]
        assert json.loads(said.splitlines()[-1]) == {"receipts": ORDERS, "orders": ORDERS}
        konverse = Path(sys.executable).with_name("konverse")
        where = ("--kafka", f"kafka://{servers.bootstrap}", "--database", database)
        done = subprocess.run(
            [konverse, "verify", "--spark", "--master", url, *where, "--json"],
            env=os.environ | {"JAVA_HOME": str(spark_java_home(find_java()))},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert json.loads(done.stdout)["holds"]


@pytest.mark.usefixtures("transmitting")
def test_tasks_run_twice_by_speculation_count_once(
    servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    with spark_cluster(tmp_path) as url:
        command = [sys.executable, "-m", "tests.spark.speculating_job", url, servers.bootstrap, database, str(tmp_path)]
        job = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert job.returncode == 0, job.stderr[-3_000:]
    orders = speculating_job.ORDERS
    done = {"messages": orders, "replies": orders, "ends": 0, "failed": 0}
    assert json.loads(job.stdout.splitlines()[-1]) == {
        "twice": ["reading", "receiving", "writing"],
        "rows": orders,
        "read": orders,
        "done": done,
    }
    receipts = [message.body for message in drain(shop, "Shop")]
    assert sorted(receipts) == sorted(b"order %d" % number for number in range(orders))
    assert drain(shop, "Orders") == []
