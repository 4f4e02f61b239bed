"""Workers and servers that stop together, as with `docker compose down` or Ctrl-C in a terminal with both."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil
import pytest

from konverse.deploy import StackSettings
from tests.conftest import NewStack
from tests.kit.answering import Run
from tests.kit.servers import Servers
from tests.kit.shop import connected, open_shop, sent

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


def test_a_worker_that_stops_together_with_its_servers_logs_no_line_of_the_client_about_refused_connections(
    new_stack: NewStack, tmp_path: Path
) -> None:
    """What konverse itself says, that Kafka did not acknowledge its last work, stays."""
    stack = new_stack(StackSettings())
    servers = Servers(stack.bootstrap, stack.redis_url, "local", "local", stack)
    with connected(servers.bootstrap, "shop") as broker:
        open_shop(broker)
        sent(broker, b"order")
    with Run(servers, "shop", tmp_path, "--grace", "5") as worker:
        worker.handled(1)
        process = psutil.Process(worker.process.pid)
        stopping = threading.Thread(target=stack.stop)
        for one in (*process.children(), process):
            one.terminate()
        stopping.start()
        worker.wait()
        stopping.join()
    assert worker.said("stopping"), worker.text
    assert [line for line in worker.said("refused") if line["logger"] == "konverse.kafka"] == []
