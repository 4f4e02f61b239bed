"""A session begins dialogs, sends on them and ends them, under its own writer id. No I/O.

Source: protocol.md section 5.

`SessionLanes` holds the lanes and changes the writer id when `rotation` requires it. `Session` adds the dialogs. Three
rules give exactly once and in order over plain appends. Each record for a destination partition takes the next counter,
and after any failure all records from the first unacknowledged one are handed over again with the same counters. FIRST
leaves after BEGIN is acknowledged. END leaves after all messages of its dialog are acknowledged.

Calls return the records to hand over (`Produce`). The driver gives them to its producer and reports when the producer
has run empty without a failure (`drained`) or was replaced (`restart`). Sending is the hot path: there the driver calls
`SessionDialog.stage` and produces the record itself. Drivers: `bridge.client.sender` and the simulator.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from konverse.dialog.rules.half_close import fin_suffix
from konverse.dialog.state.partition import Partition
from konverse.schemas.counting import counted
from konverse.schemas.errors import KonverseError, OutcomeExpired, OutcomeUnknown, QueueFull, SessionTakenOver
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import SESSION_OVER_ENTRIES_MAX
from konverse.schemas.wire.bodies import check_size
from konverse.schemas.wire.envelope import encode_suffix, head
from konverse.schemas.wire.records import (
    FIRST,
    NAMED,
    NO_SEQUENCE,
    RETURNING,
    Begin,
    BounceId,
    Kind,
    Opened,
    Suffix,
    Timer,
    WriterClosed,
)
from konverse.schemas.wire.token import Sent

from .dialogs import (
    END_CALL_SUFFIX,
    PLAIN,
    BeginOptions,
    DialogEvent,
    DialogState,
    EndedConversations,
    Lifetimes,
    Redirects,
    SessionDialog,
    confirmation,
    control,
)
from .lanes import Lane, Produce, Single, sent_of, weight_of
from .rotation import Age, AgeWatch, CloseQuery, TakeOver, Unheard
from .transactions import StagedTransaction, Transactions

_EMPTY: Final = encode_suffix(Suffix())


class SessionLanes:
    """The lanes of a session and its writer ids, one after another.

    It is a base class, because each send uses attributes of both classes, and a separate object would cost a look-up
    for each of them. `Session` adds the dialogs; this class calls only the three abstract methods.
    """

    def __init__(self, writer: bytes, opened_ms: int) -> None:
        self.writer = writer
        """UUIDv7, 16 bytes; no other session ever uses it. `opened_ms`: local time just before the id was requested."""
        self.ids = [writer]
        """All writer ids so far; the last one is in use."""
        self.ageing = AgeWatch(opened_ms)
        self.takeover = TakeOver()
        self.over: KonverseError | None = None
        """The error that ended the session; None while it works."""
        self.lanes: dict[Address, Lane] = {}
        self.closing = False

    @abstractmethod
    def _release(self) -> list[Produce]:
        """Put the records that waited for other records, where those are now acknowledged."""

    @abstractmethod
    def _moved(self, begun: list[bytes], lane: Lane | None) -> list[Produce]:
        """Called after records moved to other lanes. BEGINs of the conversations `begun` are sent again in `lane`."""

    @abstractmethod
    def _stopped(self) -> None:
        """Called when the session is over and sends nothing more."""

    # ---------------------------------------------------------------------------------------------------- outcomes

    def drained(self) -> list[Produce]:
        """The producer ran empty without a failure: every record handed over is acknowledged."""
        for lane in self.lanes.values():
            lane.window.drained()
            lane.forget()
        return [*self._release(), *self._vouch()]

    def _vouch(self) -> list[Produce]:
        """After each check of the ages, vouch for the records that no later record has vouched for yet (M291)."""
        fresh = self.ageing.age is Age.FRESH  # an old id hands over no further record (M127)
        if not (self.ageing.has_looked and fresh) or self.closing or self.over is not None:
            return []
        self.ageing.has_looked = False
        for address, lane in self.lanes.items():
            if not lane.parked and address not in self.takeover.behind:  # resent records follow the question directly
                lane.vouch()
        return self.unsent()

    def restart(self, refused: Address | None = None) -> list[Produce]:
        """The producer was replaced: hand over every unacknowledged record again, with the same counters.

        `refused` is a destination that refused a record. It gets nothing until `try_again`, so that the records for the
        other destinations can be acknowledged.
        """
        for lane in self.lanes.values():
            if lane.address == refused:
                lane.park()
            lane.window.restart()
        return self.unsent()

    def try_again(self) -> list[Produce]:
        """Hand over the records for destinations that refused one."""
        for lane in self.lanes.values():
            lane.unpark()
        return self.unsent()

    def unsent(self) -> list[Produce]:
        """Records that were not handed over yet, except those for parked destinations."""
        return [hand for lane in self.lanes.values() for hand in self._hand(lane)]

    @property
    def refused(self) -> bool:
        """Whether a destination is parked."""
        return any(lane.parked for lane in self.lanes.values())

    # ------------------------------------------------------------------------------------------------- another id

    def check_age(self, now_ms: int) -> Age:
        """Whether the session needs a new id at this time. Call it before `drained`."""
        if self.closing or self.over is not None:
            return Age.FRESH
        return self.ageing.check_age(self.lanes, now_ms)

    def change(self, writer: bytes, opened_ms: int) -> list[Produce]:
        """Continue under a new id. The producer must have been replaced, or be empty."""
        assert not self.closing, "a closing session keeps its id"
        self.writer = writer
        self.ids.append(writer)
        self.ageing = AgeWatch(opened_ms)
        self.lanes = self.takeover.change(self.lanes, writer)
        return self._moved([], None)

    def answered(self, wanted: CloseQuery, said: WriterClosed | Unheard) -> list[Produce]:
        """Take a destination's reply to the question about a former id. Unheard.ANOTHER requires `change` instead."""
        if self.over is not None or wanted not in self.takeover.wanted():
            return []
        if isinstance(said, WriterClosed) and said.heir is None:
            return []  # PRUNE closed the writer; our CLOSE_WRITER was not ingested yet
        lane = self.lanes[wanted.address]
        if said is Unheard.LATER:
            self.takeover.ask(lane)
            return self._hand(lane)
        if said is Unheard.EXPIRED:
            self.over = OutcomeExpired(
                f"{wanted.address.topic} has forgotten this session, because it sent nothing for months; the "
                "outcome of its messages is unknown"
            )
        elif isinstance(said, WriterClosed):
            chain = self.takeover.behind[wanted.address]
            if said.heir not in self.ids:
                self.stop(
                    "another process asked for the outcome of its messages, and those reported as not received are "
                    "not sent again"
                )
            elif len(chain) == 1 and said.closed_at < chain[0].window.acked:
                self.stop(
                    f"partition {wanted.address.partition} of {wanted.address.topic} lacks records that Kafka had "
                    "acknowledged: their messages are lost"
                )
            else:
                return self._moved(self.takeover.answered(said, lane), lane)
        self._stopped()
        return []

    def stop(self, why: str) -> None:
        """End the session: another process has closed it, or a destination has lost acknowledged records."""
        self.over = SessionTakenOver(f"this session was closed: {why}; connect again to continue")
        self._stopped()

    def interrupt(self, by: str) -> None:
        """End the session: an exception from outside, such as Ctrl-C, cut a call short, with unknown effects."""
        self.over = OutcomeUnknown(
            f"a call of this session was interrupted ({by}) while it changed the session, so it is unknown which of "
            "its last messages arrive; connect again to continue"
        )
        self._stopped()

    def mend(self, dialog: SessionDialog, sequence: int) -> None:
        """Undo or complete a direct send (`stage`) that an exception from outside has cut off.

        `sequence` is the number of its message. The caller then hands all unacknowledged records over again.
        """
        torn = dialog.target.trim()
        dialog.sent = sequence if torn else dialog.sent

    def check_over(self) -> None:
        """Raise the error that ended the session, if there is one."""
        if self.over is not None:
            raise type(self.over)(*self.over.args)

    # ------------------------------------------------------------------------------------------------------- lanes

    def lane_to(self, address: Address) -> Lane:
        """The lane for new records to a destination: the oldest retired one that awaits an answer, else the present."""
        if address in self.takeover.behind:
            return self.takeover.behind[address][0]
        lane = self.lanes.get(address)
        if lane is None:
            lane = self.lanes[address] = Lane(address, self.writer)
        return lane

    def _hand(self, lane: Lane) -> list[Produce]:
        records = [] if lane.parked or lane.retired or self.over else lane.unsent()
        return [Produce(lane.address, records)] if records else []

    def _all_lanes(self) -> list[Lane]:
        behind = [lane for chain in self.takeover.behind.values() for lane in chain]
        return [*self.lanes.values(), *behind]


