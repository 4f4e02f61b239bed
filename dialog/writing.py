"""What a session writes, and under which ids: its lanes, what became of their records, and how it goes on.

Source: protocol.md section 5. What the records say is the matter of `session`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from konverse.schemas.errors import KonverseError, OutcomeExpired, SessionTakenOver
from konverse.schemas.identifiers import Address
from konverse.schemas.records import WriterClosed

from .ageing import Age, Ageing
from .lane import Handed, Lane, SessionDialog
from .takeover import TakeOver, Unheard, Wanted


class Hand(NamedTuple):
    """Effect: hand these records to the producer, in this order."""

    address: Address
    records: list[Handed]


def take_while(queue: deque[SessionDialog], ready: Callable[[SessionDialog], bool]) -> Iterable[SessionDialog]:
    """Take from the front what is ready; dialogs of different homes may stand in any order."""
    rest = []
    while queue:
        dialog = queue.popleft()
        if ready(dialog):
            yield dialog
        else:
            rest.append(dialog)
    queue.extend(rest)


class Writing:
    """One writer id after another, and its lanes."""

    def __init__(self, writer: bytes, opened_ms: int) -> None:
        self.writer = writer
        """UUIDv7, 16 bytes; never used by another session. `opened_ms` is the clock's before it was asked for."""
        self.ids = [writer]
        """The present one is the last."""
        self.ageing = Ageing(opened_ms)
        self.takeover = TakeOver()
        self.over: KonverseError | None = None
        """Why nothing goes on."""
        self.lanes: dict[Address, Lane] = {}
        self.closing = False

    @abstractmethod
    def _release(self) -> list[Hand]:
        """Let go what waited for records that count by now."""

    @abstractmethod
    def _moved(self, begun: list[bytes], lane: Lane | None) -> list[Hand]:
        """Records go on in other lanes. BEGINs of conversations go again in `lane`."""

    @abstractmethod
    def _stopped(self) -> None:
        """Nothing goes on."""

    # ---------------------------------------------------------------------------------------------------- outcomes

    def drained(self) -> list[Hand]:
        """The producer ran empty without a failure: everything handed over counts."""
        for lane in self.lanes.values():
            lane.window.drained()
            lane.forget()
        return self._release()

    def restart(self, refused: Address | None = None) -> list[Hand]:
        """The producer was replaced: everything that does not count goes again, with the same counters.

        Who refused gets nothing before `try_again`, so that the others come to count.
        """
        for lane in self.lanes.values():
            if lane.address == refused:
                lane.park()
            lane.window.restart()
        return self.unsent()

    def try_again(self) -> list[Hand]:
        """Hand over what waits for destinations that refused."""
        for lane in self.lanes.values():
            lane.unpark()
        return self.unsent()

    def unsent(self) -> list[Hand]:
        """Everything that was not handed over yet, but for destinations that refuse."""
        return [hand for lane in self.lanes.values() for hand in self._hand(lane)]

    @property
    def refused(self) -> bool:
        """A destination is parked."""
        return any(lane.parked for lane in self.lanes.values())

    # ------------------------------------------------------------------------------------------------- another id

    def look(self, now_ms: int) -> Age:
        """Whether the session needs another id by this clock; to be asked before outcomes are told."""
        if self.closing or self.over is not None:
            return Age.FRESH
        return self.ageing.look(self.lanes, now_ms)

    def change(self, writer: bytes, opened_ms: int) -> list[Hand]:
        """Go on under a new id. The producer was replaced, or has nothing left to do."""
        assert not self.closing, "a session that says goodbye goes on under its last id"
        self.writer = writer
        self.ids.append(writer)
        self.ageing = Ageing(opened_ms)
        self.lanes = self.takeover.change(self.lanes, writer)
        return self._moved([], None)

    def answered(self, wanted: Wanted, said: WriterClosed | Unheard) -> list[Hand]:
        """What a destination says to the question about a former id. Not to Unheard.ANOTHER: `change` is due then."""
        if self.over is not None or wanted not in self.takeover.wanted():
            return []
        if isinstance(said, WriterClosed) and said.heir is None:
            return []  # it was pruned, and does not know of our question yet
        lane = self.lanes[wanted.address]
        if said is Unheard.LATER:
            self.takeover.ask(lane)
            return self._hand(lane)
        if said is Unheard.EXPIRED:
            self.over = OutcomeExpired(
                f"{wanted.address.topic} has forgotten this session, which was silent for months"
            )
        elif isinstance(said, WriterClosed):
            chain = self.takeover.behind[wanted.address]
            if said.heir not in self.ids or (len(chain) == 1 and said.closed_at < chain[0].window.acked):
                self.stop(
                    "somebody has asked for the outcome of its messages, and was told that some were not received. "
                    "They are not sent again"
                )
            else:
                return self._moved(self.takeover.answered(said, lane), lane)
        self._stopped()
        return []

    def stop(self, why: str) -> None:
        """Somebody has closed this session: it sends nothing any more."""
        self.over = SessionTakenOver(f"this session was closed: {why}; connect again to go on")
        self._stopped()

    def check_over(self) -> None:
        """Raise why nothing goes on, if so."""
        if self.over is not None:
            raise type(self.over)(*self.over.args)

    # ------------------------------------------------------------------------------------------------------- lanes

    def lane_to(self, address: Address) -> Lane:
        """Where records to a destination are put: the present lane, or the one that waits to be moved into it."""
        if address in self.takeover.behind:
            return self.takeover.behind[address][0]
        lane = self.lanes.get(address)
        if lane is None:
            lane = self.lanes[address] = Lane(address, self.writer)
        return lane

    def _hand(self, lane: Lane) -> list[Hand]:
        records = [] if lane.parked or lane.retired or self.over else lane.unsent()
        return [Hand(lane.address, records)] if records else []

    def _all_lanes(self) -> list[Lane]:
        behind = [lane for chain in self.takeover.behind.values() for lane in chain]
        return [*self.lanes.values(), *behind]
