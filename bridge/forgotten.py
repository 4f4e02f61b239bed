"""Which sides of the conversations of a database there are, and which of them somebody has forgotten.

Every partition is folded, because a side is judged together with its peer. Then the ends of the logs are read where
something seems to be forgotten: on what somebody has said or done something lately, he may do so again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from konverse.dialog.clock import NO_TIME
from konverse.dialog.forgotten import Cause, Side, cause_of, explained, side_of
from konverse.dialog.loss import said_of_loss
from konverse.schemas.catalog import KEEP_FOR_EVER, Queue
from konverse.schemas.errors import BadInput
from konverse.schemas.identifiers import Address
from konverse.schemas.records import Role

from .activity import active
from .following import partitions_of
from .kafka import Kafka, LogReader
from .views.listing import Source, View
from .views.looking import Folded, Looking


@dataclass(frozen=True)
class ConversationSide:
    """One side of a conversation, and where it lives."""

    queue: str
    partition: int
    conversation: UUID
    role: str
    """"initiator" or "target"."""
    service: str
    far_service: str
    contract: str
    state: str
    """Two letters, as in `sys.conversation_endpoints`."""
    received: int
    """Messages that have come, EndDialog among them."""
    unread: int
    """What waits to be received, EndDialog, Error and DialogTimer among it."""
    timer: datetime | None
    """When its timer fires; None: it is not set."""
    lifetime: datetime | None
    """When the conversation expires; None: never."""


@dataclass(frozen=True)
class Leaked(ConversationSide):
    """A side that somebody has forgotten: it would stay open for ever."""

    silent_s: float
    """On its conversation nobody has said or done anything for so long, at least."""
    cause: str
    """"end unread", "not ended", "fire and forget", "end not passed on", "peer gone", "never answered" or "silent"."""
    why: str
    """The same as a sentence."""
    remedy: str
    """What to do about it, but ending it."""


class _Found(NamedTuple):
    queue: Queue
    partition: int
    endpoint: int
    """Its index."""
    side: Side
    peer_at: Address
    """Where what it says goes."""


class Sides:
    """All sides of the conversations of these queues, as whoever led their partitions now would find them."""

    def __init__(self, looking: Looking, queues: Iterable[Queue]) -> None:
        """Raises KafkaUnavailable when Kafka is silent, PartitionHalted when the logs contradict themselves."""
        self._found: list[_Found] = []
        self._by_side: dict[tuple[Role, bytes], _Found] = {}
        self._moved: set[tuple[Role, bytes]] = set()
        """Sides that have left a partition: one that is in none is on its way."""
        self._unseen: set[Address] = set()
        """Partitions that were not read to their end."""
        self._losses: dict[Address, str] = {}
        """What is said of partitions that have lost data."""
        self._sources: list[Source] = []
        for place in partitions_of(queues):
            self._add(looking.fold(*place))

    def _add(self, folded: Folded) -> None:
        queue, partition, ahead, _ = folded
        for endpoint in ahead.state.live():
            found = _Found(queue, partition, endpoint.index, side_of(endpoint), endpoint.stream.address)
            self._found.append(found)
            self._by_side[endpoint.role, endpoint.conversation] = found
        self._moved.update(ahead.state.moves.stubs)
        if loss := said_of_loss(ahead.state):
            self._losses[queue.address(partition)] = loss
        if ahead.unseen:
            self._unseen.add(queue.address(partition))
        self._sources.append(folded.source())

    def all(self, queue: Queue | None = None) -> View[ConversationSide]:
        """All of them, or those of one queue."""
        wanted = [one for one in self._found if queue is None or one.queue.name == queue.name]
        return View([ConversationSide(*_told(one)) for one in wanted], self._sources)

    def leaked(self, kafka: Kafka, now_ms: int, older_than_s: float, queue: Queue | None = None) -> View[Leaked]:
        """Those that somebody has forgotten, of one queue or of all; `now_ms` is Kafka's time, as that of records is.

        What lives where more waits than a view reads, or talks to there, is not judged.
        """
        _check_kept({one.queue.name: one.queue for one in self._found}.values(), older_than_s)
        since_ms = round(now_ms - older_than_s * 1000)
        suspects = {one.side.conversation: None for one, _ in self._suspects(since_ms)}
        silent = self._silent(kafka, [*suspects], since_ms) if suspects else set[bytes]()
        rows = [
            Leaked(*_told(one), older_than_s, cause.value, *self._explained(one, cause))
            for one, cause in self._suspects(since_ms)
            if one.side.conversation in silent and (queue is None or one.queue.name == queue.name)
        ]
        return View(rows, self._sources)

    def _explained(self, one: _Found, cause: Cause) -> tuple[str, str]:
        """Why it is forgotten, and what to do; where the other side is nowhere, also what its partition has lost."""
        why, remedy = explained(one.side, cause)
        loss = self._losses.get(one.peer_at) if self._peer(one) is None else None
        return f"{why} {loss}" if loss else why, remedy

    def _suspects(self, since_ms: int) -> Iterator[tuple[_Found, Cause]]:
        """Sides that are forgotten if their conversation is silent."""
        for one in self._found:
            peer = self._peer(one)
            if peer is None and self._other(one) in self._moved:
                continue
            known = self._unseen.isdisjoint((one.queue.address(one.partition), one.peer_at))
            cause = cause_of(one.side, None if peer is None else peer.side)
            if known and cause is not None and one.side.newest_ms < since_ms:
                yield one, cause

    def _silent(self, kafka: Kafka, suspects: list[bytes], since_ms: int) -> set[bytes]:
        """Those of these conversations of which no record tells that came since then, wherever their sides live."""
        silent = set(suspects)
        places: dict[tuple[str, int], list[_Found]] = {}
        for one in self._found:
            if one.side.conversation in silent:
                places.setdefault((one.queue.name, one.partition), []).append(one)
        with closing(LogReader(kafka)) as reader:
            for (_, partition), found in places.items():
                here, queue = {one.endpoint: one.side.conversation for one in found}, found[0].queue
                for conversations in active(reader, queue, partition, here, since_ms):
                    silent -= conversations
                    if silent.isdisjoint(here.values()):
                        break
        return silent

    def _peer(self, one: _Found) -> _Found | None:
        return self._by_side.get(self._other(one))

    @staticmethod
    def _other(one: _Found) -> tuple[Role, bytes]:
        return Role.TARGET if one.side.role is Role.INITIATOR else Role.INITIATOR, one.side.conversation


def _check_kept(queues: Iterable[Queue], older_than_s: float) -> None:
    """Raise BadInput for a time before which the logs were deleted: who was silent then cannot be known."""
    for queue in queues:
        if queue.keep_ms != KEEP_FOR_EVER and older_than_s * 1000 > queue.keep_ms:
            raise BadInput(
                f"queue {queue.name!r} keeps what was received for {queue.keep_ms / 1000:,.0f} s; of what was before "
                f"that nobody knows, so ask for less than {older_than_s:,.0f} s"
            )


def _told(one: _Found) -> tuple[str, int, UUID, str, str, str, str, str, int, int, datetime | None, datetime | None]:
    side = one.side
    return (
        one.queue.name,
        one.partition,
        UUID(bytes=side.conversation),
        side.role.name.lower(),
        side.service,
        side.far_service,
        side.contract,
        side.state.code,
        side.received,
        side.unread + side.end_waits,
        _time(side.timer_ms),
        _time(side.expires_ms),
    )


def _time(time_ms: int) -> datetime | None:
    return None if time_ms == NO_TIME else datetime.fromtimestamp(time_ms / 1000, UTC)
