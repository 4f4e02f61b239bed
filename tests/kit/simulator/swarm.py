"""What each seed draws: topology, load, settings, and a mix of faults of its own, many of them absent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from .choices import Choices

HOURS: Final = (
    (5, 7, 9, 11),
    (1, 5, 13, 26),
    (3, 5, 9, 30),
    (13, 30, 200),
    (200, 400, 750),
    (1, 5, 13, 26, 100, 200, 400, 750, 1_500),
)
"""How long everything stands still, seed by seed: within what a session may do, around it, and far beyond."""

Rate = Callable[..., int]
"""Draws a rate of at most so much; the second number is the rate of runs without it."""


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
    """Rate of processes whose producers leave disorder when they fail."""
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
    passed_over: int
    """Rate at which a consumer goes on behind records that it did not hand out."""
    garbage: int
    # processes
    crashes: int
    pauses: int
    contenders: int
    releases: int
    late: int
    closers: int
    view_losses: int
    jumps: int
    """Rate at which everything stands still for hours or days."""
    hours: tuple[int, ...]
    short_memory: bool
    """Writers are pruned after days, not after weeks."""
    askers: int
    """Rate at which somebody asks for the outcome of what a session sent, which may be dead."""
    skewed: int
    """Rate of ids whose time is days ahead, as no broker's clock may be (assumption A3)."""
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
    killing: int
    """Rate of messages that kill the process of every handler."""
    cursed: int
    """Rate of messages on which every handler raises."""
    # queries that write in batches
    queries: int
    speculation: int
    second_drivers: int
    abandoning: int
    early: int
    """Rate at which a task tries to report before it knows of all its rows."""
    transmitting: int
    """Rate of sessions that make transactions."""
    transacting: int
    """Rate at which such a session makes one instead of something else."""
    finishing: int
    """Rate of saying that nothing more comes on a dialog, by sessions and handlers."""
    # mailboxes
    deaf: int
    """Rate at which a session misses the news that its peer has ended, and sends on."""
    looking: int
    """Rate of looking into the mailbox."""
    redirecting: int
    """Rate of redirecting what is found there; the rest is confirmed."""
    heirs: int
    """Rate of successors that go on with what came back."""
    small_mailboxes: bool
    """Mailboxes let go what came back early."""
    lone_firsts: int
    """Rate of conversations that reach a target and have no home."""
    followers: int
    """Processes that follow a partition."""
    losses: int
    """Rate at which data is deleted before it was ingested."""
    forgers: int
    """Rate at which a stranger writes in the name of a session; no data is lost then."""
    moves: int
    """Rate of moving an endpoint to another partition."""
    altering: int
    """Rate of ALTER SERVICE on another queue."""
    rejecting: int
    """Rate of messages that their receivers reject."""
    handlers_begin: int
    """Rate of messages whose handlers begin dialogs."""
    timing: int
    """Rate of setting a timer, by sessions and handlers."""
    lifetimes: int
    """Rate of dialogs that are begun with a lifetime."""
    cleaning: int
    """Rate of END WITH CLEANUP, by handlers and operators."""
    wanting: int
    """Rate of asking for a certain conversation or group instead of the next one."""
    regrouping: int
    """Rate of moving a conversation to another group, and of taking another group, by handlers."""
    again: int
    """Rate of receiving once more when everything was received that was there."""
    priorities: int
    """Rate of sides that begin with another level than the default."""
    savepoints: int
    """Rate of doing something in a transaction and undoing it."""

    @property
    def naming(self) -> int:
        """Rate of dialogs whose id the caller chooses, and of beginning such a one again. Not drawn: so seeds stay."""
        return 500 if self.savepoints % 3 == 1 else 0

    @property
    def own_bounds(self) -> bool:
        """What its logs come to depends on bounds that no product has: of mailboxes, pieces that move, ids ahead."""
        return (
            self.small_mailboxes
            or (self.tiny_windows and self.moves + self.altering + self.regrouping > 0)
            or (self.short_memory and self.skewed > 0)
        )


AREAS: Final = (
    "poison", "queries", "transactions", "mailboxes", "followers", "ids", "moves", "timers", "ends",
    "groups",
)  # fmt: skip

LOSSY: Final = frozenset({"losses", "followers", "moves"})
"""Of runs in which data is lost: what else they promise has to be plain."""

