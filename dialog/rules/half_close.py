"""FIN, the half-close: a side sends nothing more, and still receives (protocol.md section 6).

FIN follows the messages of its direction in the same log, so the log alone says which messages came before it. The
receiving partition answers with the last counter received from each writer. That is a verdict on every message sent:
it was accepted, or it comes back.
"""

from __future__ import annotations

from konverse.dialog.state.endpoint import OPEN, Endpoint, Record
from konverse.dialog.state.outbox import Run
from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import END_WRITERS_MAX
from konverse.schemas.wire.envelope import encode_suffix
from konverse.schemas.wire.operations import Finish
from konverse.schemas.wire.records import NO_SEQUENCE, Envelope, FinAnswer, Kind, Suffix

from .replies import other


def finish(state: Partition, operation: Finish) -> None:
    """FIN of a handler: sent after everything that its side has sent."""
    endpoint = state.at(operation.endpoint, "finishes")
    state.touch(endpoint)
    endpoint.finished = (endpoint.finished or OPEN)._replace(own=True)
    stream, key = endpoint.stream, endpoint.key or endpoint.conversation
    prefix = stream.head(Kind.FIN, endpoint.role) + endpoint.conversation
    stream.push(Run(prefix, key, NO_SEQUENCE, fin_suffix(state.address), [None]))


def fin_suffix(home: Address) -> bytes:
    """Header suffix of FIN: names the home to which the answer goes."""
    return encode_suffix(Suffix(home=home))


def on_fin(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """FIN: accept no further message of that direction, and answer with the last counter received from each writer."""
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
    """FIN_ANSWER: kept by the endpoint of the finished side.

    A session may have sent the FIN: then the handlers at its home send nothing more either.
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
