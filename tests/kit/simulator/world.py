"""One run: a world of partitions, owners and sessions, first with faults, then calm until everything has drained."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import konverse.dialog.owner.timekeeping
from konverse.dialog.owner.view import Show
from konverse.schemas.identifiers import Address, Role, session_writer
from konverse.schemas.wire.envelope import encode_envelope
from konverse.schemas.wire.journal import Claim, Commit
from konverse.schemas.wire.records import FIRST, Begin, Envelope, Kind, Suffix

from .asking import Asker
from .batching import DriverProcess, Query
from .calm import is_quiet, settle_down
from .choices import Choices
from .executing import TaskProcess
from .failure import Fail, fail
from .following import FollowerProcess, Followers
from .forgers import Forgers
from .history import History
from .kafka import CLOCK_JITTER_MS, Kafka, Log, Record, Request
from .losses import Losses
from .moves import patience
from .owning import OwnerProcess
from .places import Place, litter
from .plans import Club
from .poison import Poisons
from .redis_view import RedisView
from .rejections import Rejections
from .renewing import DAY_MS
from .sending import SessionProcess
from .sometimes import Sometimes
from .swarm import Swarm
from .truncating import Truncations

CALM_ROUNDS_MAX: Final = 80
LIVELY_ROUNDS: Final = 8
"""Calm rounds in which applications go on as before: handlers sleep, sessions begin dialogs."""

ROUND_STEPS: Final = 40
"""Steps that a calm round counts for sleeping processes."""

ROUND_MS: Final = 1_100
"""Longer than every interval of the product."""

CONTENDERS_MAX: Final = 3
HEIRS_MAX: Final = 8
"""Most sessions of a run, successors included."""
MOVES_MAX: Final = 3
"""Attempts per step to find a process with something to do."""

OLD_ROUNDS: Final = 5
"""Jumps of time in which every writer is noted, closed, noted again and forgotten."""
UPKEEP_ROUNDS: Final = 4
"""Calm rounds for each jump: an owner commits twice to get the time, asks for the end of the data, and prunes."""

STEP_MS: Final = (0, 1, 10, 60, 250)

HOUR_MS: Final = 3_600_000
SKEW_MS: Final = 10 * 24 * HOUR_MS
"""How far an id is ahead when a broker's clock is wrong."""

Process = OwnerProcess | SessionProcess | DriverProcess | TaskProcess | Asker


