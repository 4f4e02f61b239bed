"""A routing table of the catalog as a classifier: the same table that router services and `konverse table` use.

Spark joins the table to the messages. A batch is classified by the version that this process has when it begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from konverse.bridge.catalog.catalog import ROUTED_FRESH_EVERY_S, Catalog
from konverse.schemas.catalog.routing_tables import RoutingTable
from konverse.schemas.errors import InvalidSettings
from konverse.spark.receive.answers import RECEIPT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = "key"
TO_SERVICE: Final = "to_service"
INSTANCE: Final = "broker_instance"

_ROWS: Final = pa.schema([(KEY, pa.string()), (TO_SERVICE, pa.string()), (INSTANCE, pa.string())])


class CatalogTable:
    """A classifier that looks a key up in a routing table of the catalog, by the table's name."""

    def __init__(self, name: str, key: str, catalog: Catalog | None = None) -> None:
        """`key` is a SQL expression over the columns of a message."""
        self.title = f"routing table {name!r} of the catalog"
        self._name = name
        self._key = key
        self._catalog = catalog
        self._known: RoutingTable | None = None
        self._rows: Any = _ROWS.empty_table()

    def bound(self, catalog: Catalog) -> CatalogTable:
        """The classifier with the catalog that has the table. Raises RoutingTableNotFound."""
        catalog.get(RoutingTable, self._name)
        catalog.refresh_every(ROUTED_FRESH_EVERY_S)
        return CatalogTable(self._name, self._key, catalog)

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The receipts of the frame's messages with the service of their key; a reason for those without one.

        Raises RoutingTableNotFound, InvalidSettings.
        """
        from pyspark.sql import functions as f  # noqa: PLC0415  # tasks import this module, and do without Spark

        table = self._current()
        entries = frame.sparkSession.createDataFrame(self._rows)
        keyed = frame.select(RECEIPT, f.nullif(f.expr(self._key).cast("string"), f.lit("")).alias(KEY))
        found = keyed.join(f.broadcast(entries), KEY, "left")
        service, instance = f.col(TO_SERVICE), f.col(INSTANCE)
        if table.default is not None:
            by_default = service.isNull() & f.col(KEY).isNotNull()
            instance = f.when(by_default, f.lit(table.default.broker_instance)).otherwise(instance)
            service = f.when(by_default, f.lit(table.default.service)).otherwise(service)
        which = f"Routing table {table.name!r} (version {table.version}) has no service for key '"
        unknown = f.concat(f.lit(which), f.col(KEY), f.lit("'."))
        reason = f.coalesce(unknown, f.lit("The message has no key."))
        return found.select(RECEIPT, service.alias(TO_SERVICE), instance.alias(INSTANCE), reason.alias("reason"))

    def _current(self) -> RoutingTable:
        """The current version of the table. Makes its rows when the version has changed."""
        if self._catalog is None:
            raise InvalidSettings(f"routing table {self._name!r} is in a catalog: give this classifier to `route`")
        table = self._catalog.get(RoutingTable, self._name)
        if table is not self._known:
            targets = table.entries.values()
            columns = [[*table.entries], [each.service for each in targets], [each.broker_instance for each in targets]]
            self._rows = pa.table(dict(zip(_ROWS.names, columns, strict=True)), _ROWS)
            self._known = table
        return table
