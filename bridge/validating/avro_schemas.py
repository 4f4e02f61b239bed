"""Avro's binary encoding of one datum, nothing before and nothing behind it, by fastavro."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException, UnknownType

from konverse.schemas.errors import InvalidSchema

from .rules import Check, loaded


def check_of(documents: Sequence[str]) -> Check:
    """A check of bodies by this schema; InvalidSchema when it is none, or names what is not in it."""
    given: Any = loaded(documents[0])
    try:
        schema = parse_schema(given)
    except UnknownType as error:
        raise InvalidSchema(f"the Avro schema names {error.name!r}, which is not in it; nothing is fetched") from None
    except (SchemaParseException, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidSchema(f"the Avro schema cannot be used: {error!r}") from None

    def fault(body: bytes) -> str:
        source = BytesIO(body)
        try:
            schemaless_reader(source, schema, None)
        except (MemoryError, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001  # fastavro raises a dozen types for broken input; they all mean this
            return f"no datum of its Avro schema: {error!r}"
        rest = len(body) - source.tell()
        return f"{rest} bytes behind the datum of its Avro schema" if rest else ""

    return fault
