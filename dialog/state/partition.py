"""The state of one queue partition: what a fold of its journal and data log comes to.

Plain data and the few moves that keep it whole. `ingest` changes it by data records, `apply` by commits; nothing else
does. It holds no clock and does no I/O; records are kept as the driver gave them and never looked into.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING, NamedTuple, Protocol

from konverse.schemas.groups import founders, own_group
from konverse.schemas.identifiers import Address, LogIdentity, Role, incarnation_tag, owner_writer
from konverse.schemas.limits import ANSWER_ENTRIES_MAX, CLEANED_ENTRIES_MAX, TOMBSTONES_MAX
from konverse.schemas.system_messages import Rejection
from konverse.schemas.wire.records import Begin, Notice, NoticeReason, WriterClosed

from .attempts import Attempts
from .batches import Judgement, PendingRows
from .clocks import Clocks
from .endpoint import Endpoint, Entry, Group, Lane, Terms
from .mailbox import Bounced, Mailbox
from .named import NamedSides
from .outbox import Gate, Stream, Suffixes
from .recent import Recent
from .relocations import Moves, tell_closed
from .transitions import State
from .writer import Writer

if TYPE_CHECKING:
    from .ready import Ready


@dataclass(slots=True)
class Statistics:
    """What was not accepted, counted. Part of no promise; every fold of one prefix counts the same."""

    accepted: int = 0
    duplicates: int = 0
    gaps: int = 0
    malformed: int = 0
    foreign: int = 0
    """Records without our header, or meant for another incarnation."""
    bounced: int = 0
    discarded: int = 0
    """Messages for a side that had ended (behaviour 110)."""
    misnumbered: int = 0
    """Messages whose sender's number differs from the derived one, which rules."""
    undeliverable: int = 0
    """Answers that had nowhere to go."""
    void: int = 0
    """Rows of attempts that did not win, or of a batch that was decided before."""
    missing: int = 0
    """Rows that won and are not here: nothing of their batch was accepted."""
    strays: int = 0
    """Records of targets whose initiator does not live here: answered by NO_PEER."""
    strangers: int = 0
    """Records of writers that are not known and may not become so: too old, or ahead of time."""
    forwarded: int = 0
    """Records for endpoints that have moved away."""
    lost: int = 0
    """Data records that were deleted before they were ingested."""
    forged: int = 0
    """Records with the writer and counter of another one, and other content; each is a message of its own."""


class Cleaned(NamedTuple):
    """What is kept of a target that was ended WITH CLEANUP."""

    home: Address
    """Where its initiator is told."""
    at_ms: int
    """When it was, by the partition's time."""


