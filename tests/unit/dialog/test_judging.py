"""The winner of a batch is the first BATCH without a vetoed attempt. All partitions are told, homes first."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from konverse.dialog.batch.driver import observe
from konverse.dialog.batch.task import Task
from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.state.batches import Judgement
from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Address, session_writer
from konverse.schemas.wire.batches import ABANDONED, Batch, decode_winners, encode_batch
from konverse.schemas.wire.operations import Abandon, Prune
from konverse.schemas.wire.records import Decision, Kind, Suffix, Veto
from tests.kit.batches import HOME, QUERY, RUN, TARGET, Query
from tests.kit.builders import Scribe, Side, address_of, identifier
from tests.kit.digests import digest

C = identifier("a conversation")
NOW_MS = 1_700_000_000_000
ELSEWHERE = address_of("elsewhere")


@pytest.fixture
def query() -> Query:
    return Query()


@pytest.fixture
def judge() -> Side:
    return Side("transmission")


def told(judge: Side, at: Address) -> list[tuple[int, bool, int]]:
    """Of each final decision for a partition: batch, whether for BEGINs, and number of winning rows."""
    sent = [one for one in judge.outputs(at) if one.kind is Kind.DECISION]
    return [
        (one.detail.batch, one.detail.begins, sum(count for _, count in decode_winners(one.body or b"")))
        for one in sent
        if one.detail.final
    ]


def veto(attempt: bytes, batch: int = 0) -> Suffix:
    return Suffix(detail=Veto(QUERY, batch, False, attempt, ELSEWHERE))


def wrote(query: Query, name: str = "attempt", batch: int = 0) -> Task:
    task = query.task(0, name, batch)
    query.first(task, C)
    return task


def test_the_first_batch_of_a_number_decides_it(query: Query, judge: Side) -> None:
    first, second = wrote(query, "first"), wrote(query, "second")
    query.batch(first, to=judge)
    query.batch(second, to=judge)
    (decision,) = judge.outputs(TARGET)
    assert decode_winners(decision.body or b"") == ((identifier("first"), 1),)
    assert judge.state.judgements[QUERY].decided == 0
    assert judge.state.judgements[QUERY].by == query.driver.id


def test_every_partition_gets_the_decision_even_without_a_winner(query: Query, judge: Side) -> None:
    query.batch(to=judge, homes=(HOME, ELSEWHERE))
    assert told(judge, HOME) == told(judge, ELSEWHERE) == [(0, True, 0)]
    assert told(judge, TARGET) == [(0, False, 0)]


def test_the_decision_goes_to_the_homes_first_and_to_the_targets_behind_it(query: Query, judge: Side) -> None:
    query.batch(to=judge, homes=(HOME, ELSEWHERE))
    stream = judge.state.stream_to(TARGET)
    assert stream.open_to == 0
    judge.commit(output_acks=[(HOME, 1)])
    assert stream.open_to == 0
    judge.commit(output_acks=[(ELSEWHERE, 1)])
    assert stream.open_to == 1


def test_a_batch_below_the_highest_that_was_decided_decides_nothing(query: Query, judge: Side) -> None:
    query.batch(to=judge, number=3)
    query.batch(to=judge, number=2)
    assert told(judge, HOME) == [(3, True, 0)]


def test_an_attempt_that_was_vetoed_before_it_won_cannot_win(query: Query, judge: Side) -> None:
    partition = Scribe("a partition")
    judge.take(partition.write(Kind.VETO, judge.address, QUERY, suffix=veto(identifier("loser"))))
    (answer,) = judge.outputs(ELSEWHERE)
    assert answer.detail == Decision(QUERY, 0, begins=False, final=False)
    assert decode_winners(answer.body or b"") == ((identifier("loser"), 0),)
    query.batch(wrote(query, "winner"), wrote(query, "loser"), to=judge)
    assert told(judge, TARGET) == []
    query.batch(wrote(query, "winner"), to=judge)
    assert told(judge, TARGET) == [(0, False, 1)]
    assert judge.state.judgements[QUERY].vetoed == {}, "what cannot win any more needs no veto"


def test_a_veto_against_the_winner_removes_only_what_comes_behind_the_decision(query: Query, judge: Side) -> None:
    """Rows of a partition that has forgotten the decision would wait for ever."""
    query.batch(wrote(query, "winner"), to=judge)
    judge.take(Scribe("p").write(Kind.VETO, judge.address, QUERY, suffix=veto(identifier("winner"))))
    (answer,) = judge.outputs(ELSEWHERE)
    assert answer.detail == Decision(QUERY, 0, begins=False, final=False)
    assert told(judge, TARGET) == [(0, False, 1)]
    assert judge.state.judgements[QUERY].vetoed == {}


def test_of_vetoes_and_queries_no_more_are_remembered_than_may_be(query: Query, judge: Side) -> None:
    partition = Scribe("a partition")
    with patch("konverse.dialog.rules.batches.VETO_ENTRIES_MAX", 1):
        for name in ("one", "two"):
            judge.take(partition.write(Kind.VETO, judge.address, QUERY, suffix=veto(identifier(name))))
    assert [*judge.state.judgements[QUERY].vetoed] == [identifier("one")]
    del judge.state.judgements[QUERY]
    judge.state.judgements[identifier("other")] = Judgement()
    with patch("konverse.dialog.rules.batches.QUERY_ENTRIES_MAX", 1):
        query.batch(to=judge)
    assert QUERY not in judge.state.judgements
    assert told(judge, TARGET) == []


def test_an_invalid_batch_and_an_invalid_veto_are_counted(judge: Side) -> None:
    writer = Scribe("w")
    judge.take(writer.write(Kind.BATCH, judge.address, QUERY), b"?")
    judge.take(writer.write(Kind.VETO, judge.address, QUERY))
    assert (judge.state.statistics.malformed, judge.state.statistics.undeliverable) == (1, 1)


def test_an_abandoned_query_is_over_everywhere(query: Query, judge: Side) -> None:
    operation = Abandon(QUERY, (HOME,), (TARGET,))
    judge.commit(rare=[operation])
    judge.commit(rare=[operation])
    query.batch(to=judge)
    assert told(judge, HOME) == [(ABANDONED, True, 0)]
    assert told(judge, TARGET) == [(ABANDONED, False, 0)]
    side = Side("orders")
    by = judge.state.writer_id
    side.take(*query.first(query.task(judge_writer=by), C))
    judge.commit(output_acks=[(HOME, 1)])
    judge.deliver(side)
    assert side.state.statistics.void == 1
    side.take(*query.first(query.task(batch=7, judge_writer=by), C))
    assert side.state.statistics.void == 2, "also what comes later"


def test_decisions_are_part_of_the_state(query: Query, judge: Side) -> None:
    query.batch(to=judge, number=4)
    judge.take(Scribe("p").write(Kind.VETO, judge.address, QUERY, suffix=veto(identifier("loser"), 5)))
    other = Partition(judge.state.identity)
    restore(other, b"".join(Freeze(judge.state).pieces()))
    assert digest(other) == digest(judge.state)
    judgement = other.judgements[QUERY]
    assert (judgement.decided, judgement.by, judgement.vetoed) == (4, RUN, {identifier("loser"): 5})
    judgement.vetoed.clear()
    assert digest(other) != digest(judge.state)


def single(judge: Side, number: int = 0) -> tuple[Query, bytes]:
    """A query whose driver writes under the query's id, as in a single write."""
    query = Query()
    query.driver.id = session_writer(NOW_MS, 1)
    judge.state.now_ms = NOW_MS
    write(query, judge, number)
    return query, query.driver.id


