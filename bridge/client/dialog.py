"""A dialog as its initiator holds it: the calls of an application on a conversation that this process began."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from konverse.bridge.runtime.arguments import Seconds, Timeout, checked
from konverse.bridge.runtime.clock import now_ms
from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.state.mailbox import Bounced
from konverse.schemas.errors import BadInput, InvalidState
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import DEFAULT, check_error, error_body
from konverse.schemas.timeouts import check_timer, milliseconds
from konverse.schemas.wire.bodies import as_bytes
from konverse.schemas.wire.records import FOR_EVER, NO_SEQUENCE, NO_TIMER, Begin, BounceReason, Timer

from .mailboxes import Mailboxes
from .sender import Sender

if TYPE_CHECKING:
    from konverse.bridge.catalog.catalog import Catalog


class BouncedMessage:
    """A message of a dialog that was not received and came back. It stays until it is confirmed or redirected."""

    __slots__ = ("_bounced", "_mailboxes", "_sender", "_staged")

    def __init__(self, mailboxes: Mailboxes, sender: Sender, staged: SessionDialog, bounced: Bounced) -> None:
        self._mailboxes = mailboxes
        self._sender = sender
        self._staged = staged
        self._bounced = bounced

    @property
    def type(self) -> str:
        """Message type."""
        return self._bounced.message_type

    @property
    def body(self) -> bytes:
        """Empty when the message has none."""
        return self._bounced.body or b""

    @property
    def sequence(self) -> int | None:
        """Number that `send` returned; None for a message that was redirected before or sent after a redirected one."""
        sequence = self._bounced.sequence
        return None if sequence == NO_SEQUENCE else sequence

    @property
    def reason(self) -> BounceReason:
        """Why it came back."""
        return self._bounced.bounce.reason

    def confirm(self) -> None:
        """Remove the message from the mailbox: the application has dealt with it. Returns at once.

        Only the first call of `confirm` or `redirect` has an effect. Raises QueueFull when too many records to the home
        wait for Kafka.
        """
        self._mailboxes.confirm(self._sender, self._staged, self._bounced.id)

    def redirect(self, to_dialog: Dialog) -> None:
        """Send the message on another dialog with the same home, after that dialog's messages so far. Returns at once.

        The home moves the message in one step, so it is received once, whatever crashes and however often this is
        called. Messages leave in the order of the calls. Later messages of the new dialog wait until the home reports
        that this one has arrived. If the new dialog has ended meanwhile, the message stays in the mailbox, and
        `bounced` returns it again. Before that, a second `redirect`, or a `redirect` after a `confirm`, has no effect.

        Raises BadInput when `to_dialog` is not another dialog, InvalidState when the dialogs have different homes
        (begin the new one with `related_to`), NotInContract or WrongDirection for the type, ConversationEnded when the
        new dialog was ended, QueueFull.
        """
        staged = getattr(to_dialog, "_staged", None)
        if staged is None or staged is self._staged:
            raise BadInput(
                f"a message that came back can be redirected to another dialog of this broker, not to {to_dialog!r}"
            )
        if self._sender is not to_dialog._sender or self._staged.begin.home != staged.begin.home:  # noqa: SLF001
            raise InvalidState(
                f"a message that came back to {_place(self._staged)} cannot be redirected to a dialog whose home is "
                f"{_place(staged)}, or that another broker began; begin one with `related_to` the first dialog"
            )
        self._mailboxes.redirect(self._sender, staged, self._bounced)

    def __repr__(self) -> str:
        return f"<BouncedMessage {self.type} of {UUID(bytes=self._bounced.conversation)}: {self.reason.name}>"


class Dialog:
    """A conversation that this process began. Thread-safe; messages are numbered in call order across threads."""

    __slots__ = ("_catalog", "_mailboxes", "_sender", "_staged")

    def __init__(
        self, sender: Sender, staged: SessionDialog, catalog: Catalog, mailboxes: Mailboxes, placed: int
    ) -> None:
        """`placed` (see `Catalog.placed`) is kept only on the first begin of a conversation."""
        if staged.placed is None:
            staged.placed = placed
        self._sender = sender
        self._staged = staged
        self._catalog = catalog
        self._mailboxes = mailboxes

    @property
    def id(self) -> UUID:
        """Conversation id, shared by both sides."""
        return UUID(bytes=self._staged.conversation)

    @property
    def staged(self) -> SessionDialog:
        """The session's record of this dialog, for transactions."""
        return self._staged

    @property
    def begin(self) -> Begin:
        """Services, contract, addresses and group."""
        return self._staged.begin

    def send(self, message_type: str = DEFAULT, body: bytes = b"") -> int:
        """Send a message; returns its sequence number at once. `flush` waits until Kafka has it.

        The number is -1 when messages were redirected to this dialog: this process does not know how many. Raises
        MessageTypeNotFound, NotInContract or WrongDirection for the type, BodyTooLarge for the size, ConversationEnded
        after an end, QueueFull when Kafka accepts nothing for `send_timeout_s`, TopicMismatch when a topic was found to
        be deleted or created again. When it raises, nothing was written. Behaviours 44 to 52.
        """
        staged = self._staged
        try:
            if message_type not in staged.suffixes:
                check_type(message_type)
                self._catalog.check_send(staged.begin.contract, Role.INITIATOR, message_type)
        except TypeError:  # an unhashable message type: a list or a dictionary
            check_type(message_type)
        if body.__class__ is not bytes:
            body = as_bytes(body)
        return self._sender.send(staged, message_type, body)

    @checked
    def flush(self, timeout_s: Seconds | None = None) -> None:
        """Return when every message sent so far is in the target's log, ahead of later messages of other senders.

        If no message was sent, it waits until the home of the dialog has its BEGIN.

        Raises OutcomeUnknown when Kafka does not answer for `timeout_s` seconds (default: the setting
        `send_timeout_s`), or when no owner of the transmission queue sends a transaction's messages in that time.
        Raises TopicMismatch when a topic was deleted or created again, TransactionLost when a transaction with
        this dialog did not happen, and InvalidState in a signal handler that has interrupted a call which waits for
        Kafka: flush after that call.
        """
        self._sender.flush(timeout_s, self._staged)

    @checked
    def finish(self) -> None:
        """Tell the peer that this side will send no more, and continue to receive (half-close).

        Messages sent before are received; messages that other senders send on this side later come back. A second call
        changes nothing. Raises ConversationEnded after an end, QueueFull as `send`.
        """
        session, staged = self._sender.session, self._staged
        self._sender.decide_with_room(staged, lambda: session.finish(staged))

    @checked
    def set_timer(self, timeout: Timeout) -> None:
        """Set a timer: this side receives a DialogTimer once, `timeout` seconds after Kafka has the request.

        It replaces the timer that is set. The end of this side cancels it; the far side never sees it (96 to 104).
        Raises InvalidTimeout (8411), TimerBeyondLifetime (8410), TimerRefused (8458) when this process knows that a
        side has ended, QueueFull and TopicMismatch as `send`.
        """
        self._sender.set_timer(self._staged, Timer(timer_ms(self._staged, timeout)))

    @checked
    def cancel_timer(self) -> None:
        """Cancel the timer of this side. A DialogTimer that is already in the queue is still received.

        Raises TimerRefused when this side was ended (8458), QueueFull and TopicMismatch as `send`.
        """
        self._sender.set_timer(self._staged, Timer(NO_TIMER))

    @checked
    def bounced(self, timeout: Seconds = 0.0) -> list[BouncedMessage]:
        """Messages of this dialog that were not received and came back, in the order in which they came back.

        They wait at the dialog's home until they are confirmed or redirected. Messages of an earlier session on the
        same conversation are included when that session was closed. Waits up to `timeout` seconds for the first one.
        Raises KafkaUnavailable when the home does not answer.
        """
        found = self._mailboxes.bounced(self._sender, self._staged, timeout)
        return [BouncedMessage(self._mailboxes, self._sender, self._staged, bounced) for bounced in found]

    def end(self, *, error: int | None = 0, description: str | None = "") -> None:
        """End this side: the peer gets EndDialog after everything that was sent, or an Error at once (105, 111, 113).

        A side whose peer has ended must be ended, too. Raises ConversationEnded for a second end (8427; 118),
        InvalidError for a code without a description, the reverse, or a description that XML cannot carry (112),
        TopicMismatch as `send`.
        """
        error, description = check_error(error, description)
        if not error:
            self._sender.fire_and_forget.examine(self._staged)
        self._sender.end(self._staged, error_body(error, description) if error else b"")

    def __repr__(self) -> str:
        begin = self._staged.begin
        return f"<Dialog {self.id} {begin.from_service} -> {begin.to_service}, {self._staged.state.value}>"


def timer_ms(dialog: SessionDialog, timeout: float) -> int:
    """A timer's timeout in milliseconds. Raises InvalidTimeout, TimerBeyondLifetime."""
    timeout_ms = milliseconds(timeout, "the timeout of a timer")
    if dialog.begin.lifetime_ms != FOR_EVER:
        left_ms = dialog.begin.lifetime_ms if dialog.expires_ms is None else dialog.expires_ms - now_ms()
        check_timer(timeout_ms, left_ms, UUID(bytes=dialog.conversation))
    return timeout_ms


def check_type(message_type: object) -> None:
    """Raise BadInput for a message type that is not a string."""
    if not isinstance(message_type, str):
        raise BadInput(
            f"message_type must be a str, not {type(message_type).__name__}; it comes before the body. To send without "
            "a message type, pass body=…"
        )


def _place(dialog: SessionDialog) -> str:
    home = dialog.begin.home
    return f"{home.topic}/{home.partition}"
