"""Takes over conversations whose sender has died, many at once (protocol.md section 7.12).

The state machine in `dialog.session.adoption` decides in which order homes and targets are asked; `Adopter` asks them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from konverse.dialog.session import adoption as adopting
from konverse.dialog.session.adoption import Adoption, FoundState
from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.session.lanes import Produce
from konverse.dialog.session.session import Session
from konverse.dialog.state.partition import Partition
from konverse.schemas.counting import counted
from konverse.schemas.errors import BadInput, KafkaUnavailable, OutcomeUnknown
from konverse.schemas.identifiers import Address

from .begin import BeginClauses, Prepared, check_same
from .dialog import Dialog
from .mailboxes import POLL_S, Mailboxes
from .sender import Sender

if TYPE_CHECKING:
    from konverse.bridge.catalog.catalog import Catalog

Result = TypeVar("Result")


class AdoptedConversation(NamedTuple):
    """A conversation that another session began and this one has taken over."""

    dialog: Dialog
    """Accepts messages only when `standing` is OPEN; `bounced` and `end` work in any case."""
    standing: FoundState


class Adopter:
    """Adopts conversations into the session of a sender."""

    def __init__(
        self, sender: Sender, catalog: Catalog, mailboxes: Mailboxes, begin_block: Callable[[BeginClauses], Prepared]
    ) -> None:
        self._sender = sender
        self._catalog = catalog
        self._mailboxes = mailboxes
        self._begin_block = begin_block

    def adopt(
        self, wanted: Sequence[BeginClauses], writers: Collection[bytes], timeout_s: float
    ) -> list[AdoptedConversation]:
        """Take over conversations whose sender is gone, and return them in the same order.

        `wanted` has the BEGIN DIALOG clauses and the id of each conversation. Its home must have ingested the BEGIN
        already (`bridge.client.pool.takeover.find_leftovers` waits for that); otherwise the conversation is NOT_BEGUN.
        This finds and closes the session that opened a conversation, and every session whose records were ingested on
        it, so a sender that still lives is stopped. `writers` are further sessions that may have sent. On return, the
        mailboxes hold every message that Kafka had acknowledged and that was not received. This does not wait for
        transactions that the former sender committed.

        Raises BadInput for a conversation that is given twice or was begun with other clauses, OutcomeUnknown when
        owners do not answer within `timeout_s` (calling again is harmless), SessionTakenOver when this session was
        closed meanwhile, QueueNotFound.
        """
        deadline = time.monotonic() + timeout_s
        cases: list[adopting.AdoptRequest] = []
        placed: list[int] = []
        for one in wanted:
            prepared = self._begin_block(one)
            cases.append(adopting.AdoptRequest(prepared.conversation, prepared.begin, one.returning))
            placed.append(prepared.placed)
        if len({case.conversation for case in cases}) < len(cases):
            raise BadInput("a conversation is given twice; name each of them once")
        machine = self._decided(lambda session: Adoption(session, cases, writers))
        while before := machine.addresses:
            for address in before:
                self._report(machine, address, deadline - time.monotonic())
            if machine.addresses != before:
                continue
            if time.monotonic() > deadline:
                raise OutcomeUnknown(
                    f"the owner of {before[0].topic}/{before[0].partition} has not closed the former senders of "
                    f"{counted(len(cases), 'conversation')} within {timeout_s} s. Its workers may be down; try "
                    "again later"
                )
            time.sleep(POLL_S)
        found = self._decided(lambda _session: machine.finish())
        return [
            AdoptedConversation(check_same(self._dialog(staged, at), one), standing)
            for (staged, standing), at, one in zip(found, placed, wanted, strict=True)
        ]

    def _report(self, machine: Adoption, address: Address, timeout_s: float) -> None:
        """Pass the present state of a partition to the state machine."""

        def question(state: Partition) -> bool:
            self._sender.apply_news(lambda _session: machine.read(state))
            return True

        self._sender.wait_for_id()  # before the question, which runs while the reader or the follower is locked
        with suppress(KafkaUnavailable):  # the caller asks again until its time is up
            self._mailboxes.ask(address, question, keep_up=True, timeout_s=timeout_s)

    def _decided(self, call: Callable[[Session], Result]) -> Result:
        """The result of a call that has exclusive use of the session."""
        results: list[Result] = []

        def decide(session: Session) -> list[Produce]:
            results.append(call(session))
            return []

        self._sender.decide(decide)
        return results[0]

    def _dialog(self, staged: SessionDialog, placed: int) -> Dialog:
        return Dialog(self._sender, staged, self._catalog, self._mailboxes, placed)