ABSENT: Final = {"short_memory": False, "small_mailboxes": False, "hours": HOURS[0]}
"""What is not 0 where the area of it is absent."""


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
    areas = _areas(choices)
    low_numbers = choices.chance(150)
    recycling = "mailboxes" in areas and not low_numbers and choices.chance(350)
    return Swarm(
        queues=queues,
        partitions=partitions,
        sessions=1 + choose(4),
        dialogs=1 + choose(2 if low_numbers else 8),
        open_dialogs=1 + choose(4),
        beginning=(1_000, 200, 60)[choose(3)],
        closing=(1_000, 100)[choose(2)],
        messages=40 + choose(40) if low_numbers else (20 if recycling else 0) + choose((12, 4)[choose(2)]),
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
        passed_over=fault(100, 700),
        garbage=fault(5, 800),
        crashes=fault(10),
        pauses=fault(25),
        contenders=fault(12),
        releases=fault(12, 500),
        late=fault(200, 100),
        closers=fault(10, 200 if recycling else 500),
        view_losses=fault(8, 500),
        rot=fault(60, 400),
        handlers=1 + choose(4),
        slow=rate(300, 100 if clubs else 400),
        raising=rate(200),
        ending=300 + choose(300) if recycling else rate(80, 400),
        failing=rate(80, 600),
        leaving=rate(300),
        answering=rate(400, 600),
        sessions_end=choices.chance(300),
        rejecting=rate(40, 850),
        wanting=rate(400, 600),
        again=rate(600, 600),
        handlers_begin=rate(400, 100) if areas == LOSSY else rate(120, 600),
        **_drawn_by_area(choices, rate, fault, areas, recycling=recycling),
    )


def _areas(choices: Choices) -> frozenset[str]:
    """What a run has beside plain conversations: all there is in every second one, else two areas that get further."""
    if choices.chance(140):
        return LOSSY
    some = frozenset(AREAS[choices.choose(len(AREAS))] for _ in range(2))
    return frozenset(AREAS) if choices.choose(2) else some


def _lossy(rate: int) -> dict[str, int]:
    """In two runs of three data is lost, and in the third one it is forged."""
    return {"losses": rate if rate <= 8 else 0, "forgers": max(0, rate - 8) * 3}


def _drawn_by_area(
    choices: Choices, rate: Rate, fault: Rate, areas: frozenset[str], *, recycling: bool
) -> dict[str, Any]:
    """What is drawn last; what belongs to an area that the run has not is nothing."""
    choose = choices.choose
    mixed = len(areas) == len(AREAS)
    drawn: dict[str, dict[str, Any]] = {
        "ids": {
            "jumps": fault(30, 400),
            "hours": HOURS[choose(len(HOURS))],
            "short_memory": choices.chance(600),
            "askers": fault(20, 300),
            "skewed": fault(100, 800),
        },
        "poison": {"killing": rate(100, 750 if mixed else 300), "cursed": rate(60, 700 if mixed else 300)},
        "queries": {
            "queries": (0, 0, 1, 2)[choose(4)] if mixed else 1 + choose(2),
            "speculation": rate(300),
            "second_drivers": fault(20),
            "abandoning": fault(3, 800),
            "early": rate(300),
        },
        "transactions": {
            "transmitting": (0, 1_000, 500)[choose(3)] if mixed else (1_000, 500)[choose(2)],
            "transacting": (300, 800, 60)[choose(3)],
            "finishing": rate(150, 500),
        },
        "mailboxes": {
            "deaf": 950 if recycling else (0, 500)[choose(2)],
            "looking": 700 if recycling else (300, 0)[choose(2)],
            "redirecting": 900 if recycling else (500, 0)[choose(2)],
            "heirs": (700, 0)[choose(2)],
            "small_mailboxes": choices.chance(100),
            "lone_firsts": fault(8, 700),
        },
        "followers": {"followers": choose(5)},
        "losses": _lossy(1 + choose(12)),
        "timers": {"timing": rate(300, 200), "lifetimes": rate(300, 500)},
        "ends": {"cleaning": rate(100, 200)},
        "groups": {"regrouping": rate(350, 100)},
        "moves": {"moves": rate(400, 400 if mixed and not recycling else 100), "altering": rate(30, 500)},
    }
    return {
        name: value if area in areas else ABSENT.get(name, 0)
        for area, values in drawn.items()
        for name, value in values.items()
    } | {"priorities": rate(700, 600), "savepoints": rate(300, 600)}
