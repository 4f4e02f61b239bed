"""A routing table that a function loads as a frame, again and again: key -> service. Spark joins it as a whole.

One version of it classifies a batch. A conversation keeps the service of its first message, whatever the table says
later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from konverse.schemas.errors import InvalidSettings
from konverse.schemas.limits import ROUTING_TABLE_ENTRIES_MAX
from konverse.spark.connection.case_rule import spelled
from konverse.spark.receive.answers import RECEIPT

from .catalog_table import INSTANCE, KEY, TO_SERVICE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log: Final = logging.getLogger("konverse.spark")


class RoutingTable:
    """A classifier that looks the message's key up in a loaded table."""

    title: Final = "a routing table that is loaded"

    def __init__(
        self,
        load: Callable[[], DataFrame],
        key: str,
        every_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._key = key
        self._every_s = every_s
        self._clock = clock
        self._rows: pa.Table | None = None
        self._due_s = 0.0
        self.version = 0
        """Number of the present content; the first one is 1."""

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The receipts of the frame's messages with the service of their key; a reason for those without one.

        Raises InvalidSettings when the table was never loaded.
        """
        from pyspark.sql import functions as f  # noqa: PLC0415  # tasks import this module, and do without Spark

        table = frame.sparkSession.createDataFrame(self._current())
        keyed = frame.select(RECEIPT, f.expr(self._key).cast("string").alias(KEY))
        reason = f.format_string(
            f"The routing table (version {self.version}) has no service for key '%s'.", f.coalesce(KEY, f.lit("null"))
        )
        found = keyed.join(f.broadcast(table), KEY, "left")
        return found.select(RECEIPT, TO_SERVICE, INSTANCE, reason.alias("reason"))

    def _current(self) -> pa.Table:
        """The table, loaded again when it is due. If loading fails, the version before stays in use."""
        now_s = self._clock()
        if self._rows is not None and now_s < self._due_s:
            return self._rows
        try:
            rows = _checked(self._load())
        except Exception as error:
            if self._rows is None:
                raise InvalidSettings(f"the routing table cannot be read: {error}") from error
            log.warning("the routing table could not be read again; version %d stays: %s", self.version, error)
        else:
            if self._rows is None or not rows.equals(self._rows):
                self._rows = rows
                self.version += 1
                log.info("version %d of the routing table has %d keys", self.version, rows.num_rows)
        self._due_s = self._clock() + self._every_s
        return self._rows


def _checked(frame: DataFrame) -> pa.Table:
    """The rows of a table, sorted by key. InvalidSettings names the column or the key that is wrong."""
    from pyspark.sql import functions as f  # noqa: PLC0415  # as above

    frame = spelled(frame, (KEY, TO_SERVICE, INSTANCE))
    names = frame.columns
    for name in (KEY, TO_SERVICE):
        if name not in names:
            raise InvalidSettings(f"it has no column {name!r}, only {', '.join(names)}")
        kind = frame.schema[name].dataType.simpleString()
        if kind != "string":
            raise InvalidSettings(f"its column {name!r} is {kind}; cast it to string")
    instance = f.col(INSTANCE).cast("string") if INSTANCE in names else f.lit(None).cast("string")
    wanted = frame.select(KEY, TO_SERVICE, instance.alias(INSTANCE))
    rows: Any = wanted.limit(ROUTING_TABLE_ENTRIES_MAX + 1).toArrow()
    if rows.num_rows > ROUTING_TABLE_ENTRIES_MAX:
        raise InvalidSettings(f"it has more than {ROUTING_TABLE_ENTRIES_MAX} rows: join it by a function of your own")
    counts = pc.value_counts(rows.column(KEY).drop_null().combine_chunks())  # a null key matches no message
    twice = [row["values"].as_py() for row in counts if row["counts"].as_py() > 1]
    if twice:
        raise InvalidSettings(f"it has key {min(twice)!r} more than once, so a message would have two services")
    return rows.sort_by(KEY).combine_chunks()
