"""A pool of conversations: which one each key has, when it is recycled, and what follows when its target ends it early.

Source: Service Broker's pattern of reused and recycled conversations (behaviours 224 to 229), protocol.md section 6.

Two rules. A place (a key, a session, or one of n) has at most one open conversation, and all its conversations are in
one conversation group. So they have one home, which can send on one conversation the messages that came back from
another. And bounced messages go first: when a conversation ended while it was in use, the place sends nothing new until
each of its messages has a verdict (it was received, or has come back), or POOL_VERDICT_MS_MAX is over.

    OPEN      takes messages
    CLOSING   EndOfStream and FIN were sent; the target ends it, then this side. If its timer may have fired before,
              home may have sent FIN earlier, and messages sent since come back: the place waits for these, too
    BROKEN    the target has ended or failed it; undelivered messages come back, then this side ends it
    OVER      this side has ended it, or its home does not know it any more

Resending (`in_order`). Messages that came back from one conversation are redirected to the next. That one may end too,
before home has ingested every REDIRECT. Then the messages not yet redirected are in the mailbox in front of the
redirected ones, which come back later. They were sent in another order: first the redirected messages, then those not
yet redirected, and last the messages that the next conversation got from its own session.

Redirection. A target that redirects a conversation sends a note that names another target, and gives all messages back
(behaviour 233). From then on the place sends to that target, for as long as one conversation may be used
(`max_age_ms`). Then it tries the pool's own service again.

Nothing here waits, and nothing here is thread-safe: events are calls, `now_ms` is an argument, effects are returned.
Drivers: `bridge.client.pool` and the simulator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Final

from konverse.dialog.state.mailbox import Bounced
from konverse.schemas.counting import counted
from konverse.schemas.errors import KonverseError, QueueFull
from konverse.schemas.identifiers import mark_of
from konverse.schemas.limits import (
    POOL_ASTRAY_MS,
    POOL_CLOSING_ENTRIES_MAX,
    POOL_EVICTED_ENTRIES,
    POOL_KEY_ENTRIES_MAX,
    POOL_VERDICT_MS_MAX,
)
from konverse.schemas.wire.records import BounceReason

from .places import (
    AskVerdict,
    Drop,
    Effect,
    EndSide,
    Forget,
    GiveUp,
    HomeSide,
    MakeRoom,
    Pooled,
    PoolPlace,
    PoolStatistics,
    Recycle,
    Resend,
    Stage,
    StageEvent,
    Stray,
    Way,
    keep_latest,
)
from .recycling import RESENT

NEVER_MS: Final = 2**62
Follow = Callable[[Way, bytes], Way]
"""`follow(way, note)`: the way, extended by the note's target. Raises KonverseError when that cannot be followed."""


