"""Poison messages, their groups, and the operators who deal with them (protocol.md section 7.1).

Some messages make every handler raise, some kill the process, until the handlers are mended. An innocent group must not
be suspended: only one whose attempts failed, or whose owner was lost repeatedly for other reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final

import konverse.dialog.owner.poison
from konverse.bridge.verifier.check import judge
from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.dialog.fold.fold import Fold
from konverse.dialog.owner.owner import Owner
from konverse.dialog.state.endpoint import Endpoint, bytes_of
from konverse.dialog.state.partition import Partition
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.limits import ATTEMPTS_MAX
from konverse.schemas.system_messages import DIALOG_TIMER, END_DIALOG, ERROR
from konverse.schemas.wire.journal import Claim, Commit, EndOperation
from konverse.schemas.wire.operations import Relocate, Resume, Skip, Suspend, Try
from konverse.schemas.wire.records import NO_SEQUENCE

from .kafka import Record, Slice
from .places import Place, columns, journaled

if TYPE_CHECKING:
    from .handlers import Work
    from .world import World

KILLS_MAX: Final = 7
"""Most processes that one message kills before it is suspended, when nothing else happens: the model's number."""

KILLS_IN_VAIN_MAX: Final = 3
"""Most further deaths for each owner that is lost for another reason, because such a loss restarts the search."""

PATIENCE_MAX: Final = 300
"""Most calm rounds that poison may cost."""

ORDERS: Final = 20
"""Rate, per thousand, of an operator's action where one is possible."""

Key = tuple[Place, int, bytes]


class Curse(Enum):
    """Effect of a message on its handler."""

    NONE = "none"
    RAISES = "raises"
    KILLS = "kills"


class ProcessKilled(Exception):
    """A handler has killed its process."""


class HandlerRaised(Exception):
    """A handler has raised."""


