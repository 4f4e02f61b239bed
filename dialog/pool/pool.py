"""A pool of conversations: which one each key has, when it is recycled, and what follows when its target ends it early.

Source: Service Broker's pattern of reused and recycled conversations (behaviours 224 to 229), protocol.md section 6.

Two rules. A place (a key, a session, or one of n) has at most one open conversation, and all its conversations are in
one conversation group. So they have one home, which can send on one conversation what came back from another. And
bounced messages go first: when a conversation ended while it was in use, the place sends nothing new before each of its
messages has a verdict, or the target was silent for POOL_VERDICT_MS_MAX.

    OPEN      takes messages
    CLOSING   EndOfStream and FIN were sent; the target ends it, then this side. If its timer may have been due before,
              home may have sent FIN earlier, and messages sent since come back: the place waits for these, too
    BROKEN    the target has ended or failed it; undelivered messages come back, then this side ends it
    OVER      this side has ended it, or its home does not know it any more

Resending (`in_order`). Messages that came back from one conversation are redirected to the next. That one may end too,
before home has heard of every REDIRECT. The rest stays in the mailbox, in front of the redirected messages, which come
back only then. So a conversation to which messages were redirected got these first, and behind all of them the messages
of its own session.

Redirection. A target that redirects a conversation gives all of it back behind a note (behaviour 233). From then on the
place goes where the note says, for as long as a conversation is used. Then the pool's own service is asked again.

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
    Stray,
    Way,
    keep_latest,
)
from .recycling import RESENT

NEVER_MS: Final = 2**62
Follow = Callable[[Way, bytes], Way]
"""`follow(way, note)`: the way, extended by the note's target. Raises KonverseError when that leads nowhere."""


