"""The chart of a demonstration is an image with its bars and marks at the right places."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from examples.routing.chart import BLUE, BOTTOM, HEIGHT, LEFT, RED, RIGHT, TOP, WIDTH, Mark, draw, step_of


def pixels(path: Path) -> list[bytes]:
    """The rows of a PNG written by Canvas, after a check of its checksums."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", data, at + 8 + size)[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + size
    assert struct.unpack(">2I5B", chunks[b"IHDR"]) == (WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    raw = zlib.decompress(chunks[b"IDAT"])
    line = 3 * WIDTH + 1
    return [raw[start + 1 : start + line] for start in range(0, len(raw), line)]


def test_bars_are_as_high_as_their_rates_and_marks_stand_at_their_time(tmp_path: Path) -> None:
    path = tmp_path / "new" / "chart.png"
    draw(path, [0, 500, 1_000, 250], [Mark(2.0, "kill -9 worker"), Mark(3.9, "kill -9 driver")])
    rows = pixels(path)
    assert len(rows) == HEIGHT
    each = (WIDTH - RIGHT - LEFT) / 4
    high = []
    for second in range(4):
        left = 3 * (LEFT + round(second * each) + 10)
        high.append(sum(row[left : left + 3] == bytes(BLUE) for row in rows))
    full = HEIGHT - BOTTOM - TOP
    assert high == [pytest.approx(full * share, abs=2) for share in (0, 0.5, 1, 0.25)]
    left = 3 * (LEFT + round(2 * each))
    assert sum(row[left : left + 3] == bytes(RED) for row in rows) > full


def test_nothing_can_be_drawn_too(tmp_path: Path) -> None:
    draw(tmp_path / "chart.png", [], [])
    assert pixels(tmp_path / "chart.png")


@pytest.mark.parametrize(
    ("most", "step"), [(1, 1), (6, 1), (7, 2), (13, 5), (31, 10), (9_999, 2_000), (48_000, 10_000)]
)
def test_a_scale_has_six_lines_at_most(most: int, step: int) -> None:
    assert step_of(most) == step
