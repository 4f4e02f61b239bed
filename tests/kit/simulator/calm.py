"""An owner's process without faults: it does everything that can be done, in a sensible order (L1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from . import altering, regrouping, taking
from .owning import OwnerProcess
from .poison import unread_elsewhere

CALM_STEPS_MAX: Final = 200


def settle_down(process: OwnerProcess) -> None:
    """Act until the process can only wait."""
    world = process.world
    silent = world.lively and world.choices.chance(300)  # the journal answers in the next round
    for _ in range(CALM_STEPS_MAX):
        action = _next(process, silent=silent)
        if action is None:
            break
        action()
    if process.leading:
        assert process.owner is not None
        altering.look(process, process.owner)
        regrouping.look_again(process.owner)
        process._view.look(process.owner.fold.head.claim_offset)
        process._tick()


def _next(process: OwnerProcess, *, silent: bool) -> Callable[[], None] | None:
    owner = process.owner
    if owner is None:
        return process._start
    if process._reads:
        return process._read
    if process._appends.waiting and not silent:
        return process._outcome
    if not process.leading:
        return process.waits_for()
    choices: list[tuple[object, Callable[[], None]]] = [
        (process._outputs.waiting, process._transmit),
        (process._outputs.outstanding, process._settle),
        (taking.fetches(process), process._poll),
        (owner.fold.data and owner.has_room and not owner.upkeep.late(process.now_ms), process._ingest),
        (any(work.awake for work in process.works), process._work),
        (taking.hands_out(process), process._take),
        (taking.commits(process), partial(process.commit, owner)),
        (process._releasing and not owner.committing, process.release),
        (process._view.waiting, process._view.write),
        (process._view.lost, process._report_lost_view),
    ]
    return next((action for possible, action in choices if possible), None)


def is_quiet(process: OwnerProcess) -> bool:
    """Whether the process has nothing left to do."""
    owner, view = process.owner, process._view
    if owner is None or not process.leading or process._appends.waiting or view.waiting or view.lost:
        return False
    state = owner.fold.state
    return (
        process.place.judge.owner == owner.claim_id
        and state.ingest_to == process.place.data.end == owner._journaled_to
        and unread_elsewhere(owner) == (0, 0)
        and not any(one.urgent and not one.held and state.table[one.index] is one for one in owner.staging.ready)
        and not (owner.trial.resting or owner.trial.due or owner.staging.dropping or owner.staging.moving)
        and state.clocks.next_ms(owner.fold.head.now_ms) is None
        and not (state.changed or state.forgotten)
        and not (process.works or process.handing_out.resting)
        and not process._outputs.outstanding
        and owner.emitter.idle
        and not any(stream.waiting for stream in state.streams.values())
    )