class PoolState:
    """The places of one pool."""

    def __init__(self, *, max_age_ms: int, timer_ms: int | None, end_of_stream: str, follow: Follow) -> None:
        """`timer_ms`: timer of each conversation at its home, in case its sender does not recycle it; None: none."""
        self.max_age_ms = max_age_ms
        self._rings_after_ms = NEVER_MS if timer_ms is None else (max_age_ms + timer_ms) // 2  # clocks differ
        self.end_of_stream = end_of_stream
        self._follow = follow
        self.statistics = PoolStatistics()
        self.places: dict[bytes, PoolPlace] = {}
        """Mark of the group -> place."""
        self.evicted: dict[bytes, PoolPlace] = {}
        """Mark -> place that had to make room, until all its conversations are over."""
        self.known: dict[bytes, Pooled] = {}
        """Conversations that are not over; those asked about last stand last."""
        self.closing = 0
        """Number of conversations in `known` that are not open."""
        self.astray: dict[bytes, PoolPlace] = {}
        """Mark -> place whose redirection leads nowhere."""
        self.behind: dict[bytes, PoolPlace] = {}
        """Mark -> place for whose bounced messages there was no room."""
        self._codes: dict[bytes, int] = {}
        """Error codes of conversations that are over; their messages may still come back."""
        self._ways: dict[bytes, Way] = {}
        """Ways of conversations that are over and had been redirected."""
        self._noted: dict[bytes, None] = {}
        """Conversations whose note was handled; home shows the note again until it hears that."""

    # ------------------------------------------------------------------------------------------------------- calls

    def place(self, group: bytes, now_ms: int) -> tuple[PoolPlace, list[Effect]]:
        """The place of a group. When there are too many places, those unused for longest are recycled to make room.

        Raises QueueFull when targets have not ended what was recycled before, or too many places have messages waiting.
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
            raise QueueFull(f"the pool has {len(self.evicted)} keys whose messages wait; see `pool.undelivered`")
        if not self.may_recycle:
            raise QueueFull(
                f"the pool has {len(self.places)} conversations, and {self.closing} that their targets have not ended "
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
        if not adopted:  # when an adopted conversation's timer was set is not known
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
        """Note that the place has nowhere to go, and why."""
        place.astray, place.again_ms, place.way = reason, now_ms + POOL_ASTRAY_MS, ()
        self.astray[mark_of(place.group)] = place

    def try_again(self, place: PoolPlace) -> None:
        """What its home gives back next goes to the pool's own service. Call `let_pass` afterwards."""
        place.astray = None
        self.astray.pop(mark_of(place.group), None)

    def hold(self, place: PoolPlace) -> None:
        """There was no room for a bounced message of the place; nothing may overtake it."""
        place.behind, self.behind[mark_of(place.group)] = True, place

    def go_past(self, place: PoolPlace) -> None:
        """The bounced messages of the place were sent again, or are gone."""
        place.behind = False
        self.behind.pop(mark_of(place.group), None)
        self.let_pass(place)

    def closes(self, place: PoolPlace, conversation: bytes, now_ms: int, *, ended: bool = False) -> None:
        """Take in a conversation that another process recycled or left over: its target has `ended` it or will."""
        pooled = self.known[conversation] = Pooled(conversation, place, now_ms)
        pooled.stage, pooled.ended, pooled.adopted = Stage.BROKEN if ended else Stage.CLOSING, ended, True
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
        """EndOfStream and FIN were sent on it. If its timer was due, those of its home may stand before them."""
        if pooled.stage is Stage.OPEN:
            if used and now_ms >= pooled.rings_ms:
                pooled.place.awaits.append(pooled)
            self._leave(pooled, Stage.CLOSING, now_ms)
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
        """The target has ended it, with an Error or (code 0) without. None: this process has not read why."""
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

    def home_says(
        self, standings: Iterable[tuple[Pooled, HomeSide]], bounced: Iterable[Bounced], now_ms: int
    ) -> list[Effect]:
        """News of a home: the standings of some conversations, and its bounced messages, both from one state."""
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
                self._let_go(pooled)
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

        For a redirected place nothing is sent again before all has come back: its conversations may have several ways.
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
        """Follow a note: the place's messages go where the router says, and so do all later ones.

        A note is ignored if its conversation began before the place got its present way. Several conversations may have
        gone to the same router, which redirects them all. So none of them takes more messages, and what comes back from
        each goes first.
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
                    self._let_go(pooled)
        return effects

    def unfinished(self, limit: int) -> list[Pooled]:
        """At most `limit` closing or broken conversations, in rotation, since targets that are away say nothing."""
        if not self.closing:
            return []
        found = list(islice((one for one in self.known.values() if one.stage is not Stage.OPEN), limit))
        for pooled in found:
            self.known[pooled.conversation] = self.known.pop(pooled.conversation)
        return found

    # ------------------------------------------------------------------------------------------------------ inside

    def _leave(self, pooled: Pooled, stage: Stage, now_ms: int) -> None:
        if pooled.stage is Stage.OPEN:
            self.closing += 1
        pooled.stage, pooled.since_ms = stage, now_ms
        if pooled.place.current is pooled:
            pooled.place.current = None

    def _break(self, pooled: Pooled, now_ms: int) -> list[Effect]:
        if pooled.stage not in (Stage.OPEN, Stage.CLOSING):
            return []
        if pooled.stage is Stage.OPEN:
            self.count(replaced=1)
            pooled.place.awaits.append(pooled)
        self._leave(pooled, Stage.BROKEN, now_ms)
        return [AskVerdict(pooled)]

    def _judged(self, pooled: Pooled, now_ms: int) -> list[Effect]:
        """Each of its messages was received or has come back, or the wait for that is over."""
        self._let_go(pooled)
        if not pooled.ended:
            pooled.stage, pooled.since_ms = Stage.CLOSING, now_ms  # home has sent EndOfStream, which the target answers
            return []
        return [] if pooled.unread else [EndSide(pooled), *self._over(pooled)]

    def _let_go(self, pooled: Pooled) -> None:
        if pooled in pooled.place.awaits:
            pooled.place.awaits.remove(pooled)

    def let_pass(self, place: PoolPlace) -> None:
        """Forget an evicted place that has nothing left."""
        if not place.has_more:
            self.evicted.pop(mark_of(place.group), None)

    def _over(self, pooled: Pooled) -> list[Effect]:
        if pooled.stage is Stage.OVER:
            return []
        was_open = pooled.stage is Stage.OPEN
        self._leave(pooled, Stage.OVER, pooled.since_ms)
        self.closing -= 1
        self._let_go(pooled)
        del self.known[pooled.conversation]
        pooled.place.living.remove(pooled)
        self.let_pass(pooled.place)
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
    """In front of all others, since it is over; but behind one that was adopted from the same session."""
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
