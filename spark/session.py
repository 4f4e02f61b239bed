"""A local Spark session with settings that suit konverse, and how Spark finds the format."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Final

from konverse.spark.connection.requirements import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DISCOVERED: Final = "pyspark_konverse"
"""The module by which Spark finds the format."""

DAEMON: Final = "konverse.spark.daemon"
"""The module from which Spark forks its Python workers. Every executor needs konverse in any case."""

TASK_ATTEMPTS: Final = 4
"""Executions of a task before the query fails, as on a cluster: a worker that dies does not end a query."""


def local_session(  # noqa: PLR0913  # each has a default that suits
    app: str,
    *,
    cores: int = 2,
    master: str | None = None,
    java_home: str | os.PathLike[str] | None = None,
    memory: str = "1g",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session on this machine (or at `master`), with few shuffle partitions and without Spark's web UI.

    `java_home`: a Java 17 or newer; by default JAVA_HOME, else the `java` on PATH. `memory` is the driver's heap.
    `config` holds further Spark settings and overrides those made here. Workers run the Python of this process. Raises
    NotInstalled when the extra `spark` is missing.
    """
    require()
    from pyspark.sql import SparkSession  # noqa: PLC0415  # it may be absent, and `require` has said how to get it

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if java_home is not None:
        os.environ["JAVA_HOME"] = str(Path(java_home))
    make_discoverable()
    settings = {
        "spark.driver.memory": memory,
        "spark.python.daemon.module": DAEMON,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(config or {}),
    }
    builder = SparkSession.builder.master(master or f"local[{cores},{TASK_ATTEMPTS}]").appName(app)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def make_discoverable() -> None:
    """Add the folder of `pyspark_konverse` to PYTHONPATH, unless Spark finds the module without that.

    Spark searches the folders of `sys.path`; an editable installation is found by an import hook instead. Affects only
    sessions that are started afterwards.
    """
    found = find_spec(DISCOVERED)
    if found is None or found.origin is None or any(module.name == DISCOVERED for module in iter_modules()):
        return
    folder = str(Path(found.origin).parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, paths)])
