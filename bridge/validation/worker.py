"""The process that holds bodies against schemas: `python -m konverse.bridge.validation.worker`, started by a Validator.

Its standard input is a socket. A question is an operation, the digest of a rule and bytes: the rule itself, a body, or
several. An answer is a `Verdict` and words; of several bodies each has its own, as soon as it is known, so that whoever
asks can tell over which one this process died. One question at a time; a first answer says that it is ready.

Whatever a body or schema does stays in here: its processor time and memory are bounded, and once everything is
imported no file and no socket can be opened any more.
"""

from __future__ import annotations

import codecs
import resource
import signal
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from encodings.aliases import aliases
from enum import IntEnum
from importlib import import_module
from struct import Struct
from typing import Final, TypeVar

from konverse.schemas.errors import InvalidSchema
from konverse.schemas.limits import (
    COMPILED_SCHEMA_ENTRIES_MAX,
    FAULT_CHARACTERS_MAX,
    SCHEMA_CPU_MS_MAX,
    VALIDATION_CPU_MS_MAX,
    VALIDATION_MEMORY_BYTES_MAX,
)

from .rules import MODULES, NEEDED, Check, MissingLibrary, check_of, decoded

QUESTION: Final = Struct("!B32sI")
"""Operation, digest of the rule, and how many bytes follow."""

ANSWER: Final = Struct("!BI")
"""Verdict, and how many bytes of words follow."""

SIZE: Final = Struct("!I")
"""Before each of several bodies: its bytes."""


class Operation(IntEnum):
    """What is asked."""

    READ = 1
    """Read the rule that follows; by its digest it is known from then on, until others are needed more."""
    CHECK = 2
    """Hold the body that follows against it."""
    CHECK_EACH = 3
    """Hold each of the bodies that follow against it."""


class Verdict(IntEnum):
    """What is answered."""

    FINE = 0
    FAULT = 1
    """The words say what is wrong with the body, or the schema."""
    UNKNOWN = 2
    """The rule has to be read first."""
    TOO_MUCH = 3
    """It took more than is allowed."""
    MISSING = 4
    """A library is not installed."""
    DIED = 5
    """Never said: the process did."""


Answer = tuple[Verdict, str]

Given = TypeVar("Given")
Made = TypeVar("Made")


class Checks:
    """The rules that were read, as many as may be."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Check] = OrderedDict()

    def answer(self, operation: int, digest: bytes, data: bytes) -> Answer:
        """What there is to say; whatever goes wrong is an answer too."""
        try:
            if operation == Operation.READ:
                return self._read(digest, data)
            check = self._known.get(digest)
            if check is None:
                return Verdict.UNKNOWN, ""
            self._known.move_to_end(digest)
            fault = limited(VALIDATION_CPU_MS_MAX, check, data)
        except InvalidSchema as error:
            return Verdict.FAULT, str(error)
        except MissingLibrary as error:
            return Verdict.MISSING, str(error)
        except (MemoryError, RecursionError) as error:
            return Verdict.TOO_MUCH, f"it needs more memory than is allowed ({type(error).__name__})"
        except Exception as error:  # noqa: BLE001  # of a library, about bytes of a stranger
            return Verdict.TOO_MUCH, f"it cannot be validated: {error!r}"
        return (Verdict.FAULT, fault) if fault else (Verdict.FINE, "")

    def _read(self, digest: bytes, data: bytes) -> Answer:
        self._known[digest] = limited(SCHEMA_CPU_MS_MAX, lambda rule: check_of(decoded(rule)), data)
        if len(self._known) > COMPILED_SCHEMA_ENTRIES_MAX:
            self._known.popitem(last=False)
        return Verdict.FINE, ""


def limited(cpu_ms: int, work: Callable[[Given], Made], given: Given) -> Made:
    """Do the work; who takes more processor time than this is killed, wherever the work is then."""
    signal.setitimer(signal.ITIMER_PROF, cpu_ms / 1000)
    try:
        return work(given)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def serve(connection: socket.socket) -> None:
    """Answer until whoever asks has gone."""
    checks = Checks()
    connection.sendall(ANSWER.pack(Verdict.FINE, 0))
    while head := take(connection, QUESTION.size):
        operation, digest, size = QUESTION.unpack(head)
        data = take(connection, size)
        for each in unpacked(data) if operation == Operation.CHECK_EACH else (data,):
            verdict, words = checks.answer(operation, digest, each)
            said = printable(words).encode()
            connection.sendall(ANSWER.pack(verdict, len(said)) + said)


def packed(bodies: Sequence[bytes]) -> bytes:
    """Several bodies as one."""
    return b"".join(part for body in bodies for part in (SIZE.pack(len(body)), body))


def unpacked(data: bytes) -> Iterator[bytes]:
    """What was `packed`."""
    at = 0
    while at < len(data):
        (size,) = SIZE.unpack_from(data, at)
        at += SIZE.size
        yield data[at : at + size]
        at += size


def printable(words: str) -> str:
    """What may stand in a log, of words that a stranger's body may have a part in."""
    return "".join(each if each.isprintable() else "?" for each in words[:FAULT_CHARACTERS_MAX])


def take(connection: socket.socket, size: int) -> bytes:
    """So many bytes; none when the other side has gone."""
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return b""
        data += piece
    return bytes(data)


def confine() -> None:
    """From here on nothing is opened, and memory is bounded."""
    for name in (*(module for module, _ in NEEDED.values()), *MODULES.values()):
        with suppress(ImportError):
            import_module(name)
    for name in sorted({*aliases.values()}):
        if name.startswith(("cp125", "iso8859", "koi8")):  # what XML documents are written in besides UTF-8 and UTF-16
            codecs.lookup(name)
    memory = VALIDATION_MEMORY_BYTES_MAX
    for kind, bound in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_NOFILE, 3), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        ours = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(kind, (ours, ours))


def main() -> None:
    """Serve the one who started this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever starts us ends us
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with socket.socket(fileno=0) as connection:
        confine()
        with suppress(ConnectionError):
            serve(connection)


if __name__ == "__main__":
    main()
