"""The client of the validation process: sends it rules and bodies, and starts a new process when one has died.

A body that kills the process, by its time, its memory or a bug in a library, gets a verdict that says so. The process
of the client is not affected.
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

from .rules import SchemaRule, digest_of
from .worker import ANSWER, QUESTION, Answer, AnswerKind, RequestKind, packed, take

log: Final = logging.getLogger("konverse.validator")

DEATHS_MAX: Final = 2
"""After this many deaths in a row over one body, the body counts as the cause."""


class BodyFinding(NamedTuple):
    """The result for one body."""

    fault: str
    """What is wrong with the body; empty when it is valid."""
    examined: bool = True
    """Whether the body could be validated within the limits."""


class EncodedRule(NamedTuple):
    """A rule, encoded for the validation process."""

    encoded: bytes
    digest: bytes

    @classmethod
    def of(cls, rule: SchemaRule) -> EncodedRule:
        """Encode a rule."""
        encoded = rule.encoded()
        return cls(encoded, digest_of(encoded))


class Validator:
    """One validation process, started at first use. Thread-safe; close it after use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._closed = False
        self.deaths = 0
        """Number of validation processes that died."""

    def validate(self, known: EncodedRule, body: bytes) -> BodyFinding:
        """Validate a body against a rule. Raises ValidatorUnavailable when this machine cannot do it."""
        with self._lock:
            answer = self._judge(known, body)
        return _finding(answer)

    def validate_each(self, known: EncodedRule, bodies: Sequence[bytes]) -> list[BodyFinding]:
        """Validate several bodies in fewer requests. A body that kills the process does not affect other results."""
        findings: list[BodyFinding] = []
        while len(findings) < len(bodies):
            with self._lock:
                answers = self._judge_each(known, _head(bodies, len(findings)))
            findings += map(_finding, answers)
        return findings

    def check(self, known: EncodedRule) -> None:
        """Raise InvalidSchema unless the rule's schema can be read within the limits. Raises ValidatorUnavailable."""
        with self._lock:
            verdict, words = self._ask(RequestKind.READ, known, known.encoded)
        if verdict is AnswerKind.MISSING:
            raise ValidatorUnavailable(words)
        if verdict is not AnswerKind.FINE:
            raise InvalidSchema(words)

    def close(self) -> None:
        """End the process. Safe to call twice."""
        with self._lock:
            self._closed = True
            self._end()

    def after_fork(self) -> None:
        """Let go of the process in a forked child: it belongs to the parent."""
        self._lock = threading.Lock()
        self._closed = True
        self._disconnect()
        if self._process is not None:
            self._process.returncode = 0  # not a child of this process, so Popen must not wait for it
            self._process = None

    def _judge(self, known: EncodedRule, body: bytes) -> Answer:
        """The answer for one body. If the process dies, a second one is asked: the first may have died by chance."""
        answer = AnswerKind.DIED, ""
        for _ in range(DEATHS_MAX):
            answer = self._ask(RequestKind.CHECK, known, body)
            if answer[0] is AnswerKind.UNKNOWN:
                answer = self._learn(known)
                if answer[0] is AnswerKind.FINE:
                    answer = self._ask(RequestKind.CHECK, known, body)
            if answer[0] is not AnswerKind.DIED:
                break
        return answer

    def _judge_each(self, known: EncodedRule, bodies: Sequence[bytes]) -> list[Answer]:
        """Answers for the first of these bodies, at least one. The caller asks again for those without an answer."""
        data = packed(bodies)
        answers = self._answers(RequestKind.CHECK_EACH, known, data, len(bodies))
        if answers[0][0] is AnswerKind.UNKNOWN:
            answer = self._learn(known)
            if answer[0] in (AnswerKind.MISSING, AnswerKind.TOO_MUCH):
                return [answer] * len(bodies)
            answers = self._answers(RequestKind.CHECK_EACH, known, data, len(bodies))
        said = list(takewhile(lambda answer: answer[0] not in (AnswerKind.UNKNOWN, AnswerKind.DIED), answers))
        return said or [self._judge(known, bodies[0])]

    def _learn(self, known: EncodedRule) -> Answer:
        """Send the rule to the process, which reads it."""
        verdict, words = self._ask(RequestKind.READ, known, known.encoded)
        # The schema was readable where it was created, so its fault here must not count as a fault of the body.
        return (AnswerKind.TOO_MUCH if verdict is AnswerKind.FAULT else verdict), words

    def _ask(self, operation: RequestKind, known: EncodedRule, data: bytes) -> Answer:
        """Send one request, receive one answer."""
        return self._answers(operation, known, data, 1)[0]

    def _answers(self, operation: RequestKind, known: EncodedRule, data: bytes, count: int) -> list[Answer]:
        """Send one request and receive `count` answers; fewer if the process dies, with its death as the last one."""
        connection = self._connected()
        answers: list[Answer] = []
        with suppress(ConnectionError):
            try:
                connection.sendall(QUESTION.pack(operation, known.digest, len(data)) + data)
                while len(answers) < count and (head := take(connection, ANSWER.size)):
                    verdict, size = ANSWER.unpack(head)
                    words = take(connection, size)
                    if len(words) < size:
                        break  # it died within its answer, of which an empty text would say that the body is valid
                    answers.append((AnswerKind(verdict), words.decode("utf-8", "replace")))
            except TimeoutError:
                self._end()
                raise ValidatorUnavailable(
                    f"the validation process has not answered for {VALIDATION_WAIT_MS_MAX / 1000} s; "
                    "a new one is started when it is needed again"
                ) from None
            except ConnectionError:
                raise
            except BaseException:  # Ctrl-C: the next request would take the answers that are left for its own
                self._end()
                raise
        if len(answers) < count:
            answers.append(self._death(known))
        return answers

    def _death(self, known: EncodedRule) -> Answer:
        """The verdict on a body that killed the process."""
        pid = "-" if self._process is None else self._process.pid
        code = self._end()
        self.deaths += 1
        if code == -signal.SIGPROF:
            return AnswerKind.TOO_MUCH, "it takes more processor time than is allowed"
        log.warning(
            "validation process %s died with code %d at a body for the schema with digest %s",
            pid,
            code,
            known.digest.hex()[:16],
        )
        return AnswerKind.DIED, f"the process that validated it has died, with code {code}"

    def _connected(self) -> socket.socket:
        if self._closed:
            raise ValidatorUnavailable("the broker was closed, or its process was forked; connect again")
        if self._connection is None:
            ours, theirs = socket.socketpair()
            path = os.pathsep.join(filter(None, sys.path))  # the process imports from the same places as this one
            with theirs:
                try:
                    self._process = subprocess.Popen(
                        [sys.executable, "-m", "konverse.bridge.validation.worker"],
                        stdin=theirs.fileno(),
                        stdout=subprocess.DEVNULL,
                        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
                    )
                except OSError as error:
                    ours.close()
                    raise ValidatorUnavailable(f"no validation process can be started: {error}") from None
            ours.settimeout(VALIDATION_WAIT_MS_MAX / 1000)
            self._connection = ours
            self._await_ready(ours)
        return self._connection

    def _await_ready(self, connection: socket.socket) -> None:
        """Wait for the process's first answer: otherwise a failed start would be blamed on the first body."""
        why = "it ended with code"
        try:
            if take(connection, ANSWER.size):
                return
        except OSError as error:
            why = f"{error!r}, code"
        except BaseException:  # Ctrl-C: the next request would take this answer for its own
            self._end()
            raise
        raise ValidatorUnavailable(f"the validation process cannot be started: {why} {self._end()}")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _end(self) -> int:
        """Kill the process if it runs. Returns its exit code, negative for a signal."""
        self._disconnect()
        if self._process is None:
            return 0
        with suppress(ProcessLookupError):
            self._process.kill()
        code = self._process.wait()
        self._process = None
        return code


def _finding(answer: Answer) -> BodyFinding:
    """An answer as a BodyFinding. Raises ValidatorUnavailable when the library is missing."""
    verdict, words = answer
    if verdict is AnswerKind.MISSING:
        raise ValidatorUnavailable(words)
    return BodyFinding(words, verdict in (AnswerKind.FINE, AnswerKind.FAULT))


def _head(bodies: Sequence[bytes], start: int) -> Sequence[bytes]:
    """As many bodies from `start` on as fit into one request, at least one."""
    end, size_bytes = start + 1, len(bodies[start])
    while end < min(len(bodies), start + VALIDATION_RECORDS_MAX):
        size_bytes += len(bodies[end])
        if size_bytes > VALIDATION_BYTES_MAX:
            break
        end += 1
    return bodies[start:end]
