"""Adoption: a session continues conversations whose sender is gone (protocol.md section 7.12).

Every session that may have sent on them is closed at their homes and targets. So its records in flight either are
received before that, or come back and are never received. Only then does the successor send. It does not know how many
messages were sent before, by the dead session or by a home, so it sends neither sequence numbers nor FIRST.

    look at homes and targets          which sessions have opened the conversations or sent on them
    close at homes, wait, drain        redirected messages are at the target
    close at targets, wait, drain      bounced messages are at home; sessions that sent meanwhile are closed, too
    close at homes once more, wait     bounced messages are in the mailboxes

Many conversations are adopted at once: each step reads a partition, and closes a writer there, once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import RECEIVING, SENDING, State
from konverse.dialog.state.writer import NO_HEIR
from konverse.schemas.errors import SessionTakenOver
from konverse.schemas.identifiers import Address, Role, time_of_writer
from konverse.schemas.wire.envelope import encode_suffix, head
from konverse.schemas.wire.records import NO_SEQUENCE, Begin, Kind, Suffix

from .dialogs import BeginOptions, DialogEvent, Redirects, SessionDialog
from .lanes import Lane, Produce, Single, has_ingested, refused
from .session import Session


class FoundState(Enum):
    """The state in which a conversation was found."""

    OPEN = "open"
    """Its target accepts further messages."""
    NOT_BEGUN = "not begun"
    """Its home does not know it: it never began, or is over and forgotten."""
    NOT_OPENED = "not opened"
    """No message has reached its target, and none will."""
    FINISHED = "finished"
    """FIN was sent by the initiator's side."""
    ENDED = "ended"
    """One side has ended."""
    MOVED = "moved"
    """A side has moved to another partition, to which only owners can forward."""


class AdoptRequest(NamedTuple):
    """A conversation to adopt, with its BEGIN block."""

    conversation: bytes
    begin: Begin
    returning: bool = False


class Adopted(NamedTuple):
    """The result for one conversation."""

    dialog: SessionDialog
    """Accepts messages only if OPEN. Else its bounced messages can be taken from the mailbox, and it can be ended."""
    standing: FoundState


class _Case:
    def __init__(self, wanted: AdoptRequest) -> None:
        self.conversation, self.begin, self.returning = wanted
        self.writers: dict[bytes, None] = {}
        """Sessions that have opened it or sent on it: to be closed at its home and its target."""
        self.target: FoundState | None = None
        """Its state at its target; None: there is no endpoint."""
        self.standing = FoundState.NOT_BEGUN
        self.named = False
        """The caller chose its id."""


class _WriterClosing(NamedTuple):
    """The lane that closes writers in a partition, and the counter of its last CLOSE_WRITER."""

    lane: Lane
    counter: int


