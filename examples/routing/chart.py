"""A chart of a rate over time as a PNG, with marks for events; drawn without a library."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

WIDTH, HEIGHT = 1_000, 380
LEFT, RIGHT, TOP, BOTTOM = 110, 20, 50, 50

Color = tuple[int, int, int]
WHITE: Final[Color] = (255, 255, 255)
GREY: Final[Color] = (221, 221, 221)
BLACK: Final[Color] = (51, 51, 51)
BLUE: Final[Color] = (66, 113, 174)
RED: Final[Color] = (200, 40, 41)

SCALE: Final = 2
"""Pixels for each dot of a letter."""

_LETTERS: Final = {
    "0": "0e11131519110e", "1": "040c040404040e", "2": "0e11010204081f", "3": "1f02040201110e", "4": "02060a121f0202",
    "5": "1f101e0101110e", "6": "0608101e11110e", "7": "1f010204080808", "8": "0e11110e11110e", "9": "0e11110f01020c",
    ",": "000000000c0408", "-": "0000001f000000", "/": "00010204081000", " ": "00000000000000",
    "a": "00000e010f110f", "c": "00000e1010110e", "d": "01010d1311110f", "e": "00000e111f100e", "i": "04000c0404040e",
    "k": "10101214181412", "l": "0c04040404040e", "n": "00001619111111", "o": "00000e1111110e", "p": "00001e111e1010",
    "r": "00001619101010", "s": "00000e100e011e", "t": "08081c08080906", "v": "00001111110a04", "w": "0000111115150a",
}  # fmt: skip
"""Seven rows of five dots each, in hexadecimal digits."""


class Mark(NamedTuple):
    """An event to mark in the chart."""

    at_s: float
    text: str


class Canvas:
    """Pixels, from the top left."""

    def __init__(self) -> None:
        self._rows = [bytearray(bytes(WHITE) * WIDTH) for _ in range(HEIGHT)]

    def fill(self, left: int, top: int, width: int, height: int, color: Color) -> None:
        """Fill the part of a rectangle that is inside the picture."""
        left, right = max(0, left), min(WIDTH, left + width)
        for row in self._rows[max(0, top) : max(0, top + height)]:
            row[3 * left : 3 * right] = bytes(color) * max(0, right - left)

    def write(self, left: int, top: int, text: str, color: Color = BLACK) -> None:
        """Write a text in letters that are six dots wide."""
        for place, letter in enumerate(text):
            for line, bits in enumerate(bytes.fromhex(_LETTERS[letter])):
                for dot in range(5):
                    if bits >> (4 - dot) & 1:
                        self.fill(left + (6 * place + dot) * SCALE, top + line * SCALE, SCALE, SCALE, color)

    def png(self) -> bytes:
        """The picture as a PNG file."""
        head = struct.pack(">2I5B", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
        pixels = zlib.compress(b"".join(b"\0" + row for row in self._rows))
        return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, (b"IHDR", b"IDAT", b"IEND"), (head, pixels, b"")))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _width(text: str) -> int:
    return 6 * SCALE * len(text)


def step_of(most: float) -> int:
    """The step between the lines of a scale up to `most`: 1, 2 or 5 times a power of ten, for six lines at most."""
    step = 1
    while most / step > 6:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return step


def draw(path: Path, rates: Sequence[float], marks: Sequence[Mark]) -> None:
    """Write a chart of rows per second, one value for each second from 0 on."""
    canvas = Canvas()
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    lines = step_of(max([*rates, 1.0]))
    most = lines * -(-max([*rates, 1.0]) // lines)
    for value in range(0, round(most) + 1, lines):
        top = bottom - round(value / most * (bottom - TOP))
        canvas.fill(LEFT, top, right - LEFT, 1, GREY)
        canvas.write(LEFT - 10 - _width(f"{value:,}"), top - 7, f"{value:,}")
    each = (right - LEFT) / max(len(rates), 1)
    for second, rate in enumerate(rates):
        height = round(rate / most * (bottom - TOP))
        canvas.fill(LEFT + round(second * each), bottom - height, max(1, round(each) - 1), height, BLUE)
    for second in range(0, len(rates) + 1, step_of(len(rates))):
        canvas.write(LEFT + round(second * each) - _width(str(second)) // 2, bottom + 8, str(second))
    canvas.write(right - _width("seconds"), bottom + 28, "seconds")
    canvas.write(10, 10, "rows/s")
    for mark in marks:
        left = LEFT + round(mark.at_s * each)
        canvas.fill(left, TOP - 14, 2, bottom - TOP + 14, RED)
        canvas.write(min(left, right - _width(mark.text)), TOP - 32, mark.text, RED)
    canvas.fill(LEFT, bottom, right - LEFT, 2, BLACK)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(canvas.png())
