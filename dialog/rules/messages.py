"""MESSAGE and BEGIN: which records a conversation accepts, and which messages are rejected (protocol.md section 3).

A message is accepted into the queue of its endpoint, bounces to its sender's home, or is discarded. A message that
breaks its contract, or whose body does not conform to its type, is rejected: its conversation fails on both sides. The
receiver decides (behaviour 6). Its owner judges a message once, by the catalog as it knows it then, and records the
verdict in its COMMIT; every fold takes it from there and reads no catalog (protocol.md section 7.8).
"""

from __future__ import annotations

from konverse.dialog.state.endpoint import Endpoint, HeaderPrediction, Record, far_lane
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import RECEIVING, TRANSITIONS, Event, State, next_state
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import COMMIT_FAULT_ENTRIES_MAX
from konverse.schemas.system_messages import Rejected, Rejection, rejected_body
from konverse.schemas.wire.envelope import PREFIX_BYTES, shared
from konverse.schemas.wire.records import FIRST, NAMED, NO_SEQUENCE, RETURNING, Begin, BounceReason, Envelope
from konverse.schemas.wire.varint import LOW_MASK

from .endings import end_endpoint, fail, forget_first_of_home
from .groups import rank
from .heirs import may_open
from .loss import misses
from .replies import (
    answer_cleaned,
    answer_lost,
    answer_no_peer,
    bounce,
    follows_missed_replies,
    is_opened_at_home,
    opener_of,
    other,
    refuse_over,
)
from .timers import begin_lifetime


def on_message(state: Partition, offset: int, header: bytes, envelope: Envelope, record: Record) -> None:
    """MESSAGE: queued at its endpoint, or answered; FIRST makes the target's endpoint."""
    role = other(envelope.role)
    endpoint = state.endpoint(role, envelope.conversation)
    if endpoint is None:
        if role is Role.INITIATOR:
            answer_no_peer(state, envelope)
            return
        endpoint = _open(state, envelope, record)
        if endpoint is None:
            return
    elif envelope.flags & FIRST:
        _open_again(state, envelope, endpoint)
    if endpoint.committed not in RECEIVING:
        first_when_over = envelope.flags & FIRST and (role, envelope.conversation) in state.named.over
        if first_when_over or endpoint.committed is not State.DISCONNECTED_OUTBOUND:
            bounce(state, envelope, record, BounceReason.ENDED)
        elif envelope.flags & RETURNING:
            bounce(state, envelope, record, BounceReason.PEER_ENDED)
        else:
            state.statistics.discarded += 1
        return
    if endpoint.finished is not None and endpoint.finished.peer:
        bounce(state, envelope, record, BounceReason.FINISHED, endpoint)
        return
    if misses(state, endpoint, envelope, record):
        bounce(state, envelope, record, BounceReason.ENDED)
        return
    if follows_missed_replies(endpoint, envelope):
        answer_no_peer(state, envelope)
        return
    why = _rejected(state, endpoint, offset, envelope.suffix.message_type, record[0])
    if why is not None:
        reject(state, endpoint, offset, envelope.suffix.message_type, why)
        return
    _accept(state, endpoint, header, envelope)
    state.enqueue(endpoint, (offset, envelope.suffix.message_type, *record))


def _open(state: Partition, envelope: Envelope, record: Record) -> Endpoint | None:
    """Make the target's endpoint for a FIRST. Answers any other message, or a refused FIRST, and returns None."""
    key, begin = (Role.TARGET, envelope.conversation), envelope.suffix.begin
    if not envelope.flags & FIRST or begin is None:
        bounce(state, envelope, record, BounceReason.NO_ENDPOINT)
        if not answer_cleaned(state, envelope.conversation):
            answer_lost(state, envelope)
        return None
    opener, at_home = opener_of(envelope), is_opened_at_home(envelope)
    if not at_home and not may_open(state, opener):
        bounce(state, envelope, record, BounceReason.WRITER_CLOSED)
        return None
    tombstone = state.tombstones.get(envelope.conversation)
    if tombstone == opener or (at_home and tombstone == envelope.conversation):
        del state.tombstones[envelope.conversation]
        bounce(state, envelope, record, BounceReason.ENDED)
        answer_cleaned(state, envelope.conversation)
        return None
    if key in state.named.over:
        bounce(state, envelope, record, BounceReason.ENDED)
        answer_cleaned(state, envelope.conversation)
        return None
    state.cleaned.pop(envelope.conversation, None)  # the id is in use again
    forget_first_of_home(state, envelope.conversation)
    endpoint = _create_target(state, envelope, begin)
    if envelope.flags & NAMED:
        state.named.begin(key)
    begin_lifetime(state, endpoint, begin.lifetime_ms, record[1])
    if at_home and may_open(state, opener):
        state.remember_tombstone(envelope.conversation, opener)
    return endpoint


def _open_again(state: Partition, envelope: Envelope, endpoint: Endpoint) -> None:
    """Note a FIRST for a living target, of the opener or of another session (M282). It is judged like any message."""
    opener = opener_of(envelope)
    if opener != endpoint.opener:
        state.named.share((endpoint.role, envelope.conversation))
    elif is_opened_at_home(envelope):
        forget_first_of_home(state, envelope.conversation)
    elif state.tombstones.get(envelope.conversation) == opener:
        del state.tombstones[envelope.conversation]