class Adoption:
    """Adopts conversations. Its driver gives `read` the state of each partition in `addresses` until none is left."""

    def __init__(self, session: Session, wanted: Iterable[AdoptRequest], writers: Iterable[bytes] = ()) -> None:
        """`writers` are sessions that may have sent on the conversations, and of which no record is accepted yet."""
        self._session = session
        self._known = {one.conversation: session.dialogs.get(one.conversation) for one in wanted}
        self._cases = [_Case(one) for one in wanted if self._known[one.conversation] is None]
        for case in self._cases:
            case.writers.update(dict.fromkeys(filter(self._may_close, writers)))
        self._closings: dict[Address, _WriterClosing] = {}
        self._limits: dict[Address, tuple[Partition, dict[Address, int]]] = {}
        """Partition -> one fold of it, and its output counters for the other sides at the closing of the writers."""
        self._late = False
        """A target has accepted records of a writer that is not closed at home yet."""
        self._steps: list[tuple[Callable[[Partition], bool], Callable[[_Case], Address], bool]] = [
            (self._read_home, _home_of, False),
            (self._read_target, _target_of, False),
            *self._rounds(),
        ]
        self._left: dict[Address, None] = {}
        self._begin_step()

    def _rounds(self) -> list[tuple[Callable[[Partition], bool], Callable[[_Case], Address], bool]]:
        return [
            (self._drained, _home_of, True),
            (self._drained, _target_of, True),
            (self._conclude, _home_of, True),
        ]

    # ------------------------------------------------------------------------------------------------------- driver

    @property
    def addresses(self) -> list[Address]:
        """Partitions whose states are wanted; none when the adoption is complete."""
        return list(self._left)

    def read(self, state: Partition) -> list[Produce]:
        """Take the current state of one of `addresses`. Raises SessionTakenOver if this session was closed there."""
        if state.address not in self._left:
            return []
        closing = self._closings.get(state.address)
        if closing is not None:
            if refused(state, *closing):
                raise SessionTakenOver("this session was closed, and cannot adopt conversations; connect again")
            if not has_ingested(state, *closing):
                return []
        if not self._steps[0][0](state):
            return []
        del self._left[state.address]
        if self._left:
            return []
        del self._steps[0]
        return self._begin_step()

    def finish(self) -> list[Adopted]:
        """The results, in the order of `wanted`. Only when `addresses` is empty."""
        assert not self._left, "partitions remain to be read"
        cases = iter(self._cases)
        return [
            Adopted(known, _standing_of_own(known)) if known is not None else self._adopted(next(cases))
            for known in self._known.values()
        ]

    # -------------------------------------------------------------------------------------------------------- steps

    def _begin_step(self) -> list[Produce]:
        self._closings.clear()
        self._limits.clear()
        if not self._steps:
            return []
        _, place_of, closes = self._steps[0]
        if self._late and place_of is _home_of:
            self._late, self._steps = False, self._rounds()
        self._left = dict.fromkeys(place_of(case) for case in self._cases)
        if not closes:
            return []
        for address in self._left:
            self._close(address, [case for case in self._cases if place_of(case) == address])
        return self._session.unsent()

    def _close(self, address: Address, cases: Sequence[_Case]) -> None:
        writers = dict.fromkeys(writer for case in cases for writer in case.writers)
        lane = self._session.lane_to(address)
        for writer in writers:
            prefix = head(Kind.CLOSE_WRITER, 0, Role.INITIATOR, address.tag, lane.writer) + writer
            lane.put(Single(prefix, NO_SEQUENCE, writer), _NOTHING, None)
        if writers:
            self._closings[address] = _WriterClosing(lane, lane.next - 1)

    def _read_home(self, state: Partition) -> bool:
        """Note which sessions have opened the conversations, and where their targets are."""
        for case in self._at(state, _home_of):
            endpoint = state.endpoint(Role.INITIATOR, case.conversation)
            case.named = (Role.INITIATOR, case.conversation) in state.named.living
            if endpoint is not None:
                services = endpoint.terms.service, endpoint.terms.far_service, endpoint.terms.contract
                where = state.address, endpoint.stream.address
                case.begin = Begin(*services, *where, endpoint.group_id, endpoint.key)
                self._add(case, state, [endpoint.opener])
        return True

    def _read_target(self, state: Partition) -> bool:
        """Note which sessions have sent to the targets, and the state of each target. A new session sets `_late`."""
        for case in self._at(state, _target_of):
            endpoint = state.endpoint(Role.TARGET, case.conversation)
            case.target = _standing_at_target(state, case.conversation, endpoint)
            self._late |= self._add(case, state, [*_speakers(endpoint), *case.writers])
        return True

    def _drained(self, state: Partition) -> bool:
        """Whether all outputs that the partition had for the other sides when the writers were closed have arrived."""
        self._read_target(state)
        source, limits = self._limits.get(state.address, (None, {}))
        if source is not state:
            others = {address for case in self._cases for address in (_home_of(case), _target_of(case))}
            limits = {to: stream.next for to, stream in state.streams.items() if to in others}
            self._limits[state.address] = (state, limits)
        return all(state.streams[to].acked >= limit for to, limit in limits.items())

    def _conclude(self, state: Partition) -> bool:
        for case in self._at(state, _home_of):
            case.standing = _standing_at_home(state, case) or case.target or FoundState.ENDED
        return True

    def _at(self, state: Partition, place_of: Callable[[_Case], Address]) -> list[_Case]:
        return [case for case in self._cases if place_of(case) == state.address]

    def _add(self, case: _Case, state: Partition, writers: Iterable[bytes]) -> bool:
        """Note sessions and their heirs. Returns whether one of them is new."""
        before = len(case.writers)
        for writer in writers:
            case.writers.update(dict.fromkeys(filter(self._may_close, _line_of(state, writer))))
        return len(case.writers) > before

    def _may_close(self, writer: bytes) -> bool:
        """Whether the writer may be closed: owners never are, nor is this session."""
        return time_of_writer(writer) is not None and writer not in self._session.ids

    # ------------------------------------------------------------------------------------------------------ results

    def _adopted(self, case: _Case) -> Adopted:
        session = self._session
        manner = BeginOptions(case.returning, named=case.named)
        dialog = session.propose(case.conversation, case.begin, manner)
        dialog.sent, dialog.redirects = 1, Redirects()  # the target has FIRST; sequence numbers are not known
        dialog.redirects.opened = True
        dialog.finished = case.standing is FoundState.FINISHED
        dialog.judged = case.standing in (FoundState.FINISHED, FoundState.ENDED)
        if case.standing in (FoundState.OPEN, FoundState.FINISHED):
            dialog.on(DialogEvent.ADOPTED)
            session.keep(dialog)
        else:
            dialog.on(DialogEvent.OVER)
        return Adopted(dialog, case.standing)


