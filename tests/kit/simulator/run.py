"""Runs one seed."""

from __future__ import annotations

import traceback
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .checks import check
from .choices import Choices
from .failure import FAIL, Judge, SimulationFailure
from .losses import Enough
from .story import tell
from .swarm import draw
from .tuning import tuned
from .verified import refuted
from .world import World


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a seed."""

    seed: int
    error: str | None
    trace: str
    """Hash of all choices and logs."""
    choices: array[int]
    """The choices, from which `simulate` can repeat the run."""
    paths: Counter[str]
    story: list[str]
    """The run's events, one a line; empty unless requested."""


def simulate(
    seed: int, recorded: Sequence[int] | None = None, *, told: bool = False, judge: Judge = Judge.ALL
) -> Result:
    """Run a seed, or repeat recorded choices."""
    choices = Choices(seed, recorded)
    swarm = draw(choices)
    error = None
    with tuned(choices, swarm):
        world = World(choices, swarm, FAIL[judge])
        try:
            world.run()
            if judge is Judge.ALL:
                check(world)
        except Enough:
            pass
        except SimulationFailure as failure:
            error = str(failure)
        except Exception:  # noqa: BLE001  # whatever the product raises is a failure of the run
            error = traceback.format_exc(limit=-4)
        if judge is Judge.VERIFIER:  # a product that broke has left logs too
            error = refuted(world)
    story = tell(world) if told else []
    return Result(seed, error, world.trace(), choices.taken, world.sometimes.counts, story)
