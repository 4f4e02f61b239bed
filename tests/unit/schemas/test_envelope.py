"""Envelopes that are refused, and the largest contents that an envelope must have room for."""

from __future__ import annotations

import pytest

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import (
    END_WRITERS_MAX,
    HEADER_BYTES_MAX,
    KEY_BYTES_MAX,
    NAME_BYTES_MAX,
    SUFFIX_BYTES_MAX,
    SUFFIX_CACHE_ENTRIES_MAX,
    TIMEOUT_MS_MAX,
    TOPIC_NAME_LENGTH_MAX,
    WRITER_RECORDS_MAX,
)
from konverse.schemas.system_messages import END_DIALOG
from konverse.schemas.wire import envelope as module
from konverse.schemas.wire.envelope import (
    CONVERSATION_AT,
    PREFIX_BYTES,
    decode,
    decode_suffix,
    encode,
    encode_envelope,
    encode_suffix,
    head,
    shared,
)
from konverse.schemas.wire.records import FIRST, NO_SEQUENCE, Begin, Bounce, BounceReason, End, Envelope, Kind, Suffix
from konverse.schemas.wire.varint import varint
from tests.kit.builders import identifier

NUMBER_MAX = WRITER_RECORDS_MAX - 1
NAME = "n" * NAME_BYTES_MAX
FAR = Address("t" * TOPIC_NAME_LENGTH_MAX, 2**31 - 1, b"tagg")
BEGIN = Begin(NAME, NAME, NAME, FAR, FAR, identifier("g"), b"k" * KEY_BYTES_MAX, NAME, TIMEOUT_MS_MAX)
WRITERS = tuple((identifier(str(number)), NUMBER_MAX) for number in range(END_WRITERS_MAX))


def envelope(suffix: Suffix | None = None) -> Envelope:
    plain = suffix or Suffix("order")
    return Envelope(Kind.MESSAGE, 0, Role.INITIATOR, b"tagg", identifier("w"), identifier("c"), 7, NO_SEQUENCE, plain)


@pytest.mark.parametrize(
    "suffix",
    [
        Suffix(NAME, begin=BEGIN, origin=identifier("o")),
        Suffix(END_DIALOG, detail=End(identifier("o"), FAR, WRITERS)),
        Suffix(NAME, detail=Bounce(identifier("w"), NUMBER_MAX, FAR, BounceReason.WRITER_CLOSED)),
    ],
    ids=["FIRST", "END", "BOUNCE"],
)
def test_the_longest_honest_envelope_has_room(suffix: Suffix) -> None:
    longest = envelope(suffix)._replace(counter=NUMBER_MAX, sequence=NUMBER_MAX, flags=FIRST)
    header = encode_envelope(longest)
    assert len(header) <= HEADER_BYTES_MAX
    assert decode(header) == longest


@pytest.mark.parametrize(
    ("kind", "writer", "conversation", "allowed"),
    [
        (Kind.MESSAGE, bytes(16), identifier("c"), False),
        (Kind.CLOSE_WRITER, bytes(16), identifier("c"), False),
        (Kind.CLOSE_WRITER, identifier("w"), bytes(16), False),
        (Kind.VOID, identifier("w"), bytes(16), True),
    ],
)
def test_a_record_by_the_zero_id_or_one_that_closes_it_is_malformed(
    kind: Kind, writer: bytes, conversation: bytes, allowed: bool
) -> None:
    """The zero id stands for "no heir, ever". Partitions would look its heirs up for ever."""
    header = encode_envelope(Envelope(kind, 0, Role.INITIATOR, b"tag!", writer, conversation, 0, -1, Suffix()))
    if allowed:
        assert decode(header).kind is kind
    else:
        with pytest.raises(MalformedRecord, match="names no writer"):
            decode(header)


