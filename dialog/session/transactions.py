"""Transactions of a session: several begins, sends and ends that happen together or not at all (protocol.md section 5).

A client stages its steps in memory. `commit` writes them as one record into a partition of the transmission queue, and
the owner of that partition expands the record. A dialog uses one path at a time: its transaction leaves when everything
sent on it directly is acknowledged, and direct sends continue when the journal of the transmission partition shows that
the outputs of its transactions have arrived. So messages are received in the order of the calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from konverse.dialog.state.partition import Partition
from konverse.dialog.transaction.savepoints import Savepoints
from konverse.schemas.counting import counted, listed
from konverse.schemas.errors import ENDED_TWICE, InvalidState, TimerRefused, TransactionLost, TransactionTooLarge
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import BODY_BYTES_MAX, SESSION_OVER_ENTRIES_MAX, TRANSACTION_RECORDS_MAX
from konverse.schemas.wire.bodies import check_size
from konverse.schemas.wire.client_transaction import TransactionDialog, TransactionRecord, TransactionStep, encode
from konverse.schemas.wire.envelope import encode_suffix, head
from konverse.schemas.wire.records import FOR_EVER, NO_SEQUENCE, Begin, Kind, Suffix

from .dialogs import PLAIN, BeginOptions, DialogEvent, EndedConversations, SessionDialog
from .lanes import Lane, Single, has_ingested, lost, refused

_STEP_BYTES: Final = 40
"""Upper bound for the bytes of a step in the record, without its type and body."""

_DELETED: Final = "the record was deleted before the owner of the transmission partition read it"
_CLOSED: Final = "the session was closed at the transmission partition first, as `broker.outcome` does"

_DIALOG_BYTES: Final = 96
"""Upper bound for the bytes of a dialog in the record, without its BEGIN block; includes the writer of its BEGIN."""


class _Step(NamedTuple):
    """A step of the transaction: one operation on one dialog."""

    dialog: SessionDialog
    kind: Kind
    message_type: str = ""
    body: bytes | None = None
    timeout_ms: int = FOR_EVER


class _Savepoint(NamedTuple):
    """Content of the transaction when a savepoint was set."""

    steps: list[_Step]
    begun: list[SessionDialog]
    size_bytes: int
    known: set[SessionDialog]


class Dialogs(Protocol):
    """The session, as its transactions see it."""

    dialogs: dict[bytes, SessionDialog]
    """Live dialogs by conversation."""
    ended_conversations: EndedConversations

    def propose(self, conversation: bytes, begin: Begin, manner: BeginOptions) -> SessionDialog:
        """Make a dialog without writing anything."""

    def keep(self, dialog: SessionDialog) -> None:
        """Keep a dialog that is begun. From now on its lifetime is measured."""

    def known(self, conversation: bytes) -> SessionDialog | None:
        """The dialog that the session has begun under this id."""

    def lane_to(self, address: Address) -> Lane:
        """The lane for new records to a destination."""


class StagedTransaction:
    """Steps that a client wants to happen together. Nothing is written before the commit."""

    def __init__(self, session: Dialogs) -> None:
        self.steps: list[_Step] = []
        self.begun: list[SessionDialog] = []
        self.size_bytes = 0
        """Upper bound for the size of the record."""
        self.counter = -1
        """Counter of the record; -1 before it is put."""
        self.lane: Lane | None = None
        """The lane into which it was put; the record may have moved since."""
        self.over = False
        """It was committed or dropped."""
        self.arrived = False
        """Its outputs are in the logs of their destinations."""
        self.marks: dict[SessionDialog, tuple[Lane, int]] = {}
        """Dialog -> target lane, and the counter below which all must be acknowledged before the record leaves."""
        self.awaited: tuple[Partition, dict[Address, int]] | None = None
        """A fold that has expanded the record, and for each destination the output counter below which all must have
        arrived; None before."""
        self.opens: TransactionRecord | None = None
        """The content of its record, if that names writers of BEGINs; else None."""
        self._session = session
        self._known: set[SessionDialog] = set()
        self._savepoints: Savepoints[_Savepoint] = Savepoints()

    @property
    def dialogs(self) -> list[SessionDialog]:
        """Dialogs used in this transaction, in order of first use."""
        return list(dict.fromkeys(step.dialog for step in self.steps))

    @property
    def destinations(self) -> list[Address]:
        """Homes and targets of its dialogs, each once."""
        return list(dict.fromkeys(a for one in self.dialogs for a in (one.home.address, one.target.address)))

    def begin(self, conversation: bytes, begin: Begin, manner: BeginOptions = PLAIN) -> SessionDialog:
        """BEGIN DIALOG; as `Session.begin`."""
        session = self._session
        session.ended_conversations.check(conversation)
        known = session.known(conversation) or next(
            (dialog for dialog in self.begun if dialog.conversation == conversation), None
        )
        if known is not None:
            return known
        dialog = session.propose(conversation, begin, manner)
        dialog.on(DialogEvent.STAGED)
        self._add(_Step(dialog, Kind.BEGIN))
        self.begun.append(dialog)
        return dialog

    def send(self, dialog: SessionDialog, message_type: str, body: bytes) -> None:
        """SEND."""
        self._check(dialog)
        check_size(len(body))
        self._add(_Step(dialog, Kind.MESSAGE, message_type, body))

    def finish(self, dialog: SessionDialog) -> None:
        """FIN: nothing more is sent on the dialog. A second call changes nothing."""
        self._check_staging()
        if dialog.finished or any(step.dialog is dialog and step.kind is Kind.FIN for step in self.steps):
            return
        self._check(dialog)
        self._add(_Step(dialog, Kind.FIN))

    def end(self, dialog: SessionDialog, error_body: bytes = b"") -> None:
        """END CONVERSATION after the staged steps. WITH ERROR drops the dialog's staged messages (behaviour 111)."""
        self._check(dialog, ends=True)
        if error_body:
            said = (Kind.MESSAGE, Kind.FIN)
            self.steps = [step for step in self.steps if step.dialog is not dialog or step.kind not in said]
        self._add(_Step(dialog, Kind.END_CALL, "", error_body or None))

    def set_timer(self, dialog: SessionDialog, timeout_ms: int) -> None:
        """BEGIN CONVERSATION TIMER."""
        if any(step.dialog is dialog and step.kind is Kind.END_CALL for step in self.steps):
            raise TimerRefused("the dialog was ended in this transaction, which cancels its timer")
        if dialog not in self.begun:
            dialog.check_timer(timeout_ms)
        self._check(dialog, ends=True)
        self._add(_Step(dialog, Kind.SET_TIMER, timeout_ms=timeout_ms))

    def savepoint(self, name: str) -> None:
        """SAVE TRANSACTION: steps staged from here on can be undone."""
        self._check_staging()
        self._savepoints.save(name, _Savepoint([*self.steps], [*self.begun], self.size_bytes, {*self._known}))

    def rollback(self, savepoint: str) -> None:
        """ROLLBACK TRANSACTION to a savepoint: undo all steps staged since. Raises SavepointNotFound."""
        self._check_staging()
        saved = self._savepoints.back_to(savepoint)
        for dialog in self.begun[len(saved.begun) :]:
            dialog.on(DialogEvent.ROLLED_BACK)
        self.steps, self.begun, self._known = [*saved.steps], [*saved.begun], {*saved.known}
        self.size_bytes = saved.size_bytes

    def drop(self) -> None:
        """Discard all steps."""
        self.over = True
        for dialog in self.begun:
            dialog.on(DialogEvent.ROLLED_BACK)

    def _check_staging(self) -> None:
        if self.over:
            raise InvalidState("the transaction is over: its `with` block has ended. Send and end inside of it")

    def _check(self, dialog: SessionDialog, *, ends: bool = False) -> None:
        self._check_staging()
        for step in self.steps:
            if step.dialog is dialog and (step.kind is Kind.END_CALL or (step.kind is Kind.FIN and not ends)):
                raise InvalidState(
                    f"conversation {UUID(bytes=dialog.conversation)} was ended or finished in this transaction "
                    "already; begin a new dialog",
                    ENDED_TWICE if ends else None,
                )
        if dialog not in self.begun:
            dialog.check_open(ends=ends)
            _refuse_redirected(dialog)

    def _add(self, step: _Step) -> None:
        size = _STEP_BYTES + 4 * len(step.message_type) + len(step.body or b"")
        if step.dialog not in self._known:
            size += _DIALOG_BYTES + len(encode_suffix(Suffix(begin=step.dialog.begin)))
        if self.size_bytes + size > BODY_BYTES_MAX or len(self.steps) == TRANSACTION_RECORDS_MAX:
            raise TransactionTooLarge(
                f"the transaction would have {self.size_bytes + size} bytes in {len(self.steps) + 1} steps; at most "
                f"{BODY_BYTES_MAX} bytes in {TRANSACTION_RECORDS_MAX} steps fit into one record; "
                "make several transactions, or send a body of nearly that size on the dialog itself"
            )
        self.size_bytes += size
        self._known.add(step.dialog)
        self.steps.append(step)


