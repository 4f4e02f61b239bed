"""GIVE_BACK: a target ends, and who sent what it has not received gets that back (protocol.md section 7.11).

A router that redirects a conversation is not the one for which its messages are. So it receives none of them: in one
step they go back to the mailbox at their home, in order, behind a note that says where they belong, and the side ends.
What comes later comes back behind that, as that of every returning dialog does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konverse.schemas.catalog import END_DIALOG
from konverse.schemas.envelope import encode_suffix
from konverse.schemas.errors import InvalidState, PartitionHalted
from konverse.schemas.operations import GiveBack
from konverse.schemas.records import NO_SEQUENCE, Bounce, BounceReason, Kind, Role, Suffix

from .endings import end_endpoint
from .endpoint import Endpoint
from .outbox import Run
from .partition import Partition

if TYPE_CHECKING:
    from .transaction import Transaction


def stage_give_back(transaction: Transaction, dialog: Endpoint, operation: GiveBack) -> None:
    """Note it in a transaction: nothing is sent behind it. Raises what `end` does, InvalidState."""
    if dialog.role is not Role.TARGET:
        raise InvalidState(
            f"cannot give back what came on conversation {dialog.id}: this side began it. End it instead"
        )
    transaction.conclude(dialog, len(operation.message_type.encode()) + len(operation.body))
    transaction.cleanups = [*transaction.cleanups, operation]


def give_back(state: Partition, operation: GiveBack) -> None:
    """The note, what was not received, and the end, to where the mailbox is."""
    index = operation.endpoint
    endpoint = state.table[index] if 0 <= index < len(state.table) else None
    if endpoint is None or endpoint.role is not Role.TARGET:
        raise PartitionHalted(
            f"a commit of {state.identity.data_topic}/{state.identity.partition} gives back what came to endpoint "
            f"{index}, where no target lives: the journal was changed. Nothing further is done with this partition"
        )
    note, number = (operation.message_type, operation.body, NO_SEQUENCE), endpoint.consumed
    _carry(state, endpoint, number, BounceReason.REDIRECTED, note)
    for sequence, (_, message_type, body, _) in enumerate(endpoint.queue, endpoint.consumed):
        if message_type != END_DIALOG:
            number += 1
            _carry(state, endpoint, number, BounceReason.GIVEN_BACK, (message_type, body, sequence))
    end_endpoint(state, endpoint, None)


def _carry(
    state: Partition, endpoint: Endpoint, number: int, reason: BounceReason, message: tuple[str, bytes | None, int]
) -> None:
    """A bounce is known by the record that came back; one of these by its conversation, and its number behind it."""
    message_type, body, sequence = message
    state.statistics.bounced += 1
    stream, conversation = endpoint.stream, endpoint.conversation
    detail = Bounce(conversation, number, state.address, reason)
    suffix = encode_suffix(Suffix(message_type, origin=endpoint.opener, detail=detail))
    prefix = stream.head(Kind.BOUNCE, Role.TARGET) + conversation
    stream.push(Run(prefix, conversation, sequence, suffix, [body]))
