"""Timers and lifetimes: their lengths, the calls that set them, and the checks of fired timers (I10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.bridge.verifier.records import Key
from konverse.dialog.session.dialogs import DialogState
from konverse.schemas.errors import QueueFull, TimerBeyondLifetime, TimerRefused
from konverse.schemas.identifiers import Address
from konverse.schemas.system_messages import DIALOG_TIMER
from konverse.schemas.wire.records import FOR_EVER, NO_TIMER, Begin, Timer

from .choices import Choices

if TYPE_CHECKING:
    from .handlers import Work
    from .sending import SessionProcess
    from .world import World

TIMEOUTS_MS: Final = (20, 400, 5_000, 30_000, 1)


def some_timeout(choices: Choices) -> int:
    """Milliseconds, shorter than the calm at the end of a run."""
    return choices.pick(TIMEOUTS_MS)


def _cancels(world: World, timeout_ms: int) -> bool:
    """Whether this run cancels a timer in place of setting it to this length. This draws no random choice."""
    return bool(world.swarm.naming) and timeout_ms == TIMEOUTS_MS[1]


def for_a_while(world: World, begin: Begin) -> Begin:
    """Give some dialogs a lifetime."""
    lasts = world.choices.chance(world.swarm.lifetimes)
    return begin._replace(lifetime_ms=some_timeout(world.choices) if lasts else FOR_EVER)


def set_timer(process: SessionProcess) -> None:
    """A session sets or cancels the timer of one of its dialogs."""
    plan = process.world.choices.pick([plan for plan in process.plans if not plan.over])
    refused = TimerRefused if plan.dialog.state is DialogState.ENDED else QueueFull
    with suppress(QueueFull, refused):
        timeout_ms = some_timeout(process.world.choices)
        if _cancels(process.world, timeout_ms):
            process.hand(process.session.set_timer(plan.dialog, Timer(NO_TIMER)))
            return
        end_of_stream = f"End of {timeout_ms}" if timeout_ms > min(TIMEOUTS_MS) else None  # as a pool would
        process.hand(process.session.set_timer(plan.dialog, Timer(timeout_ms, end_of_stream)))


def set_timers(work: Work) -> None:
    """A handler sets or cancels timers of its group's dialogs. One beyond the lifetime is refused."""
    choices = work.world.choices
    while choices.chance(work.world.swarm.timing):
        living = [dialog for dialog in work.at.conversations if dialog not in work.ended]
        living = [dialog for dialog in living if dialog.state.code not in {"DO", "CD"}]
        if not living:
            return
        dialog = choices.pick(living)
        refused = TimerRefused if dialog.state.code in {"DI", "ER"} else TimerBeyondLifetime
        with suppress(TimerBeyondLifetime, refused):
            timeout_ms = some_timeout(choices)
            if _cancels(work.world, timeout_ms):
                work.at.cancel_timer(dialog)
            else:
                work.at.set_timer(dialog, timeout_ms / 1000)


def check_timers(world: World, references: dict[Address, SecondFold]) -> Iterator[str]:
    """Check that handlers received each fired timer once, and that no timer is overdue."""
    for place in world.places:
        reference = references[place.address]
        received = Counter(
            (taken.role, taken.conversation, taken.id)
            for number, (_, owner) in place.judge.commits.items()
            for work in world.history.committed.get((place.name, owner, number), ())
            for taken in work.taken
            if taken.type == DIALOG_TIMER
        )
        for timer, count in received.items():
            if count > 1:
                yield f"I10: {place.name}: the DialogTimer {timer} was received {count} times"
        by_side = Counter((role, conversation) for role, conversation, _ in received.elements())
        reminded: Counter[Key] = Counter()
        for side in reference.sides:
            reminded[side.key] += side.reminded
        if by_side != +reminded:
            yield f"I10: {place.name}: handlers received DialogTimers {by_side}, the journal says otherwise"
        for side in reference.living.values():
            if side.timer_ms is not None and not side.ended:
                yield f"L1: {place.name}: a timer of {side.key} has not rung"
