"""Spark's standalone cluster on this machine: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pyspark

from konverse.deploy.host.ports import free_port
from konverse.deploy.java.java import find_java, spark_java_home
from tests.kit import until

_DEPLOY: Final = "org.apache.spark.deploy"
_SPARK_HOME: Final = Path(pyspark.__file__).parent

HERE: Final = "127.0.0.1"
HOSTS: Final = (HERE, "127.0.0.2")
"""Hosts of the workers, in turn. Spark takes each for a machine, and speculates only across machines."""


@contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """Run a master and `workers` workers with one core each; yields its URL. Logs and work go to `folder`."""
    port = free_port(())
    url = f"spark://{HERE}:{port}"
    with ExitStack() as exits:
        exits.enter_context(_process(folder, "master", HERE, f"{_DEPLOY}.master.Master", "--port", str(port)))
        for number in range(workers):
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{number}"))
            host = HOSTS[number % len(HOSTS)]
            exits.enter_context(_process(folder, f"worker{number}", host, f"{_DEPLOY}.worker.Worker", *size, url))
        log = folder / "master.log"
        until(lambda: log.read_text().count("Registering worker") == workers, deadline_s=60.0)
        yield url


@contextmanager
def _process(folder: Path, name: str, host: str, main: str, *arguments: str) -> Iterator[None]:
    command = [str(_SPARK_HOME / "bin" / "spark-class"), main, "--host", host, "--webui-port", "0", *arguments]
    environ = {
        **os.environ,
        "JAVA_HOME": str(spark_java_home(find_java())),
        "SPARK_HOME": str(_SPARK_HOME),
        "SPARK_LOCAL_IP": host,
        "PYSPARK_PYTHON": sys.executable,
    }
    with (
        (folder / f"{name}.log").open("w") as log,
        subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True) as process,
    ):
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def executor_of(python_worker: int) -> int:
    """Pid of the executor of a Python worker: its nearest ancestor that is Java."""
    parent = python_worker
    while True:
        parent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
        if "java" in Path(f"/proc/{parent}/comm").read_text():
            return parent
