"""An application for tests of `konverse run tests.kit.answering:app`, and `Run`, which runs it as a process.

The handler answers every order with a nonce that only this execution can have made, and records each execution as one
JSON line in the file `diary`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import konverse
from konverse.schemas.system_messages import END_DIALOG, ERROR
from tests.kit.servers import Servers
from tests.kit.shop import RECEIPT, until
from tests.kit.workers import Diary, read_diary

_ROOT: Final = Path(__file__).parents[2]

POISON: Final = b"poison"
"""Body of an order for which the handler raises until the file `mended` exists."""

HOLD: Final = b"hold"
"""Body of an order whose handler waits until the file `released` exists."""

READERS: Final = 2

folder = Path(os.environ.get("ANSWERING_FOLDER", "."))
app = konverse.App()


@app.activate("Orders", max_readers=READERS, max_messages=1)
def answer(transaction: konverse.Transaction) -> str:
    """Answer each order. Activation ignores the returned value."""
    diary = Diary(str(folder / "diary"))
    for message in transaction:
        if message.type in (END_DIALOG, ERROR):
            transaction.end(message.dialog)
            break
        if message.body == POISON and not (folder / "mended").exists():
            raise LookupError("no such article")
        nonce = uuid.uuid4().hex
        diary.write(
            "handled",
            conversation=str(message.dialog.id),
            sequence=message.sequence,
            id=message.id,
            nonce=nonce,
            body=message.body.decode(),
            thread=threading.get_ident(),
        )
        transaction.send(message.dialog, RECEIPT, nonce.encode())
        if message.body == HOLD:
            until((folder / "released").exists, "release of the handler", 120)
    return "ignored"


class Run:
    """A running `konverse run`. Leaving the block terminates it."""

    def __init__(
        self,
        servers: Servers,
        database: str,
        at: Path,
        *options: str,
        app: str = "tests.kit.answering:app",
        cwd: Path = _ROOT,
    ) -> None:
        self._log = at / f"{uuid.uuid4().hex[:6]}.log"
        self._diary = at / "diary"
        environment = {
            "KONVERSE_KAFKA": f"kafka://{servers.bootstrap}",
            "KONVERSE_DATABASE": database,
            "ANSWERING_FOLDER": str(at),
        }
        command = [sys.executable, "-c", "from konverse.bridge.cli.main import app; app()", "run", app, "--json"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *options], cwd=cwd, env=os.environ | environment, stderr=log, start_new_session=True
            )

    @property
    def log(self) -> list[dict[str, Any]]:
        """JSON log lines written so far."""
        return [json.loads(line) for line in self.text.splitlines(keepends=True) if line.startswith("{")]

    @property
    def text(self) -> str:
        """The whole log as text, without an unfinished last line."""
        return self._log.read_text("utf-8").rpartition("\n")[0]

    def said(self, words: str) -> list[dict[str, Any]]:
        """Log lines whose message contains `words`."""
        return [line for line in self.log if words in line["message"]]

    def wait_for(self, words: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until at least `count` log lines contain `words`, and return them."""

        def reached() -> list[dict[str, Any]]:
            found = self.said(words)
            assert len(found) >= count or self.process.poll() is None, f"it ended early:\n{self.text}"
            return found if len(found) >= count else []

        return until(reached, f"{count} times {words!r}, in\n{self.text}")

    def handled(self, count: int) -> list[dict[str, Any]]:
        """Wait until all workers of the test together have handled `count` messages, and return their diary entries."""
        return until(lambda: found if len(found := read_diary(self._diary)) >= count else [], f"{count} are handled")

    def wait(self, deadline_s: float = 60.0) -> int:
        """Wait for the process to end and return its exit code."""
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end within {deadline_s} s:\n{self.text}") from None

    def stop(self) -> int:
        """Send SIGTERM, as a supervisor does, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.terminate()  # a second signal ends it at once
        self.process.wait(30)
        if error is not None:
            error.add_note(f"log of konverse run:\n{self.text[-4_000:]}")
