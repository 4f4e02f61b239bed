"""The state of one queue partition: the result of folding its journal and its data log.

Plain data, and the few operations that keep its tables consistent. Only the fold changes a `Partition`: by data records
(`ingest`), COMMITs (`apply`) and CLAIMs (`claimed`). This module reads no clock and does no I/O. Bodies and stamps are
kept as the driver passed them and are never interpreted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from konverse.schemas.errors import WAY_ON, PartitionHalted
from konverse.schemas.groups import founders, own_group
from konverse.schemas.identifiers import Address, LogIdentity, Role, incarnation_tag, owner_writer
from konverse.schemas.limits import ANSWER_ENTRIES_MAX, CLEANED_ENTRIES_MAX, TOMBSTONES_MAX
from konverse.schemas.system_messages import Rejection
from konverse.schemas.wire.records import Begin, Closed, Notice, NoticeReason, WriterClosed

from .attempts import Attempts
from .batches import Judgement, PendingRows
from .clocks import Clocks
from .endpoint import Endpoint, Entry, Group, HeaderPrediction, Terms
from .mailbox import Bounced, Mailbox
from .named import NamedSides
from .outbox import Gate, Stream, Suffixes
from .recent import Recent
from .relocations import Arrival, Moves, tell_closed
from .transitions import State
from .writer import Writer

if TYPE_CHECKING:
    from .ready import Ready


@dataclass(slots=True)
class Statistics:
    """Counters of records that were not accepted or were odd.

    No promise rests on them, but every fold of the same logs counts the same.
    """

    accepted: int = 0
    duplicates: int = 0
    gaps: int = 0
    malformed: int = 0
    foreign: int = 0
    """Records without our header, or addressed to another incarnation."""
    bounced: int = 0
    discarded: int = 0
    """Messages for a side that had ended (110), unread messages of a side that ends (109), and rejected messages."""
    misnumbered: int = 0
    """Messages whose sequence number differs from the derived one. The derived one is used."""
    undeliverable: int = 0
    """Answers without a destination, records without an effect, and messages dropped from a full mailbox."""
    void: int = 0
    """Rows of attempts that lost, or of a batch that was decided before."""
    missing: int = 0
    """Rows of winning attempts that never arrived: nothing of their batch was accepted."""
    strays: int = 0
    """Records of targets whose initiator does not live here: answered by NO_PEER."""
    strangers: int = 0
    """Records of unknown writers whose id is older than the floor or too far in the future."""
    forwarded: int = 0
    """Records for endpoints that have moved away."""
    lost: int = 0
    """Data records that were deleted before they were ingested, or that Kafka lost after it had acknowledged them."""
    forged: int = 0
    """Records with the writer and counter of another record but other content; each is accepted as a message."""


class Cleaned(NamedTuple):
    """A target that was ended WITH CLEANUP."""

    home: Address
    """Partition of its initiator."""
    at_ms: int
    """When it was cleaned up, by the partition's time."""


_PEER_IS_OVER: Final = (State.DISCONNECTED_INBOUND, State.ERROR, State.CLOSED)


