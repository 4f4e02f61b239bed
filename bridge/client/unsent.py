"""Messages of this process's session that are not delivered yet, for the view of the transmission queue."""

from __future__ import annotations

from collections.abc import Iterator

from konverse.dialog.session.dialogs import DialogState, SessionDialog
from konverse.dialog.session.lanes import Lane, Single, Speaker
from konverse.dialog.session.session import Session
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.client_transaction import decode
from konverse.schemas.wire.envelope import CONVERSATION_AT, decode_suffix
from konverse.schemas.wire.records import NO_SEQUENCE, BounceId, Kind

from .outgoing import APPLICATION_KINDS, Names, Outgoing


def unsent(session: Session, status: str) -> list[Outgoing]:
    """All undelivered messages. `status` is the last failure on the way to Kafka; the caller holds the lock."""
    behind = (lane for chain in session.takeover.behind.values() for lane in chain)
    found = [one for lane in (*session.lanes.values(), *behind) for one in _of_lane(lane)]
    found += [one for dialog in session.dialogs.values() for one in _held(dialog)]
    for transaction in session.transactions.waiting:
        for dialog, kind, message_type, body, _ in transaction.steps:
            if kind in APPLICATION_KINDS:
                found.append(_outgoing(dialog.conversation, Names.of(dialog.begin), kind, message_type, body))
    return [one._replace(status=status) for one in found]


def _of_lane(lane: Lane) -> list[Outgoing]:
    """Records that Kafka has not acknowledged. Built backwards, as a dialog knows only its last sequence number."""
    kept = zip(reversed(lane.origins), reversed(lane.suffixes), reversed(lane.bodies), strict=True)
    numbers: dict[Speaker, int] = {}
    found: list[Outgoing] = []
    for origin, suffix, body in kept:
        if isinstance(origin, Single):
            found += [*_single(origin, suffix, body)][::-1]
        else:
            numbers[origin] = number = numbers.get(origin, origin.sent) - 1
            kind = decode_suffix(suffix).message_type
            found.append(
                _outgoing(origin.conversation, Names.of(origin.begin), Kind.MESSAGE, kind, body, sequence=number)
            )
    return found[::-1]


def _single(record: Single, suffix: bytes, body: bytes | None) -> Iterator[Outgoing]:
    kind, end = Kind(record.prefix[0] >> 1), decode_suffix(suffix)
    if kind is Kind.TRANSACTION:
        transaction = decode(body or b"")
        for step in transaction.steps:
            dialog = transaction.dialogs[step.dialog]
            if step.kind in APPLICATION_KINDS:
                names = Names.of(dialog.begin)
                yield _outgoing(
                    dialog.conversation, names, step.kind, step.message_type, step.body, sequence=step.sequence
                )
    elif kind in APPLICATION_KINDS:
        begun = None if end.begin is None else Names.of(end.begin)
        yield _outgoing(record.prefix[CONVERSATION_AT:], begun, kind, end.message_type, body, sequence=record.sequence)


def _held(dialog: SessionDialog) -> Iterator[Outgoing]:
    """Messages that wait for a BEGIN or an earlier REDIRECT, and an END that waits for earlier messages."""
    names = Names.of(dialog.begin)
    for place, held in enumerate(dialog.held):
        if not isinstance(held, BounceId):
            number = NO_SEQUENCE if dialog.redirects is not None else dialog.sent + place
            yield _outgoing(dialog.conversation, names, Kind.MESSAGE, *held, sequence=number)
    if dialog.waiting_end is not None and dialog.state is not DialogState.ENDED and not dialog.pending:
        yield _outgoing(dialog.conversation, names, Kind.END_CALL, "", dialog.waiting_end or None)


def _outgoing(  # noqa: PLR0913  # the parts of a record
    conversation: bytes,
    names: Names | None,
    kind: Kind,
    message_type: str,
    body: bytes | None,
    *,
    sequence: int = NO_SEQUENCE,
) -> Outgoing:
    return Outgoing(conversation, Role.INITIATOR, kind, message_type, sequence, body, names, "")
