"""What a stream knows of a partition at some offset: which counter it expects of whom, or who owns it.

It follows from the records before that offset alone. So whoever has it saves reading them again, and whoever finds it
missing, torn or of another log reads them, as long as the log has them: nothing is lost with it. It is kept in this
process, and in a folder, for the task that goes on in another one.
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

FORMAT: Final = 3
_WRITER_BYTES: Final = 20
_CONVERSATION_BYTES: Final = 16
_TRACK_BYTES: Final = 17
_ATTEMPT_BYTES: Final = 41

ENTRIES_PER_RECORD: Final = 4
"""A state is written when it has at most so many entries for each record read since the last: writing stays cheap.

One up to which truncation may delete is written however large it is.
"""

_WARM: dict[tuple[str, str, str, int], tuple[int, Any]] = {}

Of = TypeVar("Of")


class Form(Protocol[Of]):
    """How a kind of state is written."""

    def entries(self, state: Of) -> int:
        """How large it is."""

    def copy(self, state: Of) -> Of:
        """One that goes on by itself."""

    def encode(self, state: Of) -> tuple[dict[str, Any], bytes]:
        """Values for JSON, and bytes."""

    def decode(self, head: dict[str, Any], body: bytes) -> Of:
        """What was encoded; ValueError, KeyError or TypeError for anything else."""


@dataclass(frozen=True, slots=True)
class States(Generic[Of]):
    """The states of one stream."""

    folder: str | None
    """Where they are kept; None: in a folder of this user's own."""
    topic: str
    """Kafka's id of the topic."""
    reader: str
    """Which stream: each throws its own old states away."""
    tag: str
    """Which incarnation's records were judged; "any" for all."""
    form: Form[Of]

    def newest(self, partition: int, log_start: int, first: int) -> tuple[int, Of] | None:
        """The state nearest before `first`, and its offset; None: read from the start of the log."""
        warm = _WARM.get((*self._place, partition))
        if warm is not None and warm[0] == first:
            return first, self.form.copy(warm[1])
        for offset, file in sorted(self._files(partition), reverse=True):
            if log_start <= offset <= first:
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    return offset, self._decoded(file.read_bytes(), self._name(partition, offset))
        return None

    def keep(self, partition: int, first: int, end: int, state: Of, *, lasting: bool = False) -> None:
        """What is known at `end`; of those before `first` one is left, for who begins there again.

        `lasting`: truncation may delete what stands before it, so it has to be written.
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
        except OSError as error:  # a disk that is full costs time, and nothing else as long as the log is whole
            if lasting:
                log.warning("%s is not kept, and truncation may go up to it: %s", self._name(partition, end), error)

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
        """The folder, made when it is missing; None when it is not ours to trust."""
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
        """ValueError, KeyError or TypeError for what is not whole, or of another place."""
        line, _, body = data.partition(b"\n")
        head = json.loads(line)
        if (head["format"], head["of"], head["crc"]) != (FORMAT, name, zlib.crc32(body)):
            raise ValueError(name)
        return self.form.decode(head, body)


class Acceptances:
    """How what is expected of writers is written: tables of names and numbers."""

    def entries(self, state: Acceptance) -> int:
        """Writers, directions, queries and attempts."""
        return sum(map(len, _tables(state)))

    def copy(self, state: Acceptance) -> Acceptance:
        """One that goes on by itself."""
        return state.copy()

    def encode(self, state: Acceptance) -> tuple[dict[str, Any], bytes]:
        """The tables, one behind the other."""
        tables = _tables(state)
        parts = [b"".join(table) + np.fromiter(table.values(), np.int64, len(table)).tobytes() for table in tables]
        known = {"cut": state.cut, "waits_from": state.waits_from, "entries": [*map(len, tables)]}
        return known, b"".join(parts)

    def decode(self, head: dict[str, Any], body: bytes) -> Acceptance:
        """What was encoded."""
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
    """A table, and the bytes behind it."""
    names = body[: entries * width]
    numbers = np.frombuffer(body, np.int64, entries, len(names)).tolist()
    keys = (names[place : place + width] for place in range(0, len(names), width))
    return dict(zip(keys, numbers, strict=True)), body[len(names) + 8 * entries :]
