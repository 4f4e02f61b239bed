"""Column names by Spark's rule: `Body` and `body` are one name unless `spark.sql.caseSensitive` is true."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CASE_SENSITIVE: Final = "spark.sql.caseSensitive"
"""A setting of the session. Spark hands it on to tasks as a local property."""


def spelled(frame: DataFrame, names: Iterable[str]) -> DataFrame:
    """The frame with its columns in the spelling of `names`, where Spark takes both spellings for one name."""
    found = frame.columns
    ours = spellings(found, names)
    if ours == found or is_true(frame.sparkSession.conf.get(CASE_SENSITIVE, "false")):
        return frame
    return frame.toDF(*ours)


def spellings(found: Iterable[str], names: Iterable[str]) -> list[str]:
    """The names of `found`, each in the spelling of `names` where it differs from one of them by case alone."""
    known = {name.lower(): name for name in names}
    return [known.get(name.lower(), name) for name in found]


def is_true(value: str | None) -> bool:
    """Whether a setting has the value true, in any case."""
    return value is not None and value.strip().lower() == "true"
