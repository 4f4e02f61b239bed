"""Copies the outputs of COMMITs to their destinations, in counter order, one window at a time.

Any process may repeat the copying at any time: the destination takes each counter once (protocol.md section 4, `emit`).
The emitter adds the order and a bound. It hands over outputs only when their COMMIT counts, at most a window of them,
and the next window when the previous one is in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from konverse.dialog.state.outbox import Run, Stream
from konverse.dialog.window import Window, allow
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import COMMIT_ACK_ENTRIES_MAX, EMITTER_WINDOW_RECORDS_MAX
from konverse.schemas.wire.varint import varints

REFUSAL_PAUSE_MS: Final = 1_000
"""Pause before a destination that refused its outputs is tried again."""


class Emit(NamedTuple):
    """Effect: hand these records over to the producer, in this order."""

    address: Address
    first: int
    """Counter of the first record; the others follow."""
    runs: list[Run]

    @property
    def size(self) -> int:
        """Number of records."""
        return sum(len(run.bodies) for run in self.runs)

    def batches(self) -> Iterator[tuple[bytes, Sequence[bytes], Sequence[bytes | None]]]:
        """Key, headers and bodies of the records, in order. The records of one batch share the key."""
        counters = iter(varints(self.first, self.size))
        for run in self.runs:
            yield run.key, run.headers(counters), run.bodies


class Emitter:
    """Progress of each output stream of one partition."""

    def __init__(self, streams: Mapping[Address, Stream]) -> None:
        self.streams = streams
        self.windows: dict[Address, Window] = {}
        self.paused: set[Address] = set()
        """Destinations that refused outputs. The others continue."""
        self.held = False
        """True while a COMMIT in flight takes outputs back. Nothing is emitted then: no destination may read the VOIDs
        before the COMMIT counts."""
        self._paused_since: int | None = None

    @property
    def waiting(self) -> int:
        """Number of outputs whose arrival the journal does not record yet."""
        return sum(stream.waiting for stream in self.streams.values())

    def limits(self) -> list[tuple[Window, int]]:
        """The current end of each stream that has grown. Pass it to `allow` when the COMMIT is known to count."""
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
        """Release the outputs below these counters: their COMMIT counts."""
        self.held = False
        allow(limits)

    def pending(self) -> list[Emit]:
        """The next window of each destination whose previous window is in the log."""
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
        """Note that the log of these destinations has everything that was emitted to them."""
        for address in addresses:
            self.windows[address].drained()

    def restart(self, refused: Address | None, now_ms: int) -> None:
        """The producer was replaced: emit again all that may not have arrived, to `refused` after a pause."""
        self._paused_since = now_ms
        if refused is not None:
            self.paused.add(refused)
        for window in self.windows.values():
            window.restart()

    def resume(self, now_ms: int) -> list[Emit]:
        """After the pause, emit to the destinations that refused."""
        if self._paused_since is None or now_ms - self._paused_since < REFUSAL_PAUSE_MS:
            return []
        self._paused_since = None
        self.paused.clear()
        return self.pending()

    def acknowledged(self) -> list[tuple[Address, int]]:
        """Destination and acknowledged counter, where the journal is behind: for the next COMMIT's `output_acks`.

        Of more than COMMIT_ACK_ENTRIES_MAX destinations the others come with the COMMITs after it.
        """
        behind = (
            (address, window.acked)
            for address, window in self.windows.items()
            if window.acked > self.streams[address].acked
        )
        found = [*islice(behind, COMMIT_ACK_ENTRIES_MAX)]
        if len(found) == COMMIT_ACK_ENTRIES_MAX:
            for address, _ in found:  # after all others the next time
                self.windows[address] = self.windows.pop(address)
        return found

    def opens(self, gated: Iterable[Stream]) -> bool:
        """Whether acknowledgements that the journal lacks would open a gate, and so release outputs that wait there."""
        windows = self.windows
        first = (stream.gates[0] for stream in gated)
        return any(gate.to in windows and windows[gate.to].acked >= gate.after for gate in first)

    @property
    def idle(self) -> bool:
        """Whether everything that was released has arrived."""
        return all(window.acked == window.limit for window in self.windows.values())
