"""Bodies of one message type as columns, by the schema of the type in the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from konverse.bridge.validation.rules import SchemaRule
from konverse.bridge.validation.validator import BodyFinding, EncodedRule, Validator
from konverse.schemas.catalog.objects import Validation
from konverse.schemas.errors import InvalidSettings
from konverse.spark.connection.case_rule import spelled
from konverse.spark.connection.clients import schema_of
from konverse.spark.connection.settings import parse

from .shapes import Parser, Unfit, Unmapped

VALUE: Final = "value"
FAULT: Final = "fault"
"""VALUE and FAULT: the columns that are added."""

NEEDED: Final = ("message_type", "body")

MODULES: Final = {
    Validation.VALID_XML: "konverse.spark.bodies.xml_shapes",
    Validation.JSON_SCHEMA: "konverse.spark.bodies.json_shapes",
    Validation.AVRO: "konverse.spark.bodies.avro_shapes",
}


def typed_rows(frame: DataFrame, message_type: str, options: Mapping[str, str], root: str | None) -> DataFrame:
    """The rows of one message type with `value` and `fault`; raises the errors of `konverse.spark.typed`."""
    frame = spelled(frame, (*NEEDED, VALUE, FAULT))
    for name in NEEDED:
        if name not in frame.columns:
            raise InvalidSettings(f"the frame lacks the column {name!r}; select it together with the others")
    for name in (VALUE, FAULT):
        if name in frame.columns:
            raise InvalidSettings(f"the frame has a column {name!r} already; rename it with withColumnRenamed")
    settings = parse(options)
    if settings.queue is None:
        raise InvalidSettings("a bare topic names no catalog; give 'queue' and its 'database' instead of 'topic'")
    rule = schema_of(settings, message_type)
    try:
        parser = parser_of(rule, root)
    except Unmapped as error:
        raise InvalidSettings(
            f"bodies of message type {message_type!r} do not fit a column: in its schema {error}"
        ) from None
    added = [StructField(VALUE, from_arrow_type(parser.arrow)), StructField(FAULT, StringType())]
    schema = StructType([*frame.schema.fields, *added])
    return frame.where(frame["message_type"] == message_type).mapInArrow(_BodyParser(rule, root), schema)


@lru_cache(maxsize=8)
def parser_of(rule: SchemaRule, root: str | None) -> Parser:
    """The parser for bodies of this schema. Raises Unmapped."""
    made: Parser = import_module(MODULES[rule.validation]).parser_of(rule.documents, root)
    return made


class _BodyParser:
    """Adds both columns to the batches of a task."""

    def __init__(self, rule: SchemaRule, root: str | None) -> None:
        self._rule = rule
        self._root = root

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parser, known = parser_of(self._rule, self._root), EncodedRule.of(self._rule)
        for batch in batches:
            bodies = [body or b"" for body in batch.column("body").to_pylist()]
            read = [_read(parser, *both) for both in zip(bodies, _findings(known, bodies), strict=True)]
            values, faults = _columns(parser, [value for value, _ in read], [fault for _, fault in read])
            arrays = [*batch.columns, values, pa.array(faults, pa.string())]
            yield pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, VALUE, FAULT])


_VALIDATORS: Final[list[Validator]] = []
"""The validator of this process, once there is one. It validates in a process of its own, which ends with this one."""


def _findings(known: EncodedRule, bodies: Sequence[bytes]) -> list[BodyFinding]:
    """The validator's finding on each body."""
    if not _VALIDATORS:
        _VALIDATORS.append(Validator())
    return _VALIDATORS[0].validate_each(known, bodies)


def _read(parser: Parser, body: bytes, finding: BodyFinding) -> tuple[Any, str | None]:
    """The value of a body, or its fault."""
    if finding.fault:
        return None, finding.fault
    try:
        return parser.parse(body), None
    except Unfit as error:
        return None, str(error)
    except (OverflowError, TypeError, ValueError) as error:  # one body must not fail the query
        return None, f"a value does not fit its column: {error}"


def _columns(parser: Parser, values: list[Any], faults: list[str | None]) -> tuple[pa.Array, list[str | None]]:
    """The column of values, and the faults. If some value does not fit the type, each is tried separately."""
    try:
        return pa.array(values, parser.arrow), faults
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass
    for place, value in enumerate(values):
        try:
            pa.array([value], parser.arrow)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            values[place], faults[place] = None, f"a value does not fit its column: {error}"
    return pa.array(values, parser.arrow), faults