@pytest.mark.parametrize(("too_long", "allowed"), [(0, True), (1, False)])
def test_the_bound_is_one_of_the_suffix_so_that_it_holds_for_every_number(too_long: int, allowed: bool) -> None:
    """A predicted record is as long as a fully decoded one."""
    detail = End(identifier("o"), FAR, ((identifier("w"), 0),) * 216)
    rest = SUFFIX_BYTES_MAX - len(encode_suffix(Suffix("t" * 64, detail=detail)))
    suffix = Suffix("t" * (64 + rest + too_long), detail=detail)
    assert len(encode_suffix(suffix)) == SUFFIX_BYTES_MAX + too_long
    for number in (0, 63, 64, NUMBER_MAX):
        header = encode_envelope(envelope(suffix)._replace(counter=number, sequence=number))
        if allowed:
            assert decode(header).counter == number
            assert len(header) <= HEADER_BYTES_MAX
        else:
            with pytest.raises(MalformedRecord):
                decode(header)


def test_every_cut_of_an_envelope_is_malformed() -> None:
    header = encode_envelope(envelope(Suffix("order", home=FAR, detail=End(identifier("o"), FAR, WRITERS[:2]))))
    for end in range(len(header)):
        with pytest.raises(MalformedRecord):
            decode(header[:end])


def test_bytes_behind_an_envelope_are_malformed() -> None:
    with pytest.raises(MalformedRecord, match="trailing bytes"):
        decode(encode_envelope(envelope()) + b"\x00")


@pytest.mark.parametrize("byte", [1, 3, 0x7F, 0x80, 0xFE, 0xFF])
def test_an_unknown_kind_byte_is_malformed(byte: int) -> None:
    header = encode_envelope(envelope())
    with pytest.raises(MalformedRecord):
        decode(bytes([byte]) + header[1:])


@pytest.mark.parametrize("byte", [Kind.LATER << 1, 0x7E])
def test_of_a_kind_of_a_later_version_all_is_read_but_its_end(byte: int) -> None:
    known = envelope()
    end = len(encode_suffix(known.suffix))
    header = bytes([byte]) + encode_envelope(known)[1:-end] + b"whatever it means"
    assert decode(header) == known._replace(kind=Kind.LATER, suffix=Suffix())


@pytest.mark.parametrize("byte", [1, 3, 4, 0x80, 0xFF])
def test_a_role_that_does_not_exist_is_malformed(byte: int) -> None:
    header = encode_envelope(envelope())
    with pytest.raises(MalformedRecord):
        decode(header[:2] + bytes([byte]) + header[3:])


@pytest.mark.parametrize("flags", [0, 1, 2, 0x80, 0xFF])
def test_unknown_flags_are_preserved(flags: int) -> None:
    assert decode(encode_envelope(envelope()._replace(flags=flags))).flags == flags


def test_a_suffix_in_another_form_is_malformed() -> None:
    """The message type's length in two bytes instead of one: Avro allows it, but a record must have one encoding."""
    header = encode_envelope(envelope())
    at = len(header) - len(encode_suffix(Suffix("order")))
    assert header[at] == len("order") << 1
    with pytest.raises(MalformedRecord, match="canonical"):
        decode(header[:at] + bytes([header[at] | 0x80, 0]) + header[at + 1 :])