class Partition:
    """State of one partition of one incarnation of a queue."""

    on_peer_end: Callable[[Partition, Endpoint], None] | None = None
    """Called for each endpoint whose peer has ended, and for one that is cleaned up, while this process leads the
    partition. Not state."""

    on_answer: Callable[[Notice | WriterClosed | Bounced], None] | None = None
    """Called for each answer that arrives here for a session, while this process leads the partition. Not state."""

    def __init__(self, identity: LogIdentity) -> None:
        self.identity = identity
        self.address = Address(identity.data_topic, identity.partition, incarnation_tag(identity.incarnation))
        self.writer_id = owner_writer(identity.incarnation, identity.partition)
        self.ingest_to = 0
        """Data offset below which everything was ingested."""
        self.now_ms = 0
        """Time by which data records are judged: that of the journal before the last commit (M117)."""
        self.lost_from = self.lost_to = 0
        """Start and end of the data range that was lost last; 0 and 0 when none ever was."""
        self.floor_ms = 0
        """Floor of the last PRUNE: closed writers older than this were forgotten."""
        self.writers: dict[bytes, Writer] = {}
        self.lanes: dict[bytes, HeaderPrediction] = {}
        self.sides: tuple[dict[bytes, Endpoint], dict[bytes, Endpoint]] = ({}, {})
        """Endpoints by conversation, one table per role of this side."""
        self.table: list[Endpoint | None] = []
        """Endpoints by index, the short name that journal records use."""
        self.free: list[int] = []
        self.groups: dict[bytes, Group] = {}
        self.beginning: dict[int, Begin] = {}
        """Index -> BEGIN of a conversation that a commit began and that has sent nothing: its first output is FIRST."""
        self.terms: dict[tuple[str, str, str], Terms] = {}
        self.streams: dict[Address, Stream] = {}
        self.gated: list[Stream] = []
        """Streams with outputs that wait for another destination."""
        self.tombstones: dict[bytes, bytes] = {}
        """Conversation -> opener whose FIRST creates no target (protocol.md section 3, END). If the value is the
        conversation's own id, the FIRST of its home creates none (M289)."""
        self.cleaned: dict[bytes, Cleaned] = {}
        """Targets that were ended WITH CLEANUP, by conversation, until their initiator is notified or ends."""
        self.named = NamedSides()
        self.clocks = Clocks()
        """Timers and lifetimes of the endpoints."""
        self.attempts = Attempts()
        """Groups that failed, and groups that may have killed their process."""
        self.pending = PendingRows()
        """Rows of queries that write in batches, until their batch is decided."""
        self.judgements: dict[bytes, Judgement] = {}
        """Query -> decisions about its batches, if this partition makes them."""
        self.mailbox = Mailbox()
        """Bounced messages of sessions whose home is here, until they are confirmed or redirected."""
        self.suffixes = (Suffixes(None), Suffixes(self.address))
        """Header endings of the messages of initiators and of targets. Not state."""
        self.noticed: dict[bytes, int] = {}
        """Writer -> the last NOTICE sent to it: the counter expected at a gap, or (below 0) the negated reason, or
        `rules.writers.NO_NOTICE`."""
        self.answers: dict[tuple[bytes, Address], Notice | WriterClosed] = {}
        """(Writer, partition) -> last answer of that partition about the writer, a session whose home is here."""
        self.moves = Moves()  # endpoints that moved away or here
        self.statistics = Statistics()
        self.recent = Recent()  # not state
        self.unread = self.unread_bytes = 0
        """Waiting messages of all endpoints, and bytes of their bodies: both count against the owner's look-ahead."""
        self.endings = 0
        """Number of endings here: an owner checks its staged work again when this has changed."""
        self.ready: Ready = deque()
        """Endpoints that received something since the owner looked: a hint. Not state."""
        self.unsaid: list[Endpoint] = []
        """Endpoints whose level the next commit has to record. Not state."""
        self.changed: list[Endpoint] = []
        """Endpoints whose row in the view is stale. Not state."""
        self.forgotten: list[Endpoint] = []
        """Endpoints whose row in the view has to be deleted. Not state."""
        self.rejected: dict[int, Rejection] = {}
        """Offset -> why that message is rejected. The commit that is being folded says so, or the next one will."""
        self.judge: AdmissionPolicy | None = None
        """Judges messages while this process owns the partition. Not state."""
        self.on_touch: Callable[[Endpoint], None] | None = None
        """Called for each endpoint before it changes, while a snapshot is being made."""

    # -------------------------------------------------------------------------------------------------- endpoints

    def terms_of(self, service: str, far_service: str, contract: str) -> Terms:
        """The shared Terms object of these three names, for an endpoint that is added next."""
        names = (service, far_service, contract)
        terms = self.terms.get(names)
        if terms is None:
            terms = self.terms[names] = Terms(*names)
        return terms

    def stream_to(self, address: Address) -> Stream:
        """The stream of outputs for a destination partition."""
        stream = self.streams.get(address)
        if stream is None:
            stream = self.streams[address] = Stream(address, self.writer_id)
        return stream

    def hold(self, stream: Stream, behind: Stream) -> None:
        """Gate `stream`: its later outputs leave after everything pushed to `behind` so far (protocol.md, `after`)."""
        if behind is stream or behind.acked == behind.next:
            return
        if not stream.gates:
            self.gated.append(stream)
        stream.gates.append(Gate(stream.next, behind.address, behind.next))

    @property
    def waiting(self) -> int:
        """Number of outputs whose arrival the journal does not record yet."""
        return sum(stream.waiting for stream in self.streams.values())

    def open_gates(self) -> None:
        """Remove the gates whose outputs have arrived according to the journal."""
        streams = self.streams
        for stream in self.gated:
            while stream.gates and streams[stream.gates[0].to].acked >= stream.gates[0].after:
                stream.gates.popleft()
        self.gated = [stream for stream in self.gated if stream.gates]

    def add(self, endpoint: Endpoint, group: bytes | None = None) -> None:
        """Add an endpoint to the tables, alone or in `group`."""
        if self.free:
            endpoint.index = self.free.pop()
            self.table[endpoint.index] = endpoint
        else:
            endpoint.index = len(self.table)
            self.table.append(endpoint)
        self.sides[endpoint.role][endpoint.conversation] = endpoint
        endpoint.terms.uses += 1
        self._put(endpoint, group)
        self.touch(endpoint)

    def move(self, endpoint: Endpoint, group: bytes) -> None:
        """Move an endpoint to another group, which may be its own."""
        self.touch(endpoint)
        self._leave(endpoint)
        endpoint.group = None
        self._put(endpoint, group)

    def move_away(self, endpoint: Endpoint, group: bytes, to: Address) -> None:
        """Move an endpoint to a group of another partition: all members of that group here will go there."""
        self.touch(endpoint)
        self._leave(endpoint)
        endpoint.group = None
        self._join(endpoint, group)
        self.moves.leaving[group] = to

    def members(self, group: bytes) -> list[Endpoint]:
        """Endpoints of a conversation group that live here: its members, or the one endpoint whose own group it is."""
        if group in self.groups:
            return self.groups[group].members
        found = [self.sides[role].get(conversation) for role, conversation in founders(group)]
        return [endpoint for endpoint in found if endpoint is not None and endpoint.group is None]

    def _put(self, endpoint: Endpoint, group: bytes | None) -> None:
        own = own_group(endpoint.role, endpoint.conversation)
        group = group or own
        if group != own or group in self.groups:
            self._join(endpoint, group)

    def _leave(self, endpoint: Endpoint) -> None:
        if endpoint.group:
            endpoint.group.members.remove(endpoint)
            if not endpoint.group.members:
                del self.groups[endpoint.group.id]
                self.moves.leaving.pop(endpoint.group.id, None)

    def _join(self, endpoint: Endpoint, group: bytes) -> None:
        """Put an endpoint into a group; a founder (an endpoint whose own group it is) joins too, if it lives here."""
        shared = self.groups.get(group)
        if shared is None:
            shared = self.groups[group] = Group(group)
            for role, conversation in founders(group):
                founder = self.sides[role].get(conversation)
                if founder is not None and founder is not endpoint and founder.group is None:
                    founder.group = shared
                    shared.members.append(founder)
        endpoint.group = shared
        trouble = next((member.trouble for member in shared.members if member.suspended), None)
        if trouble is not None:
            self.attempts.suspend(endpoint, trouble.reason, trouble.since_ms)
        endpoint.held = bool(shared.members) and shared.members[0].held  # a group is locked as one
        shared.members.append(endpoint)

    def forget(self, endpoint: Endpoint) -> None:
        """Drop an endpoint that is over or moves away, and reuse its index."""
        del self.sides[endpoint.role][endpoint.conversation]
        self.table[endpoint.index] = None
        self.free.append(endpoint.index)
        self._leave_terms(endpoint.terms)
        self.beginning.pop(endpoint.index, None)
        self.shut(endpoint)
        endpoint.clock = None
        self.attempts.forget(endpoint)
        for lane in endpoint.lanes():
            lane.writer.lanes -= 1
        self._leave(endpoint)
        self.forgotten.append(endpoint)
        arrival = self.moves.arrivals.pop(endpoint.index, None)
        if arrival is not None:
            self._tell_previous(endpoint, arrival)

    def is_named(self, endpoint: Endpoint) -> bool:
        """Whether the caller chose the conversation id: noted in `named` where the side began, then in its Arrival."""
        arrival = self.moves.arrivals.get(endpoint.index)
        named = (endpoint.role, endpoint.conversation) in self.named.living
        return named or (arrival is not None and arrival.named)

    def _tell_previous(self, endpoint: Endpoint, arrival: Arrival) -> None:
        """Send CLOSED to the previous place.

        For a target, CLOSED carries the facts that the first place must remember, because senders write there (M148).
        """
        conversation, closed = endpoint.conversation, Closed(arrival.generation - 1)
        if endpoint.role is Role.TARGET:
            cleaned = self.cleaned.get(conversation)
            awaits_home = self.tombstones.get(conversation) == conversation
            if awaits_home:  # a FIRST of home is judged at the first place alone
                del self.tombstones[conversation]
            closed = closed._replace(cleaned=cleaned and cleaned.home, awaits_home=awaits_home)
        tell_closed(self.stream_to(arrival.previous), endpoint.role, conversation, closed)

    def _leave_terms(self, terms: Terms) -> None:
        """Drop Terms that no endpoint uses. Otherwise they accumulate, and an owner looks them up in the catalog."""
        terms.uses -= 1
        names = (terms.service, terms.far_service, terms.contract)
        if not terms.uses and self.terms.get(names) is terms:
            del self.terms[names]

    def enqueue(self, endpoint: Endpoint, entry: Entry) -> None:
        """Append a message to the endpoint's queue."""
        if endpoint.queue:
            endpoint.queue.append(entry)
        else:
            endpoint.queue = [entry]
            self.ready.append(endpoint)
        self.unread += 1
        self.unread_bytes += len(entry[2] or b"")

    def shut(self, endpoint: Endpoint) -> None:
        """Drop all predictions for an endpoint: each further record is judged in full."""
        for lane in endpoint.lanes():
            self.lanes.pop(lane.prefix, None)

    def touch(self, endpoint: Endpoint) -> None:
        """Call before an endpoint changes: marks its row in the view as stale, and has a snapshot under way copy it."""
        if not endpoint.changed:
            endpoint.changed = True
            self.changed.append(endpoint)
            if self.on_touch is not None:
                self.on_touch(endpoint)

    def report_end(self, endpoint: Endpoint) -> None:
        """Notify the local session if the peer has ended: nothing more may be sent, even before a handler knows it."""
        if self.on_peer_end is not None and endpoint.committed in _PEER_IS_OVER:
            self.on_peer_end(self, endpoint)

    def judged_by(self, judge: AdmissionPolicy | None) -> None:
        """Start to judge records as the leader: `judge` rejects messages, and contested records are detected.

        Predictions made before are dropped: they could accept a message that has to be judged.
        """
        self.judge = judge
        self.recent.decides = True
        self.lanes.clear()

    def discard_hints(self) -> None:
        """Discard pending hints and view changes: no owner delivers from this state yet, and no view shows it."""
        for endpoint in self.changed:
            endpoint.changed = False
        self.changed = []
        self.forgotten = []
        self.ready.clear()

    def endpoint(self, role: Role, conversation: bytes) -> Endpoint | None:
        """The endpoint of this side of the conversation; None when it does not live here."""
        return self.sides[role].get(conversation)

    def at(self, index: int, does: str = "names") -> Endpoint:
        """The endpoint with the index that a commit names. Raises PartitionHalted when none has it.

        `does` is for the error: a verb for the commit's operation on the endpoint.
        """
        endpoint = self.table[index] if 0 <= index < len(self.table) else None
        if endpoint is None:
            raise PartitionHalted(
                f"a commit of {self.identity.data_topic}/{self.identity.partition} {does} endpoint {index}, which "
                f"does not exist: the journal or the data log was changed or cut. {WAY_ON}"
            )
        return endpoint

    def find(self, index: int) -> Endpoint | None:
        """The endpoint with the index that a commit names; None when it is over already."""
        return self.table[index] if 0 <= index < len(self.table) else None

    def live(self) -> list[Endpoint]:
        """All endpoints, in order of their index."""
        return [endpoint for endpoint in self.table if endpoint is not None]

    def remember_tombstone(self, conversation: bytes, opener: bytes) -> None:
        """Remember to refuse the FIRST of this conversation. When the table is full, the oldest entry is dropped."""
        if len(self.tombstones) >= TOMBSTONES_MAX:
            del self.tombstones[next(iter(self.tombstones))]
        self.tombstones[conversation] = opener

    def remember_cleaned(self, conversation: bytes, home: Address) -> None:
        """Remember to notify the initiator when it sends again. When the table is full, the oldest entry is dropped."""
        if len(self.cleaned) >= CLEANED_ENTRIES_MAX:
            del self.cleaned[next(iter(self.cleaned))]
        self.cleaned[conversation] = Cleaned(home, self.now_ms)

    def keep_answer(self, said: Notice | WriterClosed) -> None:
        """Keep an answer about a session's writer.

        A mild notice (GAP, FORGED) never replaces another answer, except a FORGED one: the session continues after a
        forgery, so a later gap is news.
        """
        key = (said.writer, said.at)
        known = self.answers.get(key)
        is_mild = isinstance(said, Notice) and said.reason in (NoticeReason.GAP, NoticeReason.FORGED)
        if is_mild and known is not None and getattr(known, "reason", None) is not NoticeReason.FORGED:
            return
        self.answers.pop(key, None)
        if len(self.answers) >= ANSWER_ENTRIES_MAX:
            del self.answers[next(iter(self.answers))]
        self.answers[key] = said
        if isinstance(said, Notice) and said.reason is NoticeReason.FORGED:
            self.recent.note(said)
        if self.on_answer is not None:
            self.on_answer(said)


class AdmissionPolicy(Protocol):
    """Decides about messages that an owner ingests, and about the priority of conversations that begin."""

    def verdict(self, terms: Terms, role: Role, message_type: str, body: bytes | None, /) -> Rejection | None:
        """Why the side `role` may not receive this message; None when it may."""

    def level(self, contract: str, local_service: str, remote_service: str, /) -> int:
        """The priority level of a side that begins (behaviours 216, 217)."""

    def examines(self, message_type: str, /) -> bool:
        """Whether the verdict depends on the body. If not, a message like the one before it is not judged again."""


def indices(state: Partition) -> Iterator[int]:
    """The indices that the next added endpoints will get (`Partition.add`)."""
    return chain(reversed(state.free), count(len(state.table)))
