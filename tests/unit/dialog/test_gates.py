"""Outputs wait in the outbox for records that must arrive elsewhere first, and later outputs wait behind them."""

from __future__ import annotations

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.owner.emitter import Emitter
from konverse.dialog.state.outbox import Run, Stream
from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.envelope import encode_suffix
from konverse.schemas.wire.records import Kind, Suffix
from tests.kit.builders import address_of, identifier, log_of
from tests.kit.digests import digest

FIRST, SECOND = address_of("first"), address_of("second")


@pytest.fixture
def state() -> Partition:
    return Partition(log_of())


@pytest.fixture
def emitter(state: Partition) -> Emitter:
    return Emitter(state.streams)


def push(state: Partition, address: Address, count: int = 1) -> Stream:
    stream = state.stream_to(address)
    prefix = stream.head(Kind.MESSAGE, Role.TARGET) + identifier("c")
    stream.push(Run(prefix, b"key", -1, encode_suffix(Suffix("t")), [b""] * count))
    return stream


def leaving(emitter: Emitter) -> dict[Address, int]:
    """Number of outputs that leave when everything decided so far counts."""
    for window, limit in emitter.limits():
        window.limit = limit
    return {effect.address: effect.size for effect in emitter.pending()}


def test_an_output_waits_for_the_acknowledgement_of_earlier_outputs_to_another_destination(
    state: Partition, emitter: Emitter
) -> None:
    push(state, FIRST, 3)
    push(state, SECOND)
    state.hold(state.stream_to(SECOND), behind=state.stream_to(FIRST))
    push(state, FIRST, 2)
    push(state, SECOND, 4)
    assert leaving(emitter) == {FIRST: 5, SECOND: 1}, "what was sent before the gate does not wait"
    emitter.drained([FIRST, SECOND])
    state.stream_to(FIRST).acknowledge(2)
    state.open_gates()
    assert leaving(emitter) == {}, "one is missing yet"
    state.stream_to(FIRST).acknowledge(3)
    state.open_gates()
    assert leaving(emitter) == {SECOND: 4}
    assert state.gated == []


def test_an_acknowledgement_that_opens_a_gate_is_known_before_the_journal_says_it(
    state: Partition, emitter: Emitter
) -> None:
    push(state, FIRST)
    state.hold(state.stream_to(SECOND), behind=state.stream_to(FIRST))
    push(state, SECOND)
    assert not emitter.opens(state.gated), "nothing was handed over yet"
    assert leaving(emitter) == {FIRST: 1}
    assert not emitter.opens(state.gated)
    emitter.drained([FIRST])
    assert emitter.opens(state.gated)
    state.stream_to(FIRST).acknowledge(1)
    state.open_gates()
    assert not emitter.opens(state.gated)


def test_nothing_waits_for_a_destination_that_has_everything(state: Partition, emitter: Emitter) -> None:
    push(state, FIRST, 3).acknowledge(3)
    state.hold(state.stream_to(SECOND), behind=state.stream_to(FIRST))
    push(state, SECOND)
    assert leaving(emitter) == {SECOND: 1}


def test_a_destination_does_not_wait_for_itself(state: Partition, emitter: Emitter) -> None:
    stream = push(state, FIRST)
    state.hold(stream, behind=stream)
    push(state, FIRST)
    assert leaving(emitter) == {FIRST: 2}


def test_gates_open_one_after_the_other(state: Partition, emitter: Emitter) -> None:
    third = address_of("third")
    push(state, FIRST)
    push(state, SECOND)
    state.hold(state.stream_to(third), behind=state.stream_to(FIRST))
    push(state, third, 2)
    state.hold(state.stream_to(third), behind=state.stream_to(SECOND))
    push(state, third, 3)
    assert leaving(emitter) == {FIRST: 1, SECOND: 1}
    state.stream_to(SECOND).acknowledge(1)
    state.open_gates()
    assert leaving(emitter) == {}
    state.stream_to(FIRST).acknowledge(1)
    state.open_gates()
    assert leaving(emitter) == {third: 5}


def test_gates_are_state(state: Partition, emitter: Emitter) -> None:
    push(state, FIRST)
    state.hold(state.stream_to(SECOND), behind=state.stream_to(FIRST))
    push(state, SECOND)
    other = Partition(state.identity)
    restore(other, b"".join(Freeze(state).pieces()))
    assert digest(other) == digest(state)
    other.stream_to(FIRST).acknowledge(1)
    other.open_gates()
    assert leaving(Emitter(other.streams)) == {SECOND: 1}
    assert digest(other) != digest(state)
