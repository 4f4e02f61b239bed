"""New ids of a session: because of its clock, a partition's notice, or the answers to its questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from konverse.dialog.queries.hearing import needs_another_id
from konverse.dialog.session.dialogs import DialogState
from konverse.dialog.session.rotation import Age, Unheard, reply
from konverse.schemas.identifiers import Address

if TYPE_CHECKING:
    from konverse.dialog.session.dialogs import SessionDialog
    from konverse.dialog.state.partition import Partition
    from konverse.schemas.identifiers import Address
    from konverse.schemas.wire.token import Sent

    from .sending import SessionProcess

DAY_MS: Final = 86_400_000
TOKENS_MAX: Final = 3

DOZING: Final = 250
"""Rate of falling asleep with messages that wait for a BEGIN."""


class Renewal:
    """The handling of ids in a session's process."""

    def __init__(self, process: SessionProcess) -> None:
        self._process = process
        self._world = process.world
        self._clock_ms = self._world.choices.choose(60_000) * 1_000
        self.tokens: list[list[Sent]] = []
        """Unknown outcomes, as the application keeps them."""

    @property
    def now_ms(self) -> int:
        """The process's own clock. It runs while the process sleeps."""
        return self._world.kafka.now_ms + self._clock_ms

    def jump(self) -> None:
        """This machine's clock jumps by a day."""
        self._clock_ms += DAY_MS

    def keep_token(self) -> None:
        """The application stores a token of everything whose outcome is unknown."""
        again = self._world.history.begun_again  # their outcome is never asked for
        sent = [one for one in self._process.session.unknown() if one.conversation not in again]
        if sent:
            self.tokens = [*self.tokens[-TOKENS_MAX + 1 :], sent]

    def doze(self, dialog: SessionDialog) -> None:
        """The home refuses a BEGIN, another process asks about the waiting messages, and this one sleeps."""
        process, world, target = self._process, self._world, dialog.target
        waits = dialog.state is DialogState.BEGINNING and dialog.held and target.window.acked == target.next
        if world.lively and waits and world.swarm.jumps and world.swarm.askers and world.choices.chance(DOZING):
            process._replace(dialog.begin.home)
            world.ask_about(process)
            process.asleep_until = world.steps + (200, 400, 40)[world.choices.choose(3)]

    def change_early(self) -> None:
        """The clock jumps, and the session takes a new id at once."""
        self.jump()
        due = self.due
        if due is not Age.FRESH:
            self.change("doubtful" if due is Age.DOUBTFUL else "old")

    @property
    def due(self) -> Age:
        """The age of the session's id. The driver checks it before each call to the session."""
        return self._process.session.check_age(self.now_ms)

    def change(self, why: str) -> None:
        """Take a new id."""
        process, happened = self._process, self._world.sometimes.happened
        session = process.session
        happened("id changed")
        happened("id changed, " + why)
        happened("id changed twice", any(session.takeover.wanted()))
        opened_ms = self.now_ms
        writer = self._world.open_id()
        process.write_for(writer, opened_ms)

    @property
    def waiting(self) -> bool:
        """Whether destinations have not yet reported where former ids were closed."""
        session = self._process.session
        return bool(session.takeover.wanted()) and not session.over

    def look_for_answers(self) -> None:
        """Read the answers to the session's questions at the destinations."""
        process, world = self._process, self._world
        for wanted in process.session.takeover.wanted():
            said = reply(self._state(wanted.address), wanted)
            if said is Unheard.ANOTHER:
                self.change("told")
                return
            if said is Unheard.LATER and not world.kafka.calm and not world.choices.chance(50):
                continue  # asked again later
            if said is not None:
                world.sometimes.happened("asked again", said is Unheard.LATER)
                before = len(process.session.takeover.behind)
                process.hand(process.session.answered(wanted, said))
                settled = len(process.session.takeover.behind) < before
                world.sometimes.happened("sent again under a new id", settled)

    def _state(self, address: Address) -> Partition:
        place = self._world.place_of(address)
        place.follow(place.journal.end)
        return place.shadow.state

    def on_news(self) -> None:
        """Read the home's notices about the session's writers, as a follower does."""
        session = self._process.session
        for home in {plan.home.address: None for plan in self._process.plans}:
            if needs_another_id(session, self._state(home)):
                self.change("told")
                return
