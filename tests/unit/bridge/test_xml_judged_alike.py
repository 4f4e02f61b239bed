"""WELL_FORMED_XML and VALID_XML take the same documents: expat judges for both, and lxml finds no further fault.

What each document has to be follows XML 1.0 (declaration: 2.8; encodings: 4.3.3 and appendix F) and Namespaces in XML.
"""

from __future__ import annotations

import random
import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from konverse.bridge.validation.rules import SchemaRule, check_of
from konverse.schemas.catalog.objects import Validation
from konverse.schemas.validation import document_fault, fault_of, parser_of, tree_of
from konverse.schemas.xml_encoding import XML_CODECS

ANYTHING: Final = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="a">
  <xs:complexType mixed="true"><xs:sequence><xs:any minOccurs="0" maxOccurs="unbounded" processContents="skip"/>
  </xs:sequence><xs:anyAttribute processContents="skip"/></xs:complexType></xs:element></xs:schema>"""
"""Fits every document with the root `a`: what VALID_XML refuses then is not well-formed."""

FIXED: Final = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="a"><xs:complexType>
  <xs:attribute name="b" fixed="{}"/></xs:complexType></xs:element></xs:schema>"""

LETTERS: Final = "\u0e01\u4e2d\uac00\u0434\u05d0\u0627\u03b1\u1ea1\u0105\u0159\u1e03\xe9b"

etree: Any = import_module("lxml.etree")
by_schema = check_of(SchemaRule(Validation.VALID_XML, (ANYTHING,)))

BOM: Final = b"\xef\xbb\xbf"
LITTLE: Final = b"\xff\xfe"
BIG: Final = b"\xfe\xff"

GOOD: Final[dict[str, bytes]] = {
    "an element": b"<a/>",
    "blanks around it": b" \r\n\t<a/> \n",
    "a declaration": b"<?xml version='1.0'?><a/>",
    "a declaration with everything": b'<?xml  version = "1.0"\n encoding\t=\t"UTF-8" standalone="yes" ?>\r\n<a/>',
    "a processing instruction that begins as a declaration does": b"<?xml-stylesheet href='b'?><a/>",
    "UTF-8 with its mark": BOM + b"<?xml version='1.0' encoding='utf-8'?><a>\xc3\xa4</a>",
    "UTF-8 by its other name": "<?xml version='1.0' encoding='UTF8'?><a>\xe4\U0001f600</a>".encode(),
    "UTF-16": "<?xml version='1.0' encoding='UTF-16'?><a>\U0001f600</a>".encode("utf-16"),
    "UTF-16 without a declaration": LITTLE + "<a>\xe4</a>".encode("utf-16-le"),
    "UTF-16, big end first": BIG + "<?xml version='1.0' encoding='utf-16be'?><a/>".encode("utf-16-be"),
    "UTF-16 without its mark": "<a>\u4e2d</a>".encode("utf-16-le"),
    "UTF-16 without its mark, big end first": "<?xml version='1.0' encoding='UTF-16'?><a/>".encode("utf-16-be"),
    "UTF-16 behind a blank": " <a/>".encode("utf-16-le"),
    "UTF-16 behind line ends, big end first": "\r\n<a/>".encode("utf-16-be"),
    "Latin-1": "<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe9</a>".encode("latin-1"),
    "windows-1252": "<?xml version='1.0' encoding='Windows-1252'?><a>\u20ac</a>".encode("cp1252"),
    "KOI8-R": "<?xml version='1.0' encoding='KOI8-R'?><a \u0431='\u0434'/>".encode("koi8-r"),
    "ASCII": b"<?xml version='1.0' encoding='US-ASCII'?><a/>",
    "Shift_JIS": "<?xml version='1.0' encoding='Shift_JIS'?><a>\u8868\u30bd</a>".encode("shift_jis"),  # with 5C as byte
    "ISO-2022-JP": "<?xml version='1.0' encoding='ISO-2022-JP'?><a>\u65e5\u672c</a>".encode("iso2022_jp"),
    "EUC-JP": "<?xml version='1.0' encoding='euc-jp'?><a \u65e5='\u672c'/>".encode("euc_jp"),
    "GB18030": "<?xml version='1.0' encoding='GB18030'?><a>\U0001f600</a>".encode("gb18030"),
    "Big5": "<?xml version='1.0' encoding='Big5'?><a>\u4e2d</a>".encode("big5"),
    "all entities that need no declaration": b"<a b='&lt;&quot;'>&amp;&#x20ac;&#228;&gt;&apos;</a>",
    "a CDATA section, a comment, an instruction": b"<!--b--><a><![CDATA[<&]]><?b c?></a><!---->",
    "prefixes": b"<a xmlns:b='urn:b' b:c='' c=''><b:d/></a>",
    "the prefix xml": b"<a xml:lang='en' xml:space='any'/>",
    "a namespace that is no URI": b"<a xmlns:b='http://[' b:c=''/>",
    "a namespace with a blank": b"<a xmlns:b='urn:b c'/>",
    "a namespace of other letters": "<a xmlns:b='\xe4'/>".encode(),
    "a namespace without a scheme": b"<a xmlns:b='c'/>",
    "an xml:id that is no name": b"<a xml:id='1 b'/>",
    "an xml:id twice": b"<a><b xml:id='c'/><d xml:id='c'/></a>",
    "as deep as it may be": b"<a>" + b"<b>" * 127 + b"</b>" * 127 + b"</a>",
    "a long name": b"<a " + b"b" * 60_000 + b"=''/>",
    "a long value": b"<a b='" + b"c" * 900_000 + b"'/>",
    "non-characters outside of the first plane": "<a>\U0001ffff</a>".encode(),
}