def _standing_of_own(dialog: SessionDialog) -> FoundState:
    """State of a conversation that this session has begun itself: no partition has to be asked."""
    if dialog.waiting_end is not None:  # END was called; once END is put, the session forgets the dialog
        return FoundState.ENDED
    return FoundState.FINISHED if dialog.finished else FoundState.OPEN


def _home_of(case: _Case) -> Address:
    return case.begin.home


def _target_of(case: _Case) -> Address:
    return case.begin.target


def _speakers(endpoint: Endpoint | None) -> list[bytes]:
    return [] if endpoint is None else [lane.writer.id for lane in endpoint.lanes()]


def _line_of(state: Partition, writer: bytes) -> list[bytes]:
    """A writer and its heirs, one after another."""
    line = [writer]
    while (known := state.writers.get(line[-1])) is not None and (known.heir or NO_HEIR) != NO_HEIR:
        line.append((known.heir or NO_HEIR)[0])
    return line


def _standing_at_target(state: Partition, conversation: bytes, endpoint: Endpoint | None) -> FoundState | None:
    if (Role.TARGET, conversation) in state.moves.stubs:
        return FoundState.MOVED
    if endpoint is None:
        return None
    if endpoint.index in state.moves.arrivals:
        return FoundState.MOVED
    if endpoint.committed not in RECEIVING:
        return FoundState.ENDED
    return FoundState.FINISHED if endpoint.finished is not None and endpoint.finished.peer else FoundState.OPEN


def _standing_at_home(state: Partition, case: _Case) -> FoundState | None:
    """The state that its home shows; None when its target decides."""
    endpoint = state.endpoint(Role.INITIATOR, case.conversation)
    if (Role.INITIATOR, case.conversation) in state.moves.stubs:
        return FoundState.MOVED
    if endpoint is None:
        return FoundState.NOT_BEGUN
    if endpoint.index in state.moves.arrivals:
        return FoundState.MOVED
    if endpoint.committed not in SENDING:
        return FoundState.ENDED
    if endpoint.finished is not None and endpoint.finished.own:
        return FoundState.FINISHED
    return FoundState.NOT_OPENED if case.target is None and endpoint.committed is State.STARTED_OUTBOUND else None


_NOTHING: Final = encode_suffix(Suffix())
