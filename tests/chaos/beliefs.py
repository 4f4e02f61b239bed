"""Writes the beliefs of a process's owners about their claims and commits to its history.

The product's methods are wrapped for that, in this process only. An application learns only that a commit counts; the
checker needs every verdict of an owner.
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
    """The partition's name in histories."""
    return place_name(owner.identity.data_topic, owner.identity.partition)


def rows_of(owner: Owner) -> list[list[Any]]:
    """The sides of a partition in its owner's fold, in the form of a `state` line."""
    return [
        [e.conversation.hex(), int(e.role), e.state.code, e.sent, e.received, e.consumed, len(e.queue),
         e.error is not None]
        for e in owner.fold.state.live()
    ]  # fmt: skip


@dataclass
class Beliefs:
    """Handler runs of a process, from their end to the COMMIT that contains them.

    A process may have several readers, each in a thread of its own. So the merged runs are kept by their owner's
    staging.
    """

    scribe: Scribe
    _names: dict[int, tuple[Transaction, str]] = field(default_factory=dict)
    _merged: dict[Staging, list[str]] = field(default_factory=dict)

    def finished(self, transaction: Transaction, name: str) -> None:
        """A handler run is about to be handed to the next commit."""
        self._names[id(transaction)] = (transaction, name)

    def listen(self) -> None:
        """Wrap the methods in which owners decide."""
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
        """A fenced owner knows that its commit came too late. Any other stopped owner does not know the outcome."""
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
    """Call the method, then `told` with its result and the arguments."""
    original: Wrap = getattr(owner, name)

    @wraps(original)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        answer = original(*arguments, **options)
        told(answer, *arguments, **options)
        return answer

    setattr(owner, name, wrapped)
