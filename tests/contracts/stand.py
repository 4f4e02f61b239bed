"""A session, its home and its targets, on the simulated Kafka or on a real one: what both drivers must make of it.

A test tells a `Stand` what happens and compares what the driver made of that with what the protocol says. It never asks
which of the two it has.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from konverse.dialog.session.session import Session
from konverse.schemas.wire.records import Kind

HOME, ORDERS, OTHERS = 0, 1, 2
"""The queues of a stand, a partition each: where dialogs begin, and two that they lead to."""


@dataclass
class Written:
    """A record in the data log of a queue, by the session of the stand."""

    id: int
    """Which of the session's ids, in the order in which it had them."""
    kind: Kind
    counter: int
    body: bytes | None = field(default=None, repr=False)


class Stand(Protocol):
    """What a test does with a driver, and what it sees of it."""

    @property
    def session(self) -> Session:
        """The machine that the driver drives."""
        ...

    def begin(self, queue: int = ORDERS) -> Any:
        """Begin a dialog."""
        ...

    def send(self, dialog: Any, body: bytes) -> None:
        """Send a message; nothing is waited for."""
        ...

    def end(self, dialog: Any) -> None:
        """End the dialog."""
        ...

    def let_go(self) -> None:
        """Let the driver of the session work until it has nothing to do, or waits for owners or a refusal."""
        ...

    def flush(self) -> None:
        """The same, with the owners at work. Raises what the session says, or that something still waits."""
        ...

    def receive(self, queue: int = ORDERS) -> list[tuple[str, bytes]]:
        """The owner takes what is there; types and bodies of the messages, each committed."""
        ...

    def written(self, queue: int = ORDERS) -> list[Written]:
        """What the session wrote, as it stands in the log."""
        ...

    def silence(self) -> AbstractContextManager[None]:
        """Kafka neither answers nor refuses what it is asked in the block; afterwards it does what it was asked."""
        ...

    def flushed(self) -> bool:
        """Whether a flush returns; False: it says that the outcome is unknown. Owners rest meanwhile."""
        ...

    def commit_in_silence(self, queue: int = ORDERS) -> tuple[list[bytes], bool, bool]:
        """The owner receives and commits while Kafka is silent.

        The bodies, and whether it is told that this counts: during the silence, and behind it.
        """
        ...

    def failing_producer(self) -> AbstractContextManager[None]:
        """All records of the block reach Kafka, and the producer fails before it says so."""
        ...

    def doubt(self) -> None:
        """A destination does not hear the session under its present id."""
        ...

    def grow_old(self) -> None:
        """So much time passes that the session has to go on under another id."""
        ...

    def close_from_outside(self, queue: int = ORDERS) -> None:
        """A stranger closes the session's present id in a queue: it takes the session for dead."""
        ...

    def asked_from_outside(self) -> dict[int, int]:
        """Somebody with the session's token asks what became of what it did not know: which dialogs miss something.

        Place of the dialog among those that were begun -> number of its first message that was not received.
        """
        ...

    def delete_unread(self, queue: int = ORDERS) -> None:
        """Somebody deletes what is in the data log and nobody has received."""
        ...

    def refuse(self, queue: int, *, refuses: bool) -> None:
        """The partition takes no record of the session, or takes them again."""
        ...

    def lose_answer(self, queue: int = ORDERS) -> None:
        """The answer to the next COMMIT of the owner is lost; the COMMIT is there."""
        ...

    def claimed_again(self, queue: int = ORDERS) -> int:
        """How often an owner claimed the partition anew, beside the CLAIM with which each begins."""
        ...

    def answer(self, body: bytes, *, fails: bool, queue: int = ORDERS) -> None:
        """The owner receives what is there and answers. It `fails`: its producer does, when Kafka has the answers."""
        ...

    def answers(self) -> list[tuple[int, bytes]]:
        """Counters and bodies of the answers in the log of HOME."""
        ...

    def bounds(self, queue: int = ORDERS) -> tuple[int, int]:
        """First offset of the data log, and its end, for who reads what is committed."""
        ...

    def strangers_transaction(self, queue: int = ORDERS) -> AbstractContextManager[None]:
        """A stranger's transaction that writes a record, is open during the block, and is aborted in the end."""
        ...

    def overtaken(self, queue: int = ORDERS) -> tuple[list[bytes], bool]:
        """An owner receives; before it commits another one claims. The bodies, and whether the commit counts."""
        ...
