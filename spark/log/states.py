"""States of streams: the knowledge of a partition up to an offset, such as the next counter of each writer.

A state follows from the records before its offset alone. A task that finds a state need not read those records again.
If the state is missing, torn or of another log, the task reads them, as long as the log has them, so a lost state costs
only time. States are kept in the process, and in a folder for tasks that continue in another process.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar
from uuid import uuid4

import numpy as np

from konverse.schemas.limits import STREAM_STATE_ENTRIES_MAX

from .acceptance import Acceptance

log: Final = logging.getLogger("konverse.spark")

FORMAT: Final = 5
_WRITER_BYTES: Final = 20
_CONVERSATION_BYTES: Final = 16
_TRACK_BYTES: Final = 33
_ATTEMPT_BYTES: Final = 57

ENTRIES_PER_RECORD: Final = 4
"""A state is stored if it has at most this many entries for each record read since the last one, which keeps it cheap.

A state up to which truncation may delete is stored however large it is.
"""

_WARM: dict[tuple[str, str, str, int], tuple[int, Any]] = {}

Of = TypeVar("Of")


class Form(Protocol[Of]):
    """How a kind of state is copied and stored."""

    def entries(self, state: Of) -> int:
        """Size of the state in entries."""

    def copy(self, state: Of) -> Of:
        """An independent copy."""

    def encode(self, state: Of) -> tuple[dict[str, Any], bytes]:
        """The state as values for JSON, and bytes."""

    def decode(self, head: dict[str, Any], body: bytes) -> Of:
        """The state from its encoded form; ValueError, KeyError or TypeError for anything else."""


@dataclass(frozen=True, slots=True)
class States(Generic[Of]):
    """The states of one stream."""

    folder: str | None
    """Folder of the states; None: a folder of this user in the system's temporary folder."""
    topic: str
    """Kafka's id of the topic."""
    reader: str
    """Id of the stream, which deletes old states of its own only."""
    tag: str
    """Incarnation whose records are judged, in hexadecimal digits; "any" for all; "journal" for a journal."""
    form: Form[Of]

    def newest(self, partition: int, log_start: int, first: int) -> tuple[int, Of] | None:
        """The newest state at or before `first`, and its offset; None: read from the start of the log."""
        warm = _WARM.get((*self._place, partition))
        if warm is not None and warm[0] == first:
            return first, self.form.copy(warm[1])
        for offset, file in sorted(self._files(partition), reverse=True):
            if log_start <= offset <= first:
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    return offset, self._decoded(file.read_bytes(), self._name(partition, offset))
        return None

    def keep(self, partition: int, first: int, end: int, state: Of, *, lasting: bool = False) -> None:
        """Keep the state at `end`. Of the files up to `first` the newest is kept, for a task that begins there again.

        `lasting`: truncation may delete the records before `end`, so the state has to be stored.
        """
        key = (*self._place, partition)
        _WARM.pop(key, None)
        _WARM[key] = (end, state)
        if len(_WARM) > STREAM_STATE_ENTRIES_MAX:
            del _WARM[next(iter(_WARM))]
        try:
            files = sorted(self._files(partition))
            before = [offset for offset, _ in files if offset <= first]
            if lasting or self.form.entries(state) <= ENTRIES_PER_RECORD * (end - (before[-1] if before else 0)):
                self._write(partition, end, state)
                for offset, file in files:
                    if before and offset < before[-1]:
                        file.unlink(missing_ok=True)
        except OSError as error:  # a full disk costs only time, as long as the log is whole
            if lasting:
                log.warning(
                    "state %s was not stored, although truncation may delete the records before it: %s",
                    self._name(partition, end),
                    error,
                )

    def _write(self, partition: int, end: int, state: Of) -> None:
        folder = self._folder()
        if folder is None:
            raise OSError("there is no folder that this user alone can write to; give one as option 'stateFolder'")
        made = folder / f".{uuid4().hex}"
        try:
            made.write_bytes(self._encoded(state, self._name(partition, end)))
            made.replace(folder / f"{partition}.{end}")
        finally:
            made.unlink(missing_ok=True)

    def _files(self, partition: int) -> Iterable[tuple[int, Path]]:
        folder = self._folder()
        for file in [] if folder is None else folder.glob(f"{partition}.*"):
            if file.suffix[1:].isdecimal():
                yield int(file.suffix[1:]), file

    def _folder(self) -> Path | None:
        """The folder, created if missing; None when that fails, or when the default folder is another user's."""
        root = Path(self.folder or Path(tempfile.gettempdir()) / f"konverse-spark-{os.getuid()}")
        folder = root / "-".join(self._place)
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            return folder if self.folder or root.stat().st_uid == os.getuid() else None
        except OSError:
            return None

    @property
    def _place(self) -> tuple[str, str, str]:
        return self.topic, self.reader, self.tag

    def _name(self, partition: int, offset: int) -> str:
        return f"{self.topic}/{self.tag}/{partition}.{offset}"

    def _encoded(self, state: Of, name: str) -> bytes:
        head, body = self.form.encode(state)
        return json.dumps({"format": FORMAT, "of": name, "crc": zlib.crc32(body), **head}).encode() + b"\n" + body

    def _decoded(self, data: bytes, name: str) -> Of:
        """The state in a file; ValueError, KeyError or TypeError for a file that is not whole, or of another place."""
        line, _, body = data.partition(b"\n")
        head = json.loads(line)
        if (head["format"], head["of"], head["crc"]) != (FORMAT, name, zlib.crc32(body)):
            raise ValueError(name)
        return self.form.decode(head, body)


class Acceptances:
    """The form in which an Acceptance is stored: tables of names and numbers."""

    def entries(self, state: Acceptance) -> int:
        """Number of writers, directions, tracks and attempts."""
        return sum(map(len, _tables(state)))

    def copy(self, state: Acceptance) -> Acceptance:
        """An independent copy."""
        return state.copy()

    def encode(self, state: Acceptance) -> tuple[dict[str, Any], bytes]:
        """The tables one after the other, and their sizes."""
        tables = _tables(state)
        parts = [b"".join(table) + np.fromiter(table.values(), np.int64, len(table)).tobytes() for table in tables]
        known = {"cut": state.cut, "waits_from": state.waits_from, "entries": [*map(len, tables)]}
        return known, b"".join(parts)

    def decode(self, head: dict[str, Any], body: bytes) -> Acceptance:
        """The state from its encoded form."""
        writers, *directions, tracks, attempts = head["entries"]
        state = Acceptance(cut=head["cut"])
        state.waits_from = head["waits_from"]
        state.next, body = _table(body, writers, _WRITER_BYTES)
        first, body = _table(body, directions[0], _CONVERSATION_BYTES)
        second, body = _table(body, directions[1], _CONVERSATION_BYTES)
        state.received = (first, second)
        state.decided, body = _table(body, tracks, _TRACK_BYTES)
        state.vetoed, _ = _table(body, attempts, _ATTEMPT_BYTES)
        return state


def _tables(acceptance: Acceptance) -> tuple[dict[bytes, int], ...]:
    return acceptance.next, *acceptance.received, acceptance.decided, acceptance.vetoed


ACCEPTANCES: Final = Acceptances()


def _table(body: bytes, entries: int, width: int) -> tuple[dict[bytes, int], bytes]:
    """The table at the front of `body`, and the bytes after it."""
    names = body[: entries * width]
    numbers = np.frombuffer(body, np.int64, entries, len(names)).tolist()
    keys = (names[place : place + width] for place in range(0, len(names), width))
    return dict(zip(keys, numbers, strict=True)), body[len(names) + 8 * entries :]
