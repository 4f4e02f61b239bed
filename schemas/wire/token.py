"""The token of an unknown outcome: names the messages in question, in bytes that can be stored (`token.avsc`)."""

from __future__ import annotations

import json
from importlib.resources import files
from io import BytesIO
from itertools import accumulate
from typing import Any, Final, NamedTuple, cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address

from .records import NO_SEQUENCE, address_from_avro, address_to_avro
from .varint import read_varint, varint

VERSION: Final = b"\x01"


class Sent(NamedTuple):
    """Unacknowledged messages of one dialog that were sent under one writer id."""

    writer: bytes
    address: Address
    conversation: bytes
    sequence: int
    """Sequence number of the first message; the others follow. NO_SEQUENCE where the home sends on the dialog too."""
    counters: tuple[int, ...]
    """Counters of their records, ascending; none when the messages are held."""
    held: int = -1
    """Lowest counter that held messages would get: they wait for a BEGIN. -1 when they are not held."""


class Token(NamedTuple):
    """Content of a token."""

    sent: tuple[Sent, ...]
    transmission: Address | None = None
    """Partition of the transmission queue with the session's transactions; None when it made none."""


def encode(token: Token) -> bytes:
    """The bytes of a token."""
    out = BytesIO()
    place = address_to_avro(token.transmission)
    schemaless_writer(out, _SCHEMA, {"sent": list(map(_to_avro, token.sent)), "transmission": place}, strict=True)
    return VERSION + out.getvalue()


def decode(token: bytes) -> Token:
    """The content of a token; MalformedRecord for any other bytes."""
    source = BytesIO(token)
    try:
        if source.read(1) != VERSION:
            raise MalformedRecord("not a token of an unknown outcome")
        value = cast("dict[str, Any]", schemaless_reader(source, _SCHEMA, None))
        place = value["transmission"]
        found = Token(tuple(map(_from_avro, value["sent"])), None if place is None else address_from_avro(place))
        whole = source.tell() == len(token) and encode(found) == token
    except MalformedRecord:
        raise
    except Exception as error:  # fastavro raises a dozen types for broken input; they all mean this
        raise MalformedRecord("a token of an unknown outcome that is not Avro") from error
    if not found.sent or not whole:
        raise MalformedRecord("a token of an unknown outcome that was changed")
    return found


def _to_avro(sent: Sent) -> dict[str, Any]:
    steps = (after - before for before, after in zip((0, *sent.counters), sent.counters, strict=False))
    address = sent.address
    return {
        "writer": sent.writer,
        "topic": address.topic,
        "partition": address.partition,
        "tag": address.tag,
        "conversation": sent.conversation,
        "sequence": sent.sequence,
        "counters": b"".join(map(varint, steps)),
        "held": sent.held,
    }


def _from_avro(value: dict[str, Any]) -> Sent:
    steps: list[int] = []
    at, data = 0, value["counters"]
    while at < len(data):
        step, at = read_varint(data, at)
        steps.append(step)
    counters = tuple(accumulate(steps))
    if (value["held"] < 0) is not bool(counters) or min(steps[1:], default=1) < 1 or min(counters, default=0) < 0:
        raise MalformedRecord("a token of an unknown outcome that contradicts itself")
    if value["sequence"] < NO_SEQUENCE or value["partition"] < 0 or not value["topic"]:
        raise MalformedRecord("a token of an unknown outcome that names no partition")
    address = Address(value["topic"], value["partition"], value["tag"])
    return Sent(value["writer"], address, value["conversation"], value["sequence"], counters, value["held"])


_SCHEMA: Final = parse_schema(json.loads(files("konverse.schemas").joinpath("token.avsc").read_text("utf-8")))
