"""BEGIN DIALOG and SEND of a broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from konverse.schemas.catalog import DEFAULT
from konverse.schemas.errors import BadInput

from .arguments import Body, Timeout, checked
from .beginning import Prepared, Wanted, check_not_over, check_same
from .dialog import Dialog

if TYPE_CHECKING:
    from .catalog import Catalog
    from .mailboxes import Mailboxes
    from .reader import Reader
    from .sending import Sender
    from .transactions import ClientTransaction


class Dialogs:
    """The part of a `Broker` that begins dialogs and sends."""

    catalog: Catalog
    transaction: Callable[[], ClientTransaction]
    _mailboxes: Mailboxes
    _readers: Sequence[Reader]
    _open_sender: Callable[[], Sender]
    _begin_block: Callable[[Wanted], Prepared]
    _check_open: Callable[[], None]

    @checked
    def begin_dialog(  # noqa: PLR0913  # the clauses of BEGIN DIALOG
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
        anew: bool = False,
    ) -> Dialog:
        """BEGIN DIALOG. Returns at once; nothing reaches the target before the first message (behaviour 31).

        Without `contract` it is "DEFAULT" (33), which the target must list like any other.
        `related_to` puts the dialog into that dialog's conversation group (35), `group` into the one with that id,
        which is made when there is none (36): its home follows from the id. `key` is the Kafka key of its records.
        `conversation_id` makes a repeated begin of a living conversation harmless: its home follows from the id alone,
        and a dialog that this process began is given again. One that is over is not begun again unless `anew` is True:
        ConversationOver (8429), or, where this process cannot know of the end at once, what is sent comes back to
        `dialog.bounced` as ENDED, or the target gets an Error (-8429) with it. `lifetime` counts in seconds: after it
        each side that is open gets an Error (-8489; 123), and without it the dialog lives for ever. `broker_instance`
        is the id of this database (`views.databases` has it) or "CURRENT DATABASE" (42). `encryption` insists on TLS to
        Kafka, which encrypts whatever this says. What comes to the target of a `returning` dialog when that has ended
        comes back to `dialog.bounced`, instead of being discarded (110). Raises ServiceNotFound (8423; 8490 with
        `broker_instance`), ContractNotFound (8425), ForeignGroup (9610), InvalidTimeout (8411), InvalidSettings,
        NotSupportedYet. Whether the target service accepts the contract is its receiver's to say, with an Error (-8408;
        16).
        """
        self._check_open()
        wanted = Wanted(
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
            anew,
        )
        return self._begin(wanted)

    def _begin(self, wanted: Wanted) -> Dialog:
        sender = self._open_sender()
        conversation, begin, placed, manner = self._prepare(wanted)
        staged = sender.begin(conversation, begin, manner)
        return check_same(Dialog(sender, staged, self.catalog, self._mailboxes, placed), wanted)

    def _prepare(self, wanted: Wanted) -> Prepared:
        """What the catalog makes of it. Raises ConversationOver when the dialog is over, as far as is known here."""
        prepared = self._begin_block(wanted)
        if prepared.manner.named:
            check_not_over(self._readers, prepared)
        return prepared

    @checked
    def send(self, dialogs: list[Dialog], message_type: str = DEFAULT, body: Body = b"") -> None:
        """SEND ON CONVERSATION (a, b, …): the same message on each of these dialogs, all of them or none (59, 60).

        A transaction. Raises BadInput for none, or for a dialog that is named twice (61), and what its `send` does.
        """
        if not dialogs or len({dialog.id for dialog in dialogs}) < len(dialogs):
            raise BadInput("send takes one dialog or more, and each of them once")
        with self.transaction() as transaction:
            for dialog in dialogs:
                transaction.send(dialog, message_type, body)
