"""A session, its home and its targets, on the simulated Kafka or on a real one: the common view of both drivers.

A test makes events on a `Stand` and compares the driver's actions with the protocol. It never asks which stand it has.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from konverse.dialog.session.session import Session
from konverse.schemas.wire.records import Kind

HOME, ORDERS, OTHERS = 0, 1, 2
"""The queues of a stand, of one partition each: the home of the dialogs, and their two targets."""


@dataclass
class Written:
    """A record of the stand's session in the data log of a queue."""

    id: int
    """Index of the session's id, in the order of its ids."""
    kind: Kind
    counter: int
    body: bytes | None = field(default=None, repr=False)


class Stand(Protocol):
    """The actions of a test on a driver, and its observations."""

    @property
    def session(self) -> Session:
        """The machine that the driver drives."""
        ...

    def begin(self, queue: int = ORDERS) -> Any:
        """Begin a dialog."""
        ...

    def send(self, dialog: Any, body: bytes) -> None:
        """Send a message without waiting."""
        ...

    def end(self, dialog: Any) -> None:
        """End the dialog."""
        ...

    def let_go(self) -> None:
        """Let the session's driver work until it has nothing to do, or waits for owners or a refusing partition."""
        ...

    def flush(self) -> None:
        """Let the driver and the owners work. Raises the session's error, or another when something still waits."""
        ...

    def receive(self, queue: int = ORDERS) -> list[tuple[str, bytes]]:
        """The owner receives and commits everything that waits. Returns types and bodies."""
        ...

    def written(self, queue: int = ORDERS) -> list[Written]:
        """The session's records in the log."""
        ...

    def silence(self) -> AbstractContextManager[None]:
        """Kafka answers no request inside the block; afterwards it handles them all."""
        ...

    def flushed(self) -> bool:
        """Whether a flush returns; False when its outcome is unknown. Owners do nothing meanwhile."""
        ...

    def commit_in_silence(self, queue: int = ORDERS) -> tuple[list[bytes], bool, bool]:
        """The owner receives and commits while Kafka is silent.

        Returns the bodies, and whether the commit is known to count: during the silence, and after it.
        """
        ...

    def failing_producer(self) -> AbstractContextManager[None]:
        """All records of the block reach Kafka, and the producer fails before it reports them."""
        ...

    def doubt(self) -> None:
        """A destination notifies the session that it does not hear it under its present id."""
        ...

    def grow_old(self) -> None:
        """Let enough time pass that the session must change its id."""
        ...

    def close_from_outside(self, queue: int = ORDERS) -> None:
        """A stranger takes the session for dead and closes its present id in a queue."""
        ...

    def asked_from_outside(self) -> dict[int, int]:
        """Another process asks with the session's token for the outcome of its messages.

        Returns index of the dialog, in order of beginning → number of its first message that was not received.
        """
        ...

    def delete_unread(self, queue: int = ORDERS) -> None:
        """Delete everything in the data log that was not received."""
        ...

    def refuse(self, queue: int, *, refuses: bool) -> None:
        """Let the partition refuse the session's records, or accept them again."""
        ...

    def lose_answer(self, queue: int = ORDERS) -> None:
        """The owner's next COMMIT lands, and its answer is lost."""
        ...

    def claimed_again(self, queue: int = ORDERS) -> int:
        """How often an owner claimed the partition again, besides its first CLAIM."""
        ...

    def answer(self, body: bytes, *, fails: bool, queue: int = ORDERS) -> None:
        """The owner receives everything and answers. With `fails`, its producer fails after Kafka has the answers."""
        ...

    def answers(self) -> list[tuple[int, bytes]]:
        """Counters and bodies of the answers in the log of HOME."""
        ...

    def bounds(self, queue: int = ORDERS) -> tuple[int, int]:
        """First offset of the data log, and its last stable offset."""
        ...

    def strangers_transaction(self, queue: int = ORDERS) -> AbstractContextManager[None]:
        """A stranger's transaction writes a record, is open during the block, and is aborted afterwards."""
        ...

    def overtaken(self, queue: int = ORDERS) -> tuple[list[bytes], bool]:
        """An owner receives; another claims before its commit. Returns the bodies, and whether the commit counts."""
        ...
