"""Readers that cannot be made, without servers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.reader import reader as module
from konverse.bridge.reader.reader import Reader
from konverse.bridge.runtime.settings import ReaderOptions
from konverse.dialog.owner.handing_out import HandingOut
from konverse.schemas.errors import KafkaUnavailable


def test_a_reader_whose_standby_cannot_be_made_gives_its_partitions_back_and_leaves_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[str] = []

    def refuse() -> None:
        raise KafkaUnavailable("too many clients")

    driver: Any = SimpleNamespace(
        queue=SimpleNamespace(name="Orders"),
        handing_out=HandingOut(),
        stand_by=refuse,
        close=lambda: closed.append("its owners"),
    )
    share = SimpleNamespace(close=lambda: closed.append("its consumer"))
    monkeypatch.setattr(module, "Assignment", lambda *_: share)
    kafka: Any = SimpleNamespace()
    with pytest.raises(KafkaUnavailable, match="too many clients"):
        Reader(kafka, driver, ReaderOptions(standby=True), lambda _: None)
    assert closed == ["its owners", "its consumer"]
