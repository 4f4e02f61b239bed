"""The tables that Spark's report prints at the end of the demonstration."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from examples.sales.report import print_rows

BEGAN = datetime(2026, 11, 28, 22, 25, 17, 123_456, tzinfo=UTC)
ONE, OTHER = UUID(int=1 << 100), UUID(int=7)
LEDGER = {
    "conversation": [bytearray(ONE.bytes), bytearray(OTHER.bytes)],
    "role": ["INITIATOR", "TARGET"],
    "messages": [12_345, 7],
    "bytes": [1_234_567_890, 0],
    "first_timestamp": [BEGAN, BEGAN],
    "last_timestamp": [BEGAN + timedelta(days=1), BEGAN],
    "first_sequence": [0, 0],
    "last_sequence": [12_345, 6],
    "ended": [True, False],
    "gaps": [0, 0],
}


@pytest.fixture(autouse=True)
def at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a terminal of the usual width."""
    monkeypatch.setenv("COLUMNS", "80")


def test_no_cell_of_a_wide_ledger_is_cut_at_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows("Ledger", LEDGER, zip(*LEDGER.values(), strict=True))
    out = capsys.readouterr().out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80
    lines = out.splitlines()
    for line in (
        f"conversation: {ONE}",
        "messages: 12,345",
        "bytes: 1,234,567,890",
        "last_timestamp: 2026-11-29 22:25:17",
        "ended: True",
        f"conversation: {OTHER}",
        "ended: False",
    ):
        assert lines.count(line) == 1


def test_a_narrow_table_keeps_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows("Sales", ["region", "orders", "turnover"], [("Middle East and North Africa", 1_234, 5_678.5)])
    _, names, *_, row = filter(str.strip, capsys.readouterr().out.splitlines())
    assert names.split() == ["region", "orders", "turnover"]
    assert " ".join(row.split()) == "Middle East and North Africa 1,234 5,678.5"
