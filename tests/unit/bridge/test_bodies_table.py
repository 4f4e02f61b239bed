"""Validations of bodies without content, with blanks, byte order marks and encodings (behaviours 3 to 5).

A missing body counts as empty. The encoding of XML comes from its byte order mark or first bytes, and from its
declaration, which must not contradict them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from konverse.bridge.validation.rules import SchemaRule
from konverse.bridge.validation.validator import EncodedRule, Validator
from konverse.schemas.catalog.objects import Validation
from konverse.schemas.validation import fault_of
from tests.kit.shop import ORDER_XSD

XML: Final = "<order><pieces>3</pieces></order>"
BOM: Final = b"\xef\xbb\xbf"


def declaring(encoding: str, written_in: str, comment: str = "") -> bytes:
    return f"<?xml version='1.0' encoding='{encoding}'?>{comment}{XML}".encode(written_in)


N, E, X, V = (*"NEXV",)
"""Letters of the table for NONE, EMPTY, WELL_FORMED_XML, VALID_XML."""

TABLE: Final[dict[str, tuple[bytes | None, str]]] = {
    "no body": (None, N + E + X),
    "empty": (b"", N + E + X),
    "blanks": (b" \t\r\n", N),
    "a byte order mark alone": (BOM, N),
    "a mark of UTF-16 alone": (b"\xff\xfe", N),
    "a zero byte": (b"\0", N),
    "text": (b"no document", N),
    "XML": (XML.encode(), N + X + V),
    "XML of another schema": (b"<note/>", N + X),
    "XML behind blanks": (b" \n" + XML.encode(), N + X + V),
    "XML before blanks": (XML.encode() + b"\n ", N + X + V),
    "a declaration behind blanks": (b" " + declaring("UTF-8", "utf-8"), N),
    "UTF-8, declared": (declaring("UTF-8", "utf-8"), N + X + V),
    "UTF-8, declared in small letters": (declaring("utf-8", "utf-8"), N + X + V),
    "UTF-8 with its mark": (BOM + XML.encode(), N + X + V),
    "UTF-8 with its mark, declared": (BOM + declaring("UTF-8", "utf-8"), N + X + V),
    "UTF-8 with its mark twice": (BOM + BOM + XML.encode(), N),
    "UTF-8, declared as UTF-16": (declaring("UTF-16", "utf-8"), N),
    "UTF-8 with its mark, declared as UTF-16": (BOM + declaring("UTF-16", "utf-8"), N),
    "UTF-8 with its mark, declared as Latin-1": (BOM + declaring("ISO-8859-1", "utf-8"), N),
    "UTF-16, little end first": (b"\xff\xfe" + XML.encode("utf-16-le"), N + X + V),
    "UTF-16, big end first": (b"\xfe\xff" + XML.encode("utf-16-be"), N + X + V),
    "UTF-16, declared": (b"\xff\xfe" + declaring("UTF-16", "utf-16-le"), N + X + V),
    "UTF-16 without its mark, little end first": (XML.encode("utf-16-le"), N + X + V),
    "UTF-16 without its mark, big end first": (XML.encode("utf-16-be"), N + X + V),
    "UTF-16, declared as UTF-8": (b"\xff\xfe" + declaring("UTF-8", "utf-16-le"), N),
    "UTF-16 without its mark, declared as UTF-8": (declaring("UTF-8", "utf-16-le"), N),
    "UTF-16 with the mark of the other end": (b"\xfe\xff" + XML.encode("utf-16-le"), N),
    "half of UTF-16": (b"\xff\xfe" + XML.encode("utf-16-le")[:-1], N),
    "Latin-1, declared": (declaring("ISO-8859-1", "latin-1", "<!--\xe9-->"), N + X + V),
    "Latin-1, not declared": (f"<!--\xe9-->{XML}".encode("latin-1"), N),
    "Latin-1, declared as UTF-8": (declaring("UTF-8", "latin-1", "<!--\xe9-->"), N),
    "an encoding that nobody knows": (declaring("nobodys", "utf-8"), N),
    "an encoding of Python alone": (declaring("unicode_escape", "utf-8"), N),
    "an encoding that is not supported": (declaring("IBM437", "utf-8"), N),
    "Shift_JIS": (declaring("Shift_JIS", "shift_jis", "<!--\u30bd-->"), N + X + V),
    "GB18030": (declaring("gb18030", "gb18030", "<!--\u30bd-->"), N + X + V),
    "Shift_JIS, not declared": (f"<!--\u30bd-->{XML}".encode("shift_jis"), N),
    "UTF-16 behind a blank, without its mark": (f" {XML}".encode("utf-16-le"), N + X + V),
    "UTF-16 behind a line end, big end first, without its mark": (f"\n{XML}".encode("utf-16-be"), N + X + V),
    "version 2.0": (b"<?xml version='2.0'?>" + XML.encode(), N),
    "UTF-32": (XML.encode("utf-32"), N),
}


@pytest.fixture(scope="module")
def validator() -> Iterator[Validator]:
    one = Validator()
    yield one
    one.close()


@pytest.mark.parametrize("name", TABLE)
def test_each_validation_takes_the_bodies_that_it_is_documented_to_take(validator: Validator, name: str) -> None:
    body, taken_by = TABLE[name]
    by_schema = EncodedRule.of(SchemaRule(Validation.VALID_XML, (ORDER_XSD,)))
    plain = (Validation.NONE, N), (Validation.EMPTY, E), (Validation.WELL_FORMED_XML, X)
    takes = {letter: not fault_of(validation, body) for validation, letter in plain}
    takes[V] = not validator.validate(by_schema, body or b"").fault
    assert takes == {letter: letter in taken_by for letter in (N, E, X, V)}