class Poisons:
    """The curses of a run and their consequences."""

    def __init__(self, world: World) -> None:
        self.mended = False
        """The handlers can handle every message from here on."""
        self._world = world
        self._restarted = False
        self._curses: dict[str, Curse] = {}
        self._killers: dict[tuple[Place, str], int] = {}
        """(partition, message id) of each killer → its offset; NO_SEQUENCE for a DialogTimer, which is in no log."""
        self._kills: Counter[Place] = Counter()
        """Processes killed while they owned the partition."""
        self._unclean: Counter[Place] = Counter()
        """CLAIMs that followed no release."""
        self._died: Counter[Place] = Counter()
        """Processes killed since the last CLAIM that counts."""
        self._died_unseen: Counter[Place] = Counter()
        """Processes killed while their release was under way: no CLAIM shows their death."""
        self._raised: Counter[Place] = Counter()
        """Executions of a suspected group that failed before they reached the killer. Each counts as an attempt and
        clears the group of suspicion. Then neither the next death nor the one after it is attributed to the group:
        other groups share the latter."""
        self._anew: Counter[Place] = Counter()
        """Searches that started again, because an operator acted, a handler left its group before the killer, or the
        group moved away with its service and came back."""
        self._released: dict[Place, bool] = {}
        self._guilt: Counter[Key] = Counter()
        """Number of failed executions that held a conversation."""

    @property
    def patience(self) -> int:
        """Further calm rounds for poison: failed groups rest, and later messages are counted commit by commit."""
        curses = sum(curse is not Curse.NONE for curse in self._curses.values())
        records = sum(place.data.end for place in self._world.places if curses)
        return min(ATTEMPTS_MAX * curses + records, PATIENCE_MAX)

    # ------------------------------------------------------------------------------------------------------- events

    def handle(self, message: Message) -> None:
        """A handler handles a message. The same message has the same effect on every execution."""
        world = self._world
        if message.type in (END_DIALOG, ERROR):
            return
        curse = self._curses.get(message.id)
        if curse is None:
            curse = self._curses[message.id] = self._draw()
        if self.mended or curse is Curse.NONE:
            return
        if curse is Curse.RAISES:
            world.sometimes.happened("handler always raises")
            raise HandlerRaised
        raise ProcessKilled

    def _draw(self) -> Curse:
        choices, swarm = self._world.choices, self._world.swarm
        if choices.chance(swarm.killing):
            return Curse.KILLS
        return Curse.RAISES if choices.chance(swarm.cursed) else Curse.NONE

    def raised(self, place: Place, work: Work) -> None:
        """A handler has failed, and its process lives."""
        self._raised[place] += self._is_guilty(place, work.members)
        self._failed(place, work)

    def _is_guilty(self, place: Place, members: Iterable[Endpoint]) -> bool:
        return any(self._guilt[place, member.role, member.conversation] for member in members)

    def _failed(self, place: Place, work: Work) -> None:
        for endpoint in work.members:
            self._guilt[place, endpoint.role, endpoint.conversation] += 1

    def killed(self, place: Place, owner: Owner, work: Work) -> None:
        """A handler has killed its owner's process."""
        assert work.looked_at is not None
        happened = self._world.sometimes.happened
        happened("handler killed its process")
        self._failed(place, work)
        if place.judge.owner == owner.claim_id:  # else it had lost the partition already
            self._kills[place] += 1
            self._died[place] += 1
            at = NO_SEQUENCE if work.looked_at.type == DIALOG_TIMER else work.looked_at.offset
            self._killers[place, work.looked_at.id] = at
            happened("several killers", self._count(place) > 1)
            self._are_not_too_many(place)

    def came_back(self, place: Place, members: Iterable[Endpoint]) -> None:
        """A handler left its group before the killer, which clears the group of suspicion."""
        self._anew[place] += self._is_guilty(place, members)

    def decided(self, place: Place, decision: Claim | Commit, offset: int) -> None:
        """Note a journal record that counts, and check its suspensions and TRYs."""
        if isinstance(decision, Claim):
            if self._released.get(place, True):
                self._died_unseen[place] += self._died[place]
            else:
                self._unclean[place] += 1
            self._died[place] = 0
            self._released[place] = False
            return
        self._released[place] = decision.release
        for work in self._world.history.committed.get((place.name, decision.owner, decision.number), ()):
            self.came_back(place, work.members)
        moved = [operation.endpoint for operation in decision.operations.rare if isinstance(operation, Relocate)]
        if moved and place.follow(offset - 1):
            table = place.shadow.state.table  # what has arrived with this COMMIT was never handed out here
            leaving = [table[index] for index in moved if index < len(table)]
            self._anew[place] += self._is_guilty(place, [endpoint for endpoint in leaving if endpoint is not None])
        for operation in decision.operations.rare:
            if isinstance(operation, Suspend) and not operation.ordered:
                place.follow(offset)
                endpoint = place.shadow.state.table[operation.endpoint]
                assert endpoint is not None
                self._judge(place, endpoint)
            elif isinstance(operation, Resume | Skip):
                place.follow(offset)
                endpoint = place.shadow.state.table[operation.endpoint]
                assert endpoint is not None
                for member in endpoint.members:
                    self._guilt[place, member.role, member.conversation] = 0
            elif isinstance(operation, Try) and operation.endpoints:
                place.follow(offset)
                _are_few(place, place.shadow.state)
            elif operation == Try([]):
                self._world.sometimes.happened("care ended")
                owners = [process.owner for process in self._world.owners if process.owner is not None]
                known = max((o.recovery.data_end for o in owners if o.claim_id == decision.owner), default=0)
                killers = [at for (killer, _), at in self._killers.items() if killer is place]
                unread = [at for at in killers if decision.ingest_to <= at < known]
                if unread:
                    place.fail(f"attempts: {place.name}: care ends before the killers at {unread} are read")

    def _judge(self, place: Place, endpoint: Endpoint) -> None:
        """Check that a suspended group has failed often enough."""
        self._world.sometimes.happened("suspended")
        guilt = max(self._guilt[place, member.role, member.conversation] for member in endpoint.members)
        if guilt + self._disturbed(place) < ATTEMPTS_MAX:
            place.fail(f"attempts: {place.name}: {endpoint!r} is suspended, and failed {guilt} times")
        if guilt < ATTEMPTS_MAX:
            self._world.sometimes.happened("suspended in doubt")

    def _are_not_too_many(self, place: Place) -> None:
        """Check at once that not too many processes died: a run with endless deaths would hardly end."""
        killers, kills = self._count(place), self._kills[place]
        others = self._disturbed(place) + 1  # the loss of this owner is not in the journal yet
        most = KILLS_MAX * (killers + self._anew[place]) + self._raised[place] + KILLS_IN_VAIN_MAX * others
        if kills > most:
            place.fail(f"attempts: {place.name}: {killers} messages have killed {kills} processes; {most} may die")
            self.mended = True  # so that a run which only the verifier judges ends too

    def _count(self, place: Place) -> int:
        return sum(killer is place for killer, _ in self._killers)

    def _disturbed(self, place: Place) -> int:
        """Owners lost for another reason than a message that kills."""
        return self._unclean[place] - (self._kills[place] - self._died_unseen[place])

    # ------------------------------------------------------------------------------------------------------ operators

    def may_be_ordered(self, owner: Owner) -> bool:
        """Whether an operator could act: on suspended groups, or on any conversation where handlers fail."""
        swarm = self._world.swarm
        return bool(suspended(owner) or ((swarm.cursed or swarm.killing) and any(owner.fold.state.sides)))

    def may_order(self, place: Place, owner: Owner) -> None:
        """Sometimes an operator acts on a suspended group, or on another conversation."""
        choices = self._world.choices
        if not choices.chance(ORDERS):
            return
        known = suspended(owner)
        if known and choices.chance(700):
            self.order(place, owner, choices.pick(known))
        elif any(owner.fold.state.sides):
            self._interfere(place, owner, choices.pick(owner.fold.state.live()))

    def _interfere(self, place: Place, owner: Owner, endpoint: Endpoint) -> None:
        """An operator acts on a conversation that may be waiting, under trial, or with a handler."""
        self._anew[place] += 1
        happened = self._world.sometimes.happened
        happened("ordered while a handler has it", endpoint.held and not endpoint.suspended)
        happened("ordered under care", owner.trial.careful)
        which = self._world.choices.choose(3)
        if which == 1:
            owner.trial.order(endpoint, Skip(endpoint.index))
        elif which == 2:
            owner.trial.order(endpoint, EndOperation(endpoint.index, 98, "not wanted"))
        else:
            owner.trial.order(endpoint, Suspend(endpoint.index, "an operator looks into it", ordered=True))

    def order(self, place: Place, owner: Owner, endpoint: Endpoint) -> None:
        """An operator deals with a suspended conversation."""
        self._anew[place] += 1
        happened = self._world.sometimes.happened
        which = self._world.choices.choose(4)
        if which == 1:  # the operator saw the waiting messages; an Error may have come since
            happened("skipped")
            owner.trial.order(endpoint, Skip(endpoint.index))
        elif which == 2:
            happened("ended by an operator")
            owner.trial.order(endpoint, EndOperation(endpoint.index, 99, "poison"))
        else:
            happened("resumed")
            owner.trial.order(endpoint, Resume(endpoint.index))

    def mend(self) -> bool:
        """When all else has drained, mend the handlers and deal with suspended groups. False when there are none."""
        processes = self._world.owners
        if not self._restarted and any(process.owner is not None and suspended(process.owner) for process in processes):
            self._restarted = True
            for process in processes:
                process.crash()  # suspensions survive that
            return True
        self.mended = True
        busy = False
        for process in processes:
            owner = process.owner
            assert owner is not None
            for endpoint in suspended(owner):
                self.order(process.place, owner, endpoint)
                busy = True
        return busy


