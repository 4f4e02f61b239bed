"""What a body is held against, and how a schema is read. The modules for XML, JSON and Avro each do that for one kind.

A check is a function of a body that says what is wrong with it, and nothing when it is fine. A schema is never fetched:
what it refers to is in it, or it is refused.
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


class Rule(NamedTuple):
    """A schema, and which kind of one."""

    validation: Validation
    documents: tuple[str, ...]
    """Of VALID_XML all documents of the collection, else the one schema."""

    def encoded(self) -> bytes:
        """The bytes that name it from process to process."""
        return json.dumps([self.validation, *self.documents], ensure_ascii=False).encode()


def decoded(data: bytes) -> Rule:
    """What was `encoded`."""
    validation, *documents = json.loads(data)
    return Rule(Validation(validation), tuple(documents))


def digest_of(encoded: bytes) -> bytes:
    """32 bytes that stand for the rule."""
    return sha256(encoded).digest()


class MissingLibrary(Exception):
    """What reads this kind of schema is not installed."""


NEEDED: Final = {
    Validation.VALID_XML: ("lxml.etree", "lxml"),
    Validation.JSON_SCHEMA: ("jsonschema_rs", "jsonschema-rs"),
    Validation.AVRO: ("fastavro", "fastavro"),
}
"""The library's module for each kind, and its distribution."""

MODULES: Final = {
    Validation.VALID_XML: "konverse.bridge.validation.xml_schemas",
    Validation.JSON_SCHEMA: "konverse.bridge.validation.json_schemas",
    Validation.AVRO: "konverse.bridge.validation.avro_schemas",
}
"""Ours for each kind."""


def check_of(rule: Rule) -> Check:
    """Read the schema. Raises InvalidSchema when it is none, MissingLibrary."""
    module, distribution = NEEDED[rule.validation]
    try:
        import_module(module)
    except ImportError as error:
        raise MissingLibrary(
            f"bodies cannot be held against a schema ({rule.validation}) without {distribution} ({error}): "
            "pip install 'konverse[validation]'"
        ) from None
    made: Check = import_module(MODULES[rule.validation]).check_of(rule.documents)
    return made


def loaded(text: str) -> object:
    """A schema that is written in JSON; InvalidSchema for anything else."""
    try:
        return json.loads(text)
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None
    except ValueError as error:
        raise InvalidSchema(f"the schema is no JSON document: {error}") from None
