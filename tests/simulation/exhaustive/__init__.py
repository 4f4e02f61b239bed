"""Exhaustive search of claim and commit in a small world: `python -m tests.simulation.exhaustive`."""
