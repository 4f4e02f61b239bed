"""Pools in the simulator: no message follows EndOfStream, none is lost or duplicated, order is kept, all ends."""

from __future__ import annotations

from typing import Final

import pytest

from tests.kit.pool_world import World

SEEDS: Final = 150
"""A sample: `make recycles` runs worlds until 100,000 conversations have been recycled."""


@pytest.mark.parametrize("tens", range(SEEDS // 10))
def test_a_pool_keeps_its_guarantees_in_seeded_simulations(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        world = World(seed)
        world.run()
        assert world.mistakes() == [], f"seed {seed}"
