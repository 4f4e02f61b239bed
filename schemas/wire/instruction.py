"""An operator's instruction to the owners of a queue, from any process (`instruction.avsc`)."""

from __future__ import annotations

import json
from enum import StrEnum
from importlib.resources import files
from io import BytesIO
from typing import Any, Final, NamedTuple, cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from konverse.schemas.errors import InvalidError, MalformedRecord
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import INSTRUCTION_BYTES_MAX
from konverse.schemas.system_messages import check_error

VERSION: Final = b"\x01"
ANY: Final = "ANY"
"""In the record of an instruction for each side of the conversation."""


class Action(StrEnum):
    """The action that the owner takes on a conversation (protocol.md section 7.1)."""

    RESUME = "RESUME"
    """Deliver its suspended group again, with five new attempts."""
    SKIP = "SKIP"
    """Drop its first message, and resume it."""
    END = "END"
    """End the conversation."""
    CLEANUP = "CLEANUP"
    """End it WITH CLEANUP, whatever its state."""
    FAIL = "FAIL"
    """Fail the conversation if it is open: both sides get an Error (behaviour 136)."""
    SUSPEND = "SUSPEND"
    """Stop delivering its messages."""
    DONE = "DONE"
    """Ends an earlier instruction and its copies: owners carry none of them out again. The operator of the instruction
    writes DONE after it has seen the result."""


class Instruction(NamedTuple):
    """One instruction of an operator."""

    database: str
    queue: str
    conversation: bytes
    first: int
    """For RESUME and SKIP: identifies the first waiting entry; the instruction is void once another entry is first.

    2 (offset + 1) for a message, 2 (due time in ms) + 1 for a DialogTimer. For DONE: the offset of the instruction
    that was carried out. 0 for all other actions, which are meant for the conversation as it is.
    """
    action: Action
    error: int = 0
    description: str = ""
    """Description of the error; for SUSPEND the reason; for DONE the action that was carried out."""
    role: Role | None = None
    """The side that is meant, as both may live in one queue; None: each side that the queue has."""


def encode(instruction: Instruction) -> bytes:
    """The bytes of an instruction."""
    out, value = BytesIO(), instruction._asdict()
    role = value.pop("role")
    value |= {"action": instruction.action.value, "side": ANY if role is None else role.name}
    schemaless_writer(out, _SCHEMA, value, strict=True)
    return VERSION + out.getvalue()


def decode(data: bytes) -> Instruction:
    """The instruction in `data`; MalformedRecord for any other bytes."""
    source = BytesIO(data)
    try:
        if source.read(1) != VERSION or len(data) > INSTRUCTION_BYTES_MAX:
            raise MalformedRecord("not an operator's instruction")
        value = cast("dict[str, Any]", schemaless_reader(source, _SCHEMA, None))
        side = value.pop("side")
        found = Instruction(**value | {"action": Action(value["action"])}, role=None if side == ANY else Role[side])
        if found.action not in {Action.SUSPEND, Action.DONE}:
            check_error(found.error, found.description)
        whole = source.tell() == len(data) and encode(found) == data
    except (MalformedRecord, InvalidError) as error:
        raise MalformedRecord(f"an invalid instruction: {error}") from None
    except Exception as error:  # fastavro raises a dozen types for broken input; they all mean this
        raise MalformedRecord("an instruction that is not Avro") from error
    if not whole or found.first < 0:
        raise MalformedRecord("an instruction that was changed")
    return found


_SCHEMA: Final = parse_schema(json.loads(files("konverse.schemas").joinpath("instruction.avsc").read_text("utf-8")))
