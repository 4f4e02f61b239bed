"""Our own encoder's envelopes are those of fastavro, both ways (protocol.md section 2)."""

from __future__ import annotations

from io import BytesIO
from typing import Any, cast

from fastavro import schemaless_reader, schemaless_writer
from hypothesis import given

from konverse.schemas.identifiers import Role
from konverse.schemas.wire.envelope import (
    CONVERSATION_AT,
    ENVELOPE_SCHEMA,
    PREFIX_BYTES,
    decode,
    decode_suffix,
    encode,
    encode_envelope,
    encode_suffix,
    head,
)
from konverse.schemas.wire.records import Envelope, Kind, Suffix
from konverse.schemas.wire.suffix import suffix_from_avro, suffix_to_avro
from konverse.schemas.wire.varint import LOW_MASK, high_part, low_table
from tests.kit.strategies import envelopes, suffixes


def to_avro(envelope: Envelope) -> dict[str, Any]:
    return {
        "kind": envelope.kind.name,
        "flags": bytes([envelope.flags]),
        "role": envelope.role.name,
        "incarnation": envelope.tag,
        "writer": envelope.writer,
        "conversation": envelope.conversation,
        "counter": envelope.counter,
        "sequence": envelope.sequence,
        **suffix_to_avro(envelope.suffix),
    }


def from_avro(value: dict[str, Any]) -> Envelope:
    return Envelope(
        Kind[value["kind"]],
        value["flags"][0],
        Role[value["role"]],
        value["incarnation"],
        value["writer"],
        value["conversation"],
        value["counter"],
        value["sequence"],
        suffix_from_avro(value),
    )


def written(envelope: Envelope) -> bytes:
    out = BytesIO()
    schemaless_writer(out, ENVELOPE_SCHEMA, to_avro(envelope), strict=True)
    return out.getvalue()


def read(header: bytes) -> Envelope:
    source = BytesIO(header)
    value = schemaless_reader(source, ENVELOPE_SCHEMA, None, return_record_name=True, return_record_name_override=True)
    assert source.tell() == len(header)
    return from_avro(cast("dict[str, Any]", value))


@given(envelopes)
def test_an_encoded_envelope_equals_the_fastavro_output(envelope: Envelope) -> None:
    assert encode_envelope(envelope) == written(envelope)


@given(envelopes)
def test_a_decoded_envelope_equals_the_fastavro_result(envelope: Envelope) -> None:
    header = written(envelope)
    assert decode(header) == read(header) == envelope


@given(envelopes)
def test_an_envelope_built_from_prefix_numbers_and_suffix_equals_the_fastavro_encoding(envelope: Envelope) -> None:
    start = head(envelope.kind, envelope.flags, envelope.role, envelope.tag, envelope.writer)
    suffix = encode_suffix(envelope.suffix)
    whole = encode(start + envelope.conversation, envelope.counter, envelope.sequence, suffix)
    assert whole == written(envelope)
    assert len(start) == CONVERSATION_AT
    assert whole[CONVERSATION_AT:PREFIX_BYTES] == envelope.conversation


@given(envelopes.filter(lambda envelope: envelope.sequence >= 0))
def test_an_envelope_built_from_table_entries_equals_the_fastavro_encoding(envelope: Envelope) -> None:
    counter, sequence = envelope.counter, envelope.sequence
    header = (
        head(envelope.kind, envelope.flags, envelope.role, envelope.tag, envelope.writer)
        + envelope.conversation
        + low_table(counter)[counter & LOW_MASK]
        + high_part(counter)
        + low_table(sequence)[sequence & LOW_MASK]
        + high_part(sequence)
        + encode_suffix(envelope.suffix)
    )
    assert header == written(envelope)


@given(suffixes)
def test_a_suffix_is_read_back(suffix: Suffix) -> None:
    assert decode_suffix(encode_suffix(suffix)) == suffix


@given(envelopes)
def test_every_field_survives(envelope: Envelope) -> None:
    decoded = decode(encode_envelope(envelope))
    assert decoded == envelope
    assert [type(field) for field in decoded] == [type(field) for field in envelope]
    assert type(decoded.suffix.detail) is type(envelope.suffix.detail)
