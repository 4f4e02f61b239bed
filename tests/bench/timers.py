"""Timers, each on a dialog of its own: how late handlers get them, and the cost of timers that are not due."""

from __future__ import annotations

import time
from typing import Final

from konverse.schemas.system_messages import DIALOG_TIMER
from tests.bench import conversations
from tests.bench.clients import PARTITIONS
from tests.bench.measure import Meter, latencies
from tests.bench.model import Case, Figures, Load, Place, Row, Run

SPREAD_S: Final = 20.0
"""The due times are spread over this period, because handlers could not receive all timers at one moment."""


SET_S: Final = 0.000_3
"""Seconds allowed for setting each timer, before the first one is due."""

FAR_S: Final = 86_400.0
"""Time until an idle timer is due."""

SETTLE_S: Final = 10.0
"""Time for the reader to start before the first timer is due."""


def prepared(place: Place, _load: Load) -> Figures:
    """Create empty queues."""
    with conversations.connect(place) as broker:
        conversations.create(broker)
    return {}


def rung(place: Place, load: Load) -> Figures:
    """Set all timers, then receive them. The delay of a timer runs from its due time to its handler."""
    late: list[float] = []
    with conversations.connect(place) as broker:
        opened = conversations.dialogs(broker, load.messages)
        due = time.time() + len(opened) * SET_S + SETTLE_S
        for number, dialog in enumerate(opened):
            dialog.set_timer(due - time.time() + number * SPREAD_S / load.messages)
        broker.flush()
        with broker.reader("Shop", timeout=due - time.time() + SPREAD_S) as reader:
            reader.wait_for_partitions(PARTITIONS)
            for transaction in reader:
                with transaction:
                    for message in transaction:
                        assert message.type == DIALOG_TIMER
                        late.append(time.time() - message.timestamp.timestamp())
                        transaction.end(message.dialog)
                if len(late) == load.messages:
                    break
            reader.settle()
    assert len(late) == load.messages, f"{len(late)} of {load.messages} rang"
    return latencies("late", late)


def _resting(place: Place, load: Load, *, timers: bool) -> Figures:
    """CPU of an idle reader with `load.messages` open dialogs, each with or without a timer."""
    with conversations.connect(place) as broker:
        for dialog in conversations.dialogs(broker, load.messages):
            if timers:
                dialog.set_timer(FAR_S)
            else:
                dialog.send(conversations.MESSAGE, b"")
        broker.flush()
        with broker.reader("Shop", timeout=SETTLE_S) as reader:
            reader.wait_for_partitions(PARTITIONS)
            for _ in reader:
                raise AssertionError("a timer rang before it was due")
            with Meter() as meter:
                for _ in reader:
                    raise AssertionError("a timer rang before it was due")
    return {"cpu_ms_per_s": 1e3 * meter.process_s / meter.wall_s}


def resting(place: Place, load: Load) -> Figures:
    """CPU of an idle reader whose dialogs all have a timer."""
    return _resting(place, load, timers=True)


def resting_without(place: Place, load: Load) -> Figures:
    """CPU of an idle reader whose dialogs have no timer."""
    return _resting(place, load, timers=False)


CASES: Final = (
    Case(
        (Row("timers-late", "late_p99_ms", "ms, p99"),),
        Run(rung, Load(messages=100_000), prepare=prepared),
        rounds=1,
    ),
    Case(
        (Row("timers-idle", "cpu_ms_per_s", "ms of CPU/s"),),
        Run(resting, Load(messages=100_000), prepare=prepared),
        Run(resting_without, Load(messages=100_000), prepare=prepared),
    ),
)
