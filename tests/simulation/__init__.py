"""Runs of the simulator (tests/kit/simulator): many seeds, old failures, and products with one rule switched off."""
