"""Conversations that a handler begins: known to its transaction alone, until its commit makes endpoints of them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from konverse.dialog.state.endpoint import Terms
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.envelope import encode_suffix
from konverse.schemas.wire.records import Begin, Suffix

if TYPE_CHECKING:
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
