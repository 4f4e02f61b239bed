"""Each counter of a writer is accepted once and in order, each conversation without a gap, as by a reference."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from konverse.dialog.state.endpoint import Endpoint
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.wire.envelope import decode
from tests.kit.builders import Row, Side
from tests.properties.scripts import HERE, STARTS, Reference, Step, opened, place_of, prepared, rows_of, scripts


def reference_of(rows: list[Row], start: int = 0) -> Reference:
    reference = opened(start, start)
    for header, _ in rows:
        reference.read_header(header)
    return reference


def folded(rows: list[Row], start: int = 0) -> Side:
    side = prepared(start, start)
    side.take_all(rows)
    return side


@given(scripts, st.sampled_from(STARTS))
def test_the_fold_accepts_the_same_records_as_the_reference(script: list[Step], start: int) -> None:
    rows = rows_of(script, start, start)
    state, reference = folded(rows, start).state, reference_of(rows, start)
    assert {writer.id: writer.next for writer in state.writers.values()} == reference.next
    assert {writer.id for writer in state.writers.values() if writer.closed_at is not None} == reference.closed
    assert {place_of(endpoint): types(endpoint) for endpoint in state.live()} == reference.queues
    assert {place_of(endpoint): endpoint.received for endpoint in state.live()} == reference.received
    assert state.tombstones == reference.tombstones


def types(endpoint: Endpoint) -> list[str]:
    return [entry[1] for entry in endpoint.queue]


@given(scripts)
def test_the_messages_of_a_conversation_stand_in_log_order(script: list[Step]) -> None:
    state = folded(rows_of(script)).state
    for endpoint in state.live():
        offsets = [entry[0] for entry in endpoint.queue]
        assert offsets == sorted(set(offsets))
        assert endpoint.received >= len(endpoint.queue)
    assert state.unread == sum(len(endpoint.queue) for endpoint in state.live())


@given(scripts, st.randoms(use_true_random=False))
def test_repeated_records_change_only_a_counter(script: list[Step], random: object) -> None:
    """Go-back-N of every writer: records that were in the log once may come again any number of times."""
    rows = rows_of(script)
    once, again = folded(rows), prepared()
    written = 0
    for number, row in enumerate(rows):
        again.take(row[0], b"body")
        for repeated in rows[max(0, number - 3) : number + 1]:
            if repeated[0] is not None and _is_whole(repeated[0], again):
                again.take(repeated[0], b"body")
                written += 1
    assert again.state.statistics.accepted == once.state.statistics.accepted
    assert {w.id: (w.next, w.closed_at) for w in again.state.writers.values()} == {
        w.id: (w.next, w.closed_at) for w in once.state.writers.values()
    }
    assert [types(e) for e in again.state.live()] == [types(e) for e in once.state.live()]


def _is_whole(header: bytes, side: Side) -> bool:
    """Whether the record counts already for a known writer. Only such records come again."""
    try:
        envelope = decode(header)
    except MalformedRecord:
        return False
    writer = side.state.writers.get(envelope.writer)
    return envelope.tag == HERE.tag and writer is not None and envelope.counter < writer.next
