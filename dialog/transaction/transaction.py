"""A handler's work on one conversation group: staged here, committed as a whole or not at all.

A transaction changes no state. It reads the messages that waited when it was made, and stages the handler's work. The
owner puts a finished transaction into its next COMMIT. When a transaction is rolled back, its staged work is dropped
and the messages wait as before (behaviour 74).

    Transaction         the calls of a handler
    TransactionContext  data that all transactions of a partition share
    TransactionHost     the process that has handed a transaction out: locks groups, and learns how the work has ended
    Staged              a copy of the staged work, for savepoints
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol, Self, cast
from uuid import UUID

from konverse.dialog.state.endpoint import NO_TIME, Endpoint, Entry
from konverse.dialog.state.transitions import OVER, SENDING, TRANSITIONS, Event, State, next_state
from konverse.schemas.errors import (
    ENDED_TWICE,
    BadInput,
    DialogNotFound,
    ForeignGroup,
    InvalidState,
    MoveRefused,
    NullHandle,
    TimerRefused,
    TransactionTooLarge,
)
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import BODY_BYTES_MAX, TIMEOUT_MS_MAX, TOPIC_NAME_LENGTH_MAX, TRANSACTION_BYTES_MAX
from konverse.schemas.system_messages import DEFAULT, check_error
from konverse.schemas.timeouts import check_timer, milliseconds
from konverse.schemas.wire.bodies import as_bytes, check_size
from konverse.schemas.wire.journal import END_BYTES, OUTPUT_BYTES, EndOperation, Sends
from konverse.schemas.wire.operations import Cleanup, Finish, GiveBack, Move, MoveAway, SetTimer
from konverse.schemas.wire.records import FOR_EVER, NO_TIMER

from .begun import NewDialog
from .groups import More
from .received import BeginRule, Clauses, MessageContext, Rule
from .savepoints import Savepoints
from .taken import ReceivedMessages

if TYPE_CHECKING:
    from konverse.schemas.identifiers import Address

_NONE: Final[list[Any]] = []
"""Shared empty list for everything that is not staged, never filled."""
NOT_GROUPED: Final[list[Endpoint]] = []
"""`locked` of a conversation that is alone in its group."""
_RELATABLE: Final = (Endpoint, NewDialog, type(None))
SPEAKERS: Final = (Endpoint, NewDialog)
"""Classes of the dialogs that a transaction's calls accept."""
NO_DIALOG: Final = cast("Endpoint", object())
"""In place of the last send's dialog when there is none. It equals nothing that a handler can pass, None included."""
_MOVE_BYTES: Final = 24
"""Bytes of a move in a COMMIT: endpoint and group."""
_MOVE_AWAY_BYTES: Final = _MOVE_BYTES + 3 + TOPIC_NAME_LENGTH_MAX + 8
"""Bytes of a move to a group in another partition in a COMMIT: also its address."""


class TransactionHost(Protocol):
    """The process that hands transactions out. They ask it for groups while their handlers run."""

    def lock(self, transaction: Transaction, dialog: Endpoint | NewDialog, group: bytes, /) -> Address | None:
        """Lock the group to which a dialog moves. Returns the address of a group in another partition. It may raise."""

    def further(self, transaction: Transaction, /) -> Transaction | None:
        """Lock another group of the partition, as a part of the transaction; None when no group is free."""

    def done(self, transaction: Transaction, commits: bool, /) -> None:  # noqa: FBT001  # a callback's shape
        """Called once, when the `with` block ends: commit the work if `commits`, else roll it back."""


class NoHost:
    """Host of transactions that no process waits for: a move locks nothing, and no further group is free."""

    __slots__ = ()

    def lock(self, _transaction: Transaction, _dialog: Endpoint | NewDialog, _group: bytes, /) -> None:
        """Lock nothing."""

    def further(self, _transaction: Transaction, /) -> None:
        """No group is free."""

    def done(self, _transaction: Transaction, _commits: bool, /) -> None:  # noqa: FBT001  # a callback's shape
        """Do nothing: the driver looks at the transaction itself."""


