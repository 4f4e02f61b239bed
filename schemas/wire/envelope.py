"""The envelope of a data record: plain Avro (`envelope.avsc`), encoded by hand because millions of messages pass.

    prefix (39 bytes)                                             | counter sequence | suffix
    kind flags role incarnation-tag writer conversation           | two Avro longs   | everything that repeats

An encoder concatenates `prefix + counter + sequence + suffix`; a decoder slices the prefix, reads two numbers and looks
the suffix up. `tests/properties` compares both with fastavro in both directions (protocol.md section 2).

`decode` is total: for any bytes it returns an Envelope or raises MalformedRecord, nothing else.
"""

from __future__ import annotations

import json
from importlib.resources import files
from io import BytesIO
from typing import Any, Final, cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import NO_WRITER, Role
from konverse.schemas.limits import FORWARD_BYTES_MAX, HEADER_BYTES_MAX, SUFFIX_BYTES_MAX, WRITER_RECORDS_MAX

from .records import NO_SEQUENCE, Envelope, Kind, Pending, Suffix
from .suffix import suffix_from_avro, suffix_to_avro
from .templates import Layings, Readings, Remembered
from .varint import read_varint, varint

HEADER: Final = "konverse"
"""Name of the Kafka header that carries the envelope; of several with this name the first one is ours."""

PREFIX_BYTES: Final = 39
WRITER_AT: Final = 7
CONVERSATION_AT: Final = 23

# ---------------------------------------------------------------------------------------------------------- encode


def head(kind: Kind, flags: int, role: Role, tag: bytes, writer: bytes) -> bytes:
    """First 23 bytes of a header; a prefix is `head(...) + conversation`."""
    return bytes((kind << 1, flags, role << 1)) + tag + writer


def flagged(header: bytes, flag: int) -> bytes:
    """A header or prefix with this flag set."""
    return bytes((header[0], header[1] | flag)) + header[2:]


def unflagged(header: bytes, flag: int) -> bytes:
    """A header or prefix without this flag."""
    return bytes((header[0], header[1] & ~flag)) + header[2:]


def encode(prefix: bytes, counter: int, sequence: int, suffix: bytes) -> bytes:
    """The header made of these parts."""
    return prefix + varint(counter) + varint(sequence) + suffix


def encode_suffix(suffix: Suffix) -> bytes:
    """The bytes of a suffix, the repeating end of a header."""
    return _layings.lay(suffix)


def _lay(suffix: Suffix) -> bytes:
    out = BytesIO()
    schemaless_writer(out, _SUFFIX_SCHEMA, suffix_to_avro(suffix), strict=True)
    return out.getvalue()


_layings: Final = Layings(_lay)


def encode_envelope(envelope: Envelope) -> bytes:
    """The header of an envelope. Slow: for rare records."""
    prefix = head(envelope.kind, envelope.flags, envelope.role, envelope.tag, envelope.writer) + envelope.conversation
    return encode(prefix, envelope.counter, envelope.sequence, encode_suffix(envelope.suffix))


# ---------------------------------------------------------------------------------------------------------- decode

_KINDS: Final = {kind << 1: kind for kind in Kind if kind is not Kind.LATER}
_ROLES: Final = tuple(Role)
_FORWARD: Final = bytes((Kind.FORWARD << 1,))
_KIND_BYTE_MAX: Final = 0x7E
"""A larger first byte belongs to a kind encoded in several bytes."""


def decode(header: bytes) -> Envelope:
    """The envelope in `header`; MalformedRecord for anything else, whatever the bytes are.

    The end of a record of an unknown, later kind is not read: it gets an empty Suffix.
    """
    envelope = decode_accepted(header)
    if envelope.counter < 0:
        raise MalformedRecord("an envelope with an impossible counter")
    return envelope


