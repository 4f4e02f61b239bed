"""Values of options: durations, seconds and texts. An unusable value is reported as wrong usage."""

from __future__ import annotations

import math
import re
from threading import TIMEOUT_MAX
from typing import Final

import typer

UNITS_S: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def seconds(text: str) -> float:
    """Parse the value of `--older-than`, such as 30m, to seconds. Raises typer.BadParameter."""
    matched = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if matched is None:
        raise typer.BadParameter(f"{text!r} is not a duration; write 90s, 30m, 1h or 2d", param_hint="--older-than")
    try:
        return finite(float(matched[1]) * UNITS_S[matched[2]])
    except typer.BadParameter as error:
        raise typer.BadParameter(error.message, param_hint="--older-than") from None


def finite(value: float) -> float:
    """Return a number of seconds that Python's locks can wait. Raises typer.BadParameter.

    Callback of every float option: the option's minimum does not exclude inf, and in some versions of typer not nan.
    """
    if not math.isfinite(value) or value > TIMEOUT_MAX:
        raise typer.BadParameter(f"give a number of seconds, at most {TIMEOUT_MAX:,.0f}")
    return value


def age(age_s: float) -> str:
    """An age in the largest unit of which it has at least two, in the form that `--older-than` takes."""
    for unit in ("d", "h", "m"):
        if age_s >= 2 * UNITS_S[unit]:
            return f"{int(age_s // UNITS_S[unit])}{unit}"
    return f"{int(age_s)}s"


def utf8(text: str) -> str:
    """Return a text that can become part of a record. Raises typer.BadParameter.

    Python reads bytes that are not UTF-8 as surrogates, which no record can hold.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{text!r} is not UTF-8") from None
    return text