def write(query: Query, judge: Side, number: int, name: bytes | None = None) -> None:
    body = encode_batch(Batch(name or query.driver.id, number, (), {HOME: ()}, {TARGET: ()}))
    judge.take(query.driver.write(Kind.BATCH, judge.address, QUERY), body)


def test_a_query_whose_writer_is_closed_is_forgotten_and_judged_no_more(query: Query, judge: Side) -> None:
    single_, identifier_ = single(judge)
    query.batch(to=judge)
    assert {*judge.state.judgements} == {identifier_, QUERY}
    judge.take(single_.driver.close(judge.address, identifier_))
    assert {*judge.state.judgements} == {QUERY}
    write(query, judge, 1, identifier_)
    assert {*judge.state.judgements} == {QUERY}
    assert told(judge, HOME) == [(0, True, 0), (0, True, 0)], "one of each query"
    assert observe(judge.state, identifier_, RUN, ()).over


def test_a_veto_that_comes_when_a_query_is_over_is_agreed_to(query: Query, judge: Side) -> None:
    single_, identifier_ = single(judge)
    judge.take(single_.driver.close(judge.address, identifier_))
    suffix = Suffix(detail=Veto(identifier_, 0, False, identifier("late"), ELSEWHERE))
    judge.take(Scribe("a partition").write(Kind.VETO, judge.address, QUERY, suffix=suffix))
    (answer,) = judge.outputs(ELSEWHERE)
    assert answer.detail == Decision(identifier_, 0, begins=False, final=False)
    assert decode_winners(answer.body or b"") == ((identifier("late"), 0),)
    assert judge.state.judgements == {}


def test_a_query_is_forgotten_with_its_writer_by_a_prune_and_not_judged_again(query: Query, judge: Side) -> None:
    _, identifier_ = single(judge)
    unheard = session_writer(NOW_MS, 7)
    write(query, judge, 0, unheard)
    query.batch(to=judge)
    assert {*judge.state.judgements} == {identifier_, unheard, QUERY}
    judge.commit(rare=[Prune(0)])
    assert {*judge.state.judgements} == {identifier_, unheard, QUERY}
    judge.state.now_ms = NOW_MS + 10
    judge.commit(rare=[Prune(NOW_MS + 5)])
    assert {*judge.state.judgements} == {QUERY}, "a query without a time is remembered"
    for name in (identifier_, unheard):
        write(query, judge, 1, name)
    assert {*judge.state.judgements} == {QUERY}
