"""What the owners of a process believe about their claims and commits, told to its history.

The product's own methods are wrapped for that, in the process that asks for it: an application learns of a commit only
that it counts, the checker wants to know of each what its owner holds of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from konverse.dialog.owner.owner import Owner
from konverse.dialog.owner.staging import Staging
from konverse.dialog.transaction.transaction import Transaction

from .history import Scribe
from .topics import place_name


def place_of(owner: Owner) -> str:
    """The partition, as histories name it."""
    return place_name(owner.identity.data_topic, owner.identity.partition)


def rows_of(owner: Owner) -> list[list[Any]]:
    """How the sides of a partition stand in its owner's fold, as a `state` line has them."""
    return [
        [e.conversation.hex(), int(e.role), e.state.code, e.sent, e.received, e.consumed, len(e.queue),
         e.error is not None]
        for e in owner.fold.state.live()
    ]  # fmt: skip


@dataclass
class Beliefs:
    """The handler runs of a process, from their end to the commit that holds them.

    A process may have several readers, each in a thread of its own: what a commit holds is kept by its owner's staging.
    """

    scribe: Scribe
    _names: dict[int, tuple[Transaction, str]] = field(default_factory=dict)
    _merged: dict[Staging, list[str]] = field(default_factory=dict)

    def finished(self, transaction: Transaction, name: str) -> None:
        """A handler run is about to be handed to the next commit."""
        self._names[id(transaction)] = (transaction, name)

    def listen(self) -> None:
        """Wrap what owners decide."""
        _after(Staging, "merge", self._on_merge)
        _after(Owner, "commit", self._on_commit)
        _after(Owner, "_lead", self._on_lead)
        _before(Owner, "_committed", lambda owner, *_: self._say("ok", owner))
        _before(Owner, "_stop", self._on_stop)

    def _on_merge(self, answer: tuple[Any, list[Transaction]], staging: Staging) -> None:
        _, finished = answer
        overtaken = {id(transaction) for transaction in staging.overtaken}
        known = [(t, self._names.pop(id(t), None)) for t in finished]
        self._merged[staging] = [named[1] for t, named in known if named is not None and id(t) not in overtaken]

    def _on_commit(self, answer: list[Any], owner: Owner, _now_ms: int) -> None:
        if answer:
            self._say("invoke", owner, transactions=self._merged.pop(owner.staging))

    def _on_lead(self, _answer: Any, owner: Owner, _now_ms: int) -> None:
        self.scribe.ok("lead", place=place_of(owner), owner=owner.claim_id.hex())

    def _on_stop(self, owner: Owner, _reason: str, *, fenced: bool = False, **_: Any) -> None:
        """An owner that was fenced knows that its commit came too late; any other one knows nothing."""
        if owner._in_flight is not None:
            self._say("fail" if fenced else "info", owner)

    def _say(self, kind: str, owner: Owner, **fields: Any) -> None:
        flight = owner._in_flight
        assert flight is not None
        told = {"place": place_of(owner), "owner": owner.claim_id.hex(), "number": flight.commit.number, **fields}
        {"invoke": self.scribe.invoke, "ok": self.scribe.ok, "fail": self.scribe.fail, "info": self.scribe.info}[kind](
            "commit", **told
        )


Wrap = Callable[..., Any]


def _before(owner: type, name: str, told: Wrap) -> None:
    """Call `told` with the arguments, then the method."""
    original: Wrap = getattr(owner, name)

    @wraps(original)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        told(*arguments, **options)
        return original(*arguments, **options)

    setattr(owner, name, wrapped)


def _after(owner: type, name: str, told: Wrap) -> None:
    """Call the method, then `told` with its answer and the arguments."""
    original: Wrap = getattr(owner, name)

    @wraps(original)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        answer = original(*arguments, **options)
        told(answer, *arguments, **options)
        return answer

    setattr(owner, name, wrapped)