class TransactionContext:
    """Data that all transactions of a partition share."""

    __slots__ = ("begin", "host", "messages", "rule")

    def __init__(self, messages: MessageContext, rule: Rule) -> None:
        self.messages = messages
        self.rule = rule
        self.begin: BeginRule | None = None
        """Called when a handler begins a dialog; None: handlers cannot begin any."""
        self.host: TransactionHost = NoHost()
        """Replaced when the partition is lost, for the transactions that handlers still hold."""


class Staged(NamedTuple):
    """A copy of the staged work of a transaction."""

    begins: list[NewDialog]
    sends: list[tuple[int, str, list[bytes], int]]
    """Runs, each with the number of its bodies: an existing run only grows."""
    ends: list[EndOperation]
    cleanups: list[Cleanup | GiveBack]
    finishes: list[Finish]
    timers: list[SetTimer]
    moves: list[Move | MoveAway]
    size_bytes: int
    received: dict[int, int]


_NOTHING: Final = Staged([], [], [], [], [], [], [], 0, {})


class Transaction(ReceivedMessages):
    """The ready messages of one conversation group, and the work of a handler on them.

    One is made for every group that is handed out, so it allocates each list only when it is needed.
    """

    __slots__ = (
        "_bodies", "_dialog", "_entered", "_shared", "_type", "begins", "cleanups", "endings", "ends", "finishes",
        "more", "savepoints", "sends", "size_bytes", "timers",
    )  # fmt: skip

    def __init__(
        self,
        members: list[tuple[Endpoint, list[Entry]]],
        locked: list[Endpoint],
        endings: int,
        context: TransactionContext,
    ) -> None:
        super().__init__(members, locked, context.messages)
        self._shared = context
        self._entered = False
        self._dialog: Endpoint | NewDialog = NO_DIALOG
        """Dialog of the last send, with its `_type` and `_bodies`: an equal send after it skips the checks."""
        self.endings = endings
        """`Partition.endings` when this was made. Once it differs, a session's END may have overtaken this
        transaction."""
        self.begins: list[NewDialog] = _NONE
        self.sends: list[Sends] = _NONE
        self.ends: list[EndOperation] = _NONE
        self.cleanups: list[Cleanup | GiveBack] = _NONE
        self.finishes: list[Finish] = _NONE
        self.timers: list[SetTimer] = _NONE
        self.more: More[Transaction] | None = None
        """None unless it moves conversations or has further groups."""
        self.size_bytes = 0  # of the staged work in a COMMIT
        self.savepoints: Savepoints[dict[Transaction, Staged]] | None = None  # of all groups; only on the first one

    def await_block(self) -> None:
        """Refuse calls until the `with` block begins, because the end of the block commits the work."""
        self._shut = self.fresh = True

    def hold(self) -> None:
        """Allow calls before the `with` block, so that several transactions can be worked on together."""
        self._shut = self.fresh = False

    def __enter__(self) -> Self:
        if self.fresh:
            self._shut = self.fresh = False
        elif self._shut:
            self.refuse_shut()
        elif self._entered and (self.more is None or self.more.first is self):
            raise InvalidState(
                "the transaction is in its `with` block already, and one block commits it: work in that, and undo a "
                "part of it with `savepoint` and `rollback`"
            )
        self._entered = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commit the staged work. On an exception drop it, and the messages wait as before (behaviour 74)."""
        if self._shut or (self.more is not None and self.more.first is not self):
            return
        self._received = self.received
        self._shut, self._dialog = True, NO_DIALOG
        if self.more is not None:
            self.more.end(kind, self._shared.host.done)
        else:
            self._shared.host.done(self, kind is None)

    def shut(self) -> None:
        """Refuse all further calls."""
        self._received = self.received
        self._shut, self._dialog = True, NO_DIALOG

    def begin(  # noqa: PLR0913  # the clauses of BEGIN DIALOG
        self,
        from_service: str,
        to_service: str,
        contract: str = DEFAULT,
        *,
        related_to: Endpoint | NewDialog | None = None,
        key: bytes | None = None,
        lifetime: float | None = None,
        hops: int = 0,
    ) -> NewDialog:
        """BEGIN DIALOG when the transaction commits, with the messages that the transaction sends on the dialog.

        `from_service` must be a service of this queue. `related_to` puts the dialog into the conversation group of this
        transaction, or of another dialog that it begins (behaviour 35): replies are then received with that group.
        Without it the dialog has a group of its own. `lifetime` is in seconds. `hops` counts the routers that the
        dialog has passed. Raises the errors of `broker.begin_dialog`, DialogNotFound when `related_to` belongs to
        another group, ForeignGroup when it belongs to another service, TransactionTooLarge.
        """
        if self._shut or related_to.__class__ not in _RELATABLE:
            self._refuse_use(related_to)
        if self._shared.begin is None:
            raise InvalidState("this reader begins no dialogs: use `broker.begin_dialog`")
        if related_to is not None:
            self._check_member(related_to)
            if related_to.terms.service != from_service:
                raise ForeignGroup(
                    f"conversation {related_to.id} belongs to service {related_to.terms.service!r}, not to "
                    f"{from_service!r}: a conversation group belongs to one service"
                )
        group = None if related_to is None else self.group_of(related_to)
        lifetime_ms = FOR_EVER if lifetime is None else milliseconds(lifetime, "a lifetime")
        clauses = Clauses(from_service, to_service, contract, group, key, lifetime_ms, hops)
        conversation, begin = self._shared.begin(clauses)
        begun = NewDialog(conversation, begin, len(self.begins))
        total = self.size_bytes + begun.size_bytes
        if total > TRANSACTION_BYTES_MAX:
            refuse_size(0, total)
        self.size_bytes = total
        self.begins = [*self.begins, begun]
        return begun

    @property
    def dialogs(self) -> list[Endpoint | NewDialog]:
        """All conversations of the group, also those without messages, and those that this transaction begins."""
        return [*self.conversations, *self.begins]

    def find(self, conversation_id: UUID) -> Endpoint | NewDialog:
        """The conversation with that id in this group, or begun here. Raises DialogNotFound when there is none."""
        if conversation_id is None:
            raise NullHandle("conversation_id must be a UUID, and None was given")
        if not isinstance(conversation_id, UUID):
            raise BadInput(f"conversation_id must be a UUID, not {conversation_id!r}")
        for dialog in self.dialogs:
            if dialog.conversation == conversation_id.bytes:
                return dialog
        raise DialogNotFound(
            f"conversation {conversation_id} does not belong to the group of this transaction, or is over"
        )

    def send(self, dialog: Endpoint | NewDialog, message_type: str = DEFAULT, body: bytes = b"") -> None:
        """Send on a conversation of this group, or one that this transaction begins, when the transaction commits.

        Raises InvalidState when this side may no longer send (50 to 52), TransactionTooLarge, and the errors of
        `dialog.send`.
        """
        if body.__class__ is not bytes:
            body = as_bytes(body)
        size = len(body)
        total = self.size_bytes + size + OUTPUT_BYTES
        if (
            dialog is not self._dialog
            or message_type is not self._type
            or total > TRANSACTION_BYTES_MAX
            or size > BODY_BYTES_MAX
            or dialog.committed not in SENDING
        ):
            self._begin_run(dialog, message_type, size, total)
        self.size_bytes = total
        self._bodies.append(body)

    def _begin_run(self, dialog: Endpoint | NewDialog, message_type: str, size: int, total: int) -> None:
        """Run all checks of a send, and open a run: further sends of this dialog and type go into it unchecked."""
        if self._shut or dialog.__class__ not in SPEAKERS:
            self._refuse_use(dialog)
        if not isinstance(message_type, str):
            raise BadInput(f"message_type must be a str, not {type(message_type).__name__}")
        self._shared.rule(dialog.terms.contract, dialog.role, message_type)
        if dialog.committed not in SENDING or self.ends or self.cleanups:
            self._refuse_ended(dialog, "send on")
        if dialog.finished is not None or self.finishes:
            self._refuse_finished(dialog)
        if dialog is not self.dialog:
            self._check_member(dialog)
        if total > TRANSACTION_BYTES_MAX or size > BODY_BYTES_MAX:
            refuse_size(size, total)
        self._dialog, self._type = dialog, message_type
        if not self.sends:
            self.sends = []
        if not self.sends or self.sends[-1][:2] != (dialog.index, message_type):  # one run in the fold, so one run here
            self.sends.append((dialog.index, message_type, []))
        self._bodies = self.sends[-1][2]

    def end(
        self,
        dialog: Endpoint | NewDialog,
        *,
        error: int | None = 0,
        description: str | None = "",
        cleanup: bool = False,
    ) -> None:
        """End this side of a conversation when the transaction commits; WITH ERROR if `error` > 0.

        `cleanup` ends it WITH CLEANUP: this side is removed at once, with its unread messages, and the peer gets Error
        -8462 when it sends later (120, 121). WITH ERROR and WITH CLEANUP drop the messages that this
        transaction has sent on it (behaviour 111). Raises InvalidState for a side that has ended (118) or an error with
        `cleanup`, InvalidError (112).
        """
        error, description = check_error(error, description)
        if cleanup and error:
            raise InvalidState("a conversation is ended WITH ERROR or WITH CLEANUP, not with both")
        text = description.encode()
        self.conclude(dialog, len(text))
        if error or cleanup:
            self._take_back(dialog)
        if cleanup:
            self.cleanups = [*self.cleanups, Cleanup(dialog.index)]
            return
        if self.ends is _NONE:
            self.ends = []
        self.ends.append(EndOperation(dialog.index, error, text.decode()))

    def conclude(self, dialog: Endpoint | NewDialog, text_bytes: int) -> None:
        """Check an end of this side, reserve room for it and `text_bytes` of text, and drop its FIN, timer and move."""
        if self._shut or dialog.__class__ not in SPEAKERS:
            self._refuse_use(dialog)
        if dialog.committed in OVER or self.ends or self.cleanups:
            self._refuse_ended(dialog, "end")
        if dialog is not self.dialog:
            self._check_member(dialog)
        total = self.size_bytes + text_bytes + END_BYTES
        if total > TRANSACTION_BYTES_MAX:
            refuse_size(0, total)
        self.size_bytes = total
        self._dialog = NO_DIALOG
        dialog.ending = self
        if self.more is not None:
            self.more.stay(dialog)
        if self.finishes:  # the END implies the FIN
            self.finishes = [finish for finish in self.finishes if finish.endpoint != dialog.index]
        if self.timers:
            self.timers = [timer for timer in self.timers if timer.endpoint != dialog.index]

    def give_back(self, dialog: Endpoint, message_type: str, body: bytes) -> None:
        """End a target's side, and return its unreceived messages to their sender's mailbox, after a note (233)."""
        if dialog.role is not Role.TARGET:
            raise InvalidState(
                f"cannot give back messages of conversation {dialog.id}: this side began it. End it instead"
            )
        self.conclude(dialog, len(message_type.encode()) + len(body))
        self.cleanups = [*self.cleanups, GiveBack(dialog.index, message_type, body)]

    def _take_back(self, dialog: Endpoint | NewDialog) -> None:
        """Drop the messages that this transaction has sent on the dialog."""
        for index, _, bodies in self.sends:
            if index == dialog.index:
                self.size_bytes -= sum(len(body) + OUTPUT_BYTES for body in bodies)
        self.sends = [sends for sends in self.sends if sends[0] != dialog.index]

    def finish(self, dialog: Endpoint | NewDialog) -> None:
        """Declare, when the transaction commits, that this side sends nothing more. It continues to receive.

        Messages that other writers send later on this side are returned to them. A second call changes nothing. Raises
        InvalidState for a side that has ended, or a conversation on which nothing was sent or received yet.
        """
        if self._shut or dialog.__class__ not in SPEAKERS:
            self._refuse_use(dialog)
        if dialog.committed not in SENDING or self.ends or self.cleanups:
            self._refuse_ended(dialog, "finish")
        if dialog is not self.dialog:
            self._check_member(dialog)
        if dialog.committed is State.STARTED_OUTBOUND and all(sends[0] != dialog.index for sends in self.sends):
            raise InvalidState(f"cannot finish conversation {dialog.id}: nothing was sent or received on it yet")
        operation = Finish(dialog.index)
        if (dialog.finished is not None and dialog.finished.own) or operation in self.finishes:
            return
        total = self.size_bytes + END_BYTES
        if total > TRANSACTION_BYTES_MAX:
            refuse_size(0, total)
        self.size_bytes = total
        self._dialog = NO_DIALOG
        self.finishes = [*self.finishes, operation]

    def over(self, dialog: Endpoint | NewDialog) -> State | None:
        """The state of a side after this transaction has ended it; None when it does not end it."""
        committed = dialog.committed
        if committed in OVER or not self._ends(dialog):
            return None
        gone = any(cleanup.endpoint == dialog.index and isinstance(cleanup, Cleanup) for cleanup in self.cleanups)
        return State.CLOSED if gone else next_state(TRANSITIONS, committed, Event.END)

    def _ends(self, dialog: Endpoint | NewDialog) -> bool:
        """Whether this transaction ends the side."""
        ended = [end.endpoint for end in self.ends] + [cleanup.endpoint for cleanup in self.cleanups]
        return dialog.index in ended

    def set_timer(self, dialog: Endpoint | NewDialog, timeout: float) -> None:
        """Have a DialogTimer received on this side, once, `timeout` seconds after the transaction commits.

        It replaces a timer that is set, and the end of this side cancels it (behaviours 96 to 104). Raises
        InvalidTimeout (8411), TimerBeyondLifetime (8410), TimerRefused (8458) when either side has ended,
        TransactionTooLarge.
        """
        timeout_ms = milliseconds(timeout, "the timeout of a timer")
        self._check_timer(dialog)
        if dialog.committed not in SENDING:
            raise TimerRefused(f"cannot set a timer of conversation {dialog.id}: it is {dialog.committed.name}. End it")
        self.remind(dialog, timeout_ms)

    def remind(self, dialog: Endpoint | NewDialog, timeout_ms: int) -> None:
        """Set a timer of `timeout_ms`, also when the peer has ended the conversation.

        A pool does so to leave such a conversation to its sender for a while.
        """
        self._check_timer(dialog)
        check_timer(timeout_ms, _left_ms(dialog, self._context), dialog.id)
        self._stage_timer(dialog, timeout_ms)

    def cancel_timer(self, dialog: Endpoint | NewDialog) -> None:
        """Cancel the timer of this side when the transaction commits. A DialogTimer that waits is still received.

        Raises TimerRefused (8458) when this side has ended, TransactionTooLarge.
        """
        self._check_timer(dialog)
        self._stage_timer(dialog, NO_TIMER)

    def _check_timer(self, dialog: Endpoint | NewDialog) -> None:
        if self._shut or dialog.__class__ not in SPEAKERS:
            self._refuse_use(dialog)
        if dialog.committed in OVER or self._ends(dialog):
            raise TimerRefused(f"cannot set or cancel a timer of conversation {dialog.id}: this side has ended it")
        if dialog is not self.dialog:
            self._check_member(dialog)

    def _stage_timer(self, dialog: Endpoint | NewDialog, timeout_ms: int) -> None:
        timers = [timer for timer in self.timers if timer.endpoint != dialog.index]
        total = self.size_bytes + END_BYTES * (len(timers) == len(self.timers))
        if total > TRANSACTION_BYTES_MAX:
            refuse_size(0, total)
        self.size_bytes = total
        self.timers = [*timers, SetTimer(dialog.index, timeout_ms)]

    def move(self, dialog: Endpoint | NewDialog, group: UUID) -> None:
        """MOVE CONVERSATION when the transaction commits: its waiting and later messages then belong to `group`.

        `group` must be of the same service. Both groups stay locked until the commit (behaviours 88 to 90). A group in
        another partition is not locked; the conversation goes there after the commit. Raises MoveRefused (8438) when
        this side has ended or the group is suspended; InvalidGroup (8439) for a group of another service or queue;
        GroupLocked (1222) while another transaction has the group: a handler that lets it propagate is called again
        after a moment, and no attempt is counted; InvalidState or QueueFull when the conversation cannot leave its
        partition; KafkaUnavailable when the search for the group cannot read the journals.
        """
        self._check_move(dialog, group)
        if group.bytes == dialog.group_id:
            more_of(self).stay(dialog)
            return
        self._stage_move_to(dialog, group.bytes, self._shared.host.lock(self, dialog, group.bytes))

    def _check_move(self, dialog: Endpoint | NewDialog, group: UUID) -> None:
        if self._shut or dialog.__class__ not in SPEAKERS:
            self._refuse_use(dialog)
        if dialog is not self.dialog:
            self._check_member(dialog)
        if not isinstance(group, UUID):
            raise BadInput(
                f"group must be a UUID, not {group!r}; turn the bytes of a `group_id` into one with uuid.UUID(bytes=…)"
            )
        if dialog.committed in OVER or self._ends(dialog):
            raise MoveRefused(f"cannot move conversation {dialog.id}: this side has ended it")
        more_of(self)  # `More.steps_back` must exist if locking the group raises GroupLocked

    def _stage_move_to(self, dialog: Endpoint | NewDialog, group: bytes, to: Address | None) -> None:
        """Stage the move. The group is locked here, or lives at `to`."""
        total = self.size_bytes + (_MOVE_BYTES if to is None else _MOVE_AWAY_BYTES)
        if total > TRANSACTION_BYTES_MAX:
            refuse_size(0, total)
        self.size_bytes = total
        more = more_of(self)
        for one in family(self):
            one.endings = -1  # so that the owner checks before the COMMIT whether the move is still possible
        more.moves = [move for move in more.moves if move.endpoint != dialog.index]
        here = Move(dialog.index, group)
        more.moves.append(here if to is None else MoveAway(*here, to))

    @property
    def moves(self) -> list[Move | MoveAway]:
        """Conversations that move to other groups."""
        return _NONE if self.more is None else self.more.moves

    def group_of(self, dialog: Endpoint | NewDialog) -> bytes:
        """The group of a dialog once this transaction has committed."""
        moved = [move.group for move in self.moves if move.endpoint == dialog.index]
        return moved[0] if moved else dialog.group_id

    def next_group(self) -> Transaction | None:
        """GET CONVERSATION GROUP again: another group of this partition with messages, locked (behaviour 85).

        Returns a transaction that needs no `with` block: its work is committed together with this one's, or not at all.
        None when no other group is ready. Raises TransactionTooLarge when this transaction has as many groups as
        allowed.
        """
        if self._shut:
            self.refuse_shut()
        return self._shared.host.further(self)

    def join(self, first: Transaction) -> None:
        """Become a further group of the transaction `first`."""
        self._shut = self.fresh = False
        self.more = More(first)
        self.endings = first.endings

    def savepoint(self, name: str) -> None:
        """SAVE TRANSACTION: `rollback` can undo the work after this point, also repeatedly.

        A name may be used again: the last one counts. Raises InvalidName, TransactionTooLarge.
        """
        if self._shut:
            self.refuse_shut()
        mates = family(self)
        first = mates[0]
        if first.savepoints is None:
            first.savepoints = Savepoints()
        first.savepoints.save(name, {one: one.staged() for one in mates})

    def rollback(self, savepoint: str) -> None:
        """ROLLBACK TRANSACTION to a savepoint: undo all sends, begins, ends, timers and receives since then.

        The group stays locked. Messages that were received since are returned by `receive` again, or come in another
        transaction (behaviour 213); a loop over them ends. The savepoint stays; later savepoints are removed. To roll
        everything back leave the block with an exception. Raises SavepointNotFound (6401).
        """
        if self._shut:
            self.refuse_shut()
        mates = family(self)
        kept = (mates[0].savepoints or Savepoints()).back_to(savepoint)
        for one in mates:
            one.restore(kept.get(one, _NOTHING))  # one that joined after the savepoint has none

    def staged(self) -> Staged:
        """A copy of the work that is staged now."""
        return Staged(
            [*self.begins],
            [(index, kind, bodies, len(bodies)) for index, kind, bodies in self.sends],
            [*self.ends],
            [*self.cleanups],
            [*self.finishes],
            [*self.timers],
            [*self.moves],
            self.size_bytes,
            {**self.received},
        )

    def restore(self, staged: Staged) -> None:
        """Restore the staged work from a copy."""
        self.begins = [*staged.begins]
        self.sends = [(index, kind, bodies[:count]) for index, kind, bodies, count in staged.sends]
        self.ends = [*staged.ends]
        self.cleanups = [*staged.cleanups]
        self.finishes = [*staged.finishes]
        self.timers = [*staged.timers]
        if self.more is not None:
            self.more.moves = [*staged.moves]
        self.size_bytes = staged.size_bytes
        self.go_back(staged.received)
        self._dialog = NO_DIALOG

    def clear(self) -> None:
        """Drop everything that was staged, and make all messages receivable again."""
        self.put_back()
        self.savepoints = None
        self.begins = self.sends = self.ends = self.cleanups = self.finishes = self.timers = _NONE
        self._dialog = NO_DIALOG
        self.size_bytes = 0

    @property
    def idle(self) -> bool:
        """Nothing was received or staged: the messages wait as before."""
        said = self.begins or self.sends or self.ends or self.cleanups or self.finishes or self.timers
        return not (said or self.received or (self.more is not None and self.more.does_something))

    def _refuse_use(self, dialog: object) -> NoReturn:
        if self._shut:
            self.refuse_shut()
        if dialog is None:
            raise NullHandle(
                "a transaction works on `message.dialog`, or on the dialog that its `begin` returns, not on None"
            )
        raise BadInput(
            "a transaction works on `message.dialog`, or on the dialog that its `begin` returns, not on "
            f"{type(dialog).__name__}"
        )

    def _refuse_ended(self, dialog: Endpoint | NewDialog, verb: str) -> None:
        ended = self._ends(dialog)
        if ended or dialog.committed not in SENDING:
            if verb == "end" and not ended and dialog.committed.code in {"DI", "ER"}:
                return
            state = "ended in this transaction" if ended else dialog.committed.name
            raise InvalidState(
                f"cannot {verb} conversation {dialog.id}: it is {state}. Begin a new dialog instead",
                ENDED_TWICE if verb == "end" else None,
            )

    def _refuse_finished(self, dialog: Endpoint | NewDialog) -> None:
        known = dialog.finished
        if (known is not None and known.own) or Finish(dialog.index) in self.finishes:
            raise InvalidState(
                f"cannot send on conversation {dialog.id}: this side has finished. Begin a new dialog instead"
            )

    def _check_member(self, dialog: Endpoint | NewDialog) -> None:
        if isinstance(dialog, NewDialog):
            if any(dialog is begun for begun in self.begins):
                return
            raise DialogNotFound(
                f"conversation {dialog.id} was begun by another transaction, or its beginning was rolled back: use "
                "`message.dialog` of a message on it, or `transaction.find(dialog.id)` in a transaction of its group"
            )
        if dialog is self.dialog or (dialog.group is not None and dialog.group is self.dialog.group):
            return
        raise DialogNotFound(
            f"conversation {dialog.id} does not belong to the group of this transaction; "
            "a transaction works on the one conversation group whose messages it received"
        )


def refuse_size(body_bytes: int, transaction_bytes: int) -> NoReturn:
    """Raise the error for the size of a body, or of the whole transaction."""
    check_size(body_bytes)
    raise TransactionTooLarge(
        f"the transaction sends {transaction_bytes} bytes; at most {TRANSACTION_BYTES_MAX} fit into one commit. "
        "Receive fewer messages at a time (max_messages) or send smaller ones"
    )


def more_of(transaction: Transaction) -> More[Transaction]:
    """The `More` of a transaction, made on first use."""
    if transaction.more is None:
        transaction.more = More(transaction)
    return transaction.more


def family(transaction: Transaction) -> list[Transaction]:
    """The transactions that are committed together with the given one, itself included; the first one first."""
    if transaction.more is None:
        return [transaction]
    first = transaction.more.first
    return [first, *more_of(first).parts]


def begun_in(transaction: Transaction, group: bytes) -> list[NewDialog]:
    """The dialogs that a transaction begins in a group."""
    return [one for mate in family(transaction) for one in mate.begins if mate.group_of(one) == group]


def _left_ms(dialog: Endpoint | NewDialog, context: MessageContext) -> int:
    """Milliseconds left of the conversation's lifetime."""
    if isinstance(dialog, NewDialog):
        lifetime_ms = dialog.begin.lifetime_ms
        return TIMEOUT_MS_MAX if lifetime_ms == FOR_EVER else lifetime_ms
    clock = dialog.clock
    if clock is None:
        return TIMEOUT_MS_MAX
    if clock.expires_after_ms != NO_TIME:
        return clock.expires_after_ms
    return TIMEOUT_MS_MAX if clock.expires_ms == NO_TIME else clock.expires_ms - context.now_ms()
