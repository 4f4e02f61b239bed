"""A dialog as its initiator holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from konverse.bridge.runtime.arguments import Seconds, Timeout, checked
from konverse.dialog.session.dialogs import SessionDialog
from konverse.schemas.errors import BadInput
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import DEFAULT, check_error, error_body
from konverse.schemas.timeouts import check_timer, milliseconds
from konverse.schemas.wire.bodies import as_bytes
from konverse.schemas.wire.records import FOR_EVER, NO_TIMER, Begin, Timer

from .mailboxes import BouncedMessage, Mailboxes
from .sender import Sender

if TYPE_CHECKING:
    from konverse.bridge.catalog.catalog import Catalog


class Dialog:
    """A conversation that this process began. Thread-safe; messages of several threads get numbers in call order."""

    __slots__ = ("_catalog", "_mailboxes", "_sender", "_staged")

    def __init__(
        self, sender: Sender, staged: SessionDialog, catalog: Catalog, mailboxes: Mailboxes, placed: int
    ) -> None:
        """`placed`: what the catalog said of its home (`Catalog.placed`), unless it was begun before."""
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
        """What the session knows of it, for transactions."""
        return self._staged

    @property
    def begin(self) -> Begin:
        """Services, contract, addresses and group."""
        return self._staged.begin

    def send(self, message_type: str = DEFAULT, body: bytes = b"") -> int:
        """Send a message; returns its sequence number at once. `flush` waits until Kafka has it.

        The number is -1 when messages were redirected to this dialog: nobody here knows how many came before.
        Raises MessageTypeNotFound, NotInContract or WrongDirection for the type, BodyTooLarge for the size,
        ConversationEnded after an end, QueueFull when Kafka takes nothing for a while; nothing was written then.
        Behaviours 44 to 52.
        """
        staged = self._staged
        try:
            if message_type not in staged.suffixes:
                check_type(message_type)
                self._catalog.check_send(staged.begin.contract, Role.INITIATOR, message_type)
        except TypeError:  # a list, a dictionary: what no table can look up
            check_type(message_type)
        if body.__class__ is not bytes:
            body = as_bytes(body)
        return self._sender.send(staged, message_type, body)

    @checked
    def flush(self, timeout_s: Seconds | None = None) -> None:
        """Return when everything that was sent so far is in the target's log: what others send later comes behind it.

        Raises OutcomeUnknown when Kafka stays silent, or nobody transmits what a transaction sends, for `timeout_s`
        (without it: the setting `send_timeout_s`), TopicMismatch when a topic was deleted or created again.
        """
        self._sender.flush(timeout_s, self._staged)

    @checked
    def finish(self) -> None:
        """Say that nothing more comes from this side, and go on to receive (half-close).

        What was sent before is received; what others send later on this side comes back. A second call changes nothing.
        Raises ConversationEnded after an end, QueueFull as `send` does.
        """
        session, staged = self._sender.session, self._staged
        self._sender.decide_with_care(staged, lambda: session.finish(staged))

    @checked
    def set_timer(self, timeout: Timeout) -> None:
        """Have a DialogTimer received on this side, once, `timeout` seconds after Kafka has taken this call.

        In place of the timer that is set; the end of this side cancels it, the far side never sees it (96 to 104).
        Raises InvalidTimeout (8411), TimerBeyondLifetime (8410), TimerRefused (8458) when a side has
        ended, as far as it is known here, QueueFull and TopicMismatch as `send`.
        """
        self._sender.set_timer(self._staged, Timer(timer_ms(self._staged, timeout)))

    @checked
    def cancel_timer(self) -> None:
        """Set no timer of this side any more. A DialogTimer that waits is received.

        Raises TimerRefused when this side was ended (8458), QueueFull and TopicMismatch as `send`.
        """
        self._sender.set_timer(self._staged, Timer(NO_TIMER))

    @checked
    def bounced(self, timeout: Seconds = 0.0) -> list[BouncedMessage]:
        """Messages of this dialog that were not received and came back, in the order in which they came back.

        They wait at the dialog's home until they are confirmed or redirected. With `timeout` (seconds) it waits for
        the first one. Also those of a session before this one on the same conversation, when that was closed.
        Raises KafkaUnavailable when home cannot be asked.
        """
        return self._mailboxes.bounced(self._sender, self._staged, timeout)

    def end(self, *, error: int | None = 0, description: str | None = "") -> None:
        """End this side: the peer gets EndDialog after everything that was sent, or an Error at once (105, 111, 113).

        Also where the peer has ended, once. Raises ConversationEnded for a second end (8427; 118), InvalidError for a
        code without a description, the reverse, or a description that XML cannot carry (112), TopicMismatch as `send`.
        """
        error, description = check_error(error, description)
        if not error:
            self._sender.fire_and_forget.look(self._staged)
        self._sender.end(self._staged, error_body(error, description) if error else b"")

    def __repr__(self) -> str:
        begin = self._staged.begin
        return f"<Dialog {self.id} {begin.from_service} -> {begin.to_service}, {self._staged.state.value}>"


def timer_ms(dialog: SessionDialog, timeout: float) -> int:
    """Milliseconds of a timer; raises InvalidTimeout and TimerBeyondLifetime."""
    timeout_ms = milliseconds(timeout, "the timeout of a timer")
    if dialog.begin.lifetime_ms != FOR_EVER:
        check_timer(timeout_ms, dialog.begin.lifetime_ms, UUID(bytes=dialog.conversation))
    return timeout_ms


def check_type(message_type: object) -> None:
    """Raise BadInput for a message type that is no text."""
    if not isinstance(message_type, str):
        raise BadInput(
            f"a message type is named by a text, not by {type(message_type).__name__}: it is the first argument of "
            "`send`, the body is the second, or `body=`"
        )
