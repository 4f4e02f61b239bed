"""The process from which Spark forks Python workers, with konverse imported: `spark.python.daemon.module`.

A worker of Spark's own daemon imports the bridge, Arrow and pandas before its first row, which takes a second. It also
reads the directories of all archives on its path again, Spark's own among them, which takes a seventh of a second.
"""

from __future__ import annotations

import gc
import sys

import pandas as pd  # pyarrow imports it with its first array
from pyspark import worker
from pyspark.daemon import manager

from . import verifier_job
from .read import conversations, reader
from .receive import mapping
from .write import sink

PRELOADED = (worker, pd, conversations, mapping, reader, sink, verifier_job)


def forget_archives() -> None:
    """Drop the cached finders of archives, each of which a worker would check for changes.

    Python makes a finder again when an import needs it.
    """
    for path in [path for path in sys.path_importer_cache if path.endswith((".jar", ".zip"))]:
        del sys.path_importer_cache[path]


if __name__ == "__main__":
    forget_archives()
    gc.freeze()  # keeps the memory of imported modules shared with the workers
    manager()
