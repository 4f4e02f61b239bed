"""Batches as bytes, and decisions that do not depend on the order and number of the attempts' rows."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.batches import Batch, Winners, decode_batch, decode_winners, encode_batch, encode_winners
from tests.kit.batches import QUERY, Query
from tests.kit.builders import Side, identifier
from tests.kit.strategies import batches, damaged, winners


@given(batches())
def test_a_batch_is_read_back(batch: Batch) -> None:
    assert decode_batch(encode_batch(batch)) == batch


@given(winners)
def test_winners_are_read_back(some: Winners) -> None:
    assert decode_winners(encode_winners(some)) == some


@given(damaged(st.one_of(batches().map(encode_batch), winners.map(encode_winners))))
def test_a_batch_or_malformed_record_comes_of_any_bytes(data: bytes) -> None:
    with suppress(MalformedRecord):
        batch = decode_batch(data)
        assert decode_batch(encode_batch(batch)) == batch
    with suppress(MalformedRecord):
        some = decode_winners(data)
        assert decode_winners(encode_winners(some)) == some


@given(winners.filter(bool))
def test_a_decision_is_no_batch(some: Winners) -> None:
    with pytest.raises(MalformedRecord):
        decode_batch(encode_winners(some))


@given(st.data())
def test_rows_in_any_order_and_number_are_accepted_as_their_tasks_wrote_them(data: st.DataObject) -> None:
    query, side = Query(), Side("orders")
    conversation = identifier("c")
    tasks = [query.task(number, f"attempt {number}") for number in range(4)]
    rows = [query.first(tasks[0], conversation, b"first")]
    counts = [data.draw(st.integers(0, 4)) for _ in tasks]
    for task, count in zip(tasks, counts, strict=True):
        rows += [query.message(task, conversation, b"%d.%d" % (task.task.number, at)) for at in range(count)]
    again = data.draw(st.lists(st.sampled_from(rows), max_size=6))
    for row in data.draw(st.permutations(rows + again)):
        side.take(*row)
    won = sorted(data.draw(st.sets(st.integers(1, 3)))) if counts else []
    query.decide(side, [(tasks[number], counts[number] + (number == 0)) for number in (0, *won)])
    endpoint = side.state.endpoint(Role.TARGET, conversation)
    assert endpoint is not None
    expected = [b"first"]
    for number in (0, *won):
        expected += [b"%d.%d" % (number, at) for at in range(counts[number])]
    assert [entry[2] for entry in endpoint.queue] == expected
    assert side.state.writers[QUERY].next == len(expected)
    assert not side.state.pending.attempts
    assert side.state.statistics.duplicates == len(again)