class World:
    """The world of one seed."""

    def __init__(self, choices: Choices, swarm: Swarm, report: Fail = fail) -> None:
        self.fail = report
        self.choices = choices
        self.swarm = swarm
        self.sometimes = Sometimes()
        self.history = History()
        self.poisons = Poisons(self)
        self.rejections = Rejections(self)
        self.kafka = Kafka(choices, swarm, self.sometimes)
        self.kafka.on_append = self._appended
        self.steps = 0
        self.lively = True
        """Applications still act freely."""
        self._identifiers = 0
        self._messages = 0
        self.late_shows: list[tuple[RedisView, Show]] = []
        """Writes to the view by processes that are gone."""
        self.places = [
            Place(self.kafka, queue, partition, report)
            for queue in range(swarm.queues)
            for partition in range(swarm.partitions)
        ]
        self._journals = {place.journal.name: place for place in self.places}
        self.owners = [OwnerProcess(self, place) for place in self.places]
        self.clubs = [
            Club(choices.pick(self.places), (self.identifier(b"group"), b"")[choices.choose(2)])
            for _ in range(swarm.clubs)
        ]
        self.sessions = [SessionProcess(self) for _ in range(swarm.sessions)]
        self.queries = [Query(self) for _ in range(swarm.queries)]
        self.followers = Followers(self)
        self.truncations = Truncations(self)
        self.losses, self.forgers = Losses(self), Forgers(self)
        self.askers: list[Asker] = []

    def identifier(self, kind: bytes) -> bytes:
        """16 unique bytes."""
        self._identifiers += 1
        return self._identifiers.to_bytes(4, "big") + kind.ljust(12, b".")

    def open_id(self) -> bytes:
        """A writer id with the time of a broker that has just appended OPEN. Brokers' clocks differ a little."""
        self._identifiers += 1
        time_ms = self.kafka.now_ms - self.choices.choose(CLOCK_JITTER_MS)
        skewed = not self.kafka.calm and self.choices.chance(self.swarm.skewed)
        writer = session_writer(time_ms + skewed * SKEW_MS, self._identifiers)
        if skewed:
            self.history.skewed.add(writer)
        return writer

    @property
    def clients(self) -> set[bytes]:
        """All ids that sessions have had."""
        return {writer for session in self.sessions for writer in session.session.ids}

    def place_of(self, address: Address) -> Place:
        """The partition at an address."""
        return next(place for place in self.places if place.address == address)

    def new_message(self) -> int:
        """Number of the next message, unique in the run."""
        self._messages += 1
        return self._messages

    def log_of(self, address: Address) -> Log:
        """The data log of a partition."""
        return self.kafka.logs[address.topic, address.partition]

    # ------------------------------------------------------------------------------------------------------- faults

    def run(self) -> None:
        """Run both phases. Violations are reported to `fail`."""
        for _ in range(self.swarm.steps):
            self._step()
        self._calm_down()

    def _step(self) -> None:
        choices, swarm, kafka = self.choices, self.swarm, self.kafka
        self.steps += 1
        kafka.now_ms += STEP_MS[choices.choose(len(STEP_MS))]
        if kafka.late and choices.chance(swarm.late):
            kafka.deliver_late()
        self.truncations.step()
        self._move()
        if choices.chance(swarm.jumps):
            kafka.now_ms += choices.pick(swarm.hours) * HOUR_MS
            self.sometimes.happened("stood still")
        if choices.chance(swarm.closers):
            self._succeed(choices.pick(self.sessions))
        if choices.chance(swarm.askers):
            self.ask_about(choices.pick(self.sessions))
        if choices.chance(swarm.garbage):
            self._litter()
        if choices.chance(swarm.lone_firsts):
            self._begin_without_home()
        self.losses.strike()
        self.forgers.strike()
        if choices.chance(swarm.rot):
            self.sometimes.happened("snapshot rotten", choices.pick(self.places).rot(choices))
        if choices.chance(swarm.view_losses):
            choices.pick(self.places).view.flush()
        if self.late_shows and choices.chance(50):
            view, show = self.late_shows.pop(choices.choose(len(self.late_shows)))
            view.apply(show)

    def _move(self) -> None:
        """One process acts, or is disturbed."""
        choices, swarm = self.choices, self.swarm
        sessions = [session for session in self.sessions if not (session.dead or session.closed)]
        processes: list[Process] = [*self.owners, *self.followers.all, *sessions]
        for query in self.queries:
            query.stir()
            processes += [*query.drivers, *query.tasks]
        processes += (asker for asker in self.askers if not asker.done)
        awake = [process for process in processes if process.asleep_until <= self.steps]
        if not awake:
            return
        if choices.chance(swarm.crashes + swarm.pauses + swarm.contenders + swarm.releases):
            self._disturb(choices.pick(awake))
            return
        for _ in range(MOVES_MAX):
            if awake[choices.choose(len(awake))].step():
                break

    def _disturb(self, process: Process) -> None:
        choices, swarm = self.choices, self.swarm
        which = choices.choose(swarm.crashes + swarm.pauses + swarm.contenders + swarm.releases)
        if which < swarm.pauses:
            if isinstance(process, SessionProcess) and choices.chance(swarm.jumps * 5):
                process.renewal.jump()
            process.asleep_until = self.steps + (5, 40, 300)[choices.choose(3)]
            self.sometimes.happened("slept")
        elif which < swarm.pauses + swarm.contenders:
            place = choices.pick(self.places)
            if sum(owner.place is place for owner in self.owners) < CONTENDERS_MAX:
                self._appoint(place)
        elif which < swarm.pauses + swarm.contenders + swarm.releases:
            if isinstance(process, OwnerProcess):
                process.release()
        else:
            process.crash()
            if isinstance(process, FollowerProcess) and not process.appointed:
                self.followers.replace(process)
            elif isinstance(process, OwnerProcess):
                self.owners.remove(process)
                if not any(owner.place is process.place for owner in self.owners):
                    self._appoint(process.place)

    def _appoint(self, place: Place) -> None:
        """The group gives the partition to a follower or a new process."""
        self.owners.append(self.followers.appoint(place) or OwnerProcess(self, place))

    def _succeed(self, session: SessionProcess) -> None:
        """Another process takes over from a session that seems dead, and closes its writer at some partitions."""
        choices = self.choices
        if session.closed:
            return
        self.sometimes.happened("closed by a successor")
        session.shut_out = True
        if choices.chance(self.swarm.heirs) and len(self.sessions) < HEIRS_MAX:
            heir = SessionProcess(self)
            self.sessions.append(heir)
            heir.mailboxes.inherit(session)
            return
        writer = self.identifier(b"successor")
        counters: dict[Address, int] = {}
        homes = [plan.home.address for plan in session.plans]
        spared = homes if choices.chance(500) else []  # the session may still decide about its mail
        for address in session.addresses:
            for _ in range(0 if address in spared else choices.choose(3)):
                counter = counters.get(address, 0)
                self._write(address, Kind.CLOSE_WRITER, writer, session.session.writer, counter)
                counters[address] = choices.choose(2)

    def ask_about(self, session: SessionProcess) -> None:
        """Another process takes the session for dead and asks for the outcome of a token."""
        if session.closed:
            return
        session.renewal.keep_token()
        if session.renewal.tokens:
            session.shut_out = True
            self.askers.append(Asker(self, session, self.choices.pick(session.renewal.tokens)))

    def meddle(self, place: Place) -> None:
        """Other records may land between two records of an owner."""
        kafka, choices = self.kafka, self.choices
        if kafka.calm:
            return
        if kafka.late and choices.chance(300):
            kafka.deliver_late()
        if choices.chance(100):
            kafka.append(place.journal, (None, b"", b"\x07 not a record"))

    def _write(self, address: Address, kind: Kind, writer: bytes, conversation: bytes, counter: int) -> None:
        envelope = Envelope(kind, 0, Role.INITIATOR, address.tag, writer, conversation, counter, -1, Suffix())
        self.kafka.append(self.log_of(address), (encode_envelope(envelope), writer, None))

    def _litter(self) -> None:
        """Append records that are malformed or meant for another incarnation."""
        place = self.choices.pick(self.places)
        match self.choices.choose(4):
            case 0:
                self.sometimes.happened(litter(self.kafka, place))
            case 1:
                self.kafka.append(place.data, (b"\xff" * 40, b"", b""))
            case 2:
                self.kafka.append(place.data, (None, b"", b"plain"))
            case _:
                elsewhere = Address(place.address.topic, place.address.partition, b"gone")
                self._write(elsewhere, Kind.CLOSE_WRITER, self.identifier(b"stranger"), self.identifier(b"nobody"), 0)

    def _begin_without_home(self) -> None:
        """A conversation without a home, from a faulty program or after a deletion: its target has no initiator."""
        choices = self.choices
        home, target = choices.pick(self.places).address, choices.pick(self.places)
        conversation, writer = self.identifier(b"orphan"), self.identifier(b"loner")
        begin = Begin("near", "far", "contract", home, target.address, conversation)
        for counter in range(1 + choices.choose(3)):
            suffix = Suffix("t", home=home) if counter else Suffix("t", begin=begin)
            envelope = Envelope(
                Kind.MESSAGE, 0 if counter else FIRST, Role.INITIATOR, target.address.tag, writer, conversation,
                counter, counter, suffix,
            )  # fmt: skip
            self.kafka.append(target.data, (encode_envelope(envelope), writer, b"%d alone of %s" % (counter, writer)))

    def _appended(self, log: Log, record: Record) -> None:
        place = self._journals.get(log.name)
        if place is None:
            return
        decision = place.judge.judge(record).decision
        counts = place.judge.judged[-1].counts
        happened, late = self.sometimes.happened, self.kafka.delivering
        if counts and isinstance(decision, Claim | Commit):
            self.poisons.decided(place, decision, record.offset)
        if isinstance(decision, Claim):
            happened("clean claim", counts and decision.clean and decision.epoch > 1)
            happened("invalid CLAIM", not counts)
            happened("late CLAIM", late)
        elif isinstance(decision, Commit):
            if counts:
                self.losses.decided(place, decision)
            happened("invalid COMMIT", not counts)
            happened("zombie COMMIT", late and decision.epoch < place.judge.epoch)

    # --------------------------------------------------------------------------------------------------------- calm

    def _calm_down(self) -> None:
        """No more faults, one owner for each partition: everything must drain (L1)."""
        kafka = self.kafka
        kafka.calm = True
        for place in self.places:
            if self.choices.choose(2):
                self._appoint(place)
            rivals = [owner for owner in self.owners if owner.place is place]
            keep = self.choices.pick(rivals)
            for rival in rivals:
                if rival is not keep:
                    rival.crash()
                    self.owners.remove(rival)
        living = [session for session in self.sessions if not session.dead]
        rounds, turn = CALM_ROUNDS_MAX + patience(self), -1
        while (turn := turn + 1) < rounds + self.poisons.patience:
            kafka.now_ms += ROUND_MS
            self.steps += ROUND_STEPS
            self.lively = turn < LIVELY_ROUNDS
            if turn == LIVELY_ROUNDS:
                kafka.now_ms += HOUR_MS + SKEW_MS * bool(self.history.skewed)  # a fenced owner notices
            if turn in (1, 4, LIVELY_ROUNDS + 2):
                self._deliver_most()
                self.truncations.settle_down()
            for session in living:
                session.settle_down()
            for query in self.queries:
                query.settle_down()
            for asker in self.askers:
                asker.settle_down()
            for owner in self.owners:
                settle_down(owner)
            if (
                turn > LIVELY_ROUNDS + 2
                and all(session.closed for session in living)
                and all(query.over for query in self.queries)
                and all(asker.done for asker in self.askers)
                and all(map(is_quiet, self.owners))
            ) and not self.poisons.mend():
                self.followers.agree()
                self._grow_old()
                return
        waiting = [f"owner of {owner.place.name}" for owner in self.owners if not is_quiet(owner)]
        waiting += [f"query {query.id.hex()}" for query in self.queries if not query.over]
        if not self.losses.some:  # a session may wait for lost data and learns that only with its next send
            waiting += [f"session {session.session.writer.hex()}" for session in living if not session.closed]
        waiting += ["somebody who asks for an outcome" for asker in self.askers if not asker.done]
        if waiting or not self.losses.some:
            self.fail(f"L1: after {turn} calm rounds these still wait: {', '.join(waiting)}")

    def _grow_old(self) -> None:
        """In runs with standstills, let time pass until all writers are forgotten."""
        horizon_ms = vars(konverse.dialog.owner.timekeeping)["WRITER_HORIZON_MS"]  # as this run has it
        for _ in range(OLD_ROUNDS if self.swarm.jumps else 0):
            self.kafka.now_ms += horizon_ms + DAY_MS
            for _ in range(UPKEEP_ROUNDS):
                for owner in self.owners:
                    settle_down(owner)

    def _deliver_most(self) -> None:
        """Most late requests arrive; some never will."""
        kafka, choices = self.kafka, self.choices
        late: list[Request] = kafka.late
        for _ in range(len(late)):
            if choices.chance(100):
                late.pop(choices.choose(len(late)))
            elif late:
                kafka.deliver_late()

    # -------------------------------------------------------------------------------------------------------- trace

    def trace(self) -> str:
        """A hash of all choices and logs, the same in every run of the seed."""
        out = sha256(self.choices.taken.tobytes())
        for name, log in self.kafka.logs.items():
            out.update(repr(name).encode())
            for record in log.records:
                out.update(repr((record.offset, record.timestamp_ms, record.header, record.key, record.body)).encode())
        for place in self.places:
            out.update(repr(sorted(place.view.rows.items())).encode())
        out.update(repr(sorted(self.sometimes.counts.items())).encode())
        return out.hexdigest()[:16]
