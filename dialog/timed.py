"""Timers in a handler's transaction: set and cancelled when it commits (behaviours 96 to 104)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from konverse.schemas.bodies import check_size
from konverse.schemas.errors import TimerRefused, TransactionTooLarge
from konverse.schemas.journal import END_BYTES
from konverse.schemas.limits import TIMEOUT_MS_MAX, TRANSACTION_BYTES_MAX
from konverse.schemas.operations import SetTimer
from konverse.schemas.records import FOR_EVER, NO_TIMER
from konverse.schemas.timeouts import check_timer, milliseconds

from .begun import Begun
from .clock import NO_TIME
from .endpoint import Endpoint
from .regrouping import SPEAKERS, Regrouped
from .states import OVER, SENDING

if TYPE_CHECKING:
    from .transaction import Transaction


class Timed(Regrouped):
    """A transaction that may set the timers of its conversations, and cancel them."""

    __slots__ = ()

    timers: list[SetTimer]

    def set_timer(self: Transaction, dialog: Endpoint | Begun, timeout: float) -> None:  # type: ignore[misc]
        """Have a DialogTimer received on this side, once, `timeout` seconds after the transaction commits.

        In place of the timer that is set. The end of this side cancels it (behaviours 96 to 104). Raises InvalidTimeout
        (8411), TimerBeyondLifetime (8410), TimerRefused (8458) when a side has ended, TransactionTooLarge.
        """
        timeout_ms = milliseconds(timeout, "the timeout of a timer")
        self._check_timer(dialog)
        if dialog.committed not in SENDING:
            raise TimerRefused(f"cannot set a timer of conversation {dialog.id}: it is {dialog.committed.name}. End it")
        self.remind(dialog, timeout_ms)

    def remind(self: Transaction, dialog: Endpoint | Begun, timeout_ms: int) -> None:  # type: ignore[misc]
        """The same where the peer has ended, too: so a pool leaves what is to be ended to its sender for a while."""
        self._check_timer(dialog)
        check_timer(timeout_ms, self._left_ms(dialog), dialog.id)
        self._stage_timer(dialog, timeout_ms)

    def cancel_timer(self: Transaction, dialog: Endpoint | Begun) -> None:  # type: ignore[misc]
        """Set no timer of this side any more, when the transaction commits. A DialogTimer that waits is received.

        Raises TimerRefused when this side was ended (8458), TransactionTooLarge.
        """
        self._check_timer(dialog)
        self._stage_timer(dialog, NO_TIMER)

    def _check_timer(self: Transaction, dialog: Endpoint | Begun) -> None:  # type: ignore[misc]
        if self._shut or dialog.__class__ not in SPEAKERS:
            self._refuse_use(dialog)
        if dialog.committed in OVER or self._ends(dialog):
            raise TimerRefused(f"cannot set or cancel a timer of conversation {dialog.id}: this side has ended it")
        if dialog is not self.dialog:
            self._check_member(dialog)

    def _stage_timer(self: Transaction, dialog: Endpoint | Begun, timeout_ms: int) -> None:  # type: ignore[misc]
        timers = [timer for timer in self.timers if timer.endpoint != dialog.index]
        total = self.size_bytes + END_BYTES * (len(timers) == len(self.timers))
        if total > TRANSACTION_BYTES_MAX:
            refuse_size(0, total)
        self.size_bytes = total
        self.timers = [*timers, SetTimer(dialog.index, timeout_ms)]

    def _left_ms(self: Transaction, dialog: Endpoint | Begun) -> int:  # type: ignore[misc]
        """Of its lifetime."""
        if isinstance(dialog, Begun):
            lifetime_ms = dialog.begin.lifetime_ms
            return TIMEOUT_MS_MAX if lifetime_ms == FOR_EVER else lifetime_ms
        clock = dialog.clock
        if clock is None:
            return TIMEOUT_MS_MAX
        if clock.expires_after_ms != NO_TIME:
            return clock.expires_after_ms
        return TIMEOUT_MS_MAX if clock.expires_ms == NO_TIME else clock.expires_ms - self._scope.now_ms()


def refuse_size(body_bytes: int, transaction_bytes: int) -> NoReturn:
    """Raise what is too large: a body, or all of a transaction."""
    check_size(body_bytes)
    raise TransactionTooLarge(
        f"the transaction sends {transaction_bytes} bytes; at most {TRANSACTION_BYTES_MAX} fit into one commit. "
        "Receive fewer messages at a time (max_messages) or send smaller ones"
    )