BAD: Final[dict[str, tuple[bytes, str]]] = {
    "blanks alone": (b" \n", "no element"),
    "a mark alone": (BOM, "no element"),
    "two marks": (BOM + BOM + b"<a/>", "second byte order mark"),
    "two marks of UTF-16": (LITTLE * 2 + "<a/>".encode("utf-16-le"), "second byte order mark"),
    "version 2.0": (b"<?xml version='2.0'?><a/>", "version 2.0"),
    "version 1.1": (b"<?xml version='1.1' encoding='UTF-8'?><a/>", "version 1.1"),
    "version 1.": (b"<?xml version='1.'?><a/>", "version 1."),
    "version 1.0 with a zero": (b"<?xml version='1.00'?><a/>", "version 1.00"),
    "version 2.0 in UTF-16": ("<?xml version='2.0'?><a/>".encode("utf-16"), "version 2.0"),
    "no version": (b"<?xml encoding='UTF-8'?><a/>", "declaration"),
    "an empty declaration": (b"<?xml ?><a/>", "declaration"),
    "quotes that do not match": (b"<?xml version='1.0\"?><a/>", "declaration"),
    "the encoding before the version": (b"<?xml encoding='UTF-8' version='1.0'?><a/>", "declaration"),
    "standalone=maybe": (b"<?xml version='1.0' standalone='maybe'?><a/>", "declaration"),
    "a declaration without blanks": (b"<?xml version='1.0'encoding='UTF-8'?><a/>", "declaration"),
    "a declaration that does not end": (b"<?xml version='1.0' " + b" " * 100_000, "declaration"),
    "an encoding with a blank": (b"<?xml version='1.0' encoding=' UTF-8'?><a/>", "declaration"),
    "a declaration behind a blank": (b" <?xml version='1.0'?><a/>", "not at start"),
    "two declarations": (b"<?xml version='1.0'?><?xml version='1.0'?><a/>", "not at start"),
    "a declaration in capitals": (b"<?XML version='1.0'?><a/>", "not well-formed"),
    "no declaration, only its target": (b"<?xml?><a/>", "not well-formed"),
    **{
        f"encoding {name}": (f"<?xml version='1.0' encoding='{name}'?><a/>".encode(), f"encoding {name}")
        for name in (
            *("IBM437", "cp437", "IBM037", "macintosh", "unicode_escape", "raw_unicode_escape", "rot13", "rot_13"),
            *("punycode", "idna", "mbcs", "undefined", "charmap", "utf-8-sig", "utf_8", "utf-7", "utf-32", "UCS-4"),
            *("base64", "zlib", "hex", "bz2", "uu", "quopri", "palmos", "ptcp154", "hp-roman8", "ISO-8859-12", "X"),
        )
    },
    "UTF-16, said in bytes": (b"<?xml version='1.0' encoding='UTF-16'?><a/>", "encoding UTF-16"),
    "UTF-8, said in UTF-16": ("<?xml version='1.0' encoding='UTF-8'?><a/>".encode("utf-16-le"), "encoding UTF-8"),
    "Shift_JIS, said in UTF-16": ("<?xml version='1.0' encoding='Shift_JIS'?><a/>".encode("utf-16"), "Shift_JIS"),
    "the other end of UTF-16": (
        LITTLE + "<?xml version='1.0' encoding='UTF-16BE'?><a/>".encode("utf-16-le"),
        "UTF-16BE",
    ),
    "Latin-1 behind the mark of UTF-8": (BOM + b"<?xml version='1.0' encoding='ISO-8859-1'?><a/>", "byte order mark"),
    "half of UTF-16": (LITTLE + b"<\0a\0/\0>", "UTF-16"),
    "half a pair of surrogates": (LITTLE + "<a>\ud800</a>".encode("utf-16-le", "surrogatepass"), "UTF-16"),
    "a surrogate in UTF-8": (b"<a>\xed\xa0\x80</a>", "invalid token"),
    "a surrogate by its number": (b"<a>&#xd800;</a>", "invalid character"),
    "Shift_JIS that is none": (b"<?xml version='1.0' encoding='Shift_JIS'?><a>\x81</a>", "Shift_JIS"),
    "ASCII that is none": (b"<?xml version='1.0' encoding='US-ASCII'?><a>\xc3\xa4</a>", "US-ASCII"),
    "a byte without a character": (b"<?xml version='1.0' encoding='windows-1252'?><a>\x81</a>", "windows-1252"),
    "Latin-1 without a declaration": (b"<a>\xe9</a>", "invalid token"),
    "a letter in too many bytes": (b"<a>\xc0\xaf</a>", "invalid token"),
    "UTF-32": ("<a/>".encode("utf-32"), ""),
    "UTF-32 without its mark": ("<a/>".encode("utf-32-be"), ""),
    "EBCDIC": ("<?xml version='1.0' encoding='IBM037'?><a/>".encode("cp037"), ""),
    "NUL": (b"<a>\0</a>", "invalid token"),
    "NUL behind the end": (b"<a/>\0", "invalid token"),
    "NUL by its number": (b"<a>&#0;</a>", "invalid character"),
    "a control character": (b"<a>\x01</a>", "invalid token"),
    "U+FFFE": (b"<a>\xef\xbf\xbe</a>", "invalid token"),
    "a bomb": (
        b"<!DOCTYPE a [<!ENTITY b 'b'><!ENTITY c '&b;&b;&b;&b;'><!ENTITY d '&c;&c;&c;&c;'>]><a>&d;</a>",
        "document type",
    ),
    "a bomb in UTF-16": ("<!DOCTYPE a [<!ENTITY b 'b'>]><a>&b;</a>".encode("utf-16"), "document type"),
    "a file": (b"<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>", "document type"),
    "a document type without anything": (b"<!DOCTYPE a><a/>", "document type"),
    "an unknown entity": (b"<a>&b;</a>", "undefined entity"),
    "an unknown entity in an attribute": (b"<a b='&b;'/>", "undefined entity"),
    "an unknown prefix": (b"<a><b:c/></a>", "unbound prefix"),
    "an unknown prefix of an attribute": (b"<a b:c=''/>", "unbound prefix"),
    "the prefix xmlns on an element": (b"<a><xmlns:b/></a>", "prefix"),
    "a prefix for nothing": (b"<a xmlns:b=''/>", "prefix"),
    "the prefix xml for something else": (b"<a xmlns:xml='urn:b'/>", "prefix"),
    "the prefix xmlns declared": (b"<a xmlns:xmlns='urn:b'/>", "prefix"),
    "two colons": (b"<a xmlns:b='urn:b'><b:c:d/></a>", "invalid token"),
    "a colon in a target": (b"<a><?b:c?></a>", "invalid token"),
    "a colon at the end": (b"<a b:=''/>", "invalid token"),
    "an attribute twice": (b"<a b='' b=''/>", "duplicate attribute"),
    "an attribute twice by two prefixes": (
        b"<a xmlns:b='urn:b' xmlns:c='urn:b' b:d='' c:d=''/>",
        "duplicate attribute",
    ),
    "a prefix twice": (b"<a xmlns:b='urn:b' xmlns:b='urn:b'/>", "duplicate attribute"),
    "an attribute without quotes": (b"<a b=c/>", "invalid token"),
    "attributes without a blank": (b"<a b='c'd='e'/>", "invalid token"),
    "the end of CDATA in text": (b"<a>]]></a>", "invalid token"),
    "a comment with two hyphens": (b"<a><!-- -- --></a>", "invalid token"),
    "two roots": (b"<a/><a/>", "junk"),
    "text behind the root": (b"<a/>b", "junk"),
    "too deep": (b"<a>" + b"<b>" * 128 + b"</b>" * 128 + b"</a>", "deeper than 128"),
}


