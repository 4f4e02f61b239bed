"""Closed writers and their heirs: where a writer was closed, and which ids come after it (protocol.md section 5)."""

from __future__ import annotations

from konverse.dialog.state.partition import Partition
from konverse.dialog.state.writer import NO_HEIR, Writer
from konverse.schemas.identifiers import time_of_writer
from konverse.schemas.wire.records import WriterClosed


def closing_of(state: Partition, writer: Writer) -> WriterClosed:
    """The WRITER_CLOSED detail about a closed writer."""
    assert writer.closed_at is not None
    return WriterClosed(writer.id, writer.closed_at, state.address, writer.heir and writer.heir[0])


def is_behind(state: Partition, writer: Writer, identifier: bytes) -> bool:
    """Whether `identifier` is an heir of the writer, or an heir of an heir."""
    heir: Writer | None = writer
    while heir is not None and heir.heir is not None and heir.heir is not NO_HEIR:
        if heir.heir[0] == identifier:
            return True
        heir = state.writers.get(heir.heir[0])
    return False


def may_go_on(state: Partition, opener: bytes, identifier: bytes, *, unclosed: bool) -> bool:
    """Whether the session that began with the id `opener` may go on under `identifier`.

    True for an id that this partition has forgotten or never knew, because its heirs are unknown. `unclosed` is the
    answer where the last known id of the session has no heir yet.
    """
    while opener != identifier:
        writer = state.writers.get(opener)
        if writer is None:
            return time_of_writer(opener) is not None  # owners have no heirs
        if writer.heir is None:
            return unclosed and time_of_writer(opener) is not None
        if writer.heir is NO_HEIR:
            return False
        opener = writer.heir[0]
    return True


def may_open(state: Partition, opener: bytes) -> bool:
    """Whether a FIRST of this opener may still come; False when it, or its last heir, was closed without an heir."""
    writer = state.writers.get(opener)
    while writer is not None and writer.heir is not None:
        if writer.heir is NO_HEIR:
            return False
        writer = state.writers.get(writer.heir[0])
    return True
