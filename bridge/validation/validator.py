"""Whoever has bodies to validate: asks a process of its own, and starts another one when that has died.

A body that kills the process, by the time or the memory that it takes, or by a mistake in a library, is not lost: it
gets a verdict that says so. What such a process does to this one is nothing.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Final, NamedTuple

from konverse.schemas.errors import InvalidSchema, ValidatorUnavailable
from konverse.schemas.limits import VALIDATION_BYTES_MAX, VALIDATION_RECORDS_MAX, VALIDATION_WAIT_MS_MAX

from .rules import Rule, digest_of
from .worker import ANSWER, QUESTION, Answer, Operation, Verdict, packed, take

log: Final = logging.getLogger("konverse.validating")

DEATHS_MAX: Final = 2
"""So many processes die over one body; then the body is what kills them."""


class Finding(NamedTuple):
    """What came of a body."""

    fault: str
    """What is wrong with it; empty when nothing is."""
    examined: bool = True
    """Whether it could be held against its schema within the limits."""


class Known(NamedTuple):
    """A rule, ready to be asked for."""

    encoded: bytes
    digest: bytes

    @classmethod
    def of(cls, rule: Rule) -> Known:
        """The rule as it goes over the wire."""
        encoded = rule.encoded()
        return cls(encoded, digest_of(encoded))


class Validator:
    """One process, started when it is needed first. Thread-safe; close it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._closed = False
        self.deaths = 0
        """Processes that died, so far."""

    def look(self, known: Known, body: bytes) -> Finding:
        """Hold a body against a rule. Raises ValidatorUnavailable when that cannot be done here."""
        with self._lock:
            answer = self._judge(known, body)
        return _finding(answer)

    def look_at_each(self, known: Known, bodies: Sequence[bytes]) -> list[Finding]:
        """The same for several bodies, in fewer questions: what one of them does to the process is no other's fault."""
        findings: list[Finding] = []
        while len(findings) < len(bodies):
            with self._lock:
                answers = self._judge_each(known, _head(bodies, len(findings)))
            findings += map(_finding, answers)
        return findings

    def check(self, known: Known) -> None:
        """Raise InvalidSchema unless the rule can be read within the limits; ValidatorUnavailable."""
        with self._lock:
            verdict, words = self._ask(Operation.READ, known, known.encoded)
        if verdict is Verdict.MISSING:
            raise ValidatorUnavailable(words)
        if verdict is not Verdict.FINE:
            raise InvalidSchema(words)

    def close(self) -> None:
        """End the process. Safe to call twice."""
        with self._lock:
            self._closed = True
            self._end()

    def forked(self) -> None:
        """In a forked child: the process is the parent's."""
        self._lock = threading.Lock()
        self._closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.returncode = 0  # it is no child of this process, which must not wait for it
            self._process = None

    def _judge(self, known: Known, body: bytes) -> Answer:
        """What is said of a body, by a second process if the first one dies: it may have been killed by chance."""
        answer = Verdict.DIED, ""
        for _ in range(DEATHS_MAX):
            answer = self._ask(Operation.CHECK, known, body)
            if answer[0] is Verdict.UNKNOWN:
                answer = self._learn(known)
                if answer[0] is Verdict.FINE:
                    answer = self._ask(Operation.CHECK, known, body)
            if answer[0] is not Verdict.DIED:
                break
        return answer

    def _judge_each(self, known: Known, bodies: Sequence[bytes]) -> list[Answer]:
        """What is said of the first of these bodies, one at least: those behind a deadly one are asked about again."""
        data = packed(bodies)
        answers = self._answers(Operation.CHECK_EACH, known, data, len(bodies))
        if answers[0][0] is Verdict.UNKNOWN:
            answer = self._learn(known)
            if answer[0] in (Verdict.MISSING, Verdict.TOO_MUCH):
                return [answer] * len(bodies)
            answers = self._answers(Operation.CHECK_EACH, known, data, len(bodies))
        said = list(takewhile(lambda answer: answer[0] not in (Verdict.UNKNOWN, Verdict.DIED), answers))
        return said or [self._judge(known, bodies[0])]

    def _learn(self, known: Known) -> Answer:
        """Have the rule read."""
        verdict, words = self._ask(Operation.READ, known, known.encoded)
        # a fault would be the schema's, which could be read where it was made
        return (Verdict.TOO_MUCH if verdict is Verdict.FAULT else verdict), words

    def _ask(self, operation: Operation, known: Known, data: bytes) -> Answer:
        """One question, one answer."""
        return self._answers(operation, known, data, 1)[0]

    def _answers(self, operation: Operation, known: Known, data: bytes, count: int) -> list[Answer]:
        """One question, and so many answers; fewer when the process has died, and then the last one says so."""
        connection = self._connected()
        answers: list[Answer] = []
        with suppress(ConnectionError):
            try:
                connection.sendall(QUESTION.pack(operation, known.digest, len(data)) + data)
                while len(answers) < count and (head := take(connection, ANSWER.size)):
                    verdict, size = ANSWER.unpack(head)
                    answers.append((Verdict(verdict), take(connection, size).decode("utf-8", "replace")))
            except TimeoutError:
                self._end()
                raise ValidatorUnavailable(
                    f"the process that validates has not answered for {VALIDATION_WAIT_MS_MAX / 1000} s; "
                    "another one is started when it is needed again"
                ) from None
        if len(answers) < count:
            answers.append(self._death())
        return answers

    def _death(self) -> Answer:
        """What is said of a body over which the process has died."""
        code = self._end()
        self.deaths += 1
        if code == -signal.SIGPROF:
            return Verdict.TOO_MUCH, "it takes more processor time than is allowed"
        log.warning("the process that validates has died with code %d", code)
        return Verdict.DIED, f"the process that validated it has died, with code {code}"

    def _connected(self) -> socket.socket:
        if self._closed:
            raise ValidatorUnavailable("the broker was closed, or its process was forked; connect again")
        if self._connection is None:
            ours, theirs = socket.socketpair()
            path = os.pathsep.join(filter(None, sys.path))  # what is found here is found there
            with theirs:
                try:
                    self._process = subprocess.Popen(  # our own program
                        [sys.executable, "-m", "konverse.bridge.validation.worker"],
                        stdin=theirs.fileno(),
                        stdout=subprocess.DEVNULL,
                        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
                    )
                except OSError as error:
                    ours.close()
                    raise ValidatorUnavailable(f"no process that validates can be started: {error}") from None
            ours.settimeout(VALIDATION_WAIT_MS_MAX / 1000)
            self._connection = ours
            self._await_ready(ours)
        return self._connection

    def _await_ready(self, connection: socket.socket) -> None:
        """Else what is asked next would be blamed for a process that has never worked."""
        why = "it ended with code"
        try:
            if take(connection, ANSWER.size):
                return
        except OSError as error:
            why = f"{error!r}, code"
        raise ValidatorUnavailable(f"the process that validates cannot be started: {why} {self._end()}")

    def _end(self) -> int:
        """End the process, if it has not ended; what it ended with."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is None:
            return 0
        with suppress(ProcessLookupError):
            self._process.kill()
        code = self._process.wait()
        self._process = None
        return code


def _finding(answer: Answer) -> Finding:
    """Raises ValidatorUnavailable for what cannot be examined here."""
    verdict, words = answer
    if verdict is Verdict.MISSING:
        raise ValidatorUnavailable(words)
    return Finding(words, verdict in (Verdict.FINE, Verdict.FAULT))


def _head(bodies: Sequence[bytes], start: int) -> Sequence[bytes]:
    """As many bodies from there on as one question may have, and one at least."""
    end, size_bytes = start + 1, len(bodies[start])
    while end < min(len(bodies), start + VALIDATION_RECORDS_MAX):
        size_bytes += len(bodies[end])
        if size_bytes > VALIDATION_BYTES_MAX:
            break
        end += 1
    return bodies[start:end]
