"""What an operator tells the owners of a queue, from any process (`instruction.avsc`)."""

from __future__ import annotations

import json
from enum import StrEnum
from importlib.resources import files
from io import BytesIO
from typing import Any, Final, NamedTuple, cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from konverse.schemas.errors import InvalidError, MalformedRecord
from konverse.schemas.limits import INSTRUCTION_BYTES_MAX
from konverse.schemas.system_messages import check_error

VERSION: Final = b"\x01"


class Action(StrEnum):
    """What is to be done with a conversation (protocol.md section 7.1)."""

    RESUME = "RESUME"
    """Hand its messages out again, with five attempts more: it is suspended."""
    SKIP = "SKIP"
    """Drop the first of them, and resume it."""
    END = "END"
    """End the conversation."""
    CLEANUP = "CLEANUP"
    """End it WITH CLEANUP, whatever its state."""
    FAIL = "FAIL"
    """Give it up, when it is open: both sides get an Error (behaviour 136)."""
    SUSPEND = "SUSPEND"
    """Hand nothing of it out any more."""


class Instruction(NamedTuple):
    """What an operator wants."""

    database: str
    queue: str
    conversation: bytes
    first: int
    """What waits first: 2 (offset + 1), of a DialogTimer 2 (when it was due) + 1. Another one is not meant any more.

    Of RESUME and SKIP; 0 for the others, which are meant for the conversation.
    """
    action: Action
    error: int = 0
    description: str = ""
    """Of the error; of SUSPEND why."""


def encode(instruction: Instruction) -> bytes:
    """The bytes of an instruction."""
    out = BytesIO()
    schemaless_writer(out, _SCHEMA, {**instruction._asdict(), "action": instruction.action.value}, strict=True)
    return VERSION + out.getvalue()


def decode(data: bytes) -> Instruction:
    """The instruction in `data`; MalformedRecord for any other bytes."""
    source = BytesIO(data)
    try:
        if source.read(1) != VERSION or len(data) > INSTRUCTION_BYTES_MAX:
            raise MalformedRecord("no instruction of an operator")
        value = cast("dict[str, Any]", schemaless_reader(source, _SCHEMA, None))
        found = Instruction(**{**value, "action": Action(value["action"])})
        if found.action is not Action.SUSPEND:
            check_error(found.error, found.description)
        whole = source.tell() == len(data) and encode(found) == data
    except (MalformedRecord, InvalidError) as error:
        raise MalformedRecord(f"an instruction that cannot be: {error}") from None
    except Exception as error:  # fastavro raises a dozen types for broken input; they all mean this
        raise MalformedRecord("an instruction that is not Avro") from error
    if not whole or found.first < 0:
        raise MalformedRecord("an instruction that was changed")
    return found


_SCHEMA: Final = parse_schema(json.loads(files("konverse.schemas").joinpath("instruction.avsc").read_text("utf-8")))
