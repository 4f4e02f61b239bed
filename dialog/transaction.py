"""What a handler does with one conversation group: staged here, put into a commit as a whole or not at all.

A transaction changes nothing. It reads the messages that waited when it was made, notes what the handler sends and
ends, and is either finished (its notes join the owner's next COMMIT) or rolled back (they vanish, and the messages
wait as before, behaviour 74).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from operator import length_hint
from typing import Any, Final, NamedTuple, NoReturn, Self, cast
from uuid import UUID

from konverse.schemas.errors import BadInput, BodyTooLarge, DialogNotFound, InvalidState, TransactionTooLarge
from konverse.schemas.journal import SYSTEM_BITS, TOOK_ERROR, EndOperation, Sends
from konverse.schemas.limits import BODY_BYTES_MAX, TRANSACTION_BYTES_MAX
from konverse.schemas.operations import Finish
from konverse.schemas.records import Role
from konverse.schemas.system_messages import check_error

from .endpoint import Endpoint, Entry, FarStamp, Stamp
from .states import SENDING, State

Rule = Callable[[str, Role, str], None]
"""`rule(contract, role, message type)` raises when the side may not send the type."""

_OUTPUT_BYTES: Final = 14
"""What an output takes in a commit beside its body: endpoint, type and size."""

_END_BYTES: Final = 24
"""What an end takes in a commit beside its description: endpoint, code and a length."""

_NONE: Final[list[Any]] = []
"""Nothing sent, nothing ended: one empty list for all, never filled."""

_Walk = tuple[Iterator["Message"], int, list[Endpoint]]
"""An iteration: how far it is says what was handed out; its messages; the endpoints whose Error came with it."""

NOT_GROUPED: Final[list[Endpoint]] = []
"""The locked group of a lone conversation: it is its own."""

NOBODY: Final = cast("Endpoint", object())
"""No conversation: what nobody can send on, also when somebody sends on None."""

ERROR_SEQUENCE: Final = -1
"""Sequence number of an Error message: it overtakes and is not counted."""


class Message(NamedTuple):
    """A received message. Made for every message of every queue, hence a tuple with names."""

    type: str
    """Name of the message type."""
    body: bytes
    """The sender's bytes, untouched; empty when none were sent."""
    sequence: int
    """0, 1, 2 … in its direction of the conversation; -1 for an Error."""
    dialog: Endpoint
    """The conversation endpoint that received it: what `send` and `end` of the transaction take."""
    offset: int
    """Place in the queue's data log; of a message that came with its conversation, the place of that."""
    stamp: Stamp
    """Kafka's timestamp and the sender's headers, raw: `timestamp` and `headers` are made of it."""
    scope: Scope

    @property
    def timestamp(self) -> datetime:
        """Kafka's timestamp of the record, UTC."""
        return datetime.fromtimestamp((self.stamp if isinstance(self.stamp, int) else self.stamp[0]) / 1000, UTC)

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """The sender's own Kafka headers, without konverse's."""
        return [] if isinstance(self.stamp, int) else list(self.stamp[1])

    @property
    def id(self) -> str:
        """Stable over re-execution, unique for ever: key of effects outside (protocol.md section 5)."""
        scope, stamp = self.scope, self.stamp
        if isinstance(stamp, FarStamp):
            origin = stamp.origin
            return f"{UUID(bytes=origin.incarnation)}/{origin.partition}/{origin.offset}"
        return f"{UUID(bytes=scope.incarnation)}/{scope.partition}/{self.offset}"

    def __repr__(self) -> str:
        return f"<Message {self.type} #{self.sequence} of {self.dialog.id}, {len(self.body)} bytes>"


class Scope:
    """What all transactions of a partition share."""

    __slots__ = ("done", "incarnation", "partition", "rule")

    def __init__(self, incarnation: bytes, partition: int, rule: Rule) -> None:
        self.incarnation = incarnation
        self.partition = partition
        self.rule = rule
        self.done: Callable[[Transaction, bool], None] | None = None
        """Called once at the end of a `with` block: with True to commit, False to roll back."""