class PoolState:
    """The places of one pool."""

    def __init__(self, *, max_age_ms: int, timer_ms: int | None, end_of_stream: str, follow: Follow) -> None:
        """`timer_ms`: timer of each conversation at its home, if its sender does not recycle it; None: no timer."""
        self.max_age_ms = max_age_ms
        self._rings_after_ms = NEVER_MS if timer_ms is None else (max_age_ms + timer_ms) // 2  # clocks differ
        self.end_of_stream = end_of_stream
        self._follow = follow
        self.statistics = PoolStatistics()
        self.places: dict[bytes, PoolPlace] = {}
        """Mark of the group -> place."""
        self.evicted: dict[bytes, PoolPlace] = {}
        """Mark -> place that was removed to make room; kept until all its conversations are over."""
        self.known: dict[bytes, Pooled] = {}
        """Conversations that are not over; `unfinished` moves those that it returns to the end."""
        self.closing = 0
        """Number of conversations in `known` that are not open."""
        self.astray: dict[bytes, PoolPlace] = {}
        """Mark -> place whose redirection leads nowhere."""
        self.resends_pending: dict[bytes, PoolPlace] = {}
        """Mark -> place with bounced messages that must be sent again before anything new."""
        self._codes: dict[bytes, int] = {}
        """Error codes of conversations that are over; their messages may still come back."""
        self._ways: dict[bytes, Way] = {}
        """Way of each conversation that is over and was begun after a redirection."""
        self._noted: dict[bytes, None] = {}
        """Conversations whose note was handled. Home reports a note again until it has ingested its CONFIRM."""

    # ------------------------------------------------------------------------------------------------------- calls

    def place(self, group: bytes, now_ms: int) -> tuple[PoolPlace, list[Effect]]:
        """The place of a group. When there are too many places, those unused for longest are recycled to make room.

        Raises QueueFull when targets have not ended the conversations that were recycled before, or when too many
        evicted places still have messages to resend.
        """
        mark = mark_of(group)
        known = self.places.get(mark)
        if known is not None:
            return known, []
        effects = self._evict() if mark not in self.evicted and len(self.places) >= POOL_KEY_ENTRIES_MAX else []
        place = self.places[mark] = self.evicted.pop(mark) if mark in self.evicted else PoolPlace(group)
        place.used_ms = now_ms
        return place, effects

    def _evict(self) -> list[Effect]:
        if len(self.evicted) >= POOL_CLOSING_ENTRIES_MAX:
            waiting = counted(len(self.evicted), "key whose messages wait", "keys whose messages wait")
            raise QueueFull(f"the pool has {waiting}; see `pool.undelivered`")
        if not self.may_recycle:
            raise QueueFull(
                f"the pool has {counted(len(self.places), 'conversation')}, and "
                f"{counted(self.closing, 'that its target has not ended', 'that their targets have not ended')} "
                f"yet, although {self.end_of_stream!r} was sent. Let a reader of the target answer it with `end`; "
                "try again"
            )
        effects: list[Effect] = []
        for place in nsmallest(POOL_EVICTED_ENTRIES, self.places.values(), key=lambda one: one.used_ms):
            del self.places[mark_of(place.group)]
            if place.has_more:
                self.evicted[mark_of(place.group)] = place
            if place.current is not None:
                effects.append(Recycle(place.current))
            effects.append(MakeRoom(place))
        return effects

    def begun(self, place: PoolPlace, conversation: bytes, now_ms: int, *, adopted: bool = False) -> Pooled:
        """Give a place its open conversation: begun by this process, or adopted from one that died."""
        assert place.current is None, "a place has one open conversation at most"
        pooled = place.current = self.known[conversation] = Pooled(conversation, place, now_ms)
        pooled.adopted = adopted
        if not adopted:  # it is not known when an adopted conversation's timer was set
            pooled.rings_ms += self._rings_after_ms
        place.used_ms, place.noticed = now_ms, 0
        self._lives(place, pooled)
        self.count(begun=1)
        return pooled

    def way_of(self, place: PoolPlace, now_ms: int) -> Way:
        """The way of its next conversation. A way is dropped after `max_age_ms`."""
        if place.way and now_ms - place.way_ms >= self.max_age_ms:
            place.way = ()
        return place.way

    def stray(self, place: PoolPlace, reason: str, now_ms: int) -> None:
        """Note that the redirection of the place leads nowhere, and why."""
        place.astray, place.again_ms, place.way = reason, now_ms + POOL_ASTRAY_MS, ()
        self.astray[mark_of(place.group)] = place

    def try_again(self, place: PoolPlace) -> None:
        """Have the place's bounced messages go to the pool's own service again. Call `allow_sends` afterwards."""
        place.astray = None
        self.astray.pop(mark_of(place.group), None)

    def hold_sends(self, place: PoolPlace) -> None:
        """The place has bounced messages to send again, and no new message may overtake them."""
        place.resends_pending, self.resends_pending[mark_of(place.group)] = True, place

    def resume_sends(self, place: PoolPlace) -> None:
        """The bounced messages of the place were sent again, or are gone: new ones may follow."""
        place.resends_pending = False
        self.resends_pending.pop(mark_of(place.group), None)
        self.allow_sends(place)

    def closes(self, place: PoolPlace, conversation: bytes, now_ms: int, *, ended: bool = False) -> None:
        """Take over a conversation that another process recycled or left open: its target has `ended` it or will."""
        pooled = self.known[conversation] = Pooled(conversation, place, now_ms)
        pooled.on(StageEvent.BROKEN if ended else StageEvent.RECYCLED, now_ms)
        pooled.ended, pooled.adopted = ended, True
        self._lives(place, pooled)
        self.closing += 1

    def _lives(self, place: PoolPlace, pooled: Pooled) -> None:
        """Keep an evicted place findable for as long as it has conversations."""
        place.living.append(pooled)
        mark = mark_of(place.group)
        if self.places.get(mark) is not place:
            self.evicted.setdefault(mark, place)

    def remember(self, conversation: bytes, code: int) -> None:
        """Keep the Error code of a conversation outside the pool, for messages that may still come back from it."""
        if code not in RESENT:
            keep_latest(self._codes, conversation, code)

    @property
    def may_recycle(self) -> bool:
        """Whether targets have ended enough of the conversations recycled before."""
        return self.closing < POOL_CLOSING_ENTRIES_MAX

    def recycled(self, pooled: Pooled, now_ms: int, *, used: bool = True) -> None:
        """EndOfStream and FIN were sent on it. If its timer was due, home may have sent its own before them."""
        if pooled.stage is Stage.OPEN:
            if used and now_ms >= pooled.rings_ms:
                pooled.place.awaits.append(pooled)
            self._leave(pooled, StageEvent.RECYCLED, now_ms)
            self.count(recycled=1)

    def noticed(self, place: PoolPlace, sent: int, now_ms: int) -> None:
        """Note how many messages were sent on the place's conversation so far."""
        if sent != place.noticed:
            place.noticed, place.used_ms = sent, now_ms

    def resent(self, place: PoolPlace) -> None:
        """A bounced message was sent on the place's conversation."""
        self.count(resent=1)
        if place.current is not None:
            place.current.resumed = True

    def count(self, **more: int) -> None:
        """Add to the statistics, by field name."""
        added = {name: getattr(self.statistics, name) + number for name, number in more.items()}
        self.statistics = self.statistics._replace(**added)

    # -------------------------------------------------------------------------------------------------------- news

    def broken(self, conversation: bytes, code: int | None, now_ms: int) -> list[Effect]:
        """The target has ended it: with the Error `code`, or without Error (0). None: this process does not know."""
        pooled = self.known.get(conversation)
        if pooled is None:
            return []
        pooled.ended = True
        if code:
            pooled.code = code
        return self._break(pooled, now_ms)

    def ended(self, conversation: bytes) -> list[Effect]:
        """This side ends it: the target has answered EndOfStream."""
        pooled = self.known.get(conversation)
        return self._over(pooled) if pooled is not None else []

    def read_home(
        self, standings: Iterable[tuple[Pooled, HomeSide]], bounced: Iterable[Bounced], now_ms: int
    ) -> list[Effect]:
        """Take a home's report: the standings of some conversations and the bounced messages, both from one state."""
        living = [(pooled, standing) for pooled, standing in standings if pooled.stage is not Stage.OVER]
        for pooled, standing in living:
            pooled.ended = pooled.ended or standing.ended
            pooled.code, pooled.unread = pooled.code or standing.code, standing.unread
        returned = [(place, one) for one in bounced if (place := self._place_of(one)) is not None]
        senders = {one.conversation: self.known.get(one.conversation) for _, one in returned}
        notes = self._notes(returned, now_ms)
        effects: list[Effect] = []
        for pooled, standing in living:
            if standing.over:
                effects += self._over(pooled)
                continue
            stops = standing.ended or standing.finished
            if (stops and pooled.stage is Stage.OPEN) or (standing.code and pooled.stage is Stage.CLOSING):
                effects += self._break(pooled, now_ms)
            elif pooled.stage is Stage.BROKEN and not standing.answered:
                effects.append(AskVerdict(pooled))  # FIN may have had to wait for other records
            if standing.answered and pooled.stage is Stage.CLOSING:
                self._release(pooled)
            elif standing.answered and pooled.stage is Stage.BROKEN and (pooled.ended or not pooled.misled):
                effects += self._judged(pooled, now_ms)
        return [*notes, *self._returned(returned, senders), *effects]

    def _place_of(self, bounced: Bounced) -> PoolPlace | None:
        mark = mark_of(bounced.conversation)
        return self.places.get(mark) or self.evicted.get(mark)

    def _notes(self, returned: list[tuple[PoolPlace, Bounced]], now_ms: int) -> list[Effect]:
        """Handle the notes of routers, before other bounced messages."""
        effects: list[Effect] = []
        for place, one in returned:
            if one.bounce.reason is BounceReason.REDIRECTED and place.astray is None:
                effects += self._redirected(place, one, now_ms)
        return effects

    def _returned(
        self, returned: list[tuple[PoolPlace, Bounced]], senders: Mapping[bytes, Pooled | None]
    ) -> list[Effect]:
        """Effects for bounced messages, in their order, including those of conversations that are no longer known.

        For a redirected place nothing is sent again until all messages have come back, because its conversations may
        have different ways.
        """
        resent: dict[PoolPlace, list[Bounced]] = {}
        given_up: dict[tuple[PoolPlace, int], list[Bounced]] = {}
        dropped: dict[PoolPlace, list[Bounced]] = {}
        for place, one in returned:
            if place.astray is not None or any(awaited.misled for awaited in place.awaits):
                continue
            pooled = senders[one.conversation]
            code = pooled.code if pooled is not None else self._codes.get(one.conversation)
            if one.message_type == self.end_of_stream or one.bounce.reason is BounceReason.REDIRECTED:
                dropped.setdefault(place, []).append(one)
            elif code is None or code in RESENT:
                resent.setdefault(place, []).append(one)
            else:
                given_up.setdefault((place, code), []).append(one)
        return [
            *(Resend(place, in_order(many, senders)) for place, many in resent.items()),
            *(GiveUp(place, many, code) for (place, code), many in given_up.items()),
            *(Drop(place, many) for place, many in dropped.items()),
        ]

    def _redirected(self, place: PoolPlace, note: Bounced, now_ms: int) -> list[Effect]:
        """Follow a note: the place's messages go to the target that the router names, and so do all later ones.

        A note is ignored if its conversation began before the place got its present way. Several conversations may have
        gone to the same router, which redirects them all. So none of them takes more messages, and messages that come
        back from any of them go first.
        """
        pooled = self.known.get(note.conversation)
        way = pooled.way if pooled is not None else self._ways.get(note.conversation, ())
        if place.way != way or note.conversation in self._noted:
            return []
        keep_latest(self._noted, note.conversation, None)
        try:
            place.way, place.way_ms = self._follow(way, note.body or b""), now_ms
        except KonverseError as error:
            self.stray(place, str(error), now_ms)
        else:
            self.count(redirected=1)
        effects: list[Effect] = [] if place.astray is None else [Stray(place)]
        for one in place.living:
            if one.way == way and not one.misled:
                one.misled = True
                effects += self._break(one, now_ms)
                if one not in place.awaits:
                    place.awaits.append(one)
        return effects

    def tick(self, now_ms: int) -> list[Effect]:
        """Time passes: recycle old conversations, and stop waiting for overdue verdicts."""
        effects: list[Effect] = []
        for pooled in list(self.known.values()):
            if pooled.stage is Stage.OPEN:
                old = pooled.due or now_ms - pooled.begun_ms >= self.max_age_ms
                if old or mark_of(pooled.conversation) in self.evicted:
                    effects.append(Recycle(pooled))
            elif now_ms - pooled.since_ms >= POOL_VERDICT_MS_MAX:
                if pooled.stage is Stage.BROKEN:
                    effects += self._judged(pooled, now_ms)
                else:
                    self._release(pooled)
        return effects

    def unfinished(self, limit: int) -> list[Pooled]:
        """At most `limit` closing or broken conversations, in rotation, because absent targets never answer."""
        if not self.closing:
            return []
        found = list(islice((one for one in self.known.values() if one.stage is not Stage.OPEN), limit))
        for pooled in found:
            self.known[pooled.conversation] = self.known.pop(pooled.conversation)
        return found

    # ------------------------------------------------------------------------------------------------------ inside

    def _leave(self, pooled: Pooled, event: StageEvent, now_ms: int) -> None:
        if pooled.stage is Stage.OPEN:
            self.closing += 1
        pooled.on(event, now_ms)
        if pooled.place.current is pooled:
            pooled.place.current = None

    def _break(self, pooled: Pooled, now_ms: int) -> list[Effect]:
        if pooled.stage not in (Stage.OPEN, Stage.CLOSING):
            return []
        if pooled.stage is Stage.OPEN:
            self.count(replaced=1)
            pooled.place.awaits.append(pooled)
        self._leave(pooled, StageEvent.BROKEN, now_ms)
        return [AskVerdict(pooled)]

    def _judged(self, pooled: Pooled, now_ms: int) -> list[Effect]:
        """Each of its messages was received or has come back, or the time to wait for that is over."""
        self._release(pooled)
        if not pooled.ended:
            pooled.on(StageEvent.JUDGED, now_ms)  # home has sent EndOfStream, which the target answers
            return []
        return [] if pooled.unread else [EndSide(pooled), *self._over(pooled)]

    def _release(self, pooled: Pooled) -> None:
        if pooled in pooled.place.awaits:
            pooled.place.awaits.remove(pooled)

    def allow_sends(self, place: PoolPlace) -> None:
        """Forget an evicted place that has nothing left."""
        if not place.has_more:
            self.evicted.pop(mark_of(place.group), None)

    def _over(self, pooled: Pooled) -> list[Effect]:
        if pooled.stage is Stage.OVER:
            return []
        was_open = pooled.stage is Stage.OPEN
        self._leave(pooled, StageEvent.OVER, pooled.since_ms)
        self.closing -= 1
        self._release(pooled)
        del self.known[pooled.conversation]
        pooled.place.living.remove(pooled)
        self.allow_sends(pooled.place)
        if was_open:
            self.count(replaced=1)
        if pooled.way:
            keep_latest(self._ways, pooled.conversation, pooled.way)
        if pooled.code is not None:
            self.remember(pooled.conversation, pooled.code)
        return [Forget(pooled)]


