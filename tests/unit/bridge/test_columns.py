"""Records in the form of Kafka's client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.kafka.columns import columns_of
from konverse.bridge.verifier.reading import _record
from konverse.schemas.wire.envelope import HEADER


@pytest.mark.parametrize("first", [None, b"", b"one"])
def test_of_two_headers_of_our_name_both_folds_take_the_first(first: bytes | None) -> None:
    message: Any = SimpleNamespace(
        headers=lambda: [("theirs", b"x"), (HEADER, first), (HEADER, b"two")],
        value=lambda: b"body",
        timestamp=lambda: (0, 7),
        offset=lambda: 5,
        error=lambda: None,
    )
    columns, events = columns_of([message])
    assert (list(columns.headers), events) == ([first], [])
    assert _record(message).header == first
