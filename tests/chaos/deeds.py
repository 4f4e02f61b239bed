"""A history in digested form: each send, transaction and commit with its outcome."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from .history import Line
from .topics import Facts, SideKey

UNKNOWN: Final = "info"


class Origin(NamedTuple):
    """The sender of a body."""

    conversation: str
    role: int
    """Role of the sending side."""
    transaction: str
    """The handler run that sent it; empty for a session."""


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
    """End of the handler, before its commit, by the machine's clock. Later events have later times."""


@dataclass
class CommitTry:
    """A COMMIT that an owner wanted to append."""

    place: str
    owner: str
    number: int
    transactions: list[str]
    outcome: str = UNKNOWN


class State(NamedTuple):
    """The owner's fold of its partition when its process ended."""

    process: str
    place: str
    owner: str
    sides: dict[SideKey, Facts]


@dataclass
class Deeds:
    """The actions of all processes, by object."""

    sends: defaultdict[str, list[Send]] = field(default_factory=lambda: defaultdict(list))
    """Conversation → sends on it. A refused send's number is used again."""
    transactions: dict[str, Transaction] = field(default_factory=dict)
    commits: dict[tuple[str, str, int], CommitTry] = field(default_factory=dict)
    """(place, owner, number) → commit."""
    leads: set[tuple[str, str]] = field(default_factory=set)
    """Place and owner of each claim that counts, as far as its process knows."""
    states: list[State] = field(default_factory=list)
    followed: list[State] = field(default_factory=list)
    """States that followers reached."""
    stops: list[tuple[str, str]] = field(default_factory=list)
    """Processes that ended themselves, and why."""
    together: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Client transaction → conversation and body of each message."""
    redirects: dict[str, set[str]] = field(default_factory=dict)
    """Bounced body → conversations to which it was to be redirected."""
    origins: dict[str, Origin] = field(default_factory=dict)
    """Body → its sender; bodies are unique."""
    _latest: dict[tuple[str, int], Send] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[Line]) -> Deeds:
        """Digest the lines. Other operations are ignored."""
        deeds = cls()
        for line in lines:
            take_in = _OPERATIONS.get(line["op"])
            if take_in is not None:
                take_in(deeds, line, line["type"])
        return deeds

    def counting(self, place: str, commits: dict[int, str]) -> Iterator[tuple[int, Transaction]]:
        """Number and handler run of each commit that counts, in order."""
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
    """The sides in a `state` line: [conversation, role, facts...] each."""
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
