"""The ids of a sender's session: when a new one is due, and the destinations' answers about the former ones.

`dialog.session.rotation` has the rules. Under a new id the session asks each destination at which counter the old one
was closed, and resends the records that were not received.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from konverse.bridge.owner.follower import Follower
from konverse.bridge.runtime.clock import now_ms
from konverse.dialog.session.lanes import Produce
from konverse.dialog.session.rotation import Age, CloseQuery, Unheard, reply
from konverse.dialog.session.session import Session
from konverse.schemas.errors import KonverseError
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.records import WriterClosed

log: Final = logging.getLogger("konverse.session")

ASK_AGAIN_S: Final = 600.0
"""A destination that cannot answer yet is asked again after this long."""

MAKE_S: Final = 10.0
"""Kafka may take this long for a new id; then another one is requested."""

MADE_FOR_S: Final = 60.0
"""A new id that is not used within this time is discarded."""

READ_EVERY_S: Final = 0.5
"""Interval of reading the destinations' answers."""


class Ids(Protocol):
    """Source of new writer ids."""

    topic: str
    """Topic whose acknowledgements give the time of an id."""

    def new(self, timeout_s: float | None = None) -> tuple[bytes, int]:
        """A new id, and the local time in ms just before the request."""


class SessionRenewal:
    """A session with its renewal. Callers of `check_clock`, `give_up` and `change` hold the sender's lock."""

    def __init__(self, ids: Ids, follow: Callable[[Address], Follower]) -> None:
        self.session = Session(*ids.new())
        self.topic = ids.topic
        """A topic that exists and that this client may write to."""
        self.age = Age.FRESH
        """Whether the present id must be replaced."""
        self._ids = ids
        self._follow = follow
        self._following: dict[Address, Follower] = {}
        self._made: tuple[bytes, int] | None = None
        """The next id, as `Ids.new` returned it."""
        self._asked_ms: dict[tuple[Address, bytes], int] = {}
        """(destination, former id) without a final answer -> when the destination was last asked again."""
        self._read_ms: int | None = None
        self.trouble: str | None = None
        """Why an answer could not be read; None when all could."""

    def check_clock(self) -> bool:
        """Check the clock; True when `age` has changed."""
        before = self.age
        if before is not Age.DOUBTFUL:
            self.age = self.session.check_age(now_ms())
        return self.age is not before

    def give_up(self) -> None:
        """Have the present id replaced at once: a destination refuses it, or it is too old."""
        self.age = Age.DOUBTFUL

    @property
    def ready(self) -> bool:
        """Whether there is a new id for `change`, not older than `MADE_FOR_S`."""
        return self._made is not None and 0 <= now_ms() - self._made[1] < MADE_FOR_S * 1_000

    @property
    def wanting(self) -> bool:
        """Whether a new id is due and not available yet."""
        return self.age is not Age.FRESH and not self.ready

    def make(self) -> None:
        """Get a new id from Kafka for `change`. This waits for Kafka, so the caller holds no lock.

        Raises KafkaUnavailable, TopicMismatch.
        """
        self._made = self._ids.new(MAKE_S)

    def change(self) -> list[Produce]:
        """Continue under the new id. Returns the records to hand over."""
        assert self._made is not None, "an id is made before it is used"
        (writer, opened_ms), self._made = self._made, None
        log.info(
            "session %s continues under id %s, because its present id is %s",
            self.session.writer.hex(),
            writer.hex(),
            self.age.name.lower(),
        )
        self.age = Age.FRESH
        return self.session.change(writer, opened_ms)

    @property
    def due(self) -> bool:
        """Whether it is time to read answers."""
        if not self.session.takeover.behind:
            return False
        return self._read_ms is None or now_ms() - self._read_ms >= READ_EVERY_S * 1_000

    def answers(self) -> Iterator[tuple[CloseQuery, WriterClosed | Unheard]]:
        """The destinations' answers to queries about former ids. Reads their logs, so it may take a while."""
        self._read_ms, self.trouble = now_ms(), None
        awaited = self.session.takeover.wanted()
        still = {(wanted.address, wanted.asked) for wanted in awaited}
        self._asked_ms = {of: ms for of, ms in self._asked_ms.items() if of in still}
        for wanted in awaited:
            try:
                following = self._following.get(wanted.address)
                if following is None:
                    following = self._following[wanted.address] = self._follow(wanted.address)
                said = reply(following.catch_up(), wanted)
            except KonverseError as error:  # the next call tries again
                self.trouble = str(error)
                continue
            if said is None or (said is Unheard.LATER and not self._asks_again(wanted)):
                continue
            yield wanted, said
        if not self.session.takeover.behind:
            self.close()

    def _asks_again(self, wanted: CloseQuery) -> bool:
        """Whether to repeat the query after the answer LATER: at once, then every `ASK_AGAIN_S`."""
        of = wanted.address, wanted.asked
        asked_ms = self._asked_ms.get(of)
        if asked_ms is not None and now_ms() - asked_ms < ASK_AGAIN_S * 1_000:
            return False
        self._asked_ms[of] = now_ms()
        return True

    def close(self) -> None:
        """Close the followers of the destinations."""
        while self._following:
            _, following = self._following.popitem()
            following.close()
