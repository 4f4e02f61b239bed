"""Data that is lost before the partition ingested it (protocol.md section 7.7): LOST, and acknowledged records.

It is unknown which records those were. So every conversation that may have missed one fails, on both sides, with an
Error that names the range; no conversation silently starts over. The next records of each writer are accepted, even
though counters before them are missing (`dialog.rules.holes`).
"""

from __future__ import annotations

from konverse.dialog.state.endpoint import Endpoint, FarStamp, Record
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import AckedLoss
from konverse.dialog.state.transitions import RECEIVING, State
from konverse.dialog.state.writer import Writer
from konverse.schemas.counting import counted
from konverse.schemas.identifiers import Role, time_of_writer
from konverse.schemas.system_messages import ACKED_LOST_BODY, ERROR, lost_body
from konverse.schemas.wire.envelope import encode_envelope
from konverse.schemas.wire.journal import Commit
from konverse.schemas.wire.operations import Lost
from konverse.schemas.wire.records import FIRST, NO_SEQUENCE, BounceReason, End, Envelope, Kind, Suffix

from .endings import expect_first_of_home, fail, peer_ends
from .heirs import may_go_on
from .holes import pass_over
from .relocation import forwarded
from .replies import answer_lost, body_of_loss, bounce, other, refuse_begin


def lost_by(commit: Commit) -> Lost | None:
    """The LOST operation of a commit; None when it has none."""
    return next((operation for operation in commit.operations.rare if isinstance(operation, Lost)), None)


def lose(state: Partition, lost: Lost) -> None:
    """LOST: every conversation that lives here fails, because it may have missed a record."""
    state.statistics.lost += lost.end - lost.start
    state.lost_from, state.lost_to = lost
    state.moves.installing.clear()
    body = lost_body(*lost)
    for endpoint in state.live():
        if (endpoint.role, endpoint.conversation) not in state.moves.stubs:  # it came back: the Error follows its stubs
            _fail(state, endpoint, lost, body)
    for role, conversation in [*state.moves.stubs]:
        _fail_elsewhere(state, other(role), conversation, lost, body)


def lose_acked(state: Partition, writer: Writer, counter: int, offset: int) -> None:
    """Pass over the counters before this one: Kafka had acknowledged their records, and the log lacks them (M291).

    Conversations that may have missed one fail (M292): those of the session, or all if the writer is an owner.
    """
    first = writer.next
    state.statistics.lost += counter - first
    state.recent.lose(AckedLoss(writer.id, first, counter, offset))
    pass_over(writer, counter)
    lost = Lost(offset, offset)
    for endpoint in state.live():
        if (
            _may_miss(state, endpoint, writer, first)
            and (endpoint.role, endpoint.conversation) not in state.moves.stubs
        ):
            _fail(state, endpoint, lost, ACKED_LOST_BODY)
    for role, conversation in [*state.moves.stubs]:
        _fail_elsewhere(state, other(role), conversation, lost, ACKED_LOST_BODY)


def _may_miss(state: Partition, endpoint: Endpoint, writer: Writer, first: int) -> bool:
    """Whether one of a writer's lost records, from counter `first` on, may be for an endpoint.

    An owner may write to every endpoint. A session may write to an endpoint that it opened or has written to, also
    before the endpoint moved here, and to one with an id that a caller chose, because several sessions may begin that.
    The first record under an id may be the CLOSE_WRITER of the session's previous id. If it is lost, the records after
    it may belong to any conversation whose session has no known heir here.
    """
    knows = any(lane.writer.id == writer.id for lane in endpoint.lanes())
    if knows or time_of_writer(writer.id) is None or state.is_named(endpoint):
        return True
    return may_go_on(state, endpoint.opener, writer.id, unclosed=first == 0)


def describe_loss(state: Partition) -> str:
    """Sentence about the latest loss of a partition; empty when it never lost anything."""
    if not state.lost_to:
        lost, place = state.statistics.lost, f"{state.address.topic}/{state.address.partition}"
        missing = counted(lost, "record that Kafka had acknowledged is", "records that Kafka had acknowledged are")
        return f"{missing} missing from {place}, and the conversations concerned got an Error." if lost else ""
    return (
        f"The records {state.lost_from:,} to {state.lost_to - 1:,} of {state.address.topic}/{state.address.partition} "
        "were deleted unread, or an operator has given them up (LOST). Messages in them are not received."
    )