@pytest.mark.parametrize("name", GOOD)
def test_both_validations_take_a_well_formed_document(name: str) -> None:
    assert (fault_of(Validation.WELL_FORMED_XML, GOOD[name]), by_schema(GOOD[name])) == ("", "")


@pytest.mark.parametrize("name", BAD)
def test_both_validations_refuse_a_malformed_document_in_the_same_words(name: str) -> None:
    body, words = BAD[name]
    fault = fault_of(Validation.WELL_FORMED_XML, body)
    assert fault
    assert words in fault
    assert by_schema(body) == fault


@pytest.mark.parametrize("name", sorted(XML_CODECS))
def test_a_schema_sees_the_characters_of_each_encoding_that_may_be_declared(name: str) -> None:
    codec = XML_CODECS[name]
    letter = LETTERS.encode(codec, "ignore").decode(codec)[0]
    exact = check_of(SchemaRule(Validation.VALID_XML, (FIXED.format(letter),)))
    body = f"<?xml version='1.0' encoding='{name.upper()}'?><a b='{letter}'/>".encode(codec)
    assert (fault_of(Validation.WELL_FORMED_XML, body), exact(body)) == ("", "")
    assert "fixed" in exact(body.replace(b"b='", b"b='c"))


@pytest.mark.parametrize("seed", range(20))
def test_both_parsers_agree_on_pieces_of_documents_that_are_put_together_anyhow(seed: int) -> None:
    """Wherever expat finds no fault, lxml finds none either."""
    chance = random.Random(seed)
    bodies = [body for body in (*GOOD.values(), *(body for body, _ in BAD.values())) if len(body) < 1_000]
    plain = parser_of(etree)
    for _ in range(500):
        body = bytearray(chance.choice(bodies))
        for _ in range(chance.randrange(1, 4)):
            other = chance.choice(bodies)
            start, at = chance.randrange(len(other)), chance.randrange(len(body) + 1)
            body[at : at + chance.randrange(3)] = other[start : start + chance.randrange(12)]
        if not document_fault(bytes(body)):
            tree_of(etree, plain, bytes(body))


def test_the_guide_lists_the_encodings_that_may_be_declared() -> None:
    guide = (Path(__file__).parents[3] / "docs/guide/bodies.md").read_text().lower()
    listed = "".join(line[2:] for line in guide.splitlines(keepends=True) if line.startswith("- "))
    iso = " ".join(f"iso-8859-{part}" for part in range(1, 17) if part != 12)
    windows = " ".join(f"windows-{page}" for page in range(1250, 1259))
    listed = listed.replace("iso-8859-1 to iso-8859-16 without 12", iso)
    listed = listed.replace("windows-1250 to windows-1258", windows)
    assert {*re.findall(r"[\w-]+", listed)} == {*XML_CODECS, "utf-16", "utf-16le", "utf-16be"}
