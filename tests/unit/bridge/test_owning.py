"""Outputs that a destination refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from konverse.bridge.owning import Owning
from konverse.bridge.seldom import Seldom


def test_many_refused_outputs_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    owning: Any = Owning.__new__(Owning)
    owning._refusals = Seldom()
    for number in range(1_000):
        message = SimpleNamespace(topic=lambda: "gone", partition=lambda number=number: number % 2)
        owning._on_refusal(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), message)
    assert [record.getMessage()[:16] for record in caplog.records] == ["outputs to gone/", "outputs to gone/"]
    assert owning._refusal == ("gone", 1)
