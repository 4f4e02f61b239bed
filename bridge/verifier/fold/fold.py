"""Drives the second fold: each COMMIT that counts, with the data that it ingests and then its operations.

Where the product keeps a number, this fold keeps a list of all entries, so that the checks can ask what happened to
each message (protocol.md section 3). A log that contradicts itself is noted as a problem, never raised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

from konverse.bridge.verifier.journal import Judged
from konverse.bridge.verifier.records import LogRecord
from konverse.schemas.counting import counted
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.journal import SYSTEM_BITS, TOOK_ERROR, TOOK_TIMER, Claim, Commit
from konverse.schemas.wire.operations import (
    Abandon,
    Cleanup,
    Exclude,
    Fail,
    Finish,
    GiveBack,
    Lost,
    Move,
    MoveAway,
    Prioritize,
    Prune,
    Relocate,
    SetTimer,
    Withdraw,
)
from konverse.schemas.wire.records import FIRST, NAMED, Envelope, Forwarded, Kind, Opened

from .attempts import DECIDED, acquitted, careful, owner_changed
from .batches import exclude, give_up
from .endings import clean, give_up_side, leave_the_error, return_unread
from .groups import give_levels, regroup
from .half_close import second_finish
from .ingest import ingest
from .loss import fail_by_loss, hole_of
from .moves import all_together, relocate
from .state import Output, SecondState, Side
from .timers import live_until, set_by_handler, strike
from .writers import prune

Stop = tuple[int, Callable[[], None]]
"""A journal offset, and a function to call when everything up to it is folded."""


class SecondFold(SecondState):
    """The second fold of one partition."""

    def fold(self, journal: Iterable[Judged], data: Sequence[LogRecord], stops: Iterable[Stop] = ()) -> None:
        """Fold a journal and its data; call each stop when everything up to its journal offset is folded."""
        at = 0
        ahead = deque(sorted(stops, key=itemgetter(0)))
        for record, decision, counts in journal:
            while ahead and ahead[0][0] < record.offset:
                ahead.popleft()[1]()
            before_ms = self.journal_ms
            if counts:
                self.journal_ms = max(before_ms, record.timestamp_ms)
            if counts and isinstance(decision, Claim):
                self.now_ms = self.journal_ms
                owner_changed(self, clean=self.clean)
                self.clean = False
            if not counts or not isinstance(decision, Commit):
                continue
            self.order = record.order
            self.rejected = dict(decision.rejected)
            self.contents.contested = dict.fromkeys(decision.contested)
            hole = hole_of(decision)
            read_to = decision.ingest_to if hole is None else hole.start
            while at < len(data) and data[at].offset < read_to:
                if data[at].order > record.order:
                    self.problem(f"I3: a commit ingested record {data[at].offset} before it was written")
                ingest(self, data[at])
                at += 1
            while at < len(data) and data[at].offset < decision.ingest_to:
                at += 1
            self.ingested_to = decision.ingest_to
            self.contents.judged()
            self.now_ms = before_ms
            self._decide(decision)
            self.clean = decision.release
        for _, stop in ahead:
            stop()

    def _decide(self, commit: Commit) -> None:
        for address, counter in commit.output_acks:
            known = self.acknowledged.get(address, 0)
            if counter > len(self.outputs.get(address, ())):
                self.problem(f"I8: commit {commit.number} acknowledges output {counter} that was never made")
            self.acknowledged[address] = max(known, counter)
        self.release()
        operations = commit.operations
        if self.past.wary:
            careful(self, commit)
        if self.past.busy or commit.release:
            acquitted(self, commit)
        for conversation, begin in operations.begins:
            key = (int(Role.INITIATOR), conversation)
            self.may_live(key, self.writer, self.writer)
            begun = self.create(key, self.writer, begin.target, 0, begin.group)
            live_until(self, begun, begin, self.journal_ms)
            mates = self.mates(begun)
            self.tally["begun in a group"] += len(mates) > 1
            self.tally["begun in a target's group"] += any(mate.key[0] == Role.TARGET for mate in mates)
        for index, position in zip(operations.receive_endpoints, operations.receive_positions, strict=True):
            side = self._at(index, commit)
            if side is not None:
                self._consume(commit.number, side, position)
        for index, name, body in ((index, name, body) for index, name, bodies in operations.sends for body in bodies):
            side = self._at(index, commit)
            if side is None:
                continue
            started = side.code == "SO" and (side.numbering >= 0 or side.end_of_stream != name)
            opened = Opened(side.opener) if started and side.numbering < 0 else None  # its session may send FIRST, too
            flags = FIRST * started | NAMED * (opened is not None and self.is_named(side))
            side.talked = True
            said = self.order, Kind.MESSAGE, *side.key, side.numbering, name, self.brief(body), opened, None, flags
            self.stage(side.peer_at, Output(*said))
            if side.numbering >= 0:
                side.numbering += 1
        for end in operations.ends:
            side = self._at(end.endpoint, commit)
            if side is None:
                continue
            if side.ended:
                self.problem(f"I9: commit {commit.number} ends {side.key[1].hex()} a second time")
                continue
            self.end(side, failed=end.code != 0)  # below 0: an Error of the broker
        for operation in operations.rare:
            _RARE[type(operation)](self, operation)
        all_together(self)
        strike(self)

    def _at(self, index: int, commit: Commit) -> Side | None:
        side = self.table.get(index)
        if side is None:
            self.problem(f"I3: commit {commit.number} names endpoint {index}, which does not exist")
        return side

    def _consume(self, number: int, side: Side, position: int) -> None:
        up_to, error, timer = position >> SYSTEM_BITS, bool(position & TOOK_ERROR), bool(position & TOOK_TIMER)
        have = len(side.consumed) + len(side.thrown_away)
        if side.ended or not have + (not error and not timer) <= up_to <= len(side.heard):
            messages, gone = counted(len(side.heard), "message"), counted(have, "is already gone", "are already gone")
            self.problem(f"I7: commit {number} consumes {up_to} of {messages}, {gone}")
            return
        if timer:
            if side.rang is None:
                self.problem(f"I10: commit {number} consumes a DialogTimer that does not wait")
            side.rang = None
            side.reminded += 1
        if error:
            if side.error is None:
                self.problem(f"I7: commit {number} consumes an Error that does not wait")
            elif have < len(side.heard):
                self.tally["Error overtook"] += 1
            side.error = None
        side.consumed += [(number, heard) for heard in side.heard[have:up_to]]


def as_said(envelope: Envelope, body: bytes, order: int) -> Output:
    """Convert the record of an output to the form in which the second fold keeps outputs."""
    detail = envelope.suffix.detail
    if isinstance(detail, Forwarded):
        detail = detail._replace(headers=())  # the second fold does not know the user's headers
    return Output(
        order,
        envelope.kind,
        int(envelope.role),
        envelope.conversation,
        envelope.sequence,
        envelope.suffix.message_type,
        b"" if envelope.kind in (Kind.END, Kind.ERROR, Kind.INSTALL) else body,
        detail or None,
        envelope.suffix.origin,
        envelope.flags,
    )


_RARE: Final[dict[type, Callable[[SecondState, Any], None]]] = {
    Prune: prune,
    Abandon: give_up,
    Exclude: exclude,
    Finish: second_finish,
    Relocate: relocate,
    Lost: fail_by_loss,
    SetTimer: set_by_handler,
    Cleanup: clean,
    Fail: give_up_side,
    Withdraw: leave_the_error,
    Move: regroup,
    MoveAway: regroup,
    Prioritize: give_levels,
    GiveBack: return_unread,
    **DECIDED,
}
