"""Keys of JSON documents, by the part of JSONPath that names one place: the singular queries of RFC 9535.

A classifier needs one value. Filters, slices and wildcards could give several, and a body could make them take any
time. A singular query is `$`, followed by names (`.region`, `['the region']`) and indexes (`[0]`, `[-1]`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from konverse.schemas.errors import InvalidSettings
from konverse.schemas.limits import JSON_DEPTH_ENTRIES_MAX
from konverse.schemas.validation import is_too_deep

from .rule import Lookup, NoKey, no_key_for, text_of

_BLANK: Final = r"[ \t\n\r]*"
_STEP: Final = re.compile(
    rf"""{_BLANK}(?:
        \.(?P<name>[A-Za-z_\u0080-\ud7ff\ue000-\U0010ffff][0-9A-Za-z_\u0080-\ud7ff\ue000-\U0010ffff]*)
        | \[{_BLANK}(?:
            (?P<index>0|-?[1-9][0-9]{{0,15}})
            | '(?P<single>(?:[^'\\\x00-\x1f]|\\.)*)'
            | "(?P<double>(?:[^"\\\x00-\x1f]|\\.)*)"
          ){_BLANK}\]
    )""",
    re.VERBOSE,
)
_EXACT: Final = 2**53 - 1
"""Largest index: JSON integers up to this are read alike by every program."""


def steps_of(path: str) -> tuple[str | int, ...]:
    """The names and indexes of a singular query. Raises InvalidSettings for any other text."""
    if not path.startswith("$"):
        raise InvalidSettings(f"{path!r} is not a valid JSONPath: it begins with $, the whole document")
    steps: list[str | int] = []
    place = 1
    while place < len(path):
        found = _STEP.match(path, place)
        if found is None:
            raise InvalidSettings(
                f"{path!r} is not a JSONPath of one place, from {path[place:]!r} on: after $ come names, like "
                ".region or ['the region'], and indexes, like [0] or [-1]"
            )
        steps.append(_step(path, found))
        place = found.end()
    return tuple(steps)


def _step(path: str, found: re.Match[str]) -> str | int:
    name, index, single, double = found["name"], found["index"], found["single"], found["double"]
    if name is not None:
        return name
    if index is not None:
        number = int(index)
        if abs(number) > _EXACT:
            raise InvalidSettings(f"{path!r} is not a valid JSONPath: index {index} is beyond {_EXACT}")
        return number
    if single is not None:  # single-quoted: \' becomes ', " is escaped, \" is an error
        double = re.sub(r"\\.|\"", lambda each: {"\\'": "'", '"': '\\"', '\\"': "\\x"}.get(each[0], each[0]), single)
    try:
        text = str(json.loads(f'"{double}"'))
        text.encode()
    except ValueError as error:
        raise InvalidSettings(
            f"{path!r} is not a valid JSONPath: {found[0].strip()} is not a valid name ({error})"
        ) from None
    return text


def _too_deep() -> NoKey:
    return NoKey(f"The body has objects and arrays nested deeper than {JSON_DEPTH_ENTRIES_MAX}.")


class JsonPath:
    """The value at one place of a document."""

    kind = "json_path"

    def __init__(self, path: str) -> None:
        """Raises InvalidSettings for a path that is not a singular query."""
        self._path = path
        self._steps = steps_of(path)

    def key_of(self, message: Any, _lookup: Lookup | None = None) -> str:
        """The string at the place, or the integer or boolean as JSON writes it."""
        try:
            value = json.loads((message.body or b"").decode(), parse_constant=_no_number)
        except RecursionError:
            raise _too_deep() from None
        except ValueError as error:
            raise no_key_for("The body is not a valid JSON document", error) from None
        if is_too_deep(value, message.body or b""):
            raise _too_deep()
        for step in self._steps:
            value = _at(value, step)
            if value is _ABSENT:
                raise NoKey(f"The body has nothing at {self._path}.")
        return text_of(value, self._path)

    def described(self) -> Mapping[str, Any]:
        """The path."""
        return {"path": self._path}


_ABSENT: Final = object()


def _at(value: Any, step: str | int) -> Any:
    """The member or element of a value at a name or an index; `_ABSENT` if there is none."""
    if isinstance(step, str):
        return value.get(step, _ABSENT) if isinstance(value, dict) else _ABSENT
    fits = isinstance(value, list) and -len(value) <= step < len(value)
    return value[step] if fits else _ABSENT


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not a valid number in JSON")