class Session(SessionLanes):
    """A client's session: its dialogs, and the records that they write."""

    def __init__(self, writer: bytes, opened_ms: int = 0) -> None:
        super().__init__(writer, opened_ms)
        self.dialogs: dict[bytes, SessionDialog] = {}
        self._beginning: deque[SessionDialog] = deque()
        self._ending: deque[SessionDialog] = deque()
        self._redirecting: dict[bytes, SessionDialog] = {}
        """Dialogs whose REDIRECTs have not arrived, or whose messages are held until they have."""
        self.ended_conversations = EndedConversations()
        self._ended_by_peers: dict[bytes, SessionDialog] = {}
        """Dialogs with caller-chosen ids whose peers have ended, and which the application has not ended yet."""
        self._lifetimes = Lifetimes()
        self.transactions = Transactions(self)

    # ------------------------------------------------------------------------------------------------------- calls

    def begin(
        self, conversation: bytes, begin: Begin, manner: BeginOptions = PLAIN
    ) -> tuple[SessionDialog, list[Produce]]:
        """BEGIN DIALOG: a control record to the dialog's home; nothing reaches the target (behaviour 31).

        Returns the existing dialog when this session has begun the conversation before. Raises ConversationOver when
        this session has ended the conversation (M271), QueueFull when the lane to the home is full.
        """
        self.ended_conversations.check(conversation)
        known = self.known(conversation)
        if known is not None:
            return known, []
        self.check_over()
        home = self.lane_to(begin.home)
        home.check_room()
        dialog = self.propose(conversation, begin, manner)
        self.keep(dialog)
        dialog.begun_at = home.next
        prefix = head(Kind.BEGIN, dialog.flags & ~RETURNING, Role.INITIATOR, begin.home.tag, home.writer)
        home.put(Single(prefix + conversation, dialog.level, dialog.key), encode_suffix(Suffix(begin=begin)), None)
        self._beginning.append(dialog)
        return dialog, self._hand(home)

    def known(self, conversation: bytes) -> SessionDialog | None:
        """The dialog that this session has begun under this id, also after the peer has ended; None for another id.

        After the peer's end it is known only if the caller chose its id, and until SESSION_OVER_ENTRIES_MAX others have
        ended.
        """
        return self.dialogs.get(conversation) or self._ended_by_peers.get(conversation)

    def propose(self, conversation: bytes, begin: Begin, manner: BeginOptions) -> SessionDialog:
        """Make a dialog without writing anything."""
        self.takeover.home = begin.home
        home, target = self.lane_to(begin.home), self.lane_to(begin.target)
        return SessionDialog(conversation, begin, home, target, manner)

    def keep(self, dialog: SessionDialog) -> None:
        """Keep a dialog that is begun or adopted. From now on its lifetime is measured."""
        self.dialogs[dialog.conversation] = dialog
        self._lifetimes.begun(dialog)

    def send(self, dialog: SessionDialog, message_type: str, body: bytes) -> list[Produce]:
        """SEND: one record for the target (the driver's hot path does this inline).

        The message is held until BEGIN is acknowledged and earlier REDIRECTs of the dialog have arrived.
        """
        self.check(dialog, body)
        dialog.go_along()
        if dialog.state is DialogState.BEGINNING or dialog.conversation in self._redirecting:
            dialog.held.append((message_type, body))
            dialog.target.room -= weight_of(body)
            return []
        self._message(dialog, message_type, body)
        return self._hand(dialog.target)

    def check(self, dialog: SessionDialog, body: bytes) -> None:
        """Raise the error that forbids a send: ConversationEnded, BodyTooLarge or QueueFull. Writes nothing."""
        self.check_over()
        dialog.check_open()
        check_size(len(body))
        if dialog.target.full:
            waiting = len(dialog.target.origins) + len(dialog.held)
            topic = dialog.target.address.topic
            raise QueueFull(
                f"{counted(waiting, f'record to {topic} waits', f'records to {topic} wait')} for Kafka; try again"
            )
        dialog.check_path()

    def finish(self, dialog: SessionDialog) -> list[Produce]:
        """FIN after the messages: the dialog takes no more. A second call changes nothing. Raises QueueFull."""
        if dialog.finished:
            return []
        self.check_over()
        dialog.check_open()
        dialog.go_along()
        dialog.check_path()
        if dialog.conversation in self._redirecting:
            raise QueueFull("messages that were redirected to this dialog have not arrived yet; try again")
        dialog.finished, dialog.open = True, False
        if dialog.state is DialogState.BEGINNING:
            return []  # FIN follows the held messages
        self.fin(dialog)
        return self._hand(dialog.target)

    def commit(self, transaction: StagedTransaction) -> list[Produce]:
        """Commit a transaction: its record leaves when everything sent before on its dialogs is acknowledged."""
        self.check_over()
        self.transactions.commit(transaction)
        return self._release()

    def transmit_to(self, address: Address) -> None:
        """Set the transmission partition of this session; only the first call has an effect."""
        if self.transactions.address is None:
            self.transactions.address = self.lane_to(address).address

    def transmitted(self, state: Partition) -> list[Produce]:
        """Take the state of the transmission partition, folded from its journal."""
        return self._release() if self.transactions.read(state) else []

    def end(self, dialog: SessionDialog, error_body: bytes = b"") -> list[Produce]:
        """END CONVERSATION: to home once all messages are acknowledged. A second call raises ConversationEnded (8427).

        WITH ERROR drops the held messages (behaviour 111), unless a transaction of the dialog is pending.
        """
        dialog.check_open(ends=True)
        self.check_over()
        dialog.go_along()
        dialog.waiting_end = error_body
        dialog.open = False
        self.ended_conversations.add(dialog)
        self._ended_by_peers.pop(dialog.conversation, None)
        if error_body and not dialog.pending:
            dialog.drop_held()
        dialog.on(DialogEvent.END_CALLED)
        dialog.last = dialog.target.next - 1 if dialog.sent else dialog.last
        if not self._may_end(dialog):
            self._ending.append(dialog)
            return []
        self._end(dialog)
        return self._hand(dialog.home)

    def redirect(self, dialog: SessionDialog, bounce: BounceId) -> list[Produce]:
        """REDIRECT: have the dialog's home send this bounced message on it, after everything sent on it before."""
        self.check(dialog, b"")
        dialog.go_along()
        dialog.home.check_room()
        if dialog.redirects is None:
            dialog.redirects = Redirects()
            dialog.open = False
            dialog.last = dialog.target.next - 1 if dialog.sent else -1
        dialog.held.append(bounce)
        self._redirecting[dialog.conversation] = dialog
        return self._release()

    def confirm(self, dialog: SessionDialog, bounce: BounceId) -> list[Produce]:
        """CONFIRM: the application has taken note of this bounced message of the dialog; home may drop it."""
        self.check_over()
        dialog.go_along()
        home = dialog.home
        home.check_room()
        home.put(*confirmation(home, dialog.conversation, bounce), None)
        return self._hand(home)

    def set_timer(self, dialog: SessionDialog, timer: Timer) -> list[Produce]:
        """BEGIN CONVERSATION TIMER: a record to home, after BEGIN. Raises TimerRefused or QueueFull."""
        self.check_over()
        dialog.check_timer(timer.timeout_ms)
        dialog.go_along()
        dialog.check_path()
        home = dialog.home
        home.check_room()
        prefix = head(Kind.SET_TIMER, 0, Role.INITIATOR, home.address.tag, home.writer) + dialog.conversation
        home.put(Single(prefix, NO_SEQUENCE, dialog.key), control(timer), None)
        return self._hand(home)

    def read_home(self, home: Partition) -> list[Produce]:
        """Take the state of a home: put the messages that were held for REDIRECTs which have arrived."""
        for dialog in self._redirecting.values():
            if dialog.redirects is not None and dialog.begin.home == home.address:
                dialog.redirects.arrived(dialog, home)
        return self._release()

    @property
    def redirecting(self) -> list[SessionDialog]:
        """Dialogs that wait for their homes to carry out REDIRECTs."""
        return list(self._redirecting.values())

    def check_age(self, now_ms: int) -> Age:
        """As `SessionLanes.check_age`; also refuses sends on dialogs whose lifetime is over."""
        for dialog in self._lifetimes.over(now_ms):
            if self.dialogs.get(dialog.conversation) is dialog:  # another dialog may have its id by now
                self.ended_by_peer(dialog.conversation)
        return super().check_age(now_ms)

    def ended_by_peer(self, conversation: bytes) -> None:
        """Refuse further sends: home has reported that the peer has ended. The application must still call END."""
        dialog = self.dialogs.pop(conversation, None)
        if dialog is not None:
            dialog.on(DialogEvent.OVER)
            dialog.open = False
            if dialog.flags & NAMED:
                if len(self._ended_by_peers) >= SESSION_OVER_ENTRIES_MAX:
                    del self._ended_by_peers[next(iter(self._ended_by_peers))]
                self._ended_by_peers[conversation] = dialog

    def close(self) -> list[Produce]:
        """End the session cleanly: CLOSE_WRITER to every destination. Only when `may_close`."""
        assert self.may_close, "close only when `may_close`"
        self.closing = True
        hands: list[Produce] = []
        for lane in self.lanes.values():
            prefix = head(Kind.CLOSE_WRITER, 0, Role.INITIATOR, lane.address.tag, self.writer) + self.writer
            lane.put(Single(prefix, -1, self.writer), _EMPTY, None)
            hands += self._hand(lane)
        return hands

    # ---------------------------------------------------------------------------------------------------- outcomes

    def acknowledged(self, dialog: SessionDialog) -> Callable[[], bool]:
        """A function that tells whether everything sent on the dialog before this call has arrived."""
        if dialog.pending:
            return self.transactions.arrived(dialog)
        sent, lane, redirects = dialog.target.next, dialog.target, dialog.redirects
        if redirects is not None:
            return lambda: not dialog.held and dialog.target.counts(dialog.last) and redirects.counter is None
        if dialog.held:
            return lambda: not dialog.held and dialog.target.counts(dialog.last)
        return lambda: lane.counts(sent - 1)

    @property
    def idle(self) -> bool:
        """Whether no record waits for Kafka or for an earlier record."""
        held = any(dialog.held for dialog in self._redirecting.values())
        waits = held or self._beginning or self._ending or self.transactions.waiting
        return not waits and not any(lane.origins for lane in self._all_lanes())

    @property
    def may_close(self) -> bool:
        """Whether the session is idle and everything that owners send for it has arrived."""
        return self.idle and not (self.transactions.flying or self._redirecting or self.takeover.behind)

    @property
    def messages_waiting(self) -> int:
        """Number of messages that are not acknowledged."""
        origins = [origin for lane in self._all_lanes() for origin in lane.origins]
        held = [item for dialog in self._present() for item in dialog.held]
        messages = [one for one in origins if not isinstance(one, Single) or one.is_message]
        return len(messages) + sum(not isinstance(item, BounceId) for item in held)

    @property
    def gated(self) -> bool:
        """Whether a record waits for earlier ones to be acknowledged."""
        if self._beginning or self.transactions.waiting or not self._redirecting:
            return bool(self._beginning or self._ending or self.transactions.waiting)
        next_ones = [dialog.held[0] for dialog in self._redirecting.values() if dialog.held]
        ending = any(not dialog.held for dialog in self._ending)
        return ending or any(isinstance(item, BounceId) for item in next_ones)

    def unknown(self, dialog: SessionDialog | None = None) -> list[Sent]:
        """The unacknowledged messages of one dialog or of all: the content of a token."""
        found = [sent for lane in self._staging_lanes() for sent in sent_of(lane)]
        for each in self._present():
            if any(not isinstance(item, BounceId) for item in each.held):
                lane, number = each.target, each.sent if each.redirects is None else NO_SEQUENCE
                found.append(Sent(lane.writer, lane.address, each.conversation, number, (), lane.next))
        return [sent for sent in found if dialog is None or sent.conversation == dialog.conversation]

    # ---------------------------------------------------------------------------------------------------- inside

    def _moved(self, begun: list[bytes], lane: Lane | None) -> list[Produce]:
        """Point the dialogs to the lanes that hold their records; `begun_at` follows BEGIN, so END stays after it."""
        for dialog in self._present():
            if lane is not None and dialog.conversation in begun:
                dialog.opener = lane.writer
            dialog.go_along()
        self.transactions.moved()
        return [*self._release(), *self.unsent()]

    def _present(self) -> list[SessionDialog]:
        """Dialogs that may still have records to hand over, including those whose peer has ended."""
        waiting = (*self._beginning, *self._ending, *self._redirecting.values())
        return list(dict.fromkeys((*self.dialogs.values(), *waiting)))

    def _stopped(self) -> None:
        for dialog in self.dialogs.values():
            dialog.open = False

    def _staging_lanes(self) -> list[Lane]:
        """For each destination, the lane that takes new records."""
        return [self.lane_to(address) for address in self.lanes]

    def _release(self) -> list[Produce]:
        """Put the records that may leave now: messages after their BEGIN, ENDs after their messages, transactions."""
        touched: dict[Address, Lane] = {}
        for dialog in take_while(self._beginning, lambda d: d.begun_at < d.home.window.acked):
            dialog.go_along()
            if dialog.state is DialogState.BEGINNING:
                dialog.on(DialogEvent.BEGUN)
            self._go_on(dialog, touched)
            if dialog.finished and not self.transactions.finishes(dialog):
                self.fin(dialog)
                touched[dialog.target.address] = dialog.target
        for dialog in list(self._redirecting.values()):
            self._go_on(dialog, touched)
        for dialog in take_while(self._ending, self._may_end):
            self._end(dialog)
            touched[dialog.home.address] = dialog.home
        transmission = self.transactions.release()
        if transmission is not None:
            touched[transmission.address] = transmission
        hands: list[Produce] = []
        for lane in touched.values():
            hands += self._hand(lane)
        return hands

    @staticmethod
    def _may_end(dialog: SessionDialog) -> bool:
        """Whether its BEGIN and everything sent on it are acknowledged."""
        begun = dialog.begun_at < dialog.home.window.acked and dialog.last < dialog.target.window.acked
        return begun and not (dialog.held or dialog.pending)

    def _end(self, dialog: SessionDialog) -> None:
        home = dialog.home
        prefix = head(Kind.END_CALL, 0, Role.INITIATOR, home.address.tag, home.writer) + dialog.conversation
        home.put(Single(prefix, -1, dialog.key), END_CALL_SUFFIX, dialog.waiting_end or None)
        dialog.on(DialogEvent.OVER)
        if self.dialogs.get(dialog.conversation) is dialog:
            del self.dialogs[dialog.conversation]

    def _go_on(self, dialog: SessionDialog, touched: dict[Address, Lane]) -> None:
        """Put the held items in the order of the calls, as far as the two paths of the dialog allow."""
        if dialog.begun_at >= dialog.home.window.acked:
            return
        redirects = dialog.redirects
        gone = 0
        for item in dialog.held:
            if isinstance(item, BounceId):
                if redirects is None or dialog.last >= dialog.target.window.acked:
                    break
                redirects.put(dialog, item)
                touched[dialog.home.address] = dialog.home
            else:
                if redirects is not None and redirects.counter is not None:
                    break
                dialog.target.room += weight_of(item[1])
                self._message(dialog, *item)
                dialog.last = dialog.target.next - 1
                touched[dialog.target.address] = dialog.target
            gone += 1
        del dialog.held[:gone]
        if not dialog.held and (redirects is None or redirects.counter is None):
            self._redirecting.pop(dialog.conversation, None)

    def _message(self, dialog: SessionDialog, message_type: str, body: bytes) -> None:
        redirects = dialog.redirects
        if redirects is not None and (dialog.sent or redirects.opened):
            dialog.target.put(Single(dialog.prefix, NO_SEQUENCE, dialog.key), dialog.suffix_of(message_type), body)
            dialog.last = dialog.target.next - 1
            return
        if dialog.sent:
            dialog.stage(message_type, body)
            return
        dialog.sent = 1
        dialog.go_along()
        writer = dialog.target.writer
        prefix = head(Kind.MESSAGE, dialog.flags | FIRST, Role.INITIATOR, dialog.begin.target.tag, writer)
        opened = Opened(dialog.opener) if dialog.opener != writer else None
        suffix = encode_suffix(Suffix(message_type, begin=dialog.begin, detail=opened))
        dialog.target.put(Single(prefix + dialog.conversation, 0, dialog.key), suffix, body)

    def fin(self, dialog: SessionDialog) -> None:
        """Put FIN after the messages."""
        lane = dialog.target
        prefix = head(Kind.FIN, 0, Role.INITIATOR, lane.address.tag, lane.writer) + dialog.conversation
        lane.put(Single(prefix, NO_SEQUENCE, dialog.key), fin_suffix(dialog.begin.home), None)
        dialog.last = lane.next - 1


def take_while(queue: deque[SessionDialog], ready: Callable[[SessionDialog], bool]) -> Iterable[SessionDialog]:
    """Remove and yield the dialogs that are ready, at any place in the queue, because homes differ in speed."""
    rest = []
    while queue:
        dialog = queue.popleft()
        if ready(dialog):
            yield dialog
        else:
            rest.append(dialog)
    queue.extend(rest)
