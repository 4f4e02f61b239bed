"""XML schema collections, and schemas of message types: refusals at creation."""

from __future__ import annotations

import pytest

from konverse.schemas.catalog.objects import MessageType, Validation
from konverse.schemas.catalog.schema_collections import XmlSchemaCollection
from konverse.schemas.errors import InvalidName, InvalidSchema, InvalidValidation
from konverse.schemas.limits import SCHEMA_BYTES_MAX


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([], "has 0 documents; 1 to 64"),
        ([str(number) for number in range(65)], "has 65 documents"),
        (["<a/>", "<a/>"], "the same document twice"),
        (["x" * SCHEMA_BYTES_MAX, "y"], f"{SCHEMA_BYTES_MAX + 1} bytes"),
        (["\ud800"], "has an invalid character"),
    ],
)
def test_a_collection_that_cannot_be_is_refused(documents: list[str], words: str) -> None:
    with pytest.raises(InvalidSchema, match=words):
        XmlSchemaCollection.of("c", documents)


def test_a_collection_has_a_name() -> None:
    with pytest.raises(InvalidName, match="XML schema collection"):
        XmlSchemaCollection.of("", ["<a/>"])


@pytest.mark.parametrize(
    ("validation", "collection", "schema", "words"),
    [
        ("VALID_XML", "", "", "needs schema_collection"),
        ("VALID_XML", "c", "{}", "has no schema"),
        ("WELL_FORMED_XML", "c", "", "has no schema_collection"),
        ("JSON_SCHEMA", "", "", "needs schema"),
        ("AVRO", "c", "{}", "has no schema_collection"),
        ("NONE", "", "{}", "has no schema"),
    ],
)
def test_a_type_has_the_schema_that_its_validation_needs_and_no_other(
    validation: str, collection: str, schema: str, words: str
) -> None:
    with pytest.raises(InvalidValidation, match=words):
        MessageType.of("order", validation, collection, schema)


def test_a_schema_that_is_too_large_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="message type 'order'"):
        MessageType.of("order", "AVRO", schema="x" * (SCHEMA_BYTES_MAX + 1))


def test_each_validation_has_its_letter() -> None:
    assert {each.value: each.letter for each in Validation} == {
        "NONE": "N",
        "EMPTY": "E",
        "WELL_FORMED_XML": "X",
        "VALID_XML": "X",
        "JSON_SCHEMA": "J",
        "AVRO": "A",
    }