def _refuse_redirected(dialog: SessionDialog) -> None:
    """Raise InvalidState for a dialog on which its home sends too: a transaction would overtake those messages."""
    if dialog.redirects is not None:
        raise InvalidState("the dialog was adopted, or messages were redirected to it: use it outside of transactions")


class Transactions:
    """Committed transactions of a session whose outputs have not all arrived."""

    def __init__(self, session: Dialogs) -> None:
        self.address: Address | None = None
        """The transmission partition: one for the whole session, so that its records stay in order."""
        self.waiting: deque[StagedTransaction] = deque()
        """Committed, but earlier direct sends are not acknowledged."""
        self.flying: list[StagedTransaction] = []
        """Their records were put; their outputs are not known to have arrived."""
        self.delivered: dict[Address, int] = {}
        """Destination -> number of transactions with outputs for it that have arrived."""
        self._lost: deque[tuple[list[SessionDialog], str]] = deque(maxlen=SESSION_OVER_ENTRIES_MAX)
        """Dialogs of each transaction that did not happen, and why, until a flush reports them; the latest ones."""
        self._session = session

    @property
    def lane(self) -> Lane | None:
        """The lane that takes records for the transmission partition."""
        return None if self.address is None else self._session.lane_to(self.address)

    def commit(self, transaction: StagedTransaction) -> None:
        """Commit all steps. Raises the error that forbids a step; then nothing has changed."""
        session, lane = self._session, self.lane
        assert lane is not None, "set the transmission partition (`transmit_to`) before committing"
        lane.check_room()
        for step in transaction.steps:
            if step.dialog not in transaction.begun:
                if step.kind is Kind.SET_TIMER:
                    step.dialog.check_timer(step.timeout_ms)
                else:
                    step.dialog.check_open(ends=step.kind is Kind.END_CALL)
                _refuse_redirected(step.dialog)
        for dialog in transaction.begun:
            if dialog.conversation in session.dialogs:
                raise InvalidState(
                    f"conversation {UUID(bytes=dialog.conversation)} was begun outside of this transaction meanwhile: "
                    "use the dialog that begin_dialog returned"
                )
        transaction.over = True
        for dialog in transaction.begun:
            session.keep(dialog)
            dialog.on(DialogEvent.COMMITTED)
        for dialog in transaction.dialogs:
            dialog.pending += 1
            dialog.open = False
        for dialog, kind, _, body, _ in transaction.steps:
            if kind is Kind.END_CALL:
                dialog.waiting_end = body or b""
                session.ended_conversations.add(dialog)
            elif kind is Kind.FIN:
                dialog.finished = True
        if transaction.steps:
            self.waiting.append(transaction)

    def finishes(self, dialog: SessionDialog) -> bool:
        """Whether a waiting transaction has FIN on the dialog."""
        steps = (step for transaction in self.waiting for step in transaction.steps)
        return any(step.dialog is dialog and step.kind is Kind.FIN for step in steps)

    def release(self) -> Lane | None:
        """Put the records of transactions that need not wait any longer. Returns the lane if there were some."""
        put = None
        while self.waiting and self._ready(self.waiting[0]):
            put = self.lane
            self._put(self.waiting.popleft())
        return put

    @staticmethod
    def _ready(transaction: StagedTransaction) -> bool:
        """Whether everything sent directly on its dialogs is acknowledged, including their BEGINs."""
        for dialog in transaction.dialogs:
            if dialog.held or not dialog.home.counts(dialog.begun_at):
                return False
            lane, mark = transaction.marks.setdefault(dialog, (dialog.target, dialog.target.next))
            if not lane.counts(mark - 1):
                return False
        return True

    def _put(self, transaction: StagedTransaction) -> None:
        lane, session = self.lane, self._session
        assert lane is not None
        dialogs = transaction.dialogs
        places = {dialog: place for place, dialog in enumerate(dialogs)}
        for dialog in transaction.begun:
            dialog.opener = lane.writer
        steps: list[TransactionStep] = []
        named = {*transaction.begun}
        for dialog, kind, message_type, body, timeout_ms in transaction.steps:
            sequence = dialog.level if kind is Kind.BEGIN else NO_SEQUENCE
            if kind is Kind.MESSAGE and not dialog.sent and dialog not in named:
                steps.append(TransactionStep(places[dialog], Kind.OPEN, body=dialog.opener))
                named.add(dialog)
            if kind is Kind.MESSAGE:
                sequence = dialog.sent
                dialog.sent += 1
            steps.append(TransactionStep(places[dialog], kind, sequence, message_type, body, timeout_ms))
            if kind is Kind.END_CALL:
                dialog.on(DialogEvent.OVER)
                if session.dialogs.get(dialog.conversation) is dialog:
                    del session.dialogs[dialog.conversation]
        spoken_of = [TransactionDialog.of(dialog.conversation, dialog.begin, dialog.flags) for dialog in dialogs]
        content = TransactionRecord(spoken_of, steps)
        transaction.opens = content if any(step.kind is Kind.OPEN for step in steps) else None
        data = encode(content)
        assert len(data) <= BODY_BYTES_MAX, "steps are counted when they are staged"
        transaction.lane, transaction.counter = lane, lane.next
        prefix = head(Kind.TRANSACTION, 0, Role.INITIATOR, lane.address.tag, lane.writer) + spoken_of[0].conversation
        lane.put(Single(prefix, NO_SEQUENCE, lane.writer), encode_suffix(Suffix(home=spoken_of[0].begin.home)), data)
        self.flying.append(transaction)

    def moved(self) -> None:
        """Called after records have moved: a BEGIN among them has another writer now, which later records must name.

        A record that names the writer of a BEGIN follows it in the same lane, so it moves whenever the BEGIN does. A
        record that was handed over under its present counter does not change.
        """
        for transaction in self.flying:
            assert transaction.lane is not None
            lane, counter = transaction.lane.find(transaction.counter)
            for dialog in transaction.begun:
                dialog.opener = lane.writer
            if transaction.opens is not None and counter >= lane.window.acked:
                dialogs = transaction.dialogs
                named, steps = transaction.opens
                steps = [s._replace(body=dialogs[s.dialog].opener) if s.kind is Kind.OPEN else s for s in steps]
                lane.bodies[counter - lane.next] = encode(TransactionRecord(named, steps))

    def read(self, state: Partition) -> bool:
        """Take the state of the transmission partition, folded from its journal. Returns whether a dialog may continue.

        A transaction has arrived when all outputs have arrived that were in the outbox just after its expansion.
        """
        settled: list[StagedTransaction] = []
        for transaction in self.flying:
            assert transaction.lane is not None
            if not has_ingested(state, transaction.lane, transaction.counter):
                if not refused(state, transaction.lane, transaction.counter):
                    break
                for dialog in transaction.dialogs:
                    dialog.on(DialogEvent.OVER)  # the transaction did not happen, so nothing may follow it
                    self._session.ended_conversations.discard(dialog)
                gone = lost(state, transaction.lane, transaction.counter)
                self._lost.append((transaction.dialogs, _DELETED if gone else _CLOSED))
                settled.append(transaction)
                continue
            if transaction.awaited is None or transaction.awaited[0] is not state:  # another fold may count otherwise
                streams = [one for one in map(state.streams.get, transaction.destinations) if one is not None]
                transaction.awaited = (state, {stream.address: stream.next for stream in streams})
            # a stream that begins later holds nothing of this transaction
            if all(state.streams[to].acked >= limit for to, limit in transaction.awaited[1].items()):
                transaction.arrived = True
                settled.append(transaction)
                for address in transaction.destinations:
                    self.delivered[address] = self.delivered.get(address, 0) + 1
        for transaction in settled:
            self.flying.remove(transaction)
            for dialog in transaction.dialogs:
                dialog.pending -= 1
                dialog.go_along()
        return bool(settled)

    def arrived(self, dialog: SessionDialog | None = None) -> Callable[[], bool]:
        """A function that tells whether everything committed so far has arrived, on one dialog or on all.

        It is not enough that the record is in the log: handlers of the same side send by another path and would
        overtake the outputs. The function raises TransactionLost, once, for transactions that did not happen.
        """
        awaited = [one for one in (*self.flying, *self.waiting) if dialog is None or dialog in one.dialogs]

        def have_arrived() -> bool:
            self._report_lost(dialog)
            return all(one.arrived for one in awaited)

        return have_arrived

    def _report_lost(self, dialog: SessionDialog | None) -> None:
        found = [one for one in self._lost if dialog is None or dialog in one[0]]
        if not found:
            return
        for one in found:
            self._lost.remove(one)
        ids = dict.fromkeys(UUID(bytes=one.conversation) for dialogs, _ in found for one in dialogs)
        raise TransactionLost(
            f"{counted(len(found), 'transaction')} did not happen, so nothing was sent, begun or ended by it on "
            f"{listed(map(str, ids))}: {' and '.join(dict.fromkeys(why for _, why in found))}. Do it again, on a new "
            "dialog"
        )
