"""`python -m tests.simulation.pools [--recycles N] [--first F]`: seeds of `tests.kit.pool_world`, up to N recycles.

Stops at the first failing seed, prints its violations and exits with 1.
"""

from __future__ import annotations

import argparse
import time
from typing import Final

from tests.kit.pool_world import World

RECYCLES: Final = 100_000
SAY_EVERY: Final = 1_000


def main() -> int:
    """Run and print the result; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.pools")
    parser.add_argument("--recycles", type=int, default=RECYCLES, metavar="N", help="conversations, begun and closed")
    parser.add_argument("--first", type=int, default=0, metavar="F", help="the first seed")
    arguments = parser.parse_args()
    began, seed = time.monotonic(), arguments.first
    begun = messages = deaths = 0
    while begun < arguments.recycles:
        world = World(seed)
        world.run()
        found = world.mistakes()
        if found:
            print(f"seed {seed}: {found}")
            return 1
        seed, begun = seed + 1, begun + world.begun
        messages, deaths = messages + len(world.sent), deaths + len(world.zombies)
        if not seed % SAY_EVERY:
            print(f"{seed - arguments.first} seeds, {begun} conversations begun and closed", flush=True)
    print(
        f"{seed - arguments.first} seeds, {begun} conversations, {messages} messages, {deaths} dead senders: none "
        f"behind EndOfStream, none lost, none doubled, nothing left open; {time.monotonic() - began:.0f} s"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
