"""A history with its lines brought together: each send, transaction and commit with its outcome."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from .history import Line
from .topics import Facts, SideKey

UNKNOWN: Final = "info"


class Origin(NamedTuple):
    """Who sent a body."""

    conversation: str
    role: int
    """Of the side that sent it."""
    transaction: str
    """The handler run that did; empty for a session."""


class Take(NamedTuple):
    """A message that a handler run received."""

    conversation: str
    role: int
    n: int
    body: str


class Sent(NamedTuple):
    """A message that a handler run sent."""

    conversation: str
    role: int
    body: str


@dataclass
class Send:
    """A session's message."""

    n: int
    body: str
    outcome: str = UNKNOWN


@dataclass
class Transaction:
    """A handler run."""

    id: str
    takes: list[Take]
    sends: list[Sent]
    ends: list[SideKey]
    at_s: float = 0.0
    """When the handler ended, before its commit was made: by the machine's clock, so that what follows is later."""


@dataclass
class CommitTry:
    """A COMMIT that an owner wanted to append."""

    place: str
    owner: str
    number: int
    transactions: list[str]
    outcome: str = UNKNOWN


class State(NamedTuple):
    """What the fold of an owner said of its partition when its process ended."""

    process: str
    place: str
    owner: str
    sides: dict[SideKey, Facts]


@dataclass
class Deeds:
    """What all processes did, by what they did it to."""

    sends: defaultdict[str, list[Send]] = field(default_factory=lambda: defaultdict(list))
    """Conversation -> what the session wanted to send on it; the number of one that was refused comes again."""
    transactions: dict[str, Transaction] = field(default_factory=dict)
    commits: dict[tuple[str, str, int], CommitTry] = field(default_factory=dict)
    """By place, owner and number."""
    leads: set[tuple[str, str]] = field(default_factory=set)
    """Place and owner of each claim that its process believes in."""
    states: list[State] = field(default_factory=list)
    followed: list[State] = field(default_factory=list)
    """Of followers."""
    stops: list[tuple[str, str]] = field(default_factory=list)
    """Processes that ended of themselves, and why."""
    together: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Transactions of clients: conversation and body of all that each was to send."""
    redirects: dict[str, set[str]] = field(default_factory=dict)
    """Body that came back -> conversations on which it was to be sent again."""
    origins: dict[str, Origin] = field(default_factory=dict)
    """Who sent a body; bodies are unique."""
    _latest: dict[tuple[str, int], Send] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[Line]) -> Deeds:
        """Bring the lines together; those of other operations say nothing here."""
        deeds = cls()
        for line in lines:
            take_in = _OPERATIONS.get(line["op"])
            if take_in is not None:
                take_in(deeds, line, line["type"])
        return deeds

    def counting(self, place: str, commits: dict[int, str]) -> Iterator[tuple[int, Transaction]]:
        """The handler runs of the commits that count, in the order in which they count, with the commit's number."""
        for number, owner in sorted(commits.items()):
            tried = self.commits.get((place, owner, number))
            for identifier in tried.transactions if tried else ():
                yield number, self.transactions[identifier]

    # ------------------------------------------------------------------------------------------------------- lines

    def _send(self, line: Line, kind: str) -> None:
        key = (line["conversation"], line["n"])
        if kind == "invoke":
            self._latest[key] = send = Send(line["n"], line["body"])
            self.sends[line["conversation"]].append(send)
            self.origins[send.body] = Origin(line["conversation"], 0, "")
        else:
            self._latest[key].outcome = kind

    def _together(self, line: Line, _kind: str) -> None:
        self.together[line["id"]] = [(conversation, body) for conversation, body in line["sends"]]

    def _redirect(self, line: Line, _kind: str) -> None:
        self.redirects.setdefault(line["body"], set()).add(line["conversation"])

    def _transaction(self, line: Line, _kind: str) -> None:
        done = Transaction(
            line["id"],
            [Take(*take) for take in line["takes"]],
            [Sent(*sent) for sent in line["sends"]],
            [(conversation, role) for conversation, role in line["ends"]],
            line["t"],
        )
        self.transactions[done.id] = done
        for sent in done.sends:
            self.origins[sent.body] = Origin(sent.conversation, sent.role, done.id)

    def _commit(self, line: Line, kind: str) -> None:
        key = (line["place"], line["owner"], line["number"])
        if kind == "invoke":
            self.commits[key] = CommitTry(*key, line["transactions"])
        else:
            self.commits[key].outcome = kind

    def _lead(self, line: Line, kind: str) -> None:
        if kind == "ok":
            self.leads.add((line["place"], line["owner"]))

    def _state(self, line: Line, _kind: str) -> None:
        self.states.append(State(line["process"], line["place"], line["owner"], sides_of(line["sides"])))

    def _followed(self, line: Line, _kind: str) -> None:
        self.followed.append(State(line["process"], line["place"], line["owner"], sides_of(line["sides"])))

    def _stopped(self, line: Line, _kind: str) -> None:
        self.stops.append((line["process"], line["reason"]))


def sides_of(rows: Iterable[Any]) -> dict[SideKey, Facts]:
    """The sides that a `state` line holds: [conversation, role, facts...] each."""
    return {(conversation, role): (*facts,) for conversation, role, *facts in rows}


_OPERATIONS: Final = {
    "send": Deeds._send,  # the table belongs to the class
    "transaction": Deeds._transaction,
    "commit": Deeds._commit,
    "lead": Deeds._lead,
    "state": Deeds._state,
    "followed": Deeds._followed,
    "stopped": Deeds._stopped,
    "together": Deeds._together,
    "redirect": Deeds._redirect,
}