def in_order(bounced: Sequence[Bounced], senders: Mapping[bytes, Pooled | None]) -> list[Bounced]:
    """Bounced messages in the order in which they were sent.

    `senders` has the pool's entry for each conversation. It is None for one that is over, or that was begun by another
    process which had lost the pool and did not know that yet.
    """
    of_each: dict[bytes, list[Bounced]] = {}
    for one in bounced:
        of_each.setdefault(one.conversation, []).append(one)
    ranks: dict[bytes, float] = {}
    for conversation, mine in of_each.items():  # in the order in which the first of each came back
        pooled = senders.get(conversation)
        if pooled is not None and pooled in pooled.place.living:
            ranks[conversation] = pooled.place.living.index(pooled)
        else:
            ranks[conversation] = _rank_of_unknown(mine[0].session, ranks, of_each, senders)
    found: deque[Bounced] = deque()
    for conversation in sorted(of_each, key=ranks.__getitem__):
        pooled, mine = senders.get(conversation), of_each[conversation]
        resumed = pooled is not None and pooled.resumed
        found.extendleft(one for one in reversed(mine) if resumed and _is_sent_again(one))
        found.extend(one for one in mine if not (resumed and _is_sent_again(one)))
    return [*found]


def _rank_of_unknown(
    session: bytes,
    ranks: Mapping[bytes, float],
    of_each: Mapping[bytes, Sequence[Bounced]],
    senders: Mapping[bytes, Pooled | None],
) -> float:
    """Rank of a conversation without an entry: before all others, but after one adopted from the same session."""
    adopted = [
        rank
        for conversation, rank in ranks.items()
        if (known := senders.get(conversation)) is not None and known.adopted
        if of_each[conversation][0].session == session
    ]
    return max(adopted, default=-1.5) + 0.5


def _is_sent_again(one: Bounced) -> bool:
    """Whether an owner wrote the bounced record: home for a redirected message, or a target that gave it back."""
    return one.bounce.writer != one.session
