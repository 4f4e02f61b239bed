"""The session of a sender and its ids: when another one is due, and what destinations say of the former ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from konverse.bridge.owner.follower import Following
from konverse.bridge.runtime.clock import now_ms
from konverse.dialog.session.lanes import Hand
from konverse.dialog.session.rotation import Age, Unheard, Wanted, reply
from konverse.dialog.session.session import Session
from konverse.schemas.errors import KonverseError
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.records import WriterClosed

log: Final = logging.getLogger("konverse.renewing")

ASK_AGAIN_S: Final = 600.0
"""Who cannot be told yet asks again after this long."""

MAKE_S: Final = 10.0
"""Kafka has so long for a new id before it is asked for another one."""

MADE_FOR_S: Final = 60.0
"""An id that was not needed after all is not used after this long."""

READ_EVERY_S: Final = 0.5
"""The answers of destinations are looked for so often."""


class Ids(Protocol):
    """Where new ids come from."""

    topic: str
    """Where they are asked for."""

    def new(self, timeout_s: float | None = None) -> tuple[bytes, int]:
        """An id, and what the clock showed before it was asked for."""


class Renewing:
    """Not for several threads at a time: whoever calls it holds the sender's lock, but for `answers` and `make`."""

    def __init__(self, ids: Ids, follow: Callable[[Address], Following]) -> None:
        self.session = Session(*ids.new())
        self.topic = ids.topic
        """It exists, and this client may write to it."""
        self.age = Age.FRESH
        """What is to be done about the present id."""
        self._ids = ids
        self._follow = follow
        self._following: dict[Address, Following] = {}
        self._made: tuple[bytes, int] | None = None
        """The next id, as it came."""
        self._asked_ms: dict[tuple[Address, bytes], int] = {}
        """Destination and former id of which it cannot tell yet, and when it was asked again last."""
        self._read_ms: int | None = None
        self.trouble: str | None = None
        """Why an answer could not be looked for; None when all of them could."""

    def look(self) -> bool:
        """Look at the clock; True when something is due that was not."""
        before = self.age
        if before is not Age.DOUBTFUL:
            self.age = self.session.look(now_ms())
        return self.age is not before

    def give_up(self) -> None:
        """The present id is not heard somewhere."""
        self.age = Age.DOUBTFUL

    @property
    def ready(self) -> bool:
        """There is an id to `change` to, made a moment ago."""
        return self._made is not None and 0 <= now_ms() - self._made[1] < MADE_FOR_S * 1_000

    @property
    def wanting(self) -> bool:
        """Another id is due, and none was made."""
        return self.age is not Age.FRESH and not self.ready

    def make(self) -> None:
        """Get an id to `change` to. Takes as long as Kafka does, so whoever calls it holds no lock.

        Raises KafkaUnavailable or TopicMismatch when there is none to be had.
        """
        self._made = self._ids.new(MAKE_S)

    def change(self) -> list[Hand]:
        """Go on under the id that was made."""
        assert self._made is not None, "an id is made before it is used"
        (writer, opened_ms), self._made = self._made, None
        log.info("the session goes on under a new id, the present one is %s", self.age.name.lower())
        self.age = Age.FRESH
        return self.session.change(writer, opened_ms)

    @property
    def due(self) -> bool:
        """It is time to look for answers."""
        if not self.session.takeover.behind:
            return False
        return self._read_ms is None or now_ms() - self._read_ms >= READ_EVERY_S * 1_000

    def answers(self) -> Iterator[tuple[Wanted, WriterClosed | Unheard]]:
        """What destinations say to the questions of the session. Reads their logs, so it may take a while."""
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
            except KonverseError as error:  # it is tried again
                self.trouble = str(error)
                continue
            if said is None or (said is Unheard.LATER and not self._asks_again(wanted)):
                continue
            yield wanted, said
        if not self.session.takeover.behind:
            self.close()

    def _asks_again(self, wanted: Wanted) -> bool:
        """Whether a destination that cannot tell yet is asked once more: at once, then every ASK_AGAIN_S."""
        of = wanted.address, wanted.asked
        asked_ms = self._asked_ms.get(of)
        if asked_ms is not None and now_ms() - asked_ms < ASK_AGAIN_S * 1_000:
            return False
        self._asked_ms[of] = now_ms()
        return True

    def close(self) -> None:
        """Close the clients that read."""
        while self._following:
            _, following = self._following.popitem()
            following.close()
