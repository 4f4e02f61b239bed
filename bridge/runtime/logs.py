"""The log of `konverse run` on standard error: lines for people, or JSON lines for machines."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every log record. Any other attribute was given as `extra=`."""

FIELDS: Final = "konverse"
"""Attribute of a log record that names the objects of the event: `extra={FIELDS: {…}}`."""

_LINE: Final = "%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s"


_OURS: Final = frozenset({"at", "level", "logger", "process", "message", "exception", "stack"})
"""Reserved fields of a line, which fields of the application never replace."""


class JsonLines(logging.Formatter):
    """Formats any record as one line of JSON. It never raises, because the line would be lost."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, process, message, the objects of the event, and the traceback.

        Fields that the application gave as `extra=` are added; a field with a reserved name becomes `extra_…`.
        """
        line: dict[str, object] = {
            "at": _or_text(_time, record.created),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": _message(record),
        }
        about = getattr(record, FIELDS, {})
        _add(line, about if isinstance(about, dict) else {FIELDS: about})
        _add(line, {name: value for name, value in vars(record).items() if name not in _OWN and name != FIELDS})
        if record.exc_info:
            line["exception"] = _or_text(self.formatException, record.exc_info)
        if record.stack_info:
            line["stack"] = _text(record.stack_info)
        return "{" + ", ".join(f"{_json(name)}: {_json(value)}" for name, value in line.items()) + "}"


def _add(line: dict[str, object], fields: dict[Any, object]) -> None:
    """Add each field, prefixed with `extra_` as often as it takes to get a free name."""
    taken = _OURS | {*line}
    for given, value in fields.items():
        name = _text(given)
        while name in taken or (name != given and name in fields) or name in line:
            name = f"extra_{name}"
        line[name] = value


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  # arguments that do not fit the text, or whose own code raises
        return f"{_text(record.msg)} {_text(record.args)}" if record.args else _text(record.msg)


def _json(value: object) -> str:
    """JSON of a value. A circular or too deeply nested value is written as text."""
    try:
        return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)
    except Exception:  # noqa: BLE001  # a value may raise anything
        return json.dumps(_text(value), ensure_ascii=False)


def _plain(value: object) -> object:
    """Keep values that JSON can represent; everything else becomes text, including NaN and the infinities."""
    if isinstance(value, dict):
        return {_key(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _text(value)


def _key(key: object) -> object:
    plain = _plain(key)
    return plain if plain is None or isinstance(plain, str | int | float) else _text(key)


def _or_text(write: Callable[[Any], str], value: object) -> str:
    try:
        return write(value)
    except Exception:  # noqa: BLE001  # a value may raise anything
        return _text(value)


def _text(value: object) -> str:
    """The text of a value, or the name of its type when `str` raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  # a value may raise anything
        return f"<{type(value).__name__}>"


def log_to_stderr(*, as_json: bool) -> None:
    """Log konverse and the application to standard error, from INFO on, unless the application has set up logging."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else logging.Formatter(_LINE))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
