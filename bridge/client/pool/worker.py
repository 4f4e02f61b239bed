"""The background thread of a pool: asks homes about conversations and returned messages, and enforces time limits.

A home that a reader of this process owns answers from the owner's state, any other home from its journal. The thread
asks often while conversations are closing or broken, otherwise every second.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from konverse.bridge.runtime.clock import now_ms
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.threads import EXPECTED_ERRORS, in_background
from konverse.dialog.pool.places import HomeSide, Pooled, Stage
from konverse.dialog.pool.recycling import rivals_of, standing_of
from konverse.schemas.counting import counted
from konverse.schemas.errors import BrokerClosed, KafkaUnavailable
from konverse.schemas.identifiers import mark_of
from konverse.schemas.limits import POOL_LOOK_ENTRIES_MAX

from .keeper import PoolKeeper
from .takeover import PoolTakeover

if TYPE_CHECKING:
    from konverse.bridge.client.dialog import Dialog
    from konverse.dialog.session.lanes import Produce
    from konverse.dialog.session.session import Session
    from konverse.dialog.state.partition import Partition
    from konverse.schemas.identifiers import Address

    from .lease import Lease

log: Final = logging.getLogger("konverse.pool")

CHECK_S: Final = 0.1
"""Interval of asking homes while conversations are closing or broken."""
HOME_S: Final = 5.0
"""A home may take this long to answer before the next home is asked."""
REST_S: Final = 1.0
"""Interval between checks of open conversations. An old one, or one that its target ended, is noticed by then."""


class PoolWorker:
    """The thread of one pool. It ends when the pool is shut down, or another process has taken the pool over."""

    def __init__(self, keeper: PoolKeeper, takeover: PoolTakeover, lease: Lease | None) -> None:
        """`lease`: that of a named pool, if Redis is configured; given back when the thread ends."""
        self._keeper = keeper
        self._slots = keeper.slots
        self._pooling = keeper.pooling
        self._takeover = takeover
        self._lease = lease
        self._check_all_ms = 0
        """Next time at which homes are asked about open conversations, too."""
        self._trouble = LogThrottle()
        self._awake = threading.Event()
        self.lingers = False
        """Whether `close` has returned while the thread continues until no conversation is left."""
        self.over = False
        """Whether the pool no longer manages its conversations."""
        self.thread = in_background("konverse-pool", self._run)

    def wake(self) -> None:
        """Ask homes at once."""
        self._awake.set()

    def stop(self) -> None:
        """End the thread, and give the lease back."""
        self.over = True
        self._awake.set()
        self.thread.join()
        if self._lease is not None:
            self._lease.close()

    def _run(self) -> None:
        session = self._keeper.context.sender.session
        while not self.over and session.over is None:
            try:
                busy = self._check()
            except BrokerClosed:
                break
            except EXPECTED_ERRORS as error:
                log.warning("%s cannot check its conversations, retrying: %s", self._keeper.options.title, error)
                busy = False
            self._awake.wait(CHECK_S if busy else REST_S)
            self._awake.clear()
        self.over = True
        if self._lease is not None:
            self._lease.close()

    def _check(self) -> bool:
        """Enforce time limits, and ask homes about conversations; True while some are closing or broken."""
        homes: dict[Address, list[tuple[Pooled, Dialog]]] = {}
        with self._slots.changed:
            now = now_ms()
            wanted = [(one, self._slots.dialogs[one.conversation]) for one in self._wanted(now)]
            if not self.over:
                self._keeper.run_effects(self._pooling.tick(now))
            for slot in (*self._slots.astray(), *self._slots.resends_pending()):
                assert slot.last is not None, "something was sent"
                homes[slot.last.begin.home] = []
        for pooled, dialog in wanted:
            homes.setdefault(dialog.begin.home, []).append((pooled, dialog))
        for home, asked in homes.items():
            self._check_home(home, asked)
        with self._slots.changed:
            if self.lingers and not self._keeper.unfinished():
                self.over = True
            return self._pooling.closing > 0

    def _wanted(self, now: int) -> list[Pooled]:
        """Conversations to ask about: those closing or broken, and every `REST_S` the open ones, too."""
        unfinished = self._pooling.unfinished(POOL_LOOK_ENTRIES_MAX)
        if now < self._check_all_ms:
            return unfinished
        self._check_all_ms = now + round(REST_S * 1000)
        for slot in list(self._slots.by_mark.values()):
            if slot.dialog is not None:
                self._pooling.noticed(slot.place, slot.dialog.staged.sent, now)
        return [*unfinished, *(one for one in self._pooling.known.values() if one.stage is Stage.OPEN)]

    def _check_home(self, home: Address, asked: list[tuple[Pooled, Dialog]]) -> None:
        """Ask one home. A home that does not answer is logged, and the other homes are still asked."""
        try:
            self._ask(home, asked)
            self._trouble.over(home)
        except KafkaUnavailable as error:
            if times := self._trouble.due(home):
                log.warning(
                    "%s cannot check its conversations in %s/%d after %s, retrying: %s",
                    self._keeper.options.title,
                    home.topic,
                    home.partition,
                    counted(times, "attempt"),
                    error,
                )

    def _ask(self, home: Address, asked: list[tuple[Pooled, Dialog]]) -> None:
        """Ask one home about conversations and returned messages, and pass the answers to `PoolState`.

        If another process took over a named pool, stop this session. If two processes began to use the pool before
        they could notice each other, the one with the later session continues, and adopts what the other one left.
        """
        name, context = self._keeper.options.name, self._keeper.context
        sender = context.sender
        groups = {pooled.place.group for pooled, _ in asked} if name is not None else ()

        def question(state: Partition) -> tuple[list[tuple[Pooled, HomeSide]], bool, list[bytes]]:
            standings = [(pooled, standing_of(state, sender.session, dialog.staged)) for pooled, dialog in asked]
            writer = state.writers.get(sender.session.writer)
            closed = writer is not None and writer.closed_at is not None
            return standings, closed, rivals_of(state, sender.session, groups)

        bounced, (standings, closed, rivals) = context.mailboxes.read(
            sender, home, self._slots.is_ours, question, timeout_s=HOME_S
        )
        if name is not None and (closed or any(rival > sender.session.writer for rival in rivals)):
            log.error("%s was taken over by another process", self._keeper.options.title)
            sender.decide(self._stop_session)
            return
        if rivals:
            self._takeover.repeat()
        returned = {mark_of(one.conversation) for one in bounced}
        with self._slots.changed:
            astray, pending = self._slots.astray(home), self._slots.resends_pending()
            for slot in astray:
                self._pooling.try_again(slot.place)
            for slot in pending:
                assert slot.last is not None, "something came back"
                if mark_of(slot.place.group) not in returned and slot.last.begin.home == home:
                    self._keeper.resends.resume_sends(slot.place)
            self._keeper.run_effects(self._pooling.read_home(standings, bounced, now_ms()))
            for slot in (*astray, *pending):
                self._pooling.allow_sends(slot.place)
                self._slots.vacate(slot.place)

    def _stop_session(self, session: Session) -> list[Produce]:
        name = self._keeper.options.name
        session.stop(f"another process has taken over pool {name!r} and the undelivered messages of this one")
        return []