def suspended(owner: Owner) -> list[Endpoint]:
    """One conversation of each suspended group."""
    found: list[Endpoint] = []
    state = owner.fold.state
    for index in state.attempts.troubled:
        endpoint = state.table[index]
        if endpoint is not None and endpoint.suspended and not any(endpoint in other.members for other in found):
            found.append(endpoint)
    return found


def _are_few(place: Place, state: Partition) -> None:
    """Check a TRY: suspects are tried few at a time, then alone."""
    attempts, table = state.attempts, state.table
    suspects = [one for index in attempts.suspects if (one := table[index]) is not None and one.waits]
    trying = [one for index in attempts.trying if (one := table[index]) is not None]
    tried = _groups(trying)
    if suspects and tried > 1 and any(one.index in attempts.suspects for one in trying):
        place.fail(f"attempts: {place.name}: {tried} of {_groups(suspects)} suspects are tried at once")


def _groups(endpoints: list[Endpoint]) -> int:
    return sum(not any(one in other.members for other in endpoints[:at]) for at, one in enumerate(endpoints))


def takes(place: Place, owner: Owner, transaction: Transaction) -> None:
    """Check that the taken group is not suspended, and after a crash that the journal names it."""
    group = transaction.dialog.members
    worst = max(member.attempts for member in group)
    if worst >= ATTEMPTS_MAX or any(member.suspended for member in group):
        place.fail(f"attempts: {place.name}: {transaction.dialog!r} is handed out, and failed {worst} times")
    if not place.follow(owner.fold.head.offset) or not place.shadow.state.attempts.careful:
        return
    attempts = place.shadow.state.attempts
    if not any(member.index in attempts.trying for member in group):
        place.fail(f"attempts: {place.name}: {transaction.dialog!r} is handed out and the journal knows nothing")
    suspected = any(member.index in attempts.suspects for member in group)
    trial = vars(konverse.dialog.owner.poison)
    most = 1 if suspected else trial["TRY_GROUPS_MAX"]
    if owner.staging.out > most:
        place.fail(f"attempts: {place.name}: {owner.staging.out} groups are handed out, {most} may be")


