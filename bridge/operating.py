"""What an operator does: about conversations whose handlers failed too often, and where one lives (protocol.md 7)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from konverse.dialog.dropping import Ending
from konverse.dialog.endpoint import Endpoint
from konverse.dialog.owner import Owner
from konverse.dialog.phase import LEADING
from konverse.dialog.states import State
from konverse.dialog.trial import Order
from konverse.schemas.errors import BadInput, DialogNotFound, InvalidState
from konverse.schemas.journal import EndOperation
from konverse.schemas.operations import Cleanup, Fail, Resume, Skip
from konverse.schemas.system_messages import BROKER_ERROR, BROKER_ERROR_DESCRIPTION, check_error

from .arguments import checked
from .clock import now_ms
from .owning import Owning


class Operating:
    """The part of a reader that is for operators. Each call joins the next commit, for which `settle` waits."""

    _owning: Owning
    _lock: threading.RLock
    _check_open: Callable[[], None]

    @property
    def suspended(self) -> list[Endpoint]:
        """Conversations of our partitions that failed five times: their messages wait for an operator."""
        with self._lock:
            self._check_open()
            return [
                endpoint
                for owner in self._owning.owners.values()
                if owner.phase is LEADING
                for index in owner.fold.state.attempts.troubled
                if (endpoint := owner.fold.state.table[index]) is not None and waits(endpoint)
            ]

    @checked
    def resume(self, conversation: UUID) -> None:
        """Hand out the messages of a suspended conversation again, and those of its group; it has five attempts more.

        Raises DialogNotFound when it does not live in a partition that is ours, InvalidState when it is not suspended.
        """
        self._order(conversation, lambda endpoint: Resume(endpoint.index))

    @checked
    def skip(self, conversation: UUID) -> None:
        """Drop the first message that waits on a suspended conversation, and resume it.

        Raises as `resume`, and InvalidState when what waits first tells that the conversation is over.
        """
        self._order(conversation, _skip)

    @checked
    def end(
        self, conversation: UUID, *, error: int | None = 0, description: str | None = "", cleanup: bool = False
    ) -> None:
        """End a suspended conversation, with `error` > 0 as WITH ERROR; others of its group stay suspended.

        With `cleanup` any conversation, WITH CLEANUP: our sides of it go at once, behind the handler that may have
        them, and their peers are told nothing (behaviours 120, 121).
        Raises as `resume`, InvalidError for a code without a description (112), InvalidState for an error together with
        `cleanup`.
        """
        error, description = check_error(error, description)
        check_cleanup(error, cleanup=cleanup)
        if cleanup:
            self._sweep(conversation, lambda endpoint: Cleanup(endpoint.index))
            return
        self._order(conversation, lambda endpoint: EndOperation(endpoint.index, error, description))

    @checked
    def relocate(self, conversation: UUID, partition: int) -> None:
        """Move our side of a conversation to another partition of this queue, with all that waits for it.

        Where both sides live in partitions of this reader both are asked to go there, or neither. Whoever sends to it
        goes on as before; from then on the owner of that partition receives its messages. What is locked or ends
        before the next commit stays where it is.
        Raises DialogNotFound when it does not live in a partition that is ours, BadInput for a partition that it cannot
        go to, InvalidState while a transaction holds it or its handler fails, when it shares its group with others or
        has moved too often, QueueFull when too many conversations have moved away from where it is.
        """
        queue = self._owning.queue
        if not 0 <= partition < queue.partitions:
            raise BadInput(f"queue {queue.name!r} has no partition {partition}; it has {queue.partitions}, from 0 on")
        with self._lock:
            found = self._find(conversation)
            moves = [
                (owner, endpoint, replace(owner.fold.state.address, partition=partition))
                for owner, endpoint in [pair for pair in found if pair[0].identity.partition != partition] or found
            ]
            for owner, endpoint, to in moves:
                owner.staging.moving.check(endpoint, to)
            for owner, endpoint, to in moves:
                owner.relocate(endpoint, to, now_ms())

    @checked
    def fail(self, conversation: UUID) -> None:
        """Have a conversation fail that is open: Error -9719 on both sides, behind the handler that may have it.

        As `broker.error_broker_conversations` does with all of them (behaviour 136). Raises DialogNotFound as `resume`.
        """
        self._sweep(conversation, lambda endpoint: Fail(endpoint.index, BROKER_ERROR, BROKER_ERROR_DESCRIPTION))

    def sides(self, conversation: UUID) -> list[tuple[Owner, Endpoint]]:
        """Our sides of a conversation, and who owns them; for `counts`."""
        with self._lock:
            return self._find(conversation)

    def counts(self, sides: list[tuple[Owner, Endpoint]], waits: Callable[[Endpoint], bool]) -> bool | None:
        """Whether what was wanted with these sides is in the journal; None when that cannot be known any more.

        `waits` tells whether a side looks as if nothing had been done yet.
        """
        with self._lock:
            if any(owner.phase is not LEADING for owner, _ in sides):
                return None
            undone = any(
                owner.fold.state.table[endpoint.index] is endpoint and waits(endpoint) for owner, endpoint in sides
            )
            return not undone and not any(owner.committing for owner, _ in sides)

    def _sweep(self, conversation: UUID, ending: Callable[[Endpoint], Ending]) -> None:
        with self._lock:
            for owner, endpoint in self._find(conversation):
                owner.staging.dropping.ask(endpoint, ending(endpoint))

    def _find(self, conversation: UUID) -> list[tuple[Owner, Endpoint]]:
        """Our sides of a conversation: two, when both live here."""
        self._check_open()
        known = [
            (owner, endpoint)
            for owner in self._owning.owners.values()
            if owner.phase is LEADING
            for side in owner.fold.state.sides
            if (endpoint := side.get(conversation.bytes)) is not None
        ]
        if not known:
            raise DialogNotFound(
                f"conversation {conversation} lives in no partition that is ours; ask the process that has it"
            )
        return known

    def _order(self, conversation: UUID, order: Callable[[Endpoint], Order]) -> None:
        with self._lock:
            suspended = [(owner, endpoint) for owner, endpoint in self._find(conversation) if waits(endpoint)]
            if not suspended:
                raise not_suspended(conversation)
            for owner, endpoint in suspended:
                owner.trial.order(endpoint, order(endpoint))


def waits(endpoint: Endpoint) -> bool:
    """Its messages wait for an operator: it is suspended, and was not ended since."""
    return endpoint.suspended and endpoint.committed is not State.DISCONNECTED_OUTBOUND


def check_cleanup(error: int, *, cleanup: bool) -> None:
    """Raise InvalidState for an END that is both WITH ERROR and WITH CLEANUP."""
    if cleanup and error:
        raise InvalidState("a conversation is ended WITH ERROR or WITH CLEANUP, not with both")


def check_skip(endpoint: Endpoint) -> None:
    """Raise InvalidState for what is not skipped: what tells of the end."""
    if endpoint.ends_next:
        raise InvalidState(
            f"what waits first on conversation {endpoint.id} tells that it is over, and is not skipped; end it, or "
            "mend its handler and resume it"
        )


def not_suspended(conversation: UUID) -> InvalidState:
    """The error for a conversation that needs no operator."""
    return InvalidState(f"conversation {conversation} is not suspended; its messages are handed out anyway")


def _skip(endpoint: Endpoint) -> Skip:
    check_skip(endpoint)
    return Skip(endpoint.index)
