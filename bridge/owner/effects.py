"""Runs the effects of an owner: calls the driver's method for each effect, and first the effects that it returns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from konverse.dialog.owner.events import Effect
from konverse.dialog.owner.owner import Owner

DriverT = TypeVar("DriverT")

EffectMethod = Callable[[DriverT, int, Owner, Any], "list[Effect] | None"]
"""A method of a driver: partition number, owner and effect. Returns the effects with which the owner goes on."""


def run_effects(
    methods: Mapping[type, EffectMethod[DriverT]], driver: DriverT, owner: Owner, effects: Iterable[Effect]
) -> None:
    """Turn effects into calls. The effects that follow from a read come before the remaining ones."""
    number, todo = owner.identity.partition, deque(effects)
    while todo:
        effect = todo.popleft()
        todo.extendleft(reversed(methods[type(effect)](driver, number, owner, effect) or ()))
