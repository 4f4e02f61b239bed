"""Bodies against the validation of their message types (behaviours 3 to 6)."""

from __future__ import annotations

import pytest

from konverse.schemas.catalog.objects import MessageType, Validation
from konverse.schemas.errors import InvalidValidation
from konverse.schemas.limits import XML_DEPTH_ENTRIES_MAX
from konverse.schemas.validation import fault_of

XML = Validation.WELL_FORMED_XML


@pytest.mark.parametrize("body", [None, b"", b"\x00\xff", b"<not xml"])
def test_without_validation_a_body_may_be_anything(body: bytes | None) -> None:
    assert not fault_of(Validation.NONE, body)


def test_an_empty_type_has_no_body() -> None:
    assert not fault_of(Validation.EMPTY, None)
    assert not fault_of(Validation.EMPTY, b"")
    assert "4 bytes" in fault_of(Validation.EMPTY, b"text")


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"<a/>",
        b"\xef\xbb\xbf<a/>",
        "<a/>".encode("utf-16-le"),
        "<a/>".encode("utf-16"),
        b"<?xml version='1.0' encoding='UTF-8'?><a b='c'>\xe2\x82\xac<!-- d --><![CDATA[<]]></a>",
        "<?xml version='1.0' encoding='UTF-16'?><a>€</a>".encode("utf-16"),
        b"<?xml version='1.0' encoding='iso-8859-1'?><a>\xe9</a>",
        b"<?xml version='1.0' encoding='windows-1252'?><a>\x80</a>",
        b"<a:b xmlns:a='urn:a'/>",
        b"<a xml:lang='en'/>",
        b"<a>" * XML_DEPTH_ENTRIES_MAX + b"</a>" * XML_DEPTH_ENTRIES_MAX,
    ],
)
def test_a_document_or_no_body_at_all_is_well_formed(body: bytes | None) -> None:
    assert not fault_of(XML, body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b" \r\n\t", "no element"),
        (b"\xef\xbb\xbf", "no element"),
        (b"\xff\xfe", "no element"),
        ("<?xml version='1.0' encoding='UTF-8'?><a/>".encode("utf-16"), "encoding"),
        (b"<?xml version='1.0' encoding='UTF-16'?><a/>", "encoding"),
        (b"text", "syntax error"),
        (b"<a>", "no element"),
        (b"<a></b>", "mismatched"),
        (b"<a/><b/>", "junk"),
        (b"<a>&b;</a>", "undefined entity"),
        (b"<a:b/>", "unbound prefix"),
        (b"<a b:c='d'/>", "unbound prefix"),
        (b"<a xmlns:b='urn:a' xmlns:c='urn:a' b:d='' c:d=''/>", "duplicate attribute"),
        (b"<a>\xff</a>", "invalid token"),
        (b"<?xml version='1.0' encoding='klingon'?><a/>", "encoding"),
        (b"<?xml version='1.0' encoding='unicode_escape'?><a/>", "encoding unicode_escape in the XML declaration"),
        (b"<?xml version='1.0' encoding='Raw-Unicode-Escape'?><a/>", "is not supported"),
        (b"<?xml version='1.0' encoding='idna'?><a/>", "is not supported"),
        (b"<?xml version='1.0' encoding='rot13'?><a/>", "is not supported"),
        (b"<?xml version='2.0'?><a/>", "version 2.0 in the XML declaration"),
        (b"<?xml version='1.x'?><a/>", "version"),
        (b"<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>", "document type"),
        (b"<!DOCTYPE a [<!ENTITY b 'b'><!ENTITY c '&b;&b;&b;&b;'>]><a>&c;</a>", "document type"),
        (b"<a>" * (XML_DEPTH_ENTRIES_MAX + 1) + b"</a>" * (XML_DEPTH_ENTRIES_MAX + 1), "deeper than 128"),
    ],
)
def test_malformed_and_hostile_xml_is_reported_with_a_reason(body: bytes, words: str) -> None:
    assert words in fault_of(XML, body)


def test_a_word_that_means_no_validation_is_refused_with_those_that_do() -> None:
    assert MessageType.of("order", "EMPTY").validation is Validation.EMPTY
    with pytest.raises(InvalidValidation, match="'XML' is not a validation; use NONE, EMPTY, WELL_FORMED_XML"):
        MessageType.of("order", "XML")
