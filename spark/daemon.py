"""What Spark forks Python workers from, with all in it that konverse's tasks need: `spark.python.daemon.module`.

A worker of Spark's own daemon imports the bridge, Arrow and pandas before its first row, which takes it a second. And
it reads the directories of all archives on its path anew, Spark's own among them, which takes it a seventh of one.
"""

from __future__ import annotations

import gc
import sys

import pandas as pd  # pyarrow asks for it when it first makes an array
from pyspark import worker
from pyspark.daemon import manager

from . import verifying
from .read import conversations, reader
from .receive import mapping
from .write import sink

PRELOADED = (worker, pd, conversations, mapping, reader, sink, verifying)


def forget_archives() -> None:
    """Leave workers no finder of an archive to ask for changes. One that is needed after all is made anew."""
    for path in [path for path in sys.path_importer_cache if path.endswith((".jar", ".zip"))]:
        del sys.path_importer_cache[path]


if __name__ == "__main__":
    forget_archives()
    gc.freeze()  # what is here stays, and is shared with the workers
    manager()