def _rejected(
    state: Partition, endpoint: Endpoint, offset: int, message_type: str, body: bytes | None
) -> Rejection | None:
    """Why a message is rejected; None when it is not. The owner asks its judge; other folds know it from the COMMIT."""
    if state.judge is None:
        return state.rejected.get(offset)
    why = state.judge.verdict(endpoint.terms, endpoint.role, message_type, body)
    return why._replace(fault="") if why is not None and len(state.rejected) >= COMMIT_FAULT_ENTRIES_MAX else why


def _create_target(state: Partition, envelope: Envelope, begin: Begin) -> Endpoint:
    terms = state.terms_of(begin.to_service, begin.from_service, begin.contract)
    endpoint = Endpoint(envelope.conversation, Role.TARGET, State.CONVERSING, terms, state.stream_to(begin.home))
    opener = opener_of(envelope)
    known = state.writers.get(opener)
    endpoint.opener = known.id if known is not None else opener
    endpoint.key = begin.key
    state.add(endpoint)
    rank(state, endpoint)
    return endpoint


def _accept(state: Partition, endpoint: Endpoint, header: bytes, envelope: Envelope) -> None:
    """Count an accepted record on its lane, and predict the next one."""
    state.touch(endpoint)
    numbered = envelope.sequence != NO_SEQUENCE
    if numbered and envelope.sequence != endpoint.received:
        state.statistics.misnumbered += 1
    lane = None
    if endpoint.index in state.moves.arrivals:  # its records are counted at its first address: predict nothing here
        far = far_lane(endpoint, envelope.writer)
        far.last = max(far.last, envelope.counter)
    else:
        lane = _lane_of(state, endpoint, header, envelope)
    endpoint.committed = next_state(TRANSITIONS, endpoint.committed, Event.RECEIVED)
    endpoint.received += 1
    if not endpoint.received & LOW_MASK:
        endpoint.carry()
    state.statistics.accepted += 1
    if lane is not None and lane.prefix:
        suffix = shared(header[len(header) - _suffix_length(header) :])
        lane.expect(envelope.suffix.message_type, suffix, numbered=numbered)
        if state.judge is not None and state.judge.examines(envelope.suffix.message_type):
            state.lanes.pop(lane.prefix, None)


def _lane_of(state: Partition, endpoint: Endpoint, header: bytes, envelope: Envelope) -> HeaderPrediction:
    prefix = b"" if envelope.flags & FIRST else header[:PREFIX_BYTES]  # FIRST comes once: its prefix predicts nothing
    writer = state.writers[envelope.writer]
    lane = next((known for known in endpoint.lanes() if known.writer is writer), None)
    if lane is None:
        lane = endpoint.lane = HeaderPrediction(prefix, writer, endpoint)
    elif lane.prefix != prefix:
        state.lanes.pop(lane.prefix, None)
        lane.prefix = prefix
    if prefix:
        state.lanes[prefix] = lane
    lane.last = max(lane.last, envelope.counter)  # a contested record has no counter of its own
    return lane


def _suffix_length(header: bytes) -> int:
    at = PREFIX_BYTES
    for _ in range(2):
        while header[at] & 0x80:
            at += 1
        at += 1
    return len(header) - at


def on_begin(state: Partition, _offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """BEGIN of a session at the dialog's home: makes the initiator's endpoint, unless it exists or is over."""
    begin = envelope.suffix.begin
    key = Role.INITIATOR, envelope.conversation
    known, over = state.endpoint(*key), state.named.over.get(key)
    if over is not None:
        refuse_over(state, envelope, over)
        return
    if begin is None or known is not None:  # a second BEGIN of a living conversation changes nothing
        if known is not None:
            state.report_end(known)
            if opener_of(envelope) != known.opener:
                state.named.share(key)
        return
    if envelope.flags & NAMED:
        state.named.begin(key)
    endpoint = create_initiator(state, envelope.conversation, begin, opener_of(envelope))
    endpoint.sent = NO_SEQUENCE
    rank(state, endpoint, envelope.sequence)
    begin_lifetime(state, endpoint, begin.lifetime_ms, record[1])


def create_initiator(state: Partition, conversation: bytes, begin: Begin, opener: bytes) -> Endpoint:
    """Make the initiator's endpoint of a conversation that begins here."""
    terms = state.terms_of(begin.from_service, begin.to_service, begin.contract)
    endpoint = Endpoint(conversation, Role.INITIATOR, State.STARTED_OUTBOUND, terms, state.stream_to(begin.target))
    endpoint.opener = opener
    endpoint.key = begin.key
    state.add(endpoint, begin.group)
    return endpoint


def reject(state: Partition, endpoint: Endpoint, offset: int, message_type: str, why: Rejection) -> None:
    """Reject a message: the conversation fails on both sides (behaviours 4, 131 to 133).

    Messages that were accepted before can still be received. A target whose first message is rejected ends at once, and
    its application never sees the conversation.
    """
    state.rejected[offset] = why
    state.statistics.discarded += 1
    body = rejected_body(why, Rejected(message_type, endpoint.conversation, endpoint.role, endpoint.received))
    if endpoint.role is Role.TARGET and not endpoint.received:
        end_endpoint(state, endpoint, body)
    else:
        fail(state, endpoint, offset, body)
