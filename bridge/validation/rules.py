"""`SchemaRule`, a schema that bodies are validated against, and the choice of the module that reads it.

A check is a function that takes a body and returns a text about its fault, or an empty text. A schema is never fetched:
one that refers to another document is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from importlib import import_module
from typing import Final, NamedTuple

from konverse.schemas.catalog.objects import Validation
from konverse.schemas.errors import InvalidSchema

Check = Callable[[bytes], str]


class SchemaRule(NamedTuple):
    """A schema and its kind."""

    validation: Validation
    documents: tuple[str, ...]
    """For VALID_XML all documents of the collection; else one schema."""

    def encoded(self) -> bytes:
        """The rule as bytes, for the validation process."""
        return json.dumps([self.validation, *self.documents], ensure_ascii=False).encode()


def decoded(data: bytes) -> SchemaRule:
    """The inverse of `SchemaRule.encoded`."""
    validation, *documents = json.loads(data)
    return SchemaRule(Validation(validation), tuple(documents))


def digest_of(encoded: bytes) -> bytes:
    """SHA-256 of an encoded rule: its key in the validation process."""
    return sha256(encoded).digest()


class MissingLibrary(Exception):
    """The library for this kind of schema is not installed."""


NEEDED: Final = {
    Validation.VALID_XML: ("lxml.etree", "lxml"),
    Validation.JSON_SCHEMA: ("jsonschema_rs", "jsonschema-rs"),
    Validation.AVRO: ("fastavro", "fastavro"),
}
"""Kind of schema -> module of the library that reads it, and its distribution."""

MODULES: Final = {
    Validation.VALID_XML: "konverse.bridge.validation.xml_schemas",
    Validation.JSON_SCHEMA: "konverse.bridge.validation.json_schemas",
    Validation.AVRO: "konverse.bridge.validation.avro_schemas",
}
"""Kind of schema -> module of this package that makes its checks."""


def check_of(rule: SchemaRule) -> Check:
    """Read a rule's schema and make its check. Raises InvalidSchema, MissingLibrary."""
    module, distribution = NEEDED[rule.validation]
    try:
        import_module(module)
    except ImportError as error:
        raise MissingLibrary(
            f"bodies cannot be validated against a schema ({rule.validation}) without {distribution} ({error}): "
            "pip install 'konverse[validation]'"
        ) from None
    made: Check = import_module(MODULES[rule.validation]).check_of(rule.documents)
    return made


def loaded(text: str) -> object:
    """Parse a schema that is written in JSON. Raises InvalidSchema."""
    try:
        return json.loads(text)
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None
    except ValueError as error:
        raise InvalidSchema(f"the schema is not a JSON document: {error}") from None
