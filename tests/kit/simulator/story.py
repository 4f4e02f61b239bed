"""The events of a run in the order of the appends, for finding a cause."""

from __future__ import annotations

from konverse.bridge.verifier.journal import Judged
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import time_of_writer
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.journal import Claim, Commit
from konverse.schemas.wire.records import FIRST

from .kafka import Record
from .world import World


def tell(world: World) -> list[str]:
    """The swarm, then every record of every log, oldest first."""
    lines: list[tuple[int, str]] = []
    for place in world.places:
        lines += [(record.order, f"{place.name:6} data    {_data(record)}") for record in place.data.records]
        lines += [(judged.record.order, f"{place.name:6} journal {_journal(judged)}") for judged in place.judge.judged]
    return [str(world.swarm), *(f"{order:5} {line}" for order, line in sorted(lines))]


def _data(record: Record) -> str:
    try:
        envelope = decode(record.header or b"")
    except MalformedRecord:
        return f"@{record.offset} no envelope"
    suffix = envelope.suffix
    writer = f"{_short(envelope.writer)}#{envelope.counter}"
    return (
        f"@{record.offset} {envelope.kind.name} {writer} {envelope.role.name[0]} of "
        f"{_short(envelope.conversation)} number {envelope.sequence} {'FIRST ' if envelope.flags & FIRST else ''}"
        f"{suffix.message_type.rpartition('/')[2]} {record.body or b''!r} {suffix.detail or ''}"
    )


def _journal(judged: Judged) -> str:
    record, decision, counts = judged
    verdict = "counts" if counts else "void"
    if isinstance(decision, Claim):
        return f"@{record.offset} CLAIM {decision.epoch} by {_short(decision.owner)}: {verdict}"
    if not isinstance(decision, Commit):
        return f"@{record.offset} undecodable"
    operations = decision.operations
    received = [
        f"{index}:{position >> 2}{'!' if position & 1 else ''}"
        for index, position in zip(operations.receive_endpoints, operations.receive_positions, strict=True)
    ]
    sent = [(index, body) for index, _, bodies in operations.sends for body in bodies]
    acks = [f"{to.topic}/{to.partition}:{counter}" for to, counter in decision.output_acks]
    return (
        f"@{record.offset} COMMIT {decision.number} of epoch {decision.epoch} by {_short(decision.owner)} "
        f"to {decision.ingest_to}: {verdict}; received {received}, sent {sent}, ended "
        f"{[end.endpoint for end in operations.ends]}, acknowledged {acks}{', release' if decision.release else ''} "
        f"{' '.join(map(str, operations.rare))}"
    )


def _short(identifier: bytes) -> str:
    if time_of_writer(identifier) is not None:
        return f"session-{int.from_bytes(identifier[8:], 'big') & 0xFFFF}"
    number = int.from_bytes(identifier[:4], "big")
    word = identifier[4:].rstrip(b".")
    return f"{word.decode()}-{number}" if word.isalpha() else f"owner-{identifier[:2].hex()}"
