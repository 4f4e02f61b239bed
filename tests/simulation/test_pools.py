"""Pools in the simulator: no message follows EndOfStream, none is lost or duplicated, order is kept, all ends."""

from __future__ import annotations

from typing import Final

import pytest

from tests.kit.pool_world import World

SAMPLE: Final = 15
TENS: Final = 40
"""Tens of seeds: `make test` runs a sample, `make nightly` the others."""


@pytest.mark.parametrize(
    "tens", [*range(SAMPLE), *(pytest.param(tens, marks=pytest.mark.nightly) for tens in range(SAMPLE, TENS))]
)
def test_a_pool_keeps_its_guarantees_in_seeded_simulations(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        world = World(seed)
        world.run()
        assert world.mistakes() == [], f"seed {seed}"
