"""Bounds of the second fold: they are those of the first, or its state would be refuted."""

from __future__ import annotations

import pytest

from konverse.bridge.verifier.fold import state as second
from tests.kit.builders import address_of, identifier


def test_the_oldest_tombstone_goes_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second, "TOMBSTONES_MAX", 2)
    fold = second.SecondState(address_of("orders"), identifier("owner"))
    for name in ("a", "b", "c"):
        fold.refuse_first(identifier(name), identifier("opener"))
    assert [*fold.tombstones] == [identifier("b"), identifier("c")]
