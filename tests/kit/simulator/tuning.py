"""Tiny limits for the product, so that short runs reach the code for full tables. Undone after each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, TypeVar

import konverse.bridge.verifier.fold.moves
import konverse.dialog.fold.apply
import konverse.dialog.fold.ingest
import konverse.dialog.fold.journal
import konverse.dialog.fold.snapshot
import konverse.dialog.owner.emitter
import konverse.dialog.owner.owner
import konverse.dialog.owner.poison
import konverse.dialog.owner.recovery
import konverse.dialog.owner.relocations
import konverse.dialog.owner.snapshots
import konverse.dialog.owner.staging
import konverse.dialog.owner.timekeeping
import konverse.dialog.owner.view
import konverse.dialog.rules.batches
import konverse.dialog.rules.messages
import konverse.dialog.rules.relocation
import konverse.dialog.rules.writers
import konverse.dialog.session.dialogs
import konverse.dialog.session.lanes
import konverse.dialog.state.endpoint
import konverse.dialog.state.mailbox
import konverse.dialog.state.outbox
import konverse.dialog.state.writer
import konverse.schemas.wire.moved
import konverse.schemas.wire.varint
from konverse.bridge.verifier import journal as journals
from konverse.bridge.verifier.fold import mailbox as second_mailbox
from konverse.bridge.verifier.fold import writers as second_writers
from konverse.schemas.limits import SESSION_RECORD_BYTES
from konverse.schemas.wire import envelope, journal
from konverse.schemas.wire.varint import SMALL, varint

from .choices import Choices
from .swarm import Swarm

LOW_BITS: Final = 6
LOW_MASK: Final = (1 << LOW_BITS) - 1
_LOW: Final = [bytes((((number << 1) & 0x7F) | 0x80,)) for number in range(LOW_MASK + 1)]


def low_table(number: int) -> list[bytes]:
    """Like `konverse.schemas.wire.varint`, with tables of 64 entries."""
    return _LOW if number > LOW_MASK else SMALL


def high_part(number: int) -> bytes:
    """Like `konverse.schemas.wire.varint`, with tables of 64 entries."""
    if number <= LOW_MASK:
        return b""
    rest = number >> LOW_BITS
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


assert all(low_table(n)[n & LOW_MASK] + high_part(n) == varint(n) for n in (0, 63, 64, 8_191, 8_192, 1 << 40))


COUNTING: Final = (
    konverse.dialog.state.endpoint,
    konverse.dialog.state.writer,
    konverse.dialog.rules.messages,
    konverse.dialog.fold.ingest,
    konverse.dialog.session.dialogs,
    konverse.dialog.session.lanes,
    konverse.dialog.owner.view,
    konverse.schemas.wire.varint,
)
"""Modules that use the tables."""

Value = TypeVar("Value")

Change = tuple[ModuleType, str, Any]
"""Module, name of a global, and its value in this run."""


def _windows(choices: Choices) -> list[Change]:
    def small(*sizes: int) -> int:
        return sizes[choices.choose(len(sizes))]

    return [
        (konverse.dialog.owner.emitter, "EMITTER_WINDOW_RECORDS_MAX", small(3, 1, 20)),
        (konverse.dialog.owner.owner, "LOOK_AHEAD_RECORDS_MAX", small(5, 1, 50)),
        (konverse.dialog.owner.owner, "LOOK_AHEAD_BYTES_MAX", small(100_000, 100, 10)),
        (konverse.dialog.owner.owner, "OUTBOX_RECORDS_MAX", small(8, 2, 50)),
        (konverse.dialog.session.lanes, "SESSION_WINDOW_BYTES_MAX", SESSION_RECORD_BYTES * small(6, 2, 50)),
        (konverse.dialog.owner.staging, "COMMIT_BYTES_TARGET", small(40, 4, 400)),
        (konverse.dialog.owner.staging, "COMMIT_GROUPS_MAX", small(3, 1, 50)),
        (konverse.dialog.owner.snapshots, "SNAPSHOT_EVERY_RECORDS", small(10, 4, 40)),
        (konverse.dialog.owner.snapshots, "RECORDS_PER_ENDPOINT", small(0, 1)),
        (konverse.dialog.owner.snapshots, "SNAPSHOT_CHUNK_BYTES_MAX", small(2_000, 300)),
        (konverse.dialog.fold.snapshot, "SNAPSHOT_PIECE_ENTRIES_MAX", small(50, 3, 1)),
        (konverse.dialog.owner.recovery, "FIRST_WINDOW", small(16, 2, 1, 1)),
        (konverse.dialog.owner.recovery, "GROWTH", small(8, 1, 1)),
        (konverse.dialog.owner.relocations, "RELOCATION_HOPS_MAX", small(6, 2, 20)),
        (konverse.dialog.owner.relocations, "STUB_ENTRIES_MAX", small(50, 1, 3)),
        (konverse.dialog.rules.relocation, "INSTALL_PIECES_MAX", 10_000),
        (konverse.bridge.verifier.fold.moves, "INSTALL_PIECES_MAX", 10_000),
        (konverse.schemas.wire.moved, "BODY_BYTES_MAX", small(20, 90, 40)),
        (konverse.dialog.owner.relocations, "INSTALL_BYTES_MAX", small(100_000, 100)),
        (journal, "JOURNAL_PART_BYTES_MAX", small(10_000, 200, 90)),
        (konverse.dialog.owner.poison, "TRY_GROUPS_MAX", small(4, 64, 2)),
        (konverse.dialog.owner.poison, "TRY_FIRST_GROUPS_MAX", small(4, 64, 0)),
        (konverse.dialog.rules.batches, "PENDING_RECORDS_MAX", small(200, 12, 5)),
    ]


def _mailboxes(choices: Choices) -> list[Change]:
    """The state depends on these: other folds of the run's logs need the same values."""
    entries, size_bytes = (50, 2)[choices.choose(2)], (9, 500)[choices.choose(2)]
    return [
        (module, name, value)
        for module in (konverse.dialog.state.mailbox, second_mailbox)
        for name, value in (("MAILBOX_ENTRIES_MAX", entries), ("MAILBOX_BYTES_MAX", size_bytes))
    ]