def decode_accepted(header: bytes) -> Envelope:
    """The envelope of a record that a partition has accepted; as `decode`.

    If the record was contested, its partition has replaced the counter by one below 0 (M277).
    """
    more = FORWARD_BYTES_MAX if header[:1] == _FORWARD else 0  # it contains another envelope
    if len(header) > HEADER_BYTES_MAX + more:
        raise MalformedRecord(f"an envelope of {len(header)} bytes; at most {HEADER_BYTES_MAX + more} are allowed")
    try:
        kind_byte, flags, role_byte = header[0], header[1], header[2]
        if kind_byte & 1 or kind_byte > _KIND_BYTE_MAX or role_byte & 1 or role_byte > 2:
            raise MalformedRecord("an envelope that names no kind or role")
        kind = _KINDS.get(kind_byte, Kind.LATER)
        closed = header[CONVERSATION_AT:PREFIX_BYTES] if kind is Kind.CLOSE_WRITER else None
        if NO_WRITER in (header[WRITER_AT:CONVERSATION_AT], closed):
            raise MalformedRecord("an envelope that names no writer")
        counter, at = read_varint(header, PREFIX_BYTES)
        sequence, at = read_varint(header, at)
        if not (-WRITER_RECORDS_MAX < counter < WRITER_RECORDS_MAX and NO_SEQUENCE <= sequence < WRITER_RECORDS_MAX):
            raise MalformedRecord("an envelope with an impossible counter or sequence number")
        # a bound on the end alone: the fold accepts predicted headers unparsed, also when their numbers get longer
        if len(header) - at > SUFFIX_BYTES_MAX + more:
            raise MalformedRecord(f"an envelope whose end has {len(header) - at} bytes")
    except (IndexError, ValueError) as error:
        raise MalformedRecord("a truncated envelope") from error
    return Envelope(
        kind,
        flags,
        _ROLES[role_byte >> 1],
        header[3:7],
        header[7:23],
        header[23:39],
        counter,
        sequence,
        Suffix() if kind is Kind.LATER else decode_suffix(header[at:]),
    )


def decode_suffix(data: bytes) -> Suffix:
    """The suffix in `data`; suffixes are cached, because a log has few different ones."""
    known = _suffixes.get(data)
    if known is not None:
        return known[1]
    suffix = _readings.find(data)
    if suffix is None:
        suffix = _read_suffix(data)
        if suffix.begin is None and (suffix.detail is None or isinstance(suffix.detail, Pending)):
            _suffixes.put(data, (data, suffix))
        else:
            _readings.learn(data, suffix)
    return suffix


def shared(data: bytes) -> bytes:
    """The cached object equal to `data`, if `decode_suffix` has one, so that all its holders share the bytes."""
    known = _suffixes.get(data)
    return data if known is None else known[0]


_suffixes: Final = Remembered[bytes, tuple[bytes, Suffix]]()
_readings: Final = Readings()


def _read_suffix(data: bytes) -> Suffix:
    source = BytesIO(data)
    try:
        value = schemaless_reader(
            source, _SUFFIX_SCHEMA, None, return_record_name=True, return_record_name_override=True
        )
        if source.tell() != len(data):
            raise MalformedRecord("an envelope with trailing bytes")
        suffix = suffix_from_avro(cast("dict[str, Any]", value))
        encoded = _lay(suffix)
    except MalformedRecord:
        raise
    except Exception as error:  # fastavro raises a dozen types for broken input; they all mean this
        raise MalformedRecord("an envelope whose end is not Avro") from error
    if encoded != data:
        raise MalformedRecord("an envelope that is not in canonical form")
    return suffix


def _schema() -> tuple[dict[str, Any], dict[str, Any]]:
    whole = json.loads(files("konverse.schemas").joinpath("envelope.avsc").read_text("utf-8"))
    names = [field["name"] for field in whole["fields"]]
    split = names.index("message_type")
    suffix = {
        "type": "record",
        "name": "Suffix",
        "namespace": "konverse",
        # the named types that the prefix declares and the suffix uses
        "fields": [
            {"name": "_tag", "type": {"type": "fixed", "name": "Tag", "size": 4}},
            {"name": "_identifier", "type": {"type": "fixed", "name": "Identifier", "size": 16}},
            *whole["fields"][split:],
        ],
    }
    parsed = cast("dict[str, Any]", parse_schema(suffix))
    parsed["fields"] = parsed["fields"][2:]
    return cast("dict[str, Any]", parse_schema(whole)), parsed


ENVELOPE_SCHEMA, _SUFFIX_SCHEMA = _schema()
