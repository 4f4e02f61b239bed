"""The draw of a seed: topology, load, settings, and a mix of fault rates, many of them zero."""

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
"""Lengths of standstills in hours, one row for each run: within a session's limits, around them, and far beyond."""

Rate = Callable[..., int]
"""Draws a rate up to the first argument. The second argument is the rate of runs in which it is 0."""


@dataclass(frozen=True, slots=True)
class Swarm:
    """The draw of one run. Rates are per thousand."""

    # topology and load
    queues: int
    partitions: int
    sessions: int
    dialogs: int
    open_dialogs: int
    """A session with fewer open dialogs begins the next one."""
    beginning: int
    """Rate of beginning it at once; otherwise the session tries later."""
    closing: int
    """Rate of ending a dialog at once when everything is sent."""
    messages: int
    burst: int
    clubs: int
    """Number of conversation groups shared by sessions; 0: each dialog is a group of its own."""
    steps: int
    # settings of the product
    batch: int
    max_messages: int | None
    view_interval_ms: int
    tiny_windows: bool
    low_numbers: bool
    """The tables of encoded counters end at 63, so that the code for larger counters runs."""
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
    """Rate of a consumer's passing over records."""
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
    """Rate of standstills of hours or days."""
    hours: tuple[int, ...]
    short_memory: bool
    """Writers are pruned after days instead of weeks."""
    askers: int
    """Rate of asking for the outcome of a session's messages; the session may be alive."""
    skewed: int
    """Rate of ids whose time is days ahead, against assumption A3 about brokers' clocks."""
    rot: int
    """Rate of damaging a byte of a snapshot."""
    # handlers
    handlers: int
    """Most transactions of a process in handlers at a time."""
    slow: int
    raising: int
    ending: int
    failing: int
    leaving: int
    answering: int
    """Rate of replies by an initiator's handler, the second writer of that direction."""
    sessions_end: bool
    """Initiators' handlers leave it to the session to end a dialog whose peer has ended."""
    killing: int
    """Rate of messages that kill the process of every handler."""
    cursed: int
    """Rate of messages that make every handler raise."""
    # queries that write in batches
    queries: int
    speculation: int
    second_drivers: int
    abandoning: int
    early: int
    """Rate of a task's attempts to report before all its rows are acknowledged."""
    transmitting: int
    """Rate of sessions that make transactions."""
    transacting: int
    """Rate of making a transaction in place of another action."""
    finishing: int
    """Rate of FIN, by sessions and handlers."""
    # mailboxes
    deaf: int
    """Rate of a session's missing its peer's end and sending on."""
    looking: int
    """Rate of looking into the mailbox."""
    redirecting: int
    """Rate of redirecting bounced messages; the others are confirmed."""
    heirs: int
    """Rate of successors that decide about bounced messages or adopt conversations."""
    small_mailboxes: bool
    """Mailboxes drop bounces early."""
    lone_firsts: int
    """Rate of conversations that reach a target and have no home."""
    followers: int
    """Number of followers."""
    losses: int
    """Rate of deleting data before it is ingested."""
    cuts: int
    """Rate of losing unread records, which Kafka may have acknowledged."""
    forgers: int
    """Rate of a stranger's writing in the name of a session. Such runs lose no data."""
    moves: int
    """Rate of moving an endpoint to another partition."""
    altering: int
    """Rate of ALTER SERVICE to another queue."""
    rejecting: int
    """Rate of messages that their receivers reject."""
    handlers_begin: int
    """Rate of messages whose handlers begin dialogs."""
    timing: int
    """Rate of setting a timer, by sessions and handlers."""
    lifetimes: int
    """Rate of dialogs with a lifetime."""
    cleaning: int
    """Rate of END WITH CLEANUP, by handlers and operators."""
    wanting: int
    """Rate of receiving a named conversation or group in place of the next one."""
    regrouping: int
    """Rate of moving a conversation to another group, and of taking a further group, by handlers."""
    again: int
    """Rate of receiving again after all waiting messages were received."""
    priorities: int
    """Rate of sides that begin with another level than the default."""
    savepoints: int
    """Rate of rolling back to a savepoint."""

    @property
    def naming(self) -> int:
        """Rate of caller-chosen ids, and of beginning such a conversation again. Not drawn, so old seeds stay valid."""
        return 500 if self.savepoints % 3 == 1 else 0

    @property
    def own_bounds(self) -> bool:
        """The logs depend on bounds of this run: of mailboxes, moved pieces, or ids ahead of time."""
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
"""Areas of runs that lose data. They have no further areas, so that the promises which still hold are simple."""

ABSENT: Final = {"short_memory": False, "small_mailboxes": False, "hours": HOURS[0]}
"""Values of an absent area's settings that are not 0."""


def draw(choices: Choices) -> Swarm:
    """Draw the swarm of a run. A quarter of the runs are quiet: no faults, so that applications get further."""
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
    """Areas of a run: some runs lose data; of the others half have all areas, and half have one or two.

    Runs with few areas get further in each.
    """
    if choices.chance(140):
        return LOSSY
    some = frozenset(AREAS[choices.choose(len(AREAS))] for _ in range(2))
    return frozenset(AREAS) if choices.choose(2) else some


def _lossy(rate: int) -> dict[str, int]:
    """In half of such runs data is deleted. In the others records are forged, or Kafka loses acknowledged records."""
    return {
        "losses": rate if rate <= 8 else 0,
        "forgers": (rate - 8) * 3 if 8 < rate <= 12 else 0,
        "cuts": (rate - 12) * 15 if rate > 12 else 0,
    }


def _drawn_by_area(
    choices: Choices, rate: Rate, fault: Rate, areas: frozenset[str], *, recycling: bool
) -> dict[str, Any]:
    """Draw the rates that belong to areas. Those of absent areas are 0."""
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
        "losses": _lossy(1 + choose(16)),
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
