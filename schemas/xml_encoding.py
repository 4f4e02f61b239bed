"""The encoding of an XML document, from its byte order mark, its first bytes and its declaration (XML 1.0, 2.8, 4.3.3).

All parsers get the result of `utf8_of`, and none of them sees a mark or a declaration. Each of them knows other
encodings and versions, so otherwise they would accept different documents.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from typing import Final

XML_CODECS: Final = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "us-ascii": "ascii",
    "ascii": "ascii",
    "latin1": "iso8859-1",
    **{f"iso-8859-{part}": f"iso8859-{part}" for part in range(1, 17) if part != 12},  # there is no part 12
    **{f"windows-{page}": f"cp{page}" for page in (874, *range(1250, 1259))},
    "koi8-r": "koi8-r",
    "koi8-u": "koi8-u",
    "shift_jis": "shift_jis",
    "euc-jp": "euc_jp",
    "iso-2022-jp": "iso2022_jp",
    "euc-kr": "euc_kr",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "gb18030": "gb18030",
    "big5": "big5",
}
"""Encodings of bytes that a declaration may name, in lower case -> Python's codec.

All of them are registered and write the declaration itself in ASCII. Python's other codecs are not registered, or are
not encodings of documents, such as `rot13`.
"""

_UTF16: Final = {"utf-16-le": ("utf-16", "utf-16le"), "utf-16-be": ("utf-16", "utf-16be")}
"""Codec of UTF-16 -> the names that a declaration may give it."""

CODECS: Final = (*sorted({*XML_CODECS.values()}), *_UTF16)
"""Every codec that `utf8_of` may need. Python loads each of them from a file at its first use."""

_DECLARATION: Final = re.compile(
    rb"""<\?xml [\ \t\r\n]+ version [\ \t\r\n]*=[\ \t\r\n]* (?P<q>["'])(?P<version>[\w.:-]{1,40})(?P=q)
    (?: [\ \t\r\n]+ encoding [\ \t\r\n]*=[\ \t\r\n]* (?P<r>["'])(?P<encoding>[A-Za-z][\w.-]{0,79})(?P=r) )?
    (?: [\ \t\r\n]+ standalone [\ \t\r\n]*=[\ \t\r\n]* (?P<s>["'])(?:yes|no)(?P=s) )?
    [\ \t\r\n]* \?>""",
    re.VERBOSE,
)
_BEGINS: Final = (b"<?xml ", b"<?xml\t", b"<?xml\r", b"<?xml\n")
_BLANKS: Final = bytes(byte if byte in b"\r\n" else 0x20 for byte in range(256))
"""Translates a declaration to blanks. Line ends stay, so that the positions in a parser's messages are right."""


class MalformedXml(Exception):
    """The body is not an XML document, or contains something that is not allowed."""


def utf8_of(body: bytes) -> bytes:
    """The document in UTF-8, without byte order mark, and with blanks for its declaration. Raises MalformedXml.

    UTF-16 needs no mark: a zero byte among the first two cannot begin a document in any other encoding. A document
    that names no other encoding is not checked for valid UTF-8 here; parsers do that.
    """
    if body.startswith(BOM_UTF8):
        document, mark = body[len(BOM_UTF8) :], "after the byte order mark of UTF-8"
        allowed: tuple[str, ...] = ("utf-8", "utf8")
    elif codec := _utf16(body):
        marked = body.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
        document = _converted(body[2:] if marked else body, codec, "UTF-16")
        mark, allowed = "in a document of UTF-16", _UTF16[codec]
    else:
        document, mark, allowed = body, "", ()
    if b"\0" in document:  # expat would take it for UTF-16 again
        raise MalformedXml("not well-formed (invalid token): a zero character")
    if document.startswith(BOM_UTF8):  # a parser would take a second mark, too
        raise MalformedXml("syntax error: a second byte order mark")
    if not document.startswith(_BEGINS):
        return document
    declaration = _DECLARATION.match(document)
    if declaration is None:
        raise MalformedXml("the XML declaration is not well-formed")
    if declaration["version"] != b"1.0":
        raise MalformedXml(f"version {declaration['version'].decode()} in the XML declaration; it has to be 1.0")
    encoding = (declaration["encoding"] or b"").decode()
    if mark and encoding and encoding.lower() not in allowed:
        raise MalformedXml(f"encoding {encoding} in the XML declaration is incorrect, {mark}")
    if encoding and not mark:
        document = _in_utf8(document, encoding)
    end = declaration.end()  # also after the conversion, since the declaration is in ASCII
    return document[:end].translate(_BLANKS) + document[end:]


def _utf16(body: bytes) -> str:
    """The codec of a document in UTF-16, with or without its mark; empty for any other document."""
    head = body[:2]
    if head == BOM_UTF16_LE or (len(head) > 1 and head[0] and not head[1]):
        return "utf-16-le"
    if head == BOM_UTF16_BE or (len(head) > 1 and head[1] and not head[0]):
        return "utf-16-be"
    return ""


def _in_utf8(document: bytes, encoding: str) -> bytes:
    """A document of the encoding that its declaration names, in UTF-8."""
    name = encoding.lower()
    if name in ("utf-16", "utf-16le", "utf-16be"):
        raise MalformedXml(f"encoding {encoding} in the XML declaration is incorrect: the document is not in UTF-16")
    if name not in XML_CODECS:
        raise MalformedXml(f"encoding {encoding} in the XML declaration is not supported")
    codec = XML_CODECS[name]
    return document if codec == "utf-8" else _converted(document, codec, encoding)


def _converted(document: bytes, codec: str, encoding: str) -> bytes:
    try:
        return document.decode(codec).encode()
    except UnicodeDecodeError as error:
        raise MalformedXml(f"it is not in {encoding}: {error.reason} at byte {error.start}") from None
    except (LookupError, UnicodeError) as error:  # a Python without that codec, or a text with surrogates
        raise MalformedXml(f"it cannot be read as {encoding}: {error}") from None
