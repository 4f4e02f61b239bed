"""The messages that a transaction has of its conversation group, and how far the handler has received them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from operator import length_hint
from typing import Any, Final, NoReturn

from konverse.dialog.state.endpoint import Endpoint, Entry, system_bit
from konverse.schemas.errors import BadInput, InvalidState
from konverse.schemas.wire.journal import SYSTEM_BITS, TOOK_SYSTEM

from .received import SYSTEM_SEQUENCE, Message, MessageContext

_Walk = tuple[Iterator[Message], int, dict[Endpoint, tuple[Entry, ...]]]
"""An iteration: the iterator, the number of its messages, and the urgent entries of each endpoint when it began.

The length hint of the iterator tells how many messages were handed out.
"""

_NONE: Final[list[Any]] = []
"""Shared empty list of iterations, never filled."""

_NOTHING: Final[dict[int, int]] = {}

_NOBODY: Final[dict[Endpoint, tuple[Entry, ...]]] = {}


class ReceivedMessages:
    """The ready messages of one locked conversation group, and how many of them were handed out.

    The base of `Transaction`, with the half that RECEIVE uses. It is a base class and not a separate object, because an
    owner makes a transaction for every group that it hands out, and a second object would cost more than its handling.
    """

    __slots__ = ("_context", "_later", "_members", "_received", "_shut", "_walks", "dialog", "fresh", "locked")

    def __init__(
        self, members: list[tuple[Endpoint, list[Entry]]], locked: list[Endpoint], context: MessageContext
    ) -> None:
        self._members = members
        self.dialog = members[0][0]
        """First conversation of the group; usually the only one. `members` has all."""
        self._context = context
        self._shut = self.fresh = False
        """`_shut`: no call is allowed, because the `with` block has ended or not begun. `fresh`: it has not begun."""
        self._received: dict[int, int] | None = None
        """The receive positions when the block ended: an iterator that lives longer consumes nothing."""
        self._walks: list[_Walk] = _NONE
        self._later: dict[int, int] = _NOTHING
        """Receive positions after the last call of `receive`. They replace all iterations that began before it."""
        self.locked = locked
        """All endpoints of the group when it was locked; empty for a conversation that is alone in its group."""

    @property
    def members(self) -> list[Endpoint]:
        """The conversations of the group that have messages here."""
        return [endpoint for endpoint, _ in self._members]

    def __len__(self) -> int:
        """Messages that can be taken."""
        return sum(len(entries) + len(endpoint.urgent) for endpoint, entries in self._members)

    def __iter__(self) -> Iterator[Message]:
        """The messages, one conversation after the other: DialogTimer, Error, then by sequence (66, 67, 100, 115).

        The commit consumes the messages that were handed out. A loop that is left early leaves the rest in the queue.
        """
        if self._shut:
            self.refuse_shut()
        context, make = self._context, tuple.__new__  # calling Message() takes three times as long
        messages: list[Message] = []
        overtook = _NOBODY
        for endpoint, entries in self._members:
            urgent = endpoint.urgent  # read once: a session's END may change it at any time
            if urgent:
                for offset, kind, body, stamp in urgent:
                    messages.append(
                        make(Message, (kind, body or b"", SYSTEM_SEQUENCE, endpoint, offset, stamp, context))
                    )
                overtook = {**overtook, endpoint: urgent}
            sequence = endpoint.consumed
            for offset, kind, body, stamp in entries:
                messages.append(make(Message, (kind, body or b"", sequence, endpoint, offset, stamp, context)))
                sequence += 1
        walk = iter(messages)
        if self._walks is _NONE:
            self._walks = [(walk, len(messages), overtook)]
        else:
            self._walks.append((walk, len(messages), overtook))
        return walk

    def receive(self, count: int | None = None) -> list[Message]:
        """RECEIVE again: messages of the group that were not received yet, and those that came since (behaviour 73).

        Returns at most `count` messages (TOP n), in the order of an iteration. Running iterations end. Raises BadInput
        for a `count` below 1.
        """
        if self._shut:
            self.refuse_shut()
        wanted: object = count  # handlers are not type-checked
        if wanted is not None and not (isinstance(wanted, int) and wanted >= 1):
            raise BadInput(f"count must be a whole number of at least 1, not {count!r}; leave it out for all")
        later = self.received
        for walk, _, _ in self._walks:
            deque(walk, 0)
        self._walks, self._later = _NONE, later
        messages: list[Message] = []
        for endpoint in self.conversations:
            position = later.get(endpoint.index, endpoint.consumed << SYSTEM_BITS)
            waiting = list(endpoint.queue[(position >> SYSTEM_BITS) - endpoint.consumed :])
            numbered = list(enumerate(waiting, position >> SYSTEM_BITS))
            urgent = [entry for entry in endpoint.urgent if not position & system_bit(entry[1])]
            ready = [(SYSTEM_SEQUENCE, entry) for entry in urgent] + numbered
            for sequence, entry in ready[: None if count is None else count - len(messages)]:
                offset, kind, body, stamp = entry
                messages.append(Message(kind, body or b"", sequence, endpoint, offset, stamp, self._context))
                position += 1 << SYSTEM_BITS if sequence >= 0 else system_bit(kind)
                later[endpoint.index] = position
        return messages

    def receive_only(self, messages: Sequence[Message]) -> None:
        """Receive exactly these messages of an earlier iteration, whatever has come since. Running iterations end."""
        if self._shut:
            self.refuse_shut()
        later: dict[int, int] = {}
        for message in messages:
            endpoint = message.dialog
            position = later.get(endpoint.index, endpoint.consumed << SYSTEM_BITS)
            if message.sequence == SYSTEM_SEQUENCE:
                position |= system_bit(message.type)
            else:
                position = (message.sequence + 1) << SYSTEM_BITS | position & TOOK_SYSTEM
            later[endpoint.index] = position
        self._walks, self._later = _NONE, later

    @property
    def received(self) -> dict[int, int]:
        """Endpoint index -> receive position (journal.avsc), for the messages that were handed out."""
        if self._received is not None:
            return self._received
        walks, only = self._walks, self.dialog
        if len(walks) == 1 and not (self.locked or walks[0][2] or self._later):  # short cut for the usual transaction
            took = walks[0][1] - length_hint(walks[0][0])
            return {only.index: (only.consumed + took) << SYSTEM_BITS} if took else {}
        received = {**self._later}
        for walk, count, overtook in walks:
            left = count - length_hint(walk)
            for endpoint, entries in self._members:
                if not left:
                    break
                urgent = overtook.get(endpoint, ())
                took = min(left, len(entries) + len(urgent))
                left -= took
                bits = sum(system_bit(entry[1]) for entry in urgent[:took])
                position = (endpoint.consumed + max(0, took - len(urgent))) << SYSTEM_BITS | bits
                known = received.get(endpoint.index, 0)
                received[endpoint.index] = max(position, known) | (position | known) & TOOK_SYSTEM
        return received

    @property
    def conversations(self) -> list[Endpoint]:
        """All conversations of the group when it was locked, also those without messages."""
        return self.locked or [self.dialog]

    def put_back(self) -> None:
        """Make all messages receivable again."""
        self._walks = _NONE
        self._later = _NOTHING
        self._received = None

    def go_back(self, received: dict[int, int]) -> None:
        """Return to these receive positions. Running iterations end, and `receive` gives the later messages again."""
        if self.received == received:
            return
        for walk, _, _ in self._walks:
            deque(walk, 0)
        self._walks, self._later = _NONE, {**received}

    def refuse_shut(self) -> NoReturn:
        """Raise InvalidState, because no call is allowed before or after the `with` block."""
        raise InvalidState(
            "the transaction has not begun: write `with transaction:`, then receive, send and end inside of it"
            if self.fresh
            else "the transaction is over: its `with` block has ended, or the reader went on before that began and "
            "handed its group out again. Receive, send and end inside of the block"
        )
