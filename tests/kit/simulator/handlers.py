"""Handlers, executed step by step, so that other processes act in between."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.transitions import State
from konverse.dialog.transaction.begun import NewDialog
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction, family
from konverse.schemas.errors import GroupLocked, InvalidState
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import DIALOG_TIMER, END_DIALOG, ERROR

from .beginnings import begin, speak_first
from .flushing import Way
from .poison import HandlerRaised, ProcessKilled
from .regrouping import move_some, take_another
from .savepoints import try_and_undo
from .timing import set_timers

if TYPE_CHECKING:
    from .owning import OwnerProcess


SLEEP_STEPS_MAX: Final = 150
"""Most steps that a handler sleeps. It may sleep far longer with a group, whose other conversations then go on."""


class Taken(NamedTuple):
    """A message that a handler received."""

    role: int
    conversation: bytes
    sequence: int
    offset: int
    type: str
    body: bytes
    id: str


class Reply(NamedTuple):
    """A message that a handler sent."""

    role: int
    conversation: bytes
    type: str
    body: bytes


class Progress(Enum):
    """State of a handler's execution."""

    WORKING = "working"
    DONE = "done"
    FAILED = "failed"
    KILLED = "killed"
    """The process died with it."""
    STEPPED_BACK = "stepped back"
    """Another handler has a group that it needs."""
    LEFT = "left"
    """It did nothing; its messages wait as before."""


class Work:
    """One execution of a handler. Its nonce is in all its messages, so that a repeated execution sends other bytes."""

    def __init__(self, process: OwnerProcess, transaction: Transaction) -> None:
        world = self.world = process.world
        self.process = process
        self.transaction = self.at = transaction
        self.anchors: list[Endpoint] = []
        """Conversations whose groups the handler holds."""
        self.nonce = len(world.history.works)
        self.asleep_until = 0
        self.taken: list[Taken] = []
        self.replies: list[Reply] = []
        self.ended: list[Endpoint] = []
        self.finished: list[Endpoint] = []
        self.looked_at: Message | None = None
        """The message that it handles."""
        self._steps = self._run()
        world.history.works.append(self)

    @property
    def members(self) -> list[Endpoint]:
        """Conversations whose messages the handler received."""
        return [member for one in family(self.transaction) for member in one.members]

    @property
    def awake(self) -> bool:
        """Whether the handler is not asleep."""
        return not self.world.lively or self.asleep_until <= self.world.steps

    def go_on(self) -> Progress:
        """Handle some more messages."""
        world = self.world
        try:
            for _ in range(1 + world.choices.choose(4)):
                next(self._steps)
        except StopIteration:
            return Progress.LEFT if self.transaction.idle else Progress.DONE
        except HandlerRaised:
            return Progress.FAILED
        except ProcessKilled:
            return Progress.KILLED
        except GroupLocked:
            return Progress.STEPPED_BACK
        except InvalidState:
            world.sometimes.happened("state changed")
            return Progress.FAILED
        if not world.lively:
            return Progress.WORKING
        if world.choices.chance(world.swarm.raising):
            return Progress.FAILED
        if world.choices.chance(world.swarm.slow):
            grouped = self.transaction.dialog.group is not None
            most = world.swarm.steps if grouped else SLEEP_STEPS_MAX
            self.asleep_until = world.steps + world.choices.choose(most)
        return Progress.WORKING

    def _run(self) -> Iterator[None]:
        world = self.world
        if world.lively and world.choices.chance(world.swarm.leaving // 3):
            return
        for message in self._messages():
            self.looked_at = message
            world.poisons.handle(message)
            dialog = message.dialog
            number, offset = message.sequence, message.offset
            self.taken.append(
                Taken(dialog.role, dialog.conversation, number, offset, message.type, message.body, message.id)
            )
            if message.type in (END_DIALOG, ERROR):
                session_has_it = dialog.conversation not in world.history.begun
                theirs = dialog.is_initiator and session_has_it and world.swarm.sessions_end
                if dialog not in self.ended and not theirs:
                    self._end(message, 0, cleanup=world.lively and world.choices.chance(world.swarm.cleaning))
            elif message.type == DIALOG_TIMER and dialog.state.code != "CO":
                world.sometimes.happened("timer of a dialog that cannot be answered")
            elif dialog.state.code in ("SO", "CO") and dialog not in self.ended:
                yield
                if (dialog.finished is None or not dialog.finished.own) and dialog not in self.finished:
                    self._answer(message)
            if world.lively and world.choices.chance(world.swarm.handlers_begin):
                begin(self, message)
            if world.lively:
                set_timers(self)
            while world.lively and world.choices.chance(world.swarm.regrouping):
                yield from move_some(self)
            speak_first(self)
            try_and_undo(self, message)
            if world.lively and world.choices.chance(world.swarm.leaving):
                world.sometimes.happened("partial")
                return
            yield

    def _messages(self) -> Iterator[Message]:
        """The messages of the transaction, and sometimes further ones received since."""
        yield from self.transaction
        while self.world.lively and self.world.choices.chance(self.world.swarm.again):
            messages = self.transaction.receive(1)
            self.world.sometimes.happened("received once more", len(messages))
            yield from messages
        while self.world.lively and self.world.choices.chance(self.world.swarm.regrouping):
            part = take_another(self)
            if part is None:
                return
            self.at = part
            yield from part

    def _answer(self, message: Message) -> None:
        choices, swarm, calm = self.world.choices, self.world.swarm, not self.world.lively
        dialog = message.dialog
        if dialog.is_initiator:
            count = int(not calm and choices.chance(swarm.answering))
        else:
            count = 1 if calm else (1, 0, 2)[choices.choose(3)]
        for number in range(count):
            kind = ("r", "s")[0 if calm else choices.choose(2)]
            body = b"%d.%d<%d" % (self.nonce, number, message.offset)
            self.reply(dialog, kind, body)
        if not calm and choices.chance(swarm.failing):
            self._end(message, 17)
        elif not calm and choices.chance(swarm.ending):
            self._end(message, 0)
        elif not calm and choices.chance(swarm.cleaning):
            self._end(message, 0, cleanup=True)
        elif not calm and dialog.state is State.CONVERSING and choices.chance(swarm.finishing):
            self.at.finish(dialog)
            self.finished.append(dialog)

    def reply(self, dialog: Endpoint | NewDialog, kind: str, body: bytes) -> None:
        """Send and remember a message."""
        self.at.send(dialog, kind, body)
        self.replies.append(Reply(dialog.role, dialog.conversation, kind, body))
        if dialog.role is Role.INITIATOR:
            self.world.history.calls.send(dialog.conversation, body, self.world.steps, Way.HANDLER)

    def _end(self, message: Message, code: int, *, cleanup: bool = False) -> None:
        self.end(message.dialog, code, cleanup=cleanup)
        self.ended.append(message.dialog)

    def end(self, dialog: Endpoint | NewDialog, code: int, *, cleanup: bool = False) -> None:
        """End a dialog. An Error or a cleanup withdraws the messages sent in this transaction."""
        self.at.end(dialog, error=code, description="because" if code else "", cleanup=cleanup)
        if dialog.role is Role.INITIATOR:
            self.world.history.calls.end(dialog.conversation, self.world.steps, Way.HANDLER)
        if code or cleanup:
            side = (dialog.role, dialog.conversation)
            self.replies = [reply for reply in self.replies if (reply.role, reply.conversation) != side]
