"""The log of `konverse run`: lines for people, or JSON lines for machines, on standard error."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every log record: any other one came by `extra`."""

FIELDS: Final = "konverse"
"""Attribute of a log record with what it is about: `extra={FIELDS: {…}}`."""

_LINE: Final = "%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s"


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, process and message, what it is about, and the traceback.

        Fields that the application gave as `extra=` stand beside ours, which they cannot replace.
        """
        line: dict[str, Any] = {
            **{name: value for name, value in vars(record).items() if name not in _OWN and name != FIELDS},
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_to_stderr(*, as_json: bool) -> None:
    """Say what konverse and the application log, from INFO on; an application that has set up logging keeps that."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else logging.Formatter(_LINE))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