class Partition:
    """Endpoints, writers and outbox of one partition of one incarnation."""

    on_peer_end: Callable[[Partition, Endpoint], None] | None = None
    """Told of each endpoint whose peer has ended, while this process leads the partition."""

    on_answer: Callable[[Notice | WriterClosed | Bounced], None] | None = None
    """Told of what comes here for sessions, likewise."""

    def __init__(self, identity: LogIdentity) -> None:
        self.identity = identity
        self.address = Address(identity.data_topic, identity.partition, incarnation_tag(identity.incarnation))
        self.writer_id = owner_writer(identity.incarnation, identity.partition)
        self.ingest_to = 0
        """Data offset below which everything was ingested."""
        self.now_ms = 0
        """Time by which data records are judged: that of the journal behind the commit before the last one."""
        self.lost_from = self.lost_to = 0
        """Start and end of the data that was lost last; 0 and 0: nothing ever was."""
        self.floor_ms = 0
        """Closed writers that are older were forgotten."""
        self.writers: dict[bytes, Writer] = {}
        self.lanes: dict[bytes, Lane] = {}
        self.sides: tuple[dict[bytes, Endpoint], dict[bytes, Endpoint]] = ({}, {})
        """Endpoints by conversation, one table per role of this side."""
        self.table: list[Endpoint | None] = []
        """Endpoints by index, the short name that journal records use."""
        self.free: list[int] = []
        self.groups: dict[bytes, Group] = {}
        self.beginning: dict[int, Begin] = {}
        """Conversations begun by a commit of ours that have sent nothing yet: their first output carries FIRST."""
        self.terms: dict[tuple[str, str, str], Terms] = {}
        self.streams: dict[Address, Stream] = {}
        self.gated: list[Stream] = []
        """Streams whose outputs wait for another destination."""
        self.tombstones: dict[bytes, bytes] = {}
        """Conversations that ended before their FIRST came, with their opener (protocol.md section 3, END)."""
        self.cleaned: dict[bytes, Cleaned] = {}
        """Targets that were ended WITH CLEANUP, by conversation, until their initiator is told or ends itself."""
        self.named = NamedSides()
        self.clocks = Clocks()
        """Timers and lifetimes of the endpoints."""
        self.attempts = Attempts()
        """Which groups failed, and which may have killed their process."""
        self.pending = PendingRows()
        """Rows of queries that write in batches, until their batch is decided."""
        self.judgements: dict[bytes, Judgement] = {}
        """Queries whose batches are decided here."""
        self.mailbox = Mailbox()
        """Bounced messages of sessions whose home is here, until they are confirmed or redirected."""
        self.suffixes = (Suffixes(None), Suffixes(self.address))
        """Of the messages of initiators and of targets. Not state."""
        self.noticed: dict[bytes, int] = {}
        """Writers that were told of a gap, at this counter, or of another reason, which is below 0."""
        self.answers: dict[tuple[bytes, Address], Notice | WriterClosed] = {}
        """What partitions have said of the writers of sessions whose home is here."""
        self.moves = Moves()  # endpoints that moved away or here
        self.statistics = Statistics()
        self.recent = Recent()  # not state
        self.unread = self.unread_bytes = 0
        """Messages that wait in the queues of all endpoints, and bytes of their bodies: the owner's look-ahead."""
        self.endings = 0
        """How often an endpoint was ended here: whoever staged something before must look again."""
        self.ready: Ready = deque()
        """Endpoints that got something to receive since the owner looked. Not state: a hint."""
        self.unsaid: list[Endpoint] = []
        """Endpoints whose level the next commit says. Not state."""
        self.changed: list[Endpoint] = []
        """Endpoints that the view has to learn. Not state."""
        self.forgotten: list[Endpoint] = []
        """Endpoints that the view has to delete. Not state."""
        self.rejected: dict[int, Rejection] = {}
        """Offsets of messages that are rejected, and why: those that the commit being folded names, or the next one."""
        self.judge: Judge | None = None
        """Asked about messages while this process owns the partition. Not state."""
        self.on_touch: Callable[[Endpoint], None] | None = None
        """Told of each endpoint before it changes, while a snapshot is made."""

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
        """What is sent to `stream` from now on leaves after everything that was sent to `behind` so far (`after`)."""
        if behind is stream or behind.acked == behind.next:
            return
        if not stream.gates:
            self.gated.append(stream)
        stream.gates.append(Gate(stream.next, behind.address, behind.next))

    @property
    def waiting(self) -> int:
        """Outputs that have not arrived, as far as the journal says."""
        return sum(stream.waiting for stream in self.streams.values())

    def open_gates(self) -> None:
        """Let go what waited for outputs that the journal says were acknowledged."""
        streams = self.streams
        for stream in self.gated:
            while stream.gates and streams[stream.gates[0].to].acked >= stream.gates[0].after:
                stream.gates.popleft()
        self.gated = [stream for stream in self.gated if stream.gates]

    def add(self, endpoint: Endpoint, group: bytes | None = None) -> None:
        """Make an endpoint known, alone or in `group`."""
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
        """From one group to another, which may be the one that is its own."""
        self.touch(endpoint)
        self._leave(endpoint)
        endpoint.group = None
        self._put(endpoint, group)

    def move_away(self, endpoint: Endpoint, group: bytes, to: Address) -> None:
        """From one group to another that lives elsewhere: whoever is in it here goes there."""
        self.touch(endpoint)
        self._leave(endpoint)
        endpoint.group = None
        self._join(endpoint, group)
        self.moves.leaving[group] = to

    def members(self, group: bytes) -> list[Endpoint]:
        """The endpoints of a conversation group that live here: several, or the only one, which has founded it."""
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
        """Put an endpoint into a group; the conversation whose id is the group's belongs to it when it lives here."""
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
        """Drop an endpoint that ended and whose peer ended."""
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
            stream = self.stream_to(arrival.previous)
            tell_closed(stream, endpoint.role, endpoint.conversation, arrival.generation - 1)

    def _leave_terms(self, terms: Terms) -> None:
        """Else names that are never used again would stay for ever, and be looked up in the catalog."""
        terms.uses -= 1
        names = (terms.service, terms.far_service, terms.contract)
        if not terms.uses and self.terms.get(names) is terms:
            del self.terms[names]

    def enqueue(self, endpoint: Endpoint, entry: Entry) -> None:
        """Put a message behind those that wait."""
        if endpoint.queue:
            endpoint.queue.append(entry)
        else:
            endpoint.queue = [entry]
            self.ready.append(endpoint)
        self.unread += 1
        self.unread_bytes += len(entry[2] or b"")

    def shut(self, endpoint: Endpoint) -> None:
        """Predict nothing for an endpoint: every further record is judged in full."""
        for lane in endpoint.lanes():
            self.lanes.pop(lane.prefix, None)

    def touch(self, endpoint: Endpoint) -> None:
        """The endpoint will change: the view has to learn of it, and a snapshot of how it was."""
        if not endpoint.changed:
            endpoint.changed = True
            self.changed.append(endpoint)
            if self.on_touch is not None:
                self.on_touch(endpoint)

    def tell_end(self, endpoint: Endpoint) -> None:
        """The sender of this side hears that its peer has ended, if so: received or not, nothing more may be sent."""
        if self.on_peer_end is not None and endpoint.committed in (State.DISCONNECTED_INBOUND, State.ERROR):
            self.on_peer_end(self, endpoint)

    def judged_by(self, judge: Judge | None) -> None:
        """From here on this process decides what is rejected or contested, and nothing is predicted unasked."""
        self.judge = judge
        self.recent.decides = True
        self.lanes.clear()

    def look_away(self) -> None:
        """Nobody has to be told of what changed so far, and nobody receives: what follows is news again."""
        for endpoint in self.changed:
            endpoint.changed = False
        self.changed = []
        self.forgotten = []
        self.ready.clear()

    def endpoint(self, role: Role, conversation: bytes) -> Endpoint | None:
        """The endpoint of this side, when it lives here."""
        return self.sides[role].get(conversation)

    def live(self) -> list[Endpoint]:
        """All endpoints, in order of their index."""
        return [endpoint for endpoint in self.table if endpoint is not None]

    def remember_tombstone(self, conversation: bytes, opener: bytes) -> None:
        """Refuse this conversation's FIRST when it comes; the oldest goes when there are too many."""
        if len(self.tombstones) >= TOMBSTONES_MAX:
            del self.tombstones[next(iter(self.tombstones))]
        self.tombstones[conversation] = opener

    def remember_cleaned(self, conversation: bytes, home: Address) -> None:
        """Tell the initiator when it says something; the oldest goes when there are too many."""
        if len(self.cleaned) >= CLEANED_ENTRIES_MAX:
            del self.cleaned[next(iter(self.cleaned))]
        self.cleaned[conversation] = Cleaned(home, self.now_ms)

    def keep_answer(self, said: Notice | WriterClosed) -> None:
        """Keep what a partition says of a session's writer; a gap is news only while nothing else is known.

        So is that a stranger writes in its name, with which a session goes on; a gap behind that is news.
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
            self.recent.hear(said)
        if self.on_answer is not None:
            self.on_answer(said)


class Judge(Protocol):
    """What an owner asks about the messages that it ingests, and the conversations that begin with them."""

    def verdict(self, terms: Terms, role: Role, message_type: str, body: bytes | None, /) -> Rejection | None:
        """Why the side `role` may not receive this; None when it may."""

    def level(self, contract: str, local_service: str, remote_service: str, /) -> int:
        """The priority of a side that begins (behaviours 216, 217)."""

    def examines(self, message_type: str, /) -> bool:
        """Whether the verdict depends on the body: else a message like the one before it is not asked about again."""


def indices(state: Partition) -> Iterator[int]:
    """The indices that endpoints get which are added next (`Partition.add`)."""
    return chain(reversed(state.free), count(len(state.table)))
