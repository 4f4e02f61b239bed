"""What stands in errors: numbers that depend on the call, and texts no longer than a person reads."""

from __future__ import annotations

from typing import Final

ENDED_TWICE: Final = 8427
"""Number of an END in a state that does not allow it."""

BAD_INPUT_CHARACTERS_MAX: Final = 1_000
"""Of the text of an error that echoes what a caller gave."""

ERROR_CHARACTERS_MAX: Final = 4_000
"""Of the text of any other error."""

_END_CHARACTERS: Final = 400
_LEFT_OUT_CHARACTERS: Final = 40


def without_middle(text: str, most: int) -> str:
    """The text, as far as it is no longer: its beginning names the object, and its end the remedy."""
    if len(text) <= most:
        return text
    begin = most - _END_CHARACTERS - _LEFT_OUT_CHARACTERS
    left_out = f"… ({len(text) - begin - _END_CHARACTERS:,} characters more) …"
    return f"{text[:begin]}{left_out}{text[-_END_CHARACTERS:]}"
