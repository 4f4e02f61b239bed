"""Validates JSON bodies against a JSON Schema, with jsonschema-rs. Draft 2020-12, unless the schema has `$schema`.

`format` is an annotation and rejects nothing, as the standard says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from konverse.schemas.errors import InvalidSchema
from konverse.schemas.limits import JSON_DEPTH_ENTRIES_MAX
from konverse.schemas.validation import is_too_deep

from .rules import Check, loaded


def check_of(documents: Sequence[str]) -> Check:
    """Make the check of bodies against a JSON Schema. Raises InvalidSchema, also if it refers to another document."""
    from jsonschema_rs import validator_for  # noqa: PLC0415  # optional library: the caller checks that it is installed

    schema: Any = loaded(documents[0])
    try:
        validator = validator_for(schema, retriever=_refuse)
    except ValueError as error:
        raise InvalidSchema(f"the JSON Schema cannot be used: {_said(error)}") from None

    def fault(body: bytes) -> str:
        try:
            value = json.loads(body.decode(), parse_constant=_no_number)
        except RecursionError:
            return _too_deep()
        except ValueError as error:
            return f"not a JSON document: {error}"
        if b"\\u" in body and _has_half_a_pair(value):
            return "not a JSON document: it has half of a surrogate pair, which is not a character"
        if is_too_deep(value, body):
            return _too_deep()
        found = next(validator.iter_errors(value), None)
        return "" if found is None else _said(found)

    return fault


def _refuse(place: str) -> Any:
    raise ValueError(f"{place!r} is not in the schema, and nothing is fetched")


def _said(error: ValueError) -> str:
    """The text of a library error, with the place in the document, which the library keeps apart."""
    path = "".join(f"[{step!r}]" for step in getattr(error, "instance_path", ()))
    return f"{getattr(error, 'message', error)}{f' (at {path})' if path else ''}"


def _has_half_a_pair(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _too_deep() -> str:
    return f"more than {JSON_DEPTH_ENTRIES_MAX} levels of nested objects and arrays"


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not a valid number in JSON")