@pytest.mark.parametrize("text", [b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf"], ids=["no UTF-8", "surrogate", "overlong"])
def test_a_message_type_that_is_no_text_is_malformed(text: bytes) -> None:
    header = encode_envelope(envelope(Suffix("x" * len(text))))
    with pytest.raises(MalformedRecord):
        decode(header.replace(b"x" * len(text), text))


def test_a_begin_has_no_lifetime_key_or_broker_instance_by_default() -> None:
    plain = Begin("a", "b", "c", FAR, FAR, identifier("g"))
    assert (plain.lifetime_ms, plain.key, plain.broker_instance) == (-1, None, None)


def test_a_header_is_a_prefix_two_numbers_and_a_suffix() -> None:
    start = head(Kind.END, FIRST, Role.TARGET, b"tagg", identifier("w"))
    assert (len(start), len(start + identifier("c"))) == (CONVERSATION_AT, PREFIX_BYTES)
    header = encode(start + identifier("c"), 300, -1, encode_suffix(Suffix("order")))
    assert header[PREFIX_BYTES : PREFIX_BYTES + 3] == b"\xd8\x04\x01"
    assert decode(header) == Envelope(
        *(Kind.END, FIRST, Role.TARGET, b"tagg", identifier("w"), identifier("c"), 300, -1), Suffix("order")
    )


def test_suffixes_that_repeat_are_read_once() -> None:
    suffix = encode_suffix(Suffix("a suffix that repeats"))
    assert decode_suffix(suffix) is decode_suffix(bytes(bytearray(suffix)))


@pytest.mark.parametrize(
    ("suffix", "repeats"),
    [
        (Suffix("a type", home=FAR), True),
        (Suffix("a type", begin=BEGIN), False),
        (Suffix("a type", detail=End(identifier("o"), FAR)), False),
    ],
    ids=["message", "FIRST", "END"],
)
def test_suffixes_that_occur_only_once_are_not_cached(suffix: Suffix, repeats: bool) -> None:
    data = encode_suffix(suffix)
    assert (decode_suffix(data) is decode_suffix(data)) is repeats
    again = bytes(bytearray(data))
    assert (shared(data) is shared(again)) is repeats
    assert shared(again) == data


def test_the_suffix_cache_is_bounded() -> None:
    for number in range(SUFFIX_CACHE_ENTRIES_MAX + 10):
        decode_suffix(encode_suffix(Suffix(f"type {number}")))
        assert len(module._suffixes) <= SUFFIX_CACHE_ENTRIES_MAX


def test_a_suffix_that_is_malformed_is_not_remembered() -> None:
    for _ in range(2):
        with pytest.raises(MalformedRecord):
            decode_suffix(b"\xff\xff\xff")
    assert b"\xff\xff\xff" not in module._suffixes


@pytest.mark.parametrize("nowhere", [("a\0b", 0), ("", 0), ("topic", -1)], ids=["NUL", "no topic", "no partition"])
def test_an_address_that_is_no_place_in_kafka_is_malformed(nowhere: tuple[str, int]) -> None:
    """An answer to it could never be sent, and would be retried for ever."""
    home = Address(*nowhere, b"tagg")
    start = head(Kind.MESSAGE, 0, Role.TARGET, b"tagg", identifier("w")) + identifier("c")
    with pytest.raises(MalformedRecord):
        decode(encode(start, 0, 0, encode_suffix(Suffix("t", home=home))))


LONG = "t" * (NAME_BYTES_MAX + 1)
BEGIN = Begin("shop", "orders", "ordering", FAR, FAR, identifier("group"))


@pytest.mark.parametrize(
    "suffix",
    [
        Suffix(LONG),
        Suffix("\u00e9" * (NAME_BYTES_MAX // 2 + 1)),
        Suffix("t", begin=BEGIN._replace(from_service=LONG)),
        Suffix("t", begin=BEGIN._replace(to_service=LONG)),
        Suffix("t", begin=BEGIN._replace(contract=LONG)),
        Suffix("t", begin=BEGIN._replace(broker_instance=LONG)),
        Suffix("t", begin=BEGIN._replace(key=bytes(KEY_BYTES_MAX + 1))),
        *(Suffix("t", home=Address(topic, 0, b"tag!")) for topic in ("", "a topic", "a\0", "\u00e9", "a" * 250)),
    ],
)
def test_a_suffix_with_an_oversized_name_or_an_invalid_topic_is_malformed(suffix: Suffix) -> None:
    """Otherwise an answer to it would be too long, or would go to an address that Kafka refuses."""
    with pytest.raises(MalformedRecord):
        decode(encode_envelope(envelope(suffix)))


def test_a_place_behind_the_last_partition_is_malformed() -> None:
    honest = encode_envelope(envelope(Suffix("t", detail=End(identifier("o"), Address("far", 2**31 - 1, b"tag!"), ()))))
    assert isinstance(decode(honest).suffix.detail, End)
    with pytest.raises(MalformedRecord):
        decode(honest.replace(varint(2**31 - 1), varint(2**31)))
