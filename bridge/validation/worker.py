"""The validation process: `python -m konverse.bridge.validation.worker`, started by a `Validator`.

Its standard input is a socket. A request is an operation, the digest of a rule, and bytes: the rule itself, one body,
or several. An answer is an `AnswerKind` and a text. Several bodies get one answer each, sent as soon as it is known, so
that the validator can tell which body killed this process. Requests are handled one at a time. A first answer, sent
unasked, says that the process is ready.

A hostile body or schema cannot harm anything outside this process: processor time and memory are bounded, and after
the imports no file or socket can be opened.
"""

from __future__ import annotations

import codecs
import resource
import signal
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
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
from konverse.schemas.xml_encoding import CODECS

from .rules import MODULES, NEEDED, Check, MissingLibrary, check_of, decoded

QUESTION: Final = Struct("!B32sI")
"""Header of a request: operation, digest of the rule, number of bytes that follow."""

ANSWER: Final = Struct("!BI")
"""Header of an answer: verdict, number of bytes of text that follow."""

SIZE: Final = Struct("!I")
"""Length prefix of each of several bodies, in bytes."""


class RequestKind(IntEnum):
    """The operation of a request."""

    READ = 1
    """Read the rule that follows, and keep its check by its digest, until checks used more recently evict it."""
    CHECK = 2
    """Validate the body that follows against the rule."""
    CHECK_EACH = 3
    """Validate each of the bodies that follow against the rule."""


class AnswerKind(IntEnum):
    """The verdict of an answer."""

    FINE = 0
    FAULT = 1
    """The text says what is wrong with the body or the schema."""
    UNKNOWN = 2
    """The rule has to be read first."""
    TOO_MUCH = 3
    """Validation took more time or memory than is allowed."""
    MISSING = 4
    """A library is not installed."""
    DIED = 5
    """Never sent: the validator sets it when the process dies."""


Answer = tuple[AnswerKind, str]

Given = TypeVar("Given")
Made = TypeVar("Made")


class CheckCache:
    """LRU cache of compiled validation checks, by the digest of their rule."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Check] = OrderedDict()

    def answer(self, operation: int, digest: bytes, data: bytes) -> Answer:
        """The answer to a request. Any exception becomes an answer too."""
        try:
            if operation == RequestKind.READ:
                return self._read(digest, data)
            check = self._known.get(digest)
            if check is None:
                return AnswerKind.UNKNOWN, ""
            self._known.move_to_end(digest)
            fault = limited(VALIDATION_CPU_MS_MAX, check, data)
        except InvalidSchema as error:
            return AnswerKind.FAULT, str(error)
        except MissingLibrary as error:
            return AnswerKind.MISSING, str(error)
        except (MemoryError, RecursionError) as error:
            return AnswerKind.TOO_MUCH, f"it needs more memory than is allowed ({type(error).__name__})"
        except Exception as error:  # noqa: BLE001  # a library may raise anything for untrusted bytes
            return AnswerKind.TOO_MUCH, f"it cannot be validated: {error!r}"
        return (AnswerKind.FAULT, fault) if fault else (AnswerKind.FINE, "")

    def _read(self, digest: bytes, data: bytes) -> Answer:
        self._known[digest] = limited(SCHEMA_CPU_MS_MAX, lambda rule: check_of(decoded(rule)), data)
        if len(self._known) > COMPILED_SCHEMA_ENTRIES_MAX:
            self._known.popitem(last=False)
        return AnswerKind.FINE, ""


def limited(cpu_ms: int, work: Callable[[Given], Made], given: Given) -> Made:
    """Call `work`. SIGPROF kills the process if the call takes more processor time than `cpu_ms`."""
    signal.setitimer(signal.ITIMER_PROF, cpu_ms / 1000)
    try:
        return work(given)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def serve(connection: socket.socket) -> None:
    """Answer requests until the validator closes the connection."""
    checks = CheckCache()
    connection.sendall(ANSWER.pack(AnswerKind.FINE, 0))
    while head := take(connection, QUESTION.size):
        operation, digest, size = QUESTION.unpack(head)
        data = take(connection, size)
        for each in unpacked(data) if operation == RequestKind.CHECK_EACH else (data,):
            verdict, words = checks.answer(operation, digest, each)
            said = printable(words).encode()
            connection.sendall(ANSWER.pack(verdict, len(said)) + said)


def packed(bodies: Sequence[bytes]) -> bytes:
    """Several bodies in one bytes object, each with its length."""
    return b"".join(part for body in bodies for part in (SIZE.pack(len(body)), body))


def unpacked(data: bytes) -> Iterator[bytes]:
    """The inverse of `packed`."""
    at = 0
    while at < len(data):
        (size,) = SIZE.unpack_from(data, at)
        at += SIZE.size
        yield data[at : at + size]
        at += size


def printable(words: str) -> str:
    """A text that is safe to log, shortened: it may quote an untrusted body."""
    return "".join(each if each.isprintable() else "?" for each in words[:FAULT_CHARACTERS_MAX])


def take(connection: socket.socket, size: int) -> bytes:
    """Read exactly `size` bytes; empty when the other side closes before."""
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return b""
        data += piece
    return bytes(data)


def confine() -> None:
    """Import everything that is needed, then limit memory and forbid opening files and sockets."""
    for name in (*(module for module, _ in NEEDED.values()), *MODULES.values()):
        with suppress(ImportError):
            import_module(name)
    for name in CODECS:
        with suppress(LookupError):
            codecs.lookup(name)
    memory = VALIDATION_MEMORY_BYTES_MAX
    for kind, bound in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_NOFILE, 3), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        ours = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(kind, (ours, ours))


def main() -> None:
    """Serve the validator that started this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the validator ends this process
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with socket.socket(fileno=0) as connection:
        confine()
        with suppress(ConnectionError):
            serve(connection)


if __name__ == "__main__":
    main()
