"""What each seed draws: topology, load, settings, and a mix of faults of its own, many of them absent."""

from __future__ import annotations

from dataclasses import dataclass

from .choices import Choices


@dataclass(frozen=True, slots=True)
class Swarm:
    """One run's draw. Rates are per thousand."""

    # topology and load
    queues: int
    partitions: int
    sessions: int
    dialogs: int
    open_dialogs: int
    """A session begins the next one when it has fewer."""
    beginning: int
    """Rate of beginning it at once; else the session looks again later."""
    closing: int
    """Rate of ending a dialog at once when everything is sent."""
    messages: int
    burst: int
    clubs: int
    """Conversation groups that sessions share; 0: each dialog is a group of its own."""
    steps: int
    # settings of the product
    batch: int
    max_messages: int | None
    view_interval_ms: int
    tiny_windows: bool
    low_numbers: bool
    """Look-up tables of counters end at 63, so that the paths behind them are walked."""
    # producers
    loose: int
    """Rate of processes whose producers are not idempotent."""
    lost: int
    ack_lost: int
    delayed: int
    doubled: int
    reordered: int
    refused: int
    # reads
    holes: int
    short_reads: int
    stale_ends: int
    doubled_reads: int
    garbage: int
    # processes
    crashes: int
    pauses: int
    contenders: int
    releases: int
    late: int
    closers: int
    view_losses: int
    rot: int
    """Rate at which a byte of a snapshot changes."""
    # handlers
    handlers: int
    """Transactions that a process has in handlers at a time, at most."""
    slow: int
    raising: int
    ending: int
    failing: int
    leaving: int
    answering: int
    """Rate of replies of an initiator's handler: a second writer in that direction."""
    sessions_end: bool
    """Initiators' handlers leave it to the session to end a dialog whose peer has ended."""
    moves: int
    """Rate of moving an endpoint to another partition."""


def draw(choices: Choices) -> Swarm:
    """The swarm of a run. A quarter are quiet: Kafka and processes behave, so that applications get further."""
    quiet = choices.chance(250)

    def rate(most: int, absent: int = 300) -> int:
        return 0 if choices.chance(absent) else 1 + choices.choose(most)

    def fault(most: int, absent: int = 300) -> int:
        return 0 if quiet else rate(most, absent)

    choose = choices.choose
    clubs = (0, 1, 2)[choose(3)]
    queues = 1 + choose(3)
    partitions = 1 + choose(3 if queues == 1 else 2)
    low_numbers = choices.chance(150)
    return Swarm(
        queues=queues,
        partitions=partitions,
        sessions=1 + choose(4),
        dialogs=1 + choose(2 if low_numbers else 8),
        open_dialogs=1 + choose(4),
        beginning=(1_000, 200, 60)[choose(3)],
        closing=(1_000, 100)[choose(2)],
        messages=40 + choose(40) if low_numbers else choose((12, 4)[choose(2)]),
        burst=30 if low_numbers else 1 + choose(3),
        clubs=clubs,
        steps=250 + 60 * queues * partitions,
        batch=(100, 1, 3)[choose(3)],
        max_messages=(None, 1, 3)[choose(3)],
        view_interval_ms=(100, 0, 1_000)[choose(3)],
        tiny_windows=choices.chance(500),
        low_numbers=low_numbers,
        loose=(0, 1_000, 500)[choose(3)],
        lost=fault(150),
        ack_lost=fault(200),
        delayed=fault(200),
        doubled=fault(200),
        reordered=fault(400),
        refused=fault(500, 500),
        holes=fault(150, 500),
        short_reads=fault(600),
        stale_ends=fault(500),
        doubled_reads=fault(200, 500),
        garbage=fault(5, 800),
        crashes=fault(10),
        pauses=fault(25),
        contenders=fault(12),
        releases=fault(12, 500),
        late=fault(200, 100),
        closers=fault(10, 500),
        view_losses=fault(8, 500),
        rot=fault(60, 400),
        handlers=1 + choose(4),
        slow=rate(300, 100 if clubs else 400),
        raising=rate(200),
        ending=rate(80, 400),
        failing=rate(80, 600),
        leaving=rate(300),
        answering=rate(400, 600),
        sessions_end=choices.chance(300),
        moves=rate(400, 400),
    )
