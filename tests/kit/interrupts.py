"""Interrupts a call at the points where the interpreter would handle a signal, such as that of Ctrl-C."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Collection
from functools import cache
from types import CodeType, FrameType
from typing import Any, Final

_CALLS: Final = {"RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX"}


def interrupted_at(place: int, traced: Collection[CodeType], call: Callable[[], object]) -> bool:
    """Make the call, and raise KeyboardInterrupt at point number `place` of the traced code, counted from 0.

    Returns False when the code reaches fewer points. A point is the begin of a function, or follows a call: the
    interpreter handles signals there, not between any two bytecodes.
    """
    left = place
    before: tuple[CodeType, int] | None = None
    """The code and the offset of the previous instruction, if that was a call."""

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left, before
        code, at = frame.f_code, frame.f_lasti
        if code not in traced:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            left -= before is not None and _is_raised_alike(*before, code, at)
            before = (code, at) if dis.opname[code.co_code[at]] in _CALLS else None
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(former)
    return False


def _is_raised_alike(caller: CodeType, called_at: int, code: CodeType, at: int) -> bool:
    """Whether an exception raised in the next instruction reaches the same handler as one raised in the call.

    The interpreter raises a signal's exception in the call; a tracer can raise only in the next instruction.
    """
    return caller is not code or _handler(code, called_at) == _handler(code, at)


@cache
def _handler(code: CodeType, at: int) -> int | None:
    entries: list[Any] = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    return next((entry.target for entry in entries if entry.start <= at < entry.end), None)
