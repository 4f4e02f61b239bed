"""Runs the effects of an owner: calls the driver's method for each, and runs the effects that it returns next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from konverse.dialog.owner.events import Effect
from konverse.dialog.owner.owner import Owner

DriverT = TypeVar("DriverT")

EffectMethod = Callable[[DriverT, int, Owner, Any], "list[Effect] | None"]
"""A driver's method for a kind of effect. Takes partition number, owner and effect; returns the effects that follow."""


def run_effects(
    methods: Mapping[type, EffectMethod[DriverT]], driver: DriverT, owner: Owner, effects: Iterable[Effect]
) -> None:
    """Turn effects into calls. Effects that result from a call run before the remaining ones."""
    number, todo = owner.identity.partition, deque(effects)
    while todo:
        effect = todo.popleft()
        todo.extendleft(reversed(methods[type(effect)](driver, number, owner, effect) or ()))
