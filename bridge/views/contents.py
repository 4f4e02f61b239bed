"""The messages in a queue: those that RECEIVE would return, and rows of Spark batches that are not decided yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.judge import letter_of
from konverse.dialog.rules.replies import other
from konverse.dialog.state.batches import PendingRow
from konverse.dialog.state.endpoint import Endpoint, Terms
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.dialog.transaction.received import SYSTEM_SEQUENCE, Message, MessageContext
from konverse.schemas.catalog.objects import Contract, MessageType, Service
from konverse.schemas.wire.envelope import decode_suffix
from konverse.schemas.wire.records import NO_SEQUENCE

from .rows import QueueRow

READY: Final = 1
NOT_COMPLETE: Final = 2


class Contents:
    """Makes the rows of one queue's messages, partition by partition."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._types: dict[str, tuple[int | None, str]] = {}
        """Message type -> its number and the letter of its validation."""

    def rows(self, state: Partition) -> list[QueueRow]:
        """All messages of a partition, in `queuing_order`."""
        context = MessageContext(state.identity.incarnation, state.identity.partition)
        found = [self._row(READY, message) for message in _ready(state, context)]
        found += [self._row(NOT_COMPLETE, message) for message in _undecided(state, context)]
        return sorted(found, key=lambda row: row.queuing_order)

    def _row(self, status: int, message: Message) -> QueueRow:
        dialog, catalog = message.dialog, self._catalog
        number, letter = self._type(message.type)
        return QueueRow(
            status,
            message.priority,
            message.offset,
            UUID(bytes=dialog.group_id),
            dialog.id,
            message.sequence if status == READY else None,
            dialog.service or None,
            catalog.id_of(Service, dialog.service),
            dialog.contract or None,
            catalog.id_of(Contract, dialog.contract),
            message.type,
            number,
            letter,
            message.body,
            message.id,
        )

    def _type(self, name: str) -> tuple[int | None, str]:
        known = self._types.get(name)
        if known is None:
            known = self._types[name] = (self._catalog.id_of(MessageType, name), letter_of(self._catalog, name))
        return known


def _ready(state: Partition, context: MessageContext) -> Iterator[Message]:
    """The ready messages, in the order of delivery within a conversation, including those of locked groups."""
    for endpoint in state.live():
        for offset, kind, body, stamp in endpoint.urgent:
            yield Message(kind, body or b"", SYSTEM_SEQUENCE, endpoint, offset, stamp, context)
        for sequence, (offset, kind, body, stamp) in enumerate(endpoint.queue, endpoint.consumed):
            yield Message(kind, body or b"", sequence, endpoint, offset, stamp, context)


def _undecided(state: Partition, context: MessageContext) -> Iterator[Message]:
    """Messages of Spark task attempts that may still be committed; of a task that ran twice, those of both attempts."""
    pending = state.pending
    for attempt in pending.live:
        (_, begins, _), *_ = attempt
        for row in () if begins else pending.rows_of(attempt):
            kind = decode_suffix(row.suffix).message_type
            endpoint = _receiver(state, row)
            yield Message(kind, row.body or b"", NO_SEQUENCE, endpoint, row.offset, row.stamp, context)


def _receiver(state: Partition, row: PendingRow) -> Endpoint:
    """The endpoint that would receive the row: a known one, or a new one made from the row's BEGIN."""
    role = other(row.role)
    known = state.endpoint(role, row.conversation)
    if known is not None:
        return known
    begin = decode_suffix(row.suffix).begin
    terms = Terms("", "", "") if begin is None else Terms(begin.to_service, begin.from_service, begin.contract)
    return Endpoint(row.conversation, role, State.STARTED_INBOUND, terms, state.stream_to(state.address))
