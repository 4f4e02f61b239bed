"""Predicted records and fully decoded records give the same result, in whatever pieces they are read (invariant I3)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konverse.dialog.fold.ingest import ingest
from konverse.dialog.state.partition import Partition
from tests.kit.builders import Pair, Row, Scribe, Side, begin_block, columns_of, identifier, record
from tests.properties.scripts import STARTS, Step, outcome, prepared, rows_of, scripts

starts = st.sampled_from(STARTS)


def at_once(state: Partition, rows: list[Row]) -> None:
    ingest(state, columns_of(rows, state.ingest_to))


def one_by_one_without_lanes(state: Partition, rows: list[Row]) -> None:
    """Fold each record without a prediction."""
    for row in rows:
        state.lanes.clear()
        ingest(state, columns_of([row], state.ingest_to))


def in_chunks(state: Partition, rows: list[Row], cuts: list[int]) -> None:
    edges = [0, *sorted({cut % (len(rows) + 1) for cut in cuts}), len(rows)]
    for start, end in pairwise(edges):
        ingest(state, columns_of(rows[start:end], state.ingest_to))


@given(scripts, starts, starts)
def test_a_log_is_folded_alike_with_and_without_prediction(script: list[Step], counter: int, sequence: int) -> None:
    rows = rows_of(script, counter, sequence)
    fast, slow = prepared(counter, sequence), prepared(counter, sequence)
    at_once(fast.state, rows)
    one_by_one_without_lanes(slow.state, rows)
    assert outcome(fast.state) == outcome(slow.state)


@given(scripts, starts, starts, st.lists(st.integers(0, 200), max_size=6))
def test_a_log_is_folded_alike_in_pieces_of_any_size(
    script: list[Step], counter: int, sequence: int, cuts: list[int]
) -> None:
    rows = rows_of(script, counter, sequence)
    whole, cut = prepared(counter, sequence), prepared(counter, sequence)
    at_once(whole.state, rows)
    in_chunks(cut.state, rows, cuts)
    assert outcome(whole.state) == outcome(cut.state)


@given(scripts, scripts, starts)
def test_discarding_the_predictions_midway_changes_nothing(before: list[Step], behind: list[Step], start: int) -> None:
    """As after recovery from a state without predictions."""
    rows = rows_of(before + behind, start, start)
    cut = len(rows_of(before, start, start))
    kept, lost = prepared(start, start), prepared(start, start)
    at_once(kept.state, rows)
    at_once(lost.state, rows[:cut])
    lost.state.lanes.clear()
    ingest(lost.state, columns_of(rows[cut:], lost.state.ingest_to))
    assert outcome(kept.state) == outcome(lost.state)


def long_log(side: Side, count: int) -> list[Row]:
    """Two writers share a conversation, a third has its own. Counters and sequence numbers cross 8192 and 16384."""
    one, other, third = Scribe("one"), Scribe("other"), Scribe("third")
    shared, alone = identifier("shared"), identifier("alone")
    rows: list[Row] = [
        (one.first(side.address, shared, begin_block()), record()),
        (third.first(side.address, alone, begin_block()), record()),
    ]
    for number in range(1, count):
        scribe = other if number % 5 == 0 else one
        rows.append((scribe.message(side.address, shared, sequence=number), record()))
        rows.append((third.message(side.address, alone, sequence=number), record()))
    return rows


@pytest.mark.parametrize("predicting", [True, False])
def test_thousands_of_numbers_are_accepted_in_order(predicting: bool) -> None:
    side = Side("orders")
    rows = long_log(side, 16_500)
    fold = at_once if predicting else one_by_one_without_lanes
    fold(side.state, rows)
    assert side.state.statistics.accepted == len(rows)
    assert side.state.statistics.misnumbered == side.state.statistics.gaps == 0
    assert [endpoint.received for endpoint in side.state.live()] == [16_500, 16_500]
    assert [len(endpoint.queue) for endpoint in side.state.live()] == [16_500, 16_500]


def test_nearly_all_of_a_plain_log_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests above would compare the slow path with itself."""
    import konverse.dialog.fold.ingest as module

    judged = 0
    judge = module._judge

    def counting(*args: object) -> None:
        nonlocal judged
        judged += 1
        judge(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_judge", counting)
    side = Side("orders")
    rows = long_log(side, 9_000)
    unnumbered, conversation = Scribe("unnumbered"), identifier("unnumbered")
    rows.append((unnumbered.first(side.address, conversation, begin_block()), record()))
    rows += [(unnumbered.message(side.address, conversation), record()) for _ in range(9_000)]
    at_once(side.state, rows)
    assert judged < 12
    assert side.state.statistics.accepted == len(rows)


def test_a_closed_writer_is_not_heard_although_its_record_was_predicted() -> None:
    pair = Pair()
    conversation = pair.begin(messages=3)
    pair.target.take(Scribe("successor").close(pair.target.address, pair.client.id))
    pair.send(conversation, b"late", sequence=3)
    assert pair.receiver(conversation).received == 3
    assert pair.target.state.statistics.bounced == 1


def test_a_predicted_header_with_an_invalid_tail_is_counted_as_malformed() -> None:
    pair = Pair()
    conversation = pair.begin(messages=2)
    pair.target.end(pair.receiver(conversation))
    header = pair.client.message(pair.target.address, conversation, sequence=2)
    pair.target.take(header[:41] + b"\xff" * 12)
    assert pair.target.state.statistics.malformed == 1
    assert pair.target.state.statistics.accepted == 2
    assert pair.target.state.unread == 0
