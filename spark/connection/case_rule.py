"""Names of columns by Spark's rule: `Body` and `body` are one unless `spark.sql.caseSensitive` is true."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CASE_SENSITIVE: Final = "spark.sql.caseSensitive"
"""A setting of the session. Spark hands it on to tasks as a local property."""


def spelled(frame: DataFrame, names: Iterable[str]) -> DataFrame:
    """The frame, with those of its columns that Spark takes for these under exactly these names."""
    found = frame.columns
    ours = spellings(found, names)
    if ours == found or is_true(frame.sparkSession.conf.get(CASE_SENSITIVE, "false")):
        return frame
    return frame.toDF(*ours)


def spellings(found: Iterable[str], names: Iterable[str]) -> list[str]:
    """Each name that was found as it stands in `names`, where it differs from one there by case alone."""
    known = {name.lower(): name for name in names}
    return [known.get(name.lower(), name) for name in found]


def is_true(value: str | None) -> bool:
    """Of a setting."""
    return value is not None and value.strip().lower() == "true"