class Transaction:
    """The ready messages of one conversation group, and what is done with them.

    One is made for every group that is handed out, so it allocates what it needs when it needs it.
    """

    __slots__ = (
        "_bodies",
        "_dialog",
        "_members",
        "_received",
        "_scope",
        "_shut",
        "_type",
        "_walks",
        "dialog",
        "endings",
        "ends",
        "finishes",
        "locked",
        "sends",
        "size_bytes",
    )

    def __init__(
        self, members: list[tuple[Endpoint, list[Entry]]], locked: list[Endpoint], endings: int, scope: Scope
    ) -> None:
        self._members = members
        self.dialog = members[0][0]
        """The first conversation of the group, and of nearly every group the only one; `members` has all of them."""
        self._scope = scope
        self._shut = scope.done is not None
        """Nothing can be done: the `with` block has ended, or somebody waits for its end and it has not begun."""
        self._received: dict[int, int] | None = None
        """What was handed out until the block ended: an iterator that is kept longer consumes nothing."""
        self._walks: list[_Walk] = _NONE
        self._dialog = NOBODY
        """Conversation of the last send, with `_type` and `_bodies`: the next one like it needs no checks."""
        self.locked = locked
        """All endpoints of the group when it was locked; none for a lone conversation."""
        self.endings = endings
        """Endings in the partition before this transaction; another number means that it may be overtaken."""
        self.sends: list[Sends] = _NONE
        self.ends: list[EndOperation] = _NONE
        self.finishes: list[Finish] = _NONE
        self.size_bytes = 0
        """Bytes that the staged outputs and ends take in a commit."""

    def __enter__(self) -> Self:
        if self._received is None:
            self._shut = False
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commit what was staged, or on an exception nothing of it; the messages then wait as before (behaviour 74)."""
        if self._shut:
            return
        self._received = self.received
        self._shut, self._dialog = True, NOBODY
        done = self._scope.done
        if done is not None:
            done(self, kind is None)

    @property
    def members(self) -> list[Endpoint]:
        """The conversations of the group whose messages are here; several when dialogs were begun as related."""
        return [endpoint for endpoint, _ in self._members]

    def __len__(self) -> int:
        """Messages that can be taken."""
        return sum(len(entries) + (endpoint.error is not None) for endpoint, entries in self._members)

    def __iter__(self) -> Iterator[Message]:
        """The messages, one conversation after the other, Error first, then by sequence (behaviours 66, 67, 115).

        What was handed out is consumed when the transaction is finished; a loop left early leaves the rest in place.
        """
        if self._shut:
            self._refuse_use(self.dialog)
        scope, make = self._scope, tuple.__new__  # a call of Message() itself takes three times as long
        messages: list[Message] = []
        failed: list[Endpoint] = _NONE
        for endpoint, entries in self._members:
            if endpoint.error is not None:
                offset, kind, body, stamp = endpoint.error
                messages.append(make(Message, (kind, body or b"", ERROR_SEQUENCE, endpoint, offset, stamp, scope)))
                failed = [*failed, endpoint]
            sequence = endpoint.consumed
            for offset, kind, body, stamp in entries:
                messages.append(make(Message, (kind, body or b"", sequence, endpoint, offset, stamp, scope)))
                sequence += 1
        walk = iter(messages)
        if self._walks is _NONE:
            self._walks = [(walk, len(messages), failed)]
        else:
            self._walks.append((walk, len(messages), failed))
        return walk

    @property
    def received(self) -> dict[int, int]:
        """Endpoint index -> receive position (journal.avsc), for what was handed out."""
        if self._received is not None:
            return self._received
        walks, only = self._walks, self.dialog
        if len(walks) == 1 and not self.locked and not walks[0][2]:  # the usual transaction, in short
            took = walks[0][1] - length_hint(walks[0][0])
            return {only.index: (only.consumed + took) << SYSTEM_BITS} if took else {}
        received: dict[int, int] = {}
        for walk, count, failed in walks:
            left = count - length_hint(walk)
            for endpoint, entries in self._members:
                if not left:
                    break
                error = TOOK_ERROR if failed and endpoint in failed else 0
                took = min(left, len(entries) + error)
                left -= took
                position = (endpoint.consumed + took - error) << SYSTEM_BITS | error
                known = received.get(endpoint.index, 0)
                received[endpoint.index] = max(position, known) | (position | known) & TOOK_ERROR
        return received

    def send(self, dialog: Endpoint, message_type: str, body: bytes = b"") -> None:
        """Send on a conversation of this group when the transaction commits.

        Raises InvalidState when this side may not send any more, NotInContract, WrongDirection or MessageTypeNotFound
        for the type, BodyTooLarge and TransactionTooLarge for the size (behaviours 46, 47, 50 to 52).
        """
        if body.__class__ is not bytes:
            body = _as_bytes(body)
        size = len(body)
        total = self.size_bytes + size + _OUTPUT_BYTES
        if (
            dialog is not self._dialog
            or message_type is not self._type
            or total > TRANSACTION_BYTES_MAX
            or size > BODY_BYTES_MAX
        ):
            self._begin_run(dialog, message_type, size, total)
        self.size_bytes = total
        self._bodies.append(body)

    def _begin_run(self, dialog: Endpoint, message_type: str, size: int, total: int) -> None:
        """Everything that forbids a send; then what follows is of this conversation and type."""
        if self._shut or dialog.__class__ is not Endpoint:
            self._refuse_use(dialog)
        if not isinstance(message_type, str):
            raise BadInput(f"a message type is named by a text, not by {type(message_type).__name__}")
        self._scope.rule(dialog.terms.contract, dialog.role, message_type)
        if dialog.state not in SENDING or self.ends:
            self._refuse_ended(dialog, "send on")
        if dialog.finished is not None or self.finishes:
            self._refuse_finished(dialog)
        if dialog is not self.dialog:
            self._check_member(dialog)
        if total > TRANSACTION_BYTES_MAX or size > BODY_BYTES_MAX:
            _refuse_size(size, total)
        self._dialog, self._type = dialog, message_type
        self._bodies: list[bytes] = []
        run = (dialog.index, message_type, self._bodies)
        if self.sends is _NONE:
            self.sends = [run]
        else:
            self.sends.append(run)

    def end(self, dialog: Endpoint, *, error: int = 0, description: str = "") -> None:
        """End this side of a conversation when the transaction commits; with `error` > 0 as WITH ERROR.

        Raises InvalidState for a conversation that was ended already (behaviour 118) or a code below 0 (112).
        """
        check_error(error, description)
        if self._shut or dialog.__class__ is not Endpoint:
            self._refuse_use(dialog)
        if dialog.state.code in {"DO", "CD"} or self.ends:
            self._refuse_ended(dialog, "end")
        if dialog is not self.dialog:
            self._check_member(dialog)
        text = description.encode("utf-8", "replace")
        total = self.size_bytes + len(text) + _END_BYTES
        if total > TRANSACTION_BYTES_MAX:
            _refuse_size(0, total)
        self.size_bytes = total
        self._dialog = NOBODY
        if self.finishes:  # the end says it too
            self.finishes = [finish for finish in self.finishes if finish.endpoint != dialog.index]
        if self.ends is _NONE:
            self.ends = []
        self.ends.append(EndOperation(dialog.index, error, text.decode()))

    def finish(self, dialog: Endpoint) -> None:
        """Say when the transaction commits that nothing more comes from this side; it goes on to receive.

        Messages that others send later on this side come back to them. A second call changes nothing.
        Raises InvalidState for a conversation that was ended, or on which nothing was sent or received yet.
        """
        if self._shut or dialog.__class__ is not Endpoint:
            self._refuse_use(dialog)
        if dialog.state not in SENDING or self.ends:
            self._refuse_ended(dialog, "finish")
        if dialog is not self.dialog:
            self._check_member(dialog)
        if dialog.state is State.STARTED_OUTBOUND:
            raise InvalidState(f"cannot finish conversation {dialog.id}: nothing was sent or received on it yet")
        operation = Finish(dialog.index)
        if (dialog.finished is not None and dialog.finished.own) or operation in self.finishes:
            return
        self._dialog = NOBODY
        self.size_bytes += _END_BYTES
        self.finishes = [*self.finishes, operation]

    def clear(self) -> None:
        """Forget what was staged; the messages can be taken again."""
        self._walks = self.sends = self.ends = self.finishes = _NONE
        self._received = None
        self._dialog = NOBODY
        self.size_bytes = 0

    @property
    def idle(self) -> bool:
        """Nothing was taken, sent, finished or ended: the messages wait as before."""
        return not (self.sends or self.ends or self.finishes or self.received)

    def _refuse_use(self, dialog: object) -> NoReturn:
        if self._shut:
            raise InvalidState(
                "the transaction is over: its `with` block has ended. Receive, send and end inside of it"
                if self._received is not None
                else "the transaction has not begun: write `with transaction:`, then receive, send and end inside of it"
            )
        raise BadInput(f"a transaction works on `message.dialog`, not on {type(dialog).__name__}")

    def _refuse_ended(self, dialog: Endpoint, verb: str) -> None:
        ended = any(end.endpoint == dialog.index for end in self.ends)
        if ended or dialog.state not in SENDING:
            if verb == "end" and not ended and dialog.state.code in {"DI", "ER"}:
                return
            state = "ended in this transaction" if ended else dialog.state.name
            raise InvalidState(f"cannot {verb} conversation {dialog.id}: it is {state}. Begin a new dialog instead")

    def _refuse_finished(self, dialog: Endpoint) -> None:
        known = dialog.finished
        if (known is not None and known.own) or Finish(dialog.index) in self.finishes:
            raise InvalidState(
                f"cannot send on conversation {dialog.id}: this side has finished. Begin a new dialog instead"
            )

    def _check_member(self, dialog: Endpoint) -> None:
        if dialog.group is not None and dialog.group is self.dialog.group:
            return
        raise DialogNotFound(
            f"conversation {dialog.id} does not belong to the group of this transaction; "
            "a transaction works on the one conversation group whose messages it received"
        )


def _refuse_size(body_bytes: int, transaction_bytes: int) -> None:
    if body_bytes > BODY_BYTES_MAX:
        raise BodyTooLarge(f"the body has {body_bytes} bytes; at most {BODY_BYTES_MAX} fit into one message")
    raise TransactionTooLarge(
        f"the transaction sends {transaction_bytes} bytes; at most {TRANSACTION_BYTES_MAX} fit into one commit. "
        "Receive fewer messages at a time (max_messages) or send smaller ones"
    )


def _as_bytes(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise BadInput(f"a message body is bytes, not {type(body).__name__}; encode it first")
