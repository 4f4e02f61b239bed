"""Client transactions on their way from a session through the transmission partition."""

from __future__ import annotations

from typing import Final

from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.session.lanes import Produce
from konverse.dialog.session.session import Session
from konverse.schemas.wire.client_transaction import TransactionRecord, decode
from konverse.schemas.wire.envelope import decode as decode_envelope
from konverse.schemas.wire.records import Kind
from tests.kit.builders import Side, address_of, begin_block, identifier

TRANSMISSION: Final = address_of("transmission")


def transmitting() -> Session:
    """A session that knows its transmission partition."""
    session = Session(identifier("a session"))
    session.transmit_to(TRANSMISSION)
    return session


def opened(session: Session, name: str = "a") -> SessionDialog:
    """A dialog whose BEGIN is acknowledged."""
    dialog, _ = session.begin(identifier(name), begin_block(group=identifier(name)))
    session.drained()
    return dialog


def records(hands: list[Produce]) -> list[tuple[Kind, TransactionRecord | None]]:
    """Kinds of the records, each with the transaction that it carries."""
    out: list[tuple[Kind, TransactionRecord | None]] = []
    for hand in hands:
        for header, _, body in hand.records:
            kind = decode_envelope(header).kind
            out.append((kind, decode(body or b"") if kind is Kind.TRANSACTION else None))
    return out


def expanded(transmission: Side, hands: list[Produce]) -> None:
    """The records arrive at the transmission partition, which expands the transactions."""
    for hand in hands:
        for header, _, body in hand.records:
            transmission.take(header, body)


def arrived(transmission: Side) -> None:
    """A COMMIT acknowledges all outputs."""
    transmission.commit(output_acks=[(address, stream.next) for address, stream in transmission.state.streams.items()])
