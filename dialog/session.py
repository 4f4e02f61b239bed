"""A session: a writer that begins dialogs, sends on them and ends them, as a machine without I/O.

Source: protocol.md section 5.

Three rules give exactly once and in order with nothing but plain appends. Every record to one destination partition has
the next counter, and after any failure the records from the first that does not count go again with the same counters.
FIRST leaves after BEGIN counts, so home knows of a conversation before its target does. END leaves after all sends of
the dialog count, so it cannot overtake them.

A session may have to go on under another writer id: see `takeover`, and `ageing` for when.

Drivers: `bridge.sending`, and the simulator. Sends are the hot path: `stage` makes a record, the driver hands it over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from konverse.schemas.catalog import END_DIALOG
from konverse.schemas.envelope import encode_suffix, head
from konverse.schemas.errors import (
    BodyTooLarge,
    ConversationEnded,
    KonverseError,
    OutcomeExpired,
    QueueFull,
    SessionTakenOver,
)
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import BODY_BYTES_MAX
from konverse.schemas.records import FIRST, Begin, Kind, Opened, Role, Suffix, WriterClosed
from konverse.schemas.token import Sent

from .ageing import Age, Ageing
from .lane import DialogState, Handed, Lane, SessionDialog, Single, sent_of, weight_of
from .takeover import TakeOver, Unheard, Wanted


class Hand(NamedTuple):
    """Effect: hand these records to the producer, in this order."""

    address: Address
    records: list[Handed]


class Session:
    """One writer id after another, and its lanes."""

    def __init__(self, writer: bytes, opened_ms: int = 0) -> None:
        self.writer = writer
        """UUIDv7, 16 bytes; never used by another session. `opened_ms` is the clock's before it was asked for."""
        self.ids = [writer]
        """The present one is the last."""
        self.ageing = Ageing(opened_ms)
        self.takeover = TakeOver()
        self.over: KonverseError | None = None
        """Why nothing goes on."""
        self.lanes: dict[Address, Lane] = {}
        self.dialogs: dict[bytes, SessionDialog] = {}
        self._beginning: deque[SessionDialog] = deque()
        self._ending: deque[SessionDialog] = deque()
        self.closing = False

    # ------------------------------------------------------------------------------------------------------- calls

    def begin(self, conversation: bytes, begin: Begin) -> tuple[SessionDialog, list[Hand]]:
        """BEGIN DIALOG: a control record to the dialog's home; nothing reaches the target (behaviour 31).

        A conversation that this session has begun and not ended is given again.
        """
        known = self.dialogs.get(conversation)
        if known is not None:
            return known, []
        self.check_over()
        home = self._lane(begin.home)
        if home.full:
            raise QueueFull(f"{len(home.origins)} records to {home.address.topic} wait for Kafka; try again")
        dialog = SessionDialog(conversation, begin, home, self._lane(begin.target))
        self.dialogs[conversation] = dialog
        self.takeover.home = begin.home
        dialog.begun_at = home.next
        prefix = head(Kind.BEGIN, 0, Role.INITIATOR, begin.home.tag, home.writer) + conversation
        home.put(Single(prefix, -1, dialog.key), encode_suffix(Suffix(begin=begin)), None)
        self._beginning.append(dialog)
        return dialog, self._hand(home)

    def send(self, dialog: SessionDialog, message_type: str, body: bytes) -> list[Hand]:
        """SEND: held until BEGIN counts, else one record for the target (the driver's hot path does this inline)."""
        self.check(dialog, body)
        dialog.go_along()
        if dialog.state is DialogState.BEGINNING:
            dialog.held.append((message_type, body))
            dialog.target.room -= weight_of(body)
            return []
        self._message(dialog, message_type, body)
        return self._hand(dialog.target)

    def check(self, dialog: SessionDialog, body: bytes) -> None:
        """Raise what forbids a send: ConversationEnded, BodyTooLarge, QueueFull; nothing was written then."""
        self.check_over()
        if dialog.state is DialogState.ENDED or dialog.waiting_end is not None:
            raise ConversationEnded(f"the dialog was ended; begin a new one to send to {dialog.begin.to_service}")
        if len(body) > BODY_BYTES_MAX:
            raise BodyTooLarge(f"the body has {len(body)} bytes; at most {BODY_BYTES_MAX} fit into one message")
        if dialog.target.full:
            waiting = len(dialog.target.origins) + len(dialog.held)
            raise QueueFull(f"{waiting} records to {dialog.target.address.topic} wait for Kafka; try again")

    def end(self, dialog: SessionDialog, error_body: bytes = b"") -> list[Hand]:
        """END CONVERSATION: to home, when all sends count; a second END changes nothing."""
        if dialog.waiting_end is not None:
            return []
        dialog.go_along()
        dialog.waiting_end = error_body
        dialog.open = False
        if dialog.state is DialogState.OPEN:
            dialog.state = DialogState.ENDING
        dialog.last = dialog.target.next - 1 if dialog.sent else -1
        self._ending.append(dialog)
        return self._release()

    def ended_by_peer(self, conversation: bytes) -> None:
        """News from home: the peer ended, so sends are refused early. END is still to be called."""
        dialog = self.dialogs.pop(conversation, None)
        if dialog is not None:
            dialog.state = DialogState.ENDED
            dialog.open = False

    def close(self) -> list[Hand]:
        """A clean end of the session: tell every destination that this writer sends nothing more. When all counts."""
        assert self.idle, "a session closes when everything counts"
        self.closing = True
        hands: list[Hand] = []
        for lane in self.lanes.values():
            prefix = head(Kind.CLOSE_WRITER, 0, Role.INITIATOR, lane.address.tag, self.writer) + self.writer
            lane.put(Single(prefix, -1, self.writer), _EMPTY, None)
            hands += self._hand(lane)
        return hands

    # ---------------------------------------------------------------------------------------------------- outcomes

    def drained(self) -> list[Hand]:
        """The producer ran empty without a failure: everything handed over counts."""
        for lane in self.lanes.values():
            lane.window.drained()
            lane.forget()
        return self._release()

    def delivered(self, address: Address, counter: int, offset: int) -> list[Hand] | None:
        """One record is in the log; None when the order is wrong and a new producer is needed."""
        lane = self.lanes[address]
        if not lane.window.delivered(counter, offset):
            return None
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

    @staticmethod
    def acknowledged(dialog: SessionDialog) -> Callable[[], bool]:
        """Tells, whenever it is asked, whether everything that was sent on the dialog before this call counts."""
        sent, lane = dialog.target.next, dialog.target
        if dialog.held:
            return lambda: not dialog.held and dialog.target.counts(dialog.last)
        return lambda: lane.counts(sent - 1)

    @property
    def idle(self) -> bool:
        """Nothing waits, for Kafka or for an earlier record."""
        return not self._beginning and not self._ending and not any(lane.origins for lane in self._all_lanes())

    @property
    def messages_waiting(self) -> int:
        """Messages that do not count yet."""
        origins = [origin for lane in self._all_lanes() for origin in lane.origins]
        held = sum(len(dialog.held) for dialog in self.dialogs.values())
        return held + sum(not isinstance(origin, Single) or origin.sequence >= 0 for origin in origins)

    @property
    def gated(self) -> bool:
        """Something waits for records before it to count."""
        return bool(self._beginning or self._ending)

    # ------------------------------------------------------------------------------------------------- another id

    def look(self, now_ms: int) -> Age:
        """Whether the session needs another id by this clock; to be asked before outcomes are told."""
        return self.ageing.look(self.lanes, now_ms)

    def change(self, writer: bytes, opened_ms: int) -> list[Hand]:
        """Go on under a new id. The producer was replaced, or has nothing left to do."""
        assert not self.closing, "a session that says goodbye goes on under its last id"
        self.writer = writer
        self.ids.append(writer)
        self.ageing = Ageing(opened_ms)
        self.lanes = self.takeover.change(self.lanes, writer)
        return self._go_along()

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
                self.over = SessionTakenOver(
                    "this session was closed: somebody has asked for the outcome of its messages, and was told that "
                    "some were not received. They are not sent again; connect again to go on"
                )
            else:
                for conversation in self.takeover.answered(said, lane):
                    self.dialogs[conversation].opener = lane.writer  # it ends behind its BEGIN
                return self._go_along()
        for dialog in self.dialogs.values():
            dialog.open = False
        return []

    def check_over(self) -> None:
        """Raise why nothing goes on, if so."""
        if self.over is not None:
            raise type(self.over)(*self.over.args)

    def _go_along(self) -> list[Hand]:
        for dialog in (*self.dialogs.values(), *self._beginning, *self._ending):
            dialog.go_along()
        return [*self._release(), *self.unsent()]

    def unknown(self, dialog: SessionDialog | None = None) -> list[Sent]:
        """The messages that do not count, on one dialog or on all: what a token names."""
        found = [sent for lane in self._staging_lanes() for sent in sent_of(lane)]
        for each in self.dialogs.values():
            if each.held:
                lane = each.target
                found.append(Sent(lane.writer, lane.address, each.conversation, each.sent, (), lane.next))
        return [sent for sent in found if dialog is None or sent.conversation == dialog.conversation]

    # ---------------------------------------------------------------------------------------------------- inside

    def _staging_lanes(self) -> list[Lane]:
        """Where the records of each destination are put now."""
        return [self._lane(address) for address in self.lanes]

    def _all_lanes(self) -> list[Lane]:
        behind = [lane for chain in self.takeover.behind.values() for lane in chain]
        return [*self.lanes.values(), *behind]

    def _release(self) -> list[Hand]:
        """Let go what waited: messages whose BEGIN counts, ENDs whose messages count."""
        touched: dict[Address, Lane] = {}
        for dialog in _take_while(self._beginning, lambda d: d.begun_at < d.home.window.acked):
            dialog.go_along()
            if dialog.state is DialogState.BEGINNING:
                dialog.state = DialogState.OPEN
            for message_type, body in dialog.held:
                dialog.target.room += weight_of(body)
                self._message(dialog, message_type, body)
                dialog.last = dialog.target.next - 1
                touched[dialog.target.address] = dialog.target
            dialog.held.clear()
        for dialog in list(self._ending):
            if dialog.begun_at >= dialog.home.window.acked or dialog.last >= dialog.target.window.acked:
                continue
            self._ending.remove(dialog)
            error_body = dialog.waiting_end
            writer = dialog.home.writer
            prefix = head(Kind.END_CALL, 0, Role.INITIATOR, dialog.begin.home.tag, writer) + dialog.conversation
            dialog.home.put(Single(prefix, -1, dialog.key), _END_SUFFIX, error_body or None)
            touched[dialog.home.address] = dialog.home
            dialog.state = DialogState.ENDED
            self.dialogs.pop(dialog.conversation, None)
        hands: list[Hand] = []
        for lane in touched.values():
            hands += self._hand(lane)
        return hands

    def _message(self, dialog: SessionDialog, message_type: str, body: bytes) -> None:
        if dialog.sent:
            dialog.stage(message_type, body)
            return
        dialog.sent = 1
        dialog.go_along()
        writer = dialog.target.writer
        prefix = head(Kind.MESSAGE, FIRST, Role.INITIATOR, dialog.begin.target.tag, writer) + dialog.conversation
        opened = Opened(dialog.opener) if dialog.opener != writer else None
        suffix = encode_suffix(Suffix(message_type, begin=dialog.begin, detail=opened))
        dialog.target.put(Single(prefix, 0, dialog.key), suffix, body)

    def _lane(self, address: Address) -> Lane:
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


def _take_while(queue: deque[SessionDialog], ready: Callable[[SessionDialog], bool]) -> Iterable[SessionDialog]:
    """Take from the front what is ready; dialogs of different homes may stand in any order."""
    rest = []
    while queue:
        dialog = queue.popleft()
        if ready(dialog):
            yield dialog
        else:
            rest.append(dialog)
    queue.extend(rest)


_EMPTY: Final = encode_suffix(Suffix())
_END_SUFFIX: Final = encode_suffix(Suffix(END_DIALOG))
