"""Copies the outputs of valid commits to their destinations, in counter order, a window at a time.

Emission (protocol.md section 4, `emit`) may be repeated by anyone at any time; the destination's counters make that
harmless. What the emitter adds is order and a bound: it hands over only outputs of commits that are known to count,
never more than a window, and the next window when the last one is in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from konverse.dialog.state.outbox import Run, Stream
from konverse.dialog.window import Window, allow
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import EMITTER_WINDOW_RECORDS_MAX
from konverse.schemas.wire.varint import varints

REFUSAL_PAUSE_MS: Final = 1_000
"""A destination that refused its outputs is tried again after this long."""


class Emit(NamedTuple):
    """Effect: hand these records to the producer, in this order."""

    address: Address
    first: int
    """Counter of the first record; the others follow."""
    runs: list[Run]

    @property
    def size(self) -> int:
        """How many records."""
        return sum(len(run.bodies) for run in self.runs)

    def batches(self) -> Iterator[tuple[bytes, Sequence[bytes], Sequence[bytes | None]]]:
        """Key, headers and bodies of the records, in order; those of a batch have the same key."""
        counters = iter(varints(self.first, self.size))
        for run in self.runs:
            yield run.key, run.headers(counters), run.bodies


class Emitter:
    """Where each stream of a partition stands."""

    def __init__(self, streams: Mapping[Address, Stream]) -> None:
        self.streams = streams
        self.windows: dict[Address, Window] = {}
        self.paused: set[Address] = set()
        """Destinations that refused; the others go on."""
        self.held = False
        """A commit is on its way that takes outputs back: nobody may read that before it counts."""
        self._paused_since: int | None = None

    @property
    def waiting(self) -> int:
        """Outputs that their destinations do not have yet, as the journal says."""
        return sum(stream.waiting for stream in self.streams.values())

    def limits(self) -> list[tuple[Window, int]]:
        """What the streams hold now, to be allowed when the commit that made it is known to count."""
        out = []
        for address, stream in self.streams.items():
            window = self.windows.get(address)
            if window is None:
                window = self.windows[address] = Window(stream.acked)
            limit = stream.open_to
            if limit != window.limit:
                out.append((window, limit))
        return out

    def allow(self, limits: Iterable[tuple[Window, int]]) -> None:
        """The commit counts that made the outputs up to these."""
        self.held = False
        allow(limits)

    def pending(self) -> list[Emit]:
        """The next window of each destination whose last one is in the log."""
        out: list[Emit] = []
        if self.held:
            return out
        for address, window in self.windows.items():
            count = min(window.limit - window.sent, EMITTER_WINDOW_RECORDS_MAX)
            if count and not window.outstanding and address not in self.paused:
                out.append(Emit(address, window.sent, self.streams[address].cut(window.sent, count)))
                window.sent += count
        return out

    def drained(self, addresses: Iterable[Address]) -> None:
        """The producer had everything that was emitted to these, and ran empty without a failure."""
        for address in addresses:
            self.windows[address].drained()

    def restart(self, refused: Address | None, now_ms: int) -> None:
        """The producer was replaced: everything that does not count goes again; `refused` only after a pause."""
        self._paused_since = now_ms
        if refused is not None:
            self.paused.add(refused)
        for window in self.windows.values():
            window.restart()

    def resume(self, now_ms: int) -> list[Emit]:
        """Those that refused are tried again when the pause is over."""
        if self._paused_since is None or now_ms - self._paused_since < REFUSAL_PAUSE_MS:
            return []
        self._paused_since = None
        self.paused.clear()
        return self.pending()

    def acknowledged(self) -> list[tuple[Address, int]]:
        """What the destinations have and the journal does not say yet: for the next commit's `output_acks`."""
        return [
            (address, window.acked)
            for address, window in self.windows.items()
            if window.acked > self.streams[address].acked
        ]

    def opens(self, gated: Iterable[Stream]) -> bool:
        """Whether one of those acknowledgements lets outputs leave that wait behind it for another destination."""
        windows = self.windows
        first = (stream.gates[0] for stream in gated)
        return any(gate.to in windows and windows[gate.to].acked >= gate.after for gate in first)

    @property
    def idle(self) -> bool:
        """Nothing to hand over and nothing on its way."""
        return all(window.acked == window.limit for window in self.windows.values())