def _memory() -> list[Change]:
    """Days in place of weeks; still longer than a session may take for a record and its acknowledgement."""
    hour_ms = 3_600_000
    return [
        (konverse.dialog.owner.timekeeping, "WRITER_HORIZON_MS", 96 * hour_ms),
        (konverse.dialog.owner.timekeeping, "PRUNE_EVERY_MS", 6 * hour_ms),
        (konverse.dialog.rules.writers, "WRITER_AHEAD_MS_MAX", 24 * hour_ms),
        (second_writers, "WRITER_AHEAD_MS_MAX", 24 * hour_ms),
    ]


def _tables() -> list[Change]:
    values = {"LOW_MASK": LOW_MASK, "low_table": low_table, "high_part": high_part}
    return [(module, name, values[name]) for module in COUNTING for name in values if name in vars(module)]


def remembering(decode: Callable[[bytes], Value]) -> Callable[[bytes], Value]:
    """A decoder that decodes each record once in a run. Many owners read the same ones, and decoding is pure."""
    known: dict[bytes, Value] = {}

    def remembered(data: bytes) -> Value:
        value = known.get(data)
        if value is None:
            value = known[data] = decode(data)
        return value

    return remembered


REPLACED: Final = {
    "decode": "it remembers what the product's own function has said of the same bytes, which depends on nothing else",
    "_read_suffix": "likewise",
    "low_table": "with `high_part` it spells the same numbers in the same bytes, from a table of another size",
    "high_part": "likewise, as `LOW_MASK` says",
}
"""The replaced functions, and why none of them changes a decision. All other changes are numbers."""


def changes_of(choices: Choices, swarm: Swarm) -> list[Change]:
    """The changes of one run."""
    decode = remembering(journal.decode)
    changes: list[Change] = [
        (konverse.dialog.fold.journal, "decode", decode),
        (journals, "decode", decode),
        (envelope, "_read_suffix", remembering(envelope._read_suffix)),
    ]
    if swarm.tiny_windows:
        changes += _windows(choices)
    if swarm.small_mailboxes:
        changes += _mailboxes(choices)
    if swarm.short_memory:
        changes += _memory()
    if swarm.low_numbers:
        changes += _tables()
    return changes


@contextmanager
def tuned(choices: Choices, swarm: Swarm) -> Iterator[None]:
    """The product with the limits of one run."""
    changes = changes_of(choices, swarm)
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    try:
        for module, name, value in changes:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