def compare_attempts(world: World, place: Place, reference: SecondFold, owners: set[bytes]) -> Iterator[str]:
    """Check that product and reference agree about attempts, suspensions and suspects, at the end and at a CLAIM."""
    yield from _differences(place, place.shadow.state, reference)
    claims = [*place.judge.claims.values()]
    if claims:
        cut = world.choices.pick(claims)
        journal = [record for record in place.journal.records if record.offset <= cut]
        yield from _differences(
            place, _folded(place, journal), judge(place.verified(), journal, place.data.records, owners).fold
        )


def _folded(place: Place, journal: list[Record]) -> Partition:
    fold = Fold(place.identity)
    fold.feed_journal([*map(journaled, journal)])
    while (needed := fold.advance()) is not None:
        assert needed > fold.data_to
        fold.feed_data(columns(Slice(place.data.between(fold.data_to, needed), needed), fold.data_to))
    return fold.state


def _differences(place: Place, state: Partition, reference: SecondFold) -> Iterator[str]:
    attempts, past, table = state.attempts, reference.past, reference.table
    product = (
        {table[index].key: trouble.attempts for index, trouble in attempts.troubled.items() if trouble.attempts},
        {table[index].key: trouble.reason for index, trouble in attempts.troubled.items() if trouble.suspended},
        {table[index].key for index in attempts.trying},
        {
            frozenset(table[index].key for index, death in attempts.suspects.items() if death == number)
            for number in attempts.suspects.values()
        },
        attempts.careful,
    )
    expected = (past.failures, past.suspended, set(past.handed), {*map(frozenset, past.accused)}, past.wary)
    if product != expected:
        yield f"I3: {place.name}: attempts are {product}, the reference says {expected}"


def unread_elsewhere(owner: Owner) -> tuple[int, int]:
    """Messages and bytes that wait in conversations that are not suspended."""
    state = owner.fold.state
    parked = [endpoint.queue for endpoint in state.live() if endpoint.suspended]
    return state.unread - sum(map(len, parked)), state.unread_bytes - sum(map(bytes_of, parked))
