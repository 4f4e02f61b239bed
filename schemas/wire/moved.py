"""State of an endpoint that moves to another partition (protocol.md section 7.3). Plain Avro (`moved.avsc`).

The state is cut into pieces that fit into records; each is the body of an INSTALL. `decode_moved` is total: for any
bytes it returns a Moved or raises MalformedRecord.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files
from io import BytesIO
from typing import Any, Final, NamedTuple, cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address
from konverse.schemas.levels import DEFAULT_LEVEL, HIGHEST, LOWEST
from konverse.schemas.limits import BODY_BYTES_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX, TIME_MS_MAX, WRITER_RECORDS_MAX
from konverse.schemas.system_messages import DIALOG_TIMER, ERROR

from .records import Begin, Origin, address_from_avro, address_to_avro, begin_from_avro, begin_to_avro, origin_from_avro
from .varint import varint

_LEVELS: Final = {b"" if level == DEFAULT_LEVEL else varint(level): level for level in range(LOWEST, HIGHEST + 1)}
"""Bytes after the Avro record -> priority level."""


class MovedMessage(NamedTuple):
    """A message that waits in an endpoint that moves."""

    type: str
    body: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes]]
    origin: Origin


class MovedFinish(NamedTuple):
    """Directions of its conversation that FIN has closed."""

    own: bool
    peer: bool
    answer: tuple[tuple[bytes, int], ...] | None
    askers: tuple[bytes, ...]


class Moved(NamedTuple):
    """Complete state of an endpoint. The envelope of INSTALL names its role and its conversation."""

    generation: int
    previous: Address
    first: Address
    """Where it began. Its peer and its session write there."""
    named: bool
    """The caller chose the id of its conversation."""
    state: int
    service: str
    far_service: str
    contract: str
    peer: Address
    opener: bytes
    key: bytes | None
    group: bytes | None
    begin: Begin | None
    received: int
    consumed: int
    sent: int
    voices: list[tuple[bytes, int]]
    waiting: list[MovedMessage]
    urgent: list[MovedMessage]
    """DialogTimer and Error, which overtake the waiting messages."""
    finished: MovedFinish | None
    timer_ms: int
    """Due time in milliseconds since 1970; -1 when no timer is set."""
    expires_ms: int
    """End of the lifetime in milliseconds since 1970; -1: never."""
    end_of_stream: str | None
    """Message type that the home sends when the timer rings, for a conversation of a pool."""
    level: int = DEFAULT_LEVEL
    """Priority level. A level other than the default follows the Avro record, so older states stay readable."""


class MovedGroup(NamedTuple):
    """Conversation group in the first piece of a state."""

    generation: int
    service: str
    group: bytes | None
    """None: a target in its own group."""


def encode_moved(moved: Moved) -> bytes:
    """The bytes of a state."""
    out = BytesIO()
    value = {
        **moved._asdict(),
        "previous": address_to_avro(moved.previous),
        "first": address_to_avro(moved.first),
        "peer": address_to_avro(moved.peer),
        "begin": moved.begin and begin_to_avro(moved.begin),
        "voices": _voices_to_avro(moved.voices),
        "waiting": [_message_to_avro(message) for message in moved.waiting],
        "urgent": [_message_to_avro(message) for message in moved.urgent],
        "finished": moved.finished and _finish_to_avro(moved.finished),
    }
    del value["level"]
    schemaless_writer(out, MOVED_SCHEMA, value, strict=True)
    return out.getvalue() + (b"" if moved.level == DEFAULT_LEVEL else varint(moved.level))


def decode_moved(data: bytes) -> Moved:
    """The state in `data`; MalformedRecord for anything else, whatever the bytes are."""
    source = BytesIO(data)
    try:
        value = cast("dict[str, Any]", schemaless_reader(source, MOVED_SCHEMA, None))
        moved = Moved(**{
            **value,
            "previous": address_from_avro(value["previous"]),
            "first": address_from_avro(value["first"]),
            "peer": address_from_avro(value["peer"]),
            "begin": value["begin"] and begin_from_avro(value["begin"]),
            "voices": _voices_from_avro(value["voices"]),
            "waiting": [_message_from_avro(message) for message in value["waiting"]],
            "urgent": [_message_from_avro(message) for message in value["urgent"]],
            "finished": value["finished"] and _finish_from_avro(value["finished"]),
        })  # fmt: skip
    except Exception as error:  # fastavro raises a dozen types for broken input; they all mean this
        raise MalformedRecord("the state of an endpoint that is not Avro") from error
    level = _LEVELS.get(data[source.tell() :])
    if level is None:
        raise MalformedRecord("the state of an endpoint with trailing bytes")
    types = [message.type for message in moved.urgent]
    known = types in ([], [DIALOG_TIMER], [ERROR], [DIALOG_TIMER, ERROR])
    known &= all(-1 <= time_ms <= TIME_MS_MAX for time_ms in (moved.timer_ms, moved.expires_ms))
    known &= 0 < moved.generation < WRITER_RECORDS_MAX
    numbers = (moved.sent, moved.received, *(last for _, last in moved.voices))
    known &= all(-1 <= number < WRITER_RECORDS_MAX for number in numbers)
    if not known or not 0 <= moved.consumed <= moved.received - len(moved.waiting) or _is_too_long(moved):
        raise MalformedRecord("an impossible endpoint state")
    return moved._replace(level=level)


def _is_too_long(moved: Moved) -> bool:
    """Whether a name or the key is longer than any that an endpoint may have."""
    names = [moved.service, moved.far_service, moved.contract, moved.end_of_stream or ""]
    names += [message.type for message in moved.waiting]
    return len(moved.key or b"") > KEY_BYTES_MAX or any(len(name.encode()) > NAME_BYTES_MAX for name in names)


def group_of_moved(piece: bytes) -> MovedGroup:
    """The group in the first piece of a state; MalformedRecord for bytes that do not begin like a state."""
    try:
        value = cast("dict[str, Any]", schemaless_reader(BytesIO(piece), _GROUP_SCHEMA, None))
    except Exception as error:  # as above
        raise MalformedRecord("the state of an endpoint that is not Avro") from error
    return MovedGroup(*(value[name] for name in MovedGroup._fields))


def pieces_of(data: bytes) -> list[bytes]:
    """The bytes of a state, cut into record bodies."""
    return [data[at : at + BODY_BYTES_MAX] for at in range(0, len(data), BODY_BYTES_MAX)]


def _voices_to_avro(voices: Iterable[tuple[bytes, int]]) -> list[dict[str, Any]]:
    return [{"writer": writer, "last": last} for writer, last in voices]


def _voices_from_avro(value: list[dict[str, Any]]) -> list[tuple[bytes, int]]:
    return [(voice["writer"], voice["last"]) for voice in value]


def _finish_to_avro(finished: MovedFinish) -> dict[str, Any]:
    answer = None if finished.answer is None else _voices_to_avro(finished.answer)
    return {"own": finished.own, "peer": finished.peer, "answer": answer, "askers": [*finished.askers]}


def _finish_from_avro(value: dict[str, Any]) -> MovedFinish:
    answer = None if value["answer"] is None else tuple(_voices_from_avro(value["answer"]))
    return MovedFinish(value["own"], value["peer"], answer, tuple(value["askers"]))


def _message_to_avro(message: MovedMessage) -> dict[str, Any]:
    return {
        **message._asdict(),
        "headers": [{"name": name, "value": value} for name, value in message.headers],
        "origin": message.origin._asdict(),
    }


def _message_from_avro(value: dict[str, Any]) -> MovedMessage:
    headers = [(header["name"], header["value"]) for header in value["headers"]]
    return MovedMessage(**{**value, "headers": headers, "origin": origin_from_avro(value["origin"])})


_PLAIN: Final = json.loads(files("konverse.schemas").joinpath("moved.avsc").read_text("utf-8"))

MOVED_SCHEMA: Final = parse_schema(_PLAIN)

_FIELDS: Final = [field["name"] for field in _PLAIN["fields"]]
_GROUP_SCHEMA: Final = parse_schema({**_PLAIN, "fields": _PLAIN["fields"][: _FIELDS.index("group") + 1]})
"""The schema up to the group. Only short fields precede it, so the first piece contains the group."""
