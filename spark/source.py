"""`format("konverse")`: the messages of a queue as a DataFrame, and the rows of a DataFrame as messages.

Spark finds the format by itself (module `pyspark_konverse`). This module loads with any pyspark that knows Python data
sources, so that one too old for us is told so by an error of ours and disturbs nobody else's format.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Final

from .requirements import missing, require

try:
    from pyspark.sql.datasource import DataSource
except ImportError as error:
    raise missing("pyspark 4.1 or newer") from error

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

_PUSHDOWN_PLANNER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
_WRITE_PLANNER: Final = "pyspark.sql.worker.write_into_data_source"


class KonverseDataSource(DataSource):
    """Messages of a queue or topic, or to services. Options and columns: docs/spark.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        require()
        from .settings import parse  # noqa: PLC0415  # after `require`
        from .write_settings import FROM_SERVICE  # noqa: PLC0415  # as above

        super().__init__(options)
        self._writes = FROM_SERVICE in options or _is(_WRITE_PLANNER)
        if not self._writes:
            self._settings = parse(options)

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)` and `USING`."""
        return "konverse"

    def schema(self) -> str:
        """The columns; `verdict` with `include` = `all` only. A reader may ask for some of them by `.schema(...)`."""
        from .columns import ACCEPTED_COLUMNS, ALL_COLUMNS, COLUMNS  # noqa: PLC0415  # as above
        from .settings import Mode  # noqa: PLC0415  # as above

        if self._settings.mode is Mode.CONVERSATIONS:
            from .conversations import COLUMNS as SIDES  # noqa: PLC0415  # as above

            return ", ".join(f"`{name}` {column.sql}" for name, column in SIDES.items())
        names = ALL_COLUMNS if self._settings.include_all else ACCEPTED_COLUMNS
        return ", ".join(f"`{name}` {COLUMNS[name].sql}" for name in names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        from .reader import FilteredMessagesReader, MessagesReader  # noqa: PLC0415  # as above
        from .settings import Mode  # noqa: PLC0415  # as above

        if self._settings.mode is Mode.CONVERSATIONS:
            from .conversations import ConversationsReader  # noqa: PLC0415  # as above

            return ConversationsReader(self._settings, schema)
        return (FilteredMessagesReader if _pushes_filters() else MessagesReader)(self._settings, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001  # Spark's own
        """A batch write."""
        from .sink import BatchWriter  # noqa: PLC0415  # as above
        from .write_settings import parse_writer  # noqa: PLC0415  # as above

        return BatchWriter(parse_writer(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001  # as above
        """A streaming write."""
        from .sink import StreamWriter  # noqa: PLC0415  # as above
        from .write_settings import parse_writer  # noqa: PLC0415  # as above

        return StreamWriter(parse_writer(self.options), schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read; NotInstalled with a pyspark that does not say where a micro-batch starts."""
        try:
            from .stream import MessagesStreamReader  # noqa: PLC0415  # as above
        except ImportError as error:
            raise missing(f"pyspark {_STREAMS_SINCE} or newer for streams") from error
        return MessagesStreamReader(self._settings, schema)


_STREAMS_SINCE: Final = "4.2"


def _pushes_filters() -> bool:
    """Whether Spark asks for push-down just now: it refuses a reader that could while its setting is off."""
    return _is(_PUSHDOWN_PLANNER)


def _is(worker: str) -> bool:
    """Whether this process is Spark's worker of that name."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return worker in sys.modules or (main is not None and main.name == worker)
