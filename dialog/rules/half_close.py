"""FIN, the half-close: a side sends nothing more, and goes on to receive (protocol.md section 6).

FIN stands behind the messages of its direction in the same log, so the log alone says which messages came before it.
The receiving partition answers how far each writer was received: every message that was sent then has a verdict.
"""

from __future__ import annotations

from konverse.dialog.state.endpoint import OPEN, Endpoint, Record
from konverse.dialog.state.outbox import Run
from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import END_WRITERS_MAX
from konverse.schemas.wire.envelope import encode_suffix
from konverse.schemas.wire.operations import Finish
from konverse.schemas.wire.records import NO_SEQUENCE, Envelope, FinAnswer, Kind, Opened, Suffix

from .replies import other


def finish(state: Partition, operation: Finish) -> None:
    """FIN of a handler: sent behind everything that its side has sent."""
    endpoint = state.at(operation.endpoint, "finishes")
    state.touch(endpoint)
    endpoint.finished = (endpoint.finished or OPEN)._replace(own=True)
    stream, key = endpoint.stream, endpoint.key or endpoint.conversation
    prefix = stream.head(Kind.FIN, endpoint.role) + endpoint.conversation
    stream.push(Run(prefix, key, NO_SEQUENCE, fin_suffix(state.address), [None]))


def fin_suffix(home: Address, opened: Opened | None = None) -> bytes:
    """End of FIN's header: names the home to which the answer goes."""
    return encode_suffix(Suffix(home=home, detail=opened))


def on_fin(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """FIN: accept no further message of that direction, and answer how far each writer was received."""
    endpoint = state.endpoint(other(envelope.role), envelope.conversation)
    received: tuple[tuple[bytes, int], ...] = ()
    if endpoint is not None:
        state.touch(endpoint)
        endpoint.finished = (endpoint.finished or OPEN)._replace(peer=True)
        state.shut(endpoint)
        received = tuple((lane.writer.id, lane.last) for lane in endpoint.lanes()[:END_WRITERS_MAX])
    answer_fin(state, envelope, received)


def answer_fin(state: Partition, envelope: Envelope, received: tuple[tuple[bytes, int], ...]) -> None:
    """Send FIN_ANSWER to the home that a FIN names."""
    home = envelope.suffix.home
    if home is None:
        state.statistics.undeliverable += 1
        return
    stream = state.stream_to(home)
    prefix = stream.head(Kind.FIN_ANSWER, other(envelope.role)) + envelope.conversation
    answer = encode_suffix(Suffix(detail=FinAnswer(envelope.suffix.origin or envelope.writer, received)))
    stream.push(Run(prefix, envelope.conversation, NO_SEQUENCE, answer, [None]))


def on_fin_answer(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """FIN_ANSWER: kept by the endpoint that is finished.

    A session may have said the FIN: the handlers at its home send nothing more either.
    """
    endpoint: Endpoint | None = state.endpoint(other(envelope.role), envelope.conversation)
    detail = envelope.suffix.detail
    if endpoint is None or not isinstance(detail, FinAnswer):
        state.statistics.undeliverable += 1
        return
    state.touch(endpoint)
    before = endpoint.finished or OPEN
    askers = tuple(dict.fromkeys([*before.askers, detail.asker]))[-END_WRITERS_MAX:]
    endpoint.finished = before._replace(own=True, answer=detail.received, askers=askers)
