"""Durations on the command line."""

from __future__ import annotations

import re
from typing import Final

import typer

UNITS_S: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def seconds(text: str) -> float:
    """Parse the value of `--older-than`, such as 30m, to seconds. Raises typer.BadParameter."""
    matched = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if matched is None:
        raise typer.BadParameter(f"{text!r} is not a duration; write 90s, 30m, 1h or 2d", param_hint="--older-than")
    return float(matched[1]) * UNITS_S[matched[2]]


def age(age_s: float) -> str:
    """An age in the largest unit of which it has at least two, in the form that `--older-than` takes."""
    for unit in ("d", "h", "m"):
        if age_s >= 2 * UNITS_S[unit]:
            return f"{int(age_s // UNITS_S[unit])}{unit}"
    return f"{int(age_s)}s"
