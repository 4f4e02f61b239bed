"""Conversations that a handler begins: known to its transaction alone, until its commit makes endpoints of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from konverse.schemas.envelope import encode_suffix
from konverse.schemas.journal import EndOperation, Operations, Sends
from konverse.schemas.operations import Cleanup, Finish, GiveBack, Move, MoveAway, SetTimer
from konverse.schemas.records import Begin, Role, Suffix

from .endpoint import Terms
from .states import State

if TYPE_CHECKING:
    from .partition import Partition
    from .transaction import Transaction

_BEGIN_BYTES = 64
"""What a begin takes in a commit beside the names of its services: identifiers and lengths."""


class Begun:
    """A dialog that this transaction begins: `send`, `finish` and `end` of the transaction take it.

    What comes on it later is received with another object in `message.dialog`; `id` says that it is the same.
    """

    __slots__ = ("begin", "conversation", "ending", "index", "terms")

    role = Role.INITIATOR
    committed = State.STARTED_OUTBOUND
    finished = None

    def __init__(self, conversation: bytes, begin: Begin, number: int) -> None:
        self.conversation = conversation
        self.begin = begin
        self.terms = Terms(begin.from_service, begin.to_service, begin.contract)
        self.ending: Transaction | None = None
        """This transaction, once it has ended the dialog."""
        self.index = -1 - number
        """In place of an endpoint's: below 0, as it has none before the commit."""

    @property
    def id(self) -> UUID:
        """Conversation id, shared by both sides."""
        return UUID(bytes=self.conversation)

    @property
    def state(self) -> State:
        """Its state: begun, or over."""
        over = None if self.ending is None else self.ending.over(self)
        return self.committed if over is None else over

    @property
    def is_initiator(self) -> bool:
        """Whether this side began the conversation: it did."""
        return True

    @property
    def service(self) -> str:
        """Service of this side."""
        return self.terms.service

    @property
    def far_service(self) -> str:
        """Service of the other side."""
        return self.terms.far_service

    @property
    def contract(self) -> str:
        """Contract of the conversation."""
        return self.terms.contract

    @property
    def group_id(self) -> bytes:
        """Conversation group."""
        return self.begin.group

    @property
    def size_bytes(self) -> int:
        """What it takes in a commit."""
        return _BEGIN_BYTES + len(encode_suffix(Suffix(begin=self.begin)))

    def __repr__(self) -> str:
        return f"<Begun {self.id} {self.terms.service} -> {self.terms.far_service}>"


class _Staged(NamedTuple):
    sends: list[Sends]
    ends: list[EndOperation]
    finishes: list[Finish]
    timers: list[SetTimer]
    cleanups: list[Cleanup | GiveBack]
    moves: list[Move | MoveAway]


def indices(state: Partition) -> Iterator[int]:
    """The indices that endpoints get which are added next (`Partition.add`)."""
    return chain(reversed(state.free), count(len(state.table)))


def place(transaction: Transaction, operations: Operations, free: Iterator[int]) -> _Staged:
    """Put what a transaction begins into a commit; what it sends and ends, with the indices that it will have there."""
    begun = transaction.begins
    operations.begins += [(one.conversation, one.begin) for one in begun]
    places = {one.index: index for one, index in zip(begun, free, strict=False)}
    return _Staged(
        [(places.get(index, index), kind, bodies) for index, kind, bodies in transaction.sends],
        [end._replace(endpoint=places.get(end.endpoint, end.endpoint)) for end in transaction.ends],
        [Finish(places.get(finish.endpoint, finish.endpoint)) for finish in transaction.finishes],
        [timer._replace(endpoint=places.get(timer.endpoint, timer.endpoint)) for timer in transaction.timers],
        [cleanup._replace(endpoint=places.get(cleanup.endpoint, cleanup.endpoint)) for cleanup in transaction.cleanups],
        [move._replace(endpoint=places.get(move.endpoint, move.endpoint)) for move in transaction.moves],
    )
