"""Outputs leave in counter order, a window at a time, and only those of commits that count."""

from __future__ import annotations

import pytest

from konverse.dialog.owner.emitter import REFUSAL_PAUSE_MS, Emit, Emitter
from konverse.dialog.state.outbox import Run, Stream
from konverse.dialog.window import Window
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import EMITTER_WINDOW_RECORDS_MAX
from konverse.schemas.wire.envelope import decode, encode_suffix
from konverse.schemas.wire.records import Kind, Suffix
from tests.kit.builders import address_of, identifier, records_of

HERE, THERE = address_of("here"), address_of("there")


@pytest.fixture
def streams() -> dict[Address, Stream]:
    return {}


@pytest.fixture
def emitter(streams: dict[Address, Stream]) -> Emitter:
    return Emitter(streams)


def push(streams: dict[Address, Stream], address: Address, count: int) -> None:
    stream = streams.setdefault(address, Stream(address, identifier("owner")))
    prefix, suffix = stream.head(Kind.MESSAGE, Role.TARGET) + identifier("c"), encode_suffix(Suffix("t"))
    for _ in range(count):
        stream.push(Run(prefix, b"key", -1, suffix, [str(stream.next).encode()]))


def allow(emitter: Emitter) -> None:
    """The commit with all outputs so far counts."""
    for window, limit in emitter.limits():
        window.limit = limit


def bodies(effects: list[Emit]) -> dict[Address, list[bytes | None]]:
    return {effect.address: [output[2] for output in records_of(effect)] for effect in effects}


def test_nothing_leaves_before_its_commit_counts(emitter: Emitter, streams: dict[Address, Stream]) -> None:
    push(streams, HERE, 3)
    limits = emitter.limits()
    assert emitter.pending() == []
    push(streams, HERE, 2)
    for window, limit in limits:
        window.limit = limit
    assert bodies(emitter.pending()) == {HERE: [b"0", b"1", b"2"]}, "what came behind the commit waits"


def test_an_emission_carries_finished_headers_with_running_counters(
    emitter: Emitter, streams: dict[Address, Stream]
) -> None:
    push(streams, HERE, 3)
    allow(emitter)
    (effect,) = emitter.pending()
    assert (effect.address, effect.first) == (HERE, 0)
    assert [decode(header).counter for header in [header for header, _, _ in records_of(effect)]] == [0, 1, 2]


def test_the_next_window_leaves_when_the_last_one_is_in_the_log(
    emitter: Emitter, streams: dict[Address, Stream]
) -> None:
    push(streams, HERE, 2)
    allow(emitter)
    emitter.pending()
    push(streams, HERE, 1)
    allow(emitter)
    assert emitter.pending() == []
    assert not emitter.idle
    emitter.drained([HERE])
    assert bodies(emitter.pending()) == {HERE: [b"2"]}
    emitter.drained([HERE])
    assert emitter.idle


def test_a_window_is_bounded(emitter: Emitter, streams: dict[Address, Stream]) -> None:
    push(streams, HERE, EMITTER_WINDOW_RECORDS_MAX + 1)
    allow(emitter)
    (effect,) = emitter.pending()
    assert effect.size == EMITTER_WINDOW_RECORDS_MAX
    emitter.drained([HERE])
    (effect,) = emitter.pending()
    assert (effect.first, effect.size) == (EMITTER_WINDOW_RECORDS_MAX, 1)


def test_destinations_do_not_wait_for_each_other(emitter: Emitter, streams: dict[Address, Stream]) -> None:
    push(streams, HERE, 1)
    push(streams, THERE, 1)
    allow(emitter)
    assert bodies(emitter.pending()) == {HERE: [b"0"], THERE: [b"0"]}
    push(streams, HERE, 1)
    push(streams, THERE, 1)
    allow(emitter)
    emitter.drained([THERE])
    assert bodies(emitter.pending()) == {THERE: [b"1"]}


def test_a_new_producer_gets_everything_that_does_not_count_with_the_same_counters(
    emitter: Emitter, streams: dict[Address, Stream]
) -> None:
    push(streams, HERE, 1)
    allow(emitter)
    emitter.pending()
    emitter.drained([HERE])
    push(streams, HERE, 3)
    allow(emitter)
    (second,) = emitter.pending()
    emitter.restart(None, 0)
    (again,) = emitter.pending()
    assert again.first == 1
    assert records_of(again) == records_of(second)


def test_a_destination_that_refused_gets_no_records_until_its_pause_ends(
    emitter: Emitter, streams: dict[Address, Stream]
) -> None:
    push(streams, HERE, 1)
    push(streams, THERE, 1)
    allow(emitter)
    emitter.pending()
    emitter.restart(THERE, 0)
    assert bodies(emitter.pending()) == {HERE: [b"0"]}
    assert emitter.resume(REFUSAL_PAUSE_MS - 1) == []
    assert bodies(emitter.resume(REFUSAL_PAUSE_MS)) == {THERE: [b"0"]}
    assert emitter.resume(2 * REFUSAL_PAUSE_MS) == [], "there is no pause any more"


def test_acknowledgements_are_reported_to_the_journal_once(emitter: Emitter, streams: dict[Address, Stream]) -> None:
    push(streams, HERE, 2)
    allow(emitter)
    emitter.pending()
    assert emitter.acknowledged() == []
    emitter.drained([HERE])
    assert emitter.acknowledged() == [(HERE, 2)]
    streams[HERE].acknowledge(2)
    assert emitter.acknowledged() == []


def test_an_emitter_continues_from_the_counter_acknowledged_in_the_journal(streams: dict[Address, Stream]) -> None:
    push(streams, HERE, 5)
    streams[HERE].acknowledge(3)
    emitter = Emitter(streams)
    allow(emitter)
    assert bodies(emitter.pending()) == {HERE: [b"3", b"4"]}


def test_outputs_leave_after_acknowledgements_were_journaled(emitter: Emitter, streams: dict[Address, Stream]) -> None:
    push(streams, HERE, 2)
    allow(emitter)
    emitter.pending()
    emitter.drained([HERE])
    push(streams, HERE, 2)
    streams[HERE].acknowledge(2)
    allow(emitter)
    assert bodies(emitter.pending()) == {HERE: [b"2", b"3"]}


def test_a_commit_names_some_acknowledged_destinations_and_the_next_ones_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In turn: the same busy ones must not be named again and again."""
    monkeypatch.setattr("konverse.dialog.owner.emitter.COMMIT_ACK_ENTRIES_MAX", 2)
    addresses = [address_of(f"q{number}") for number in range(5)]
    streams = {address: Stream(address, identifier("owner")) for address in addresses}
    emitter = Emitter(streams)
    for address in addresses:
        emitter.windows[address] = Window(1)
    named: list[str] = []
    for _ in range(3):
        found = emitter.acknowledged()
        named += [address.topic for address, _ in found]
        for address, acked in found:
            streams[address].acked = acked
            emitter.windows[address].acked += 1  # more arrives at once
    assert len(named) == 6
    assert set(named[:5]) == {address.topic for address in addresses}
