"""Runs of the simulator (tests/kit/simulator): many seeds, old failures, and mutants of the product."""
