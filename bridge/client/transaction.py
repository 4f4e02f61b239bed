"""The transaction of a client: several begins, sends and ends that happen together or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.runtime.arguments import Timeout, checked
from konverse.dialog.session.transactions import StagedTransaction
from konverse.schemas.errors import BadInput, InvalidState, NullHandle
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import DEFAULT, check_error, error_body
from konverse.schemas.wire.bodies import as_bytes
from konverse.schemas.wire.records import NO_TIMER, Kind

from .begin import BeginClauses, Prepared, check_same
from .dialog import Dialog, check_type, timer_ms
from .mailboxes import Mailboxes
from .sender import Sender

if TYPE_CHECKING:
    from types import TracebackType

    from konverse.dialog.session.dialogs import SessionDialog

BeginBlock = Callable[[BeginClauses], Prepared]


class ClientTransaction:
    """`with broker.transaction() as t:` all calls on `t` take effect together when the block ends, or none does.

    An exception that leaves the block drops the transaction: nothing is written. Otherwise all calls take effect as
    soon as Kafka has the transaction's record; `broker.flush()` waits until its messages have arrived. Messages are
    numbered when the block ends, so messages sent directly on a dialog inside the block come before them. A transaction
    is for one thread and one block: a second `with` raises InvalidState. `savepoint` and `rollback` undo a part.
    """

    def __init__(self, sender: Sender, catalog: Catalog, mailboxes: Mailboxes, begin_block: BeginBlock) -> None:
        self._sender = sender
        self._catalog = catalog
        self._mailboxes = mailboxes
        self._begin_block = begin_block
        self._transaction = StagedTransaction(sender.session)
        self._entered = False

    @checked
    def begin(  # noqa: PLR0913  # the clauses of BEGIN DIALOG
        self,
        from_service: str,
        to_service: str,
        contract: str = DEFAULT,
        *,
        related_to: Dialog | None = None,
        group: uuid.UUID | None = None,
        key: bytes | None = None,
        conversation_id: uuid.UUID | None = None,
        lifetime: Timeout | None = None,
        broker_instance: uuid.UUID | str | None = None,
        encryption: bool = False,
        returning: bool = False,
    ) -> Dialog:
        """BEGIN DIALOG as `broker.begin_dialog`; until the block ends, only this transaction may use the dialog."""
        self._check_entered()
        wanted = BeginClauses(
            from_service,
            to_service,
            contract,
            related_to,
            group,
            key,
            conversation_id,
            lifetime,
            broker_instance,
            encryption,
            returning,
        )
        conversation, begin, placed, manner = self._begin_block(wanted)
        staged = self._transaction.begin(conversation, begin, manner)
        return check_same(Dialog(self._sender, staged, self._catalog, self._mailboxes, placed), wanted)

    def send(self, dialog: Dialog, message_type: str = DEFAULT, body: bytes = b"") -> None:
        """Send on a dialog that this process began.

        Raises MessageTypeNotFound, NotInContract or WrongDirection for the type, BodyTooLarge and TransactionTooLarge
        for the size, ConversationEnded after an end.
        """
        self._check_entered()
        check_type(message_type)
        staged = self._staged(dialog)
        self._catalog.check_send(staged.begin.contract, Role.INITIATOR, message_type)
        self._transaction.send(staged, message_type, as_bytes(body))

    def finish(self, dialog: Dialog) -> None:
        """Tell the peer that this side will send no more on the dialog, as `dialog.finish`."""
        self._check_entered()
        self._transaction.finish(self._staged(dialog))

    def set_timer(self, dialog: Dialog, timeout: float) -> None:
        """Set the timer of a dialog, as `dialog.set_timer`; a transaction that is dropped sets none (103)."""
        self._check_entered()
        staged = self._staged(dialog)
        self._transaction.set_timer(staged, timer_ms(staged, timeout))

    def cancel_timer(self, dialog: Dialog) -> None:
        """Cancel the timer of a dialog, as `dialog.cancel_timer`."""
        self._check_entered()
        self._transaction.set_timer(self._staged(dialog), NO_TIMER)

    def end(self, dialog: Dialog, *, error: int | None = 0, description: str | None = "") -> None:
        """End this side of a dialog, as `dialog.end`: the peer gets everything that was sent before."""
        self._check_entered()
        error, description = check_error(error, description)
        staged = self._staged(dialog)
        if not error:
            sends = any(step.dialog is staged and step.kind is Kind.MESSAGE for step in self._transaction.steps)
            self._sender.fire_and_forget.examine(staged, sends=sends)
        self._transaction.end(staged, error_body(error, description) if error else b"")

    @checked
    def savepoint(self, name: str) -> None:
        """SAVE TRANSACTION: `rollback` to this savepoint undoes all later calls. A name may be used again.

        Raises InvalidName, TransactionTooLarge.
        """
        self._check_entered()
        self._transaction.savepoint(name)

    @checked
    def rollback(self, savepoint: str) -> None:
        """ROLLBACK TRANSACTION to a savepoint: undo all calls made since.

        The savepoint stays, later savepoints are gone. To drop the whole transaction, leave the block with an
        exception. A dialog begun since the savepoint does not exist: calls with it raise DialogNotFound (8426). Raises
        SavepointNotFound (6401).
        """
        self._check_entered()
        self._transaction.rollback(savepoint)

    def __enter__(self) -> Self:
        if self._entered:
            raise InvalidState(
                "the transaction is over: its `with` block has ended; begin another one with `broker.transaction()`"
                if self._transaction.over
                else "the transaction is already in a `with` block, whose end commits it: to undo a part, use "
                "`savepoint` and `rollback`; for work that commits separately, begin another `broker.transaction()`"
            )
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._transaction.over:
            return
        if kind is not None:
            self._transaction.drop()
            return
        try:
            self._sender.check(self._transaction.dialogs)
            self._sender.decide_with_room(None, lambda: self._sender.session.commit(self._transaction))
        except BaseException:
            if not self._transaction.over:  # else it is committed, and Ctrl-C came while its records were handed over
                self._transaction.drop()
            raise

    def _check_entered(self) -> None:
        if not self._entered:
            raise InvalidState("the transaction has not begun: write `with broker.transaction() as t:`")

    def _staged(self, dialog: object) -> SessionDialog:
        """The session's record of a dialog. Raises the errors of `checked_dialog`, BadInput for another broker's."""
        given = checked_dialog(dialog)
        if given._sender is not self._sender:  # noqa: SLF001  # its own broker would not wait for the transaction
            raise BadInput(
                f"conversation {given.id} was begun by another broker of this process: use it in a transaction of that "
                "broker"
            )
        return given.staged


def checked_dialog(dialog: object) -> Dialog:
    """The dialog; NullHandle for None (49), BadInput for anything else that is not a `Dialog`."""
    if dialog is None:
        raise NullHandle("None is not a dialog; give the dialog that begin_dialog or this transaction's begin returned")
    if not isinstance(dialog, Dialog):
        raise BadInput(
            f"{dialog!r} is not a dialog; give the dialog that begin_dialog or this transaction's begin returned"
        )
    return dialog
