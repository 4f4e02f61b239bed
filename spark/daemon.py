"""What Spark forks Python workers from, with all in it that konverse's tasks need: `spark.python.daemon.module`.

A worker of Spark's own daemon imports the bridge, Arrow and pandas before its first row, which takes it a second.
"""

from __future__ import annotations

import gc

import pandas as pd  # pyarrow asks for it when it first makes an array
from pyspark import worker
from pyspark.daemon import manager

from . import conversations, delivering, mapping, reader, verifying

PRELOADED = (worker, pd, conversations, delivering, mapping, reader, verifying)

if __name__ == "__main__":
    gc.freeze()  # what is here stays, and is shared with the workers
    manager()