def on_late(state: Partition, envelope: Envelope, record: Record) -> None:
    """Answer a record that was passed over and arrives late, once, as if its conversation did not exist.

    If the conversation exists nevertheless, here or elsewhere, it has missed the record, and fails.
    """
    if envelope.kind in (Kind.MESSAGE, Kind.TRANSACTION):
        bounce(state, envelope, record, BounceReason.NO_ENDPOINT)
    elif envelope.kind is Kind.BEGIN:
        refuse_begin(state, envelope)
    if envelope.kind not in (Kind.MESSAGE, Kind.END, Kind.ERROR):
        return
    endpoint, lost = state.endpoint(other(envelope.role), envelope.conversation), Lost(state.lost_from, state.lost_to)
    if endpoint is not None:
        _fail(state, endpoint, lost, body_of_loss(state))
    elif (other(envelope.role), envelope.conversation) in state.moves.stubs:
        _fail_elsewhere(state, envelope.role, envelope.conversation, lost, body_of_loss(state))
    elif envelope.kind is Kind.MESSAGE and envelope.role is Role.INITIATOR:
        answer_lost(state, envelope)


def misses(state: Partition, endpoint: Endpoint, envelope: Envelope, record: Record) -> bool:
    """Whether a message before this one was passed over; then the conversation fails and does not receive this one.

    After a failed producer the log may hold records out of order. After a LOST the fold passes over gaps, so the
    missing records come too late when the writer resends them. `received` also counts messages of handlers. So
    where home's FIRST made the target, a session's message with a number above 0 shows that its own FIRST is missing.
    """
    if isinstance(record[1], FarStamp):  # it was checked at its first address
        return False
    if envelope.sequence <= endpoint.received and not _follows_lost_first(state, endpoint, envelope):
        return False
    writer = state.writers.get(envelope.writer)
    if writer is None or not writer.holes:
        return False
    _fail(state, endpoint, Lost(state.lost_from, state.lost_to), body_of_loss(state))
    return True


def _follows_lost_first(state: Partition, endpoint: Endpoint, envelope: Envelope) -> bool:
    """Whether a session's message that is not its first comes while the FIRST of the session is still expected."""
    return (
        envelope.sequence > 0
        and envelope.role is Role.INITIATOR
        and not envelope.flags & FIRST
        and state.tombstones.get(endpoint.conversation) == endpoint.opener
        and (envelope.writer == endpoint.opener or not state.is_named(endpoint))
    )


def _fail(state: Partition, endpoint: Endpoint, lost: Lost, body: bytes) -> None:
    """Fail a conversation on both sides; a side that has ended stops waiting for its peer's END."""
    if endpoint.index in state.beginning and endpoint.committed is not State.DISCONNECTED_OUTBOUND:
        return  # the peer has not received the conversation's first record yet
    if endpoint.committed in RECEIVING:
        fail(state, endpoint, lost.start, body)
    elif endpoint.committed is State.DISCONNECTED_OUTBOUND:  # in all other states the peer's end has arrived
        expect_first_of_home(state, endpoint)
        peer_ends(state, endpoint, (lost.start, ERROR, body, state.now_ms), failed=True)


def _fail_elsewhere(state: Partition, role: Role, conversation: bytes, lost: Lost, body: bytes) -> None:
    """Fail an endpoint that moved away: it gets an Error as if by its peer, because records for it may be lost."""
    detail = End(state.writer_id, state.address)
    envelope = Envelope(
        Kind.ERROR,
        0,
        role,
        state.address.tag,
        state.writer_id,
        conversation,
        0,
        NO_SEQUENCE,
        Suffix(ERROR, detail=detail),
    )
    forwarded(state, lost.start, encode_envelope(envelope), envelope, (body, state.now_ms))
