"""Conversations that a handler begins. Only their transaction knows them, until its COMMIT makes endpoints of them."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from konverse.dialog.state.endpoint import Terms
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.envelope import encode_suffix
from konverse.schemas.wire.records import Begin, Suffix

_BEGIN_BYTES = 64
"""Bytes of a begin in a COMMIT apart from the names: identifiers and lengths."""


class _EndedBy(Protocol):
    """The transaction that begins the dialog, once it has ended it."""

    def over(self, dialog: NewDialog) -> State | None:
        """The state to which the transaction takes this side; None when it does not end the side."""


class NewDialog:
    """A dialog that this transaction begins: pass it to the transaction's `send`, `finish` and `end`.

    Replies arrive in a later transaction, with another object in `message.dialog` that has the same `id`.
    """

    __slots__ = ("begin", "conversation", "ending", "index", "terms")

    role = Role.INITIATOR
    committed = State.STARTED_OUTBOUND
    finished = None

    def __init__(self, conversation: bytes, begin: Begin, number: int) -> None:
        self.conversation = conversation
        self.begin = begin
        self.terms = Terms(begin.from_service, begin.to_service, begin.contract)
        self.ending: _EndedBy | None = None
        """This transaction, once it has ended the dialog."""
        self.index = -1 - number
        """Stands in for the index of an endpoint. It is negative, because the endpoint exists only after the COMMIT."""

    @property
    def id(self) -> UUID:
        """Conversation id, shared by both sides."""
        return UUID(bytes=self.conversation)

    @property
    def state(self) -> State:
        """State of this side: STARTED_OUTBOUND, or the state after its end in this transaction."""
        over = None if self.ending is None else self.ending.over(self)
        return self.committed if over is None else over

    @property
    def is_initiator(self) -> bool:
        """Always True: this side begins the conversation."""
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
        """Bytes of this begin in a COMMIT."""
        return _BEGIN_BYTES + len(encode_suffix(Suffix(begin=self.begin)))

    def __repr__(self) -> str:
        return f"<NewDialog {self.id} {self.terms.service} -> {self.terms.far_service}>"
