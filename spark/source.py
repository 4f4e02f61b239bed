"""`format("konverse")`: the messages of a queue as a DataFrame, and the rows of a DataFrame as messages.

Spark finds the format by itself (module `pyspark_konverse`). This module loads with any pyspark that has Python data
sources. A version too old for konverse is therefore reported by NotInstalled when the format is used, and other
formats keep working.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from konverse.spark.connection.requirements import missing, require

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

    from konverse.spark.connection.settings import ConnectionSettings
    from konverse.spark.log.columns import Column

_WRITE_PLANNER: Final = "pyspark.sql.worker.write_into_data_source"


class KonverseDataSource(DataSource):
    """The format `konverse`. Option `mode` selects the rows that a read gives; a row that is written is a message.

    Options and columns: docs/spark.md.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        require()
        from konverse.spark.connection.settings import parse  # noqa: PLC0415  # after `require`
        from konverse.spark.write.settings import FROM_SERVICE  # noqa: PLC0415  # as above

        super().__init__(options)
        self._writes = FROM_SERVICE in options or _is(_WRITE_PLANNER)
        if not self._writes:
            self._known = parse(options)

    @property
    def _settings(self) -> ConnectionSettings:
        """Settings of a reader; InvalidSettings when the options are those of a writer."""
        if self._writes:
            from konverse.schemas.errors import InvalidSettings  # noqa: PLC0415  # as above
            from konverse.spark.write.settings import FROM_SERVICE  # noqa: PLC0415  # as above

            raise InvalidSettings(
                f"option {FROM_SERVICE!r} belongs to a write, but these options are used to read: remove it, or "
                "write with frame.write.format('konverse'). A view cannot be written to (INSERT INTO)"
            )
        return self._known

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)` and `USING`."""
        return "konverse"

    def schema(self) -> str:
        """The columns of the mode; for messages, `include` adds some. A reader may select columns by `.schema(...)`."""
        from konverse.spark.connection.settings import Mode  # noqa: PLC0415  # as above
        from konverse.spark.log.columns import COLUMNS, GROUP, VERDICT  # noqa: PLC0415  # as above

        if self._settings.mode is Mode.CONVERSATIONS:
            from konverse.spark.read.conversations import COLUMNS as SIDES  # noqa: PLC0415  # as above

            return _sql(SIDES, SIDES)
        if self._settings.mode is Mode.RETURNED:
            from konverse.spark.read.returned import COLUMNS as RETURNED  # noqa: PLC0415  # as above

            return _sql(RETURNED, RETURNED)
        if self._settings.mode is Mode.JOURNAL:
            from konverse.spark.log.decisions import ACCEPTED_COLUMNS as COUNTING  # noqa: PLC0415  # as above
            from konverse.spark.log.decisions import COLUMNS as DECISIONS  # noqa: PLC0415  # as above

            return _sql(DECISIONS, DECISIONS if self._settings.include_all else COUNTING)
        asked = {GROUP: self._settings.include_groups, VERDICT: self._settings.include_all}
        return _sql(COLUMNS, (name for name in COLUMNS if asked.get(name, True)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        from konverse.spark.connection.settings import Mode  # noqa: PLC0415  # as above
        from konverse.spark.read.reader import MessagesReader  # noqa: PLC0415  # as above

        if self._settings.mode is Mode.CONVERSATIONS:
            from konverse.spark.read.conversations import ConversationsReader  # noqa: PLC0415  # as above

            return ConversationsReader(self._settings, schema)
        if self._settings.mode is Mode.RETURNED:
            from konverse.spark.read.returned import ReturnedReader  # noqa: PLC0415  # as above

            return ReturnedReader(self._settings, schema)
        if self._settings.mode is Mode.JOURNAL:
            from konverse.spark.read.journal import JournalReader  # noqa: PLC0415  # as above

            return JournalReader(self._settings, schema)
        return MessagesReader(self._settings, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001  # Spark's own
        """A batch write."""
        from konverse.spark.write.settings import parse_writer  # noqa: PLC0415  # as above

        settings = parse_writer(self.options)
        from konverse.spark.write.sink import BatchWriter  # noqa: PLC0415  # as above, and it brings the bridge with it

        return BatchWriter(settings, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001  # as above
        """A streaming write."""
        from konverse.spark.write.settings import parse_writer  # noqa: PLC0415  # as above

        settings = parse_writer(self.options, streaming=True)
        from konverse.spark.write.sink import StreamWriter  # noqa: PLC0415  # as above, and it brings the bridge with it

        return StreamWriter(settings, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read; NotInstalled with a pyspark before 4.2, which does not say where a micro-batch starts."""
        from konverse.spark.connection.settings import Mode  # noqa: PLC0415  # as above

        try:
            from konverse.spark.read.journal_stream import JournalStreamReader  # noqa: PLC0415  # as above
            from konverse.spark.read.stream import MessagesStreamReader  # noqa: PLC0415  # as above
        except ImportError as error:
            raise missing(f"pyspark {_STREAMS_SINCE} or newer for streams") from error
        if self._settings.mode is Mode.JOURNAL:
            return JournalStreamReader(self._settings, schema)
        return MessagesStreamReader(self._settings, schema)


_STREAMS_SINCE: Final = "4.2"


def _sql(columns: Mapping[str, Column[Any]], names: Iterable[str]) -> str:
    """Columns as a schema string of Spark. The type `timestamp` alone would follow spark.sql.timestampType."""
    types = {"timestamp": "timestamp_ltz"}
    return ", ".join(f"`{name}` {types.get(columns[name].sql, columns[name].sql)}" for name in names)


def _is(worker: str) -> bool:
    """Whether this process is Spark's worker of that name."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return worker in sys.modules or (main is not None and main.name == worker)
