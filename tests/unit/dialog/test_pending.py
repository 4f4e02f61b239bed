"""Rows of batches wait, void, until their batch is decided. Winning rows then become messages."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import patch

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.rules import batches as module
from konverse.dialog.rules.batches import overflowing
from konverse.dialog.state.endpoint import Stamp
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import BATCH_RECORDS_MAX
from konverse.schemas.wire.batches import encode_winners
from konverse.schemas.wire.operations import Exclude
from konverse.schemas.wire.records import BounceReason, Decision, Kind, Suffix, Veto
from tests.kit.batches import HOME, JUDGE, JUDGE_WRITER, QUERY, TARGET, Query, first_row, further_row, last_row, taken
from tests.kit.builders import Scribe, Side, begin_block, identifier
from tests.kit.digests import digest

C = identifier("a conversation")


@pytest.fixture
def query() -> Query:
    return Query()


@pytest.fixture
def side() -> Side:
    return Side("orders")


def bodies(side: Side, conversation: bytes = C) -> list[bytes | None]:
    """Bodies that the target's endpoint has accepted."""
    endpoint = side.state.endpoint(Role.TARGET, conversation)
    return [] if endpoint is None else [entry[2] for entry in endpoint.queue]


def test_a_row_is_void_until_its_batch_is_decided(query: Query, side: Side) -> None:
    task = query.task()
    side.take(*query.first(task, C, b"0"))
    assert side.state.live() == []
    assert side.state.unread == 0
    assert task.attempt not in side.state.writers, "an execution has no entry among the writers"
    query.decide(side, [(task, 1)])
    assert bodies(side) == [b"0"]


def test_the_rows_of_the_winners_are_accepted_in_the_order_of_tasks_and_numbers(query: Query, side: Side) -> None:
    one, two = query.task(0, "one"), query.task(1, "two")
    rows = [query.first(one, C, b"0")]
    rows += [query.message(two, C, b"2"), query.message(one, C, b"1"), query.message(two, C, b"3")]
    for row in reversed(rows):
        side.take(*row)
    query.decide(side, [(one, 2), (two, 2)])
    assert bodies(side) == [b"0", b"1", b"2", b"3"]


def test_a_row_has_the_time_of_the_decision_by_which_it_counts_and_keeps_its_headers(query: Query, side: Side) -> None:
    """No watermark or age may use the time of writing, when the row could not be received yet."""
    task = query.task()
    rows: list[tuple[Stamp, tuple[bytes, bytes | None]]] = [
        (1_000, query.first(task, C, b"0")),
        ((2_000, [("trace", b"1")]), query.message(task, C, b"1")),
    ]
    side.take_all([(header, (body, stamp)) for stamp, (header, body) in rows])
    decided = query.judge.write(
        Kind.DECISION, side.address, QUERY, suffix=Suffix(detail=Decision(QUERY, 0, begins=False, final=True))
    )
    side.take_all([(decided, (encode_winners(((task.attempt, 2),)), 90_000))])
    endpoint = side.state.endpoint(Role.TARGET, C)
    assert endpoint is not None
    assert [entry[3] for entry in endpoint.queue] == [90_000, (90_000, [("trace", b"1")])]


def test_a_row_that_comes_again_is_a_duplicate(query: Query, side: Side) -> None:
    row = query.first(query.task(), C, b"0")
    side.take(*row)
    side.take(*row)
    assert side.state.statistics.duplicates == 1
    assert side.state.pending.rows == 1


def test_the_rows_of_the_others_are_dropped(query: Query, side: Side) -> None:
    winner, loser = query.task(0, "winner"), query.task(0, "loser")
    side.take(*query.first(loser, identifier("other"), b"never"))
    side.take(*query.first(winner, C, b"0"))
    query.decide(side, [(winner, 1)])
    assert bodies(side) == [b"0"]
    assert side.state.endpoint(Role.TARGET, identifier("other")) is None
    assert side.state.statistics.void == 1
    assert side.state.pending.rows == side.state.pending.size_bytes == 0


def test_rows_of_a_batch_that_was_decided_are_dropped_also_when_they_come_late(query: Query, side: Side) -> None:
    query.decide(side, [], batch=5)
    for batch in (4, 5):
        side.take(*query.first(query.task(batch=batch), C))
    assert side.state.statistics.void == 2
    side.take(*query.first(query.task(batch=6), C))
    assert side.state.pending.rows == 1


def test_late_rows_of_a_decision_that_was_forgotten_are_dropped_when_they_are_excluded(
    query: Query, side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a decided batch, when decisions of many other queries have come since (M256)."""
    monkeypatch.setattr("konverse.dialog.state.batches.QUERY_ENTRIES_MAX", 2)
    judge, late = Side("transmission"), query.task()
    side.take(*query.first(late, C, b"0"))
    query.batch(late, to=judge)
    query.decide(side, [(late, 1)])
    for name in ("other", "third"):
        side.state.pending.last_decided((identifier(name), False, JUDGE_WRITER))
    side.take(*query.first(late, C, b"0"))
    assert side.state.pending.oldest() is not None
    exclude = Exclude(QUERY, 0, False, late.attempt)
    side.commit(rare=[exclude])
    (veto,) = [sent for sent in side.outputs(JUDGE) if sent.kind is Kind.VETO]
    judge.take(Scribe("a partition").write(Kind.VETO, judge.address, QUERY, suffix=Suffix(detail=veto.detail)))
    (lost,) = [sent for sent in judge.outputs(side.address) if not sent.detail.final]
    query.tell(side, lost.detail, [(late, 0)])
    assert side.state.pending.oldest() is None, "it holds no truncation back"
    assert bodies(side) == [b"0"]


def test_the_query_that_was_decided_last_is_forgotten_last(
    query: Query, side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.dialog.state.batches.QUERY_ENTRIES_MAX", 2)
    query.decide(side, [], batch=0)
    side.state.pending.last_decided((identifier("other"), False, JUDGE_WRITER))
    query.decide(side, [], batch=1)
    side.state.pending.last_decided((identifier("third"), False, JUDGE_WRITER))
    assert (QUERY, False, JUDGE_WRITER) in side.state.pending.decided


def test_a_row_with_other_content_under_a_taken_number_is_received_beside_the_other(query: Query, side: Side) -> None:
    """One of the two is a stranger's, and nobody can tell which (M274)."""
    side.state.recent.decides = True
    task, stranger = query.task(), query.task()
    side.take(*query.first(task, C, b"0"))
    stranger.numbers(side.address, 1, 0)
    side.take(*query.message(stranger, C, b"forged"))
    (honest, *rest) = [query.message(task, C, body) for body in (b"1", b"2")]
    for row in (honest, honest, *rest):
        side.take(*row)
    side.take(*query.message(stranger, C, b"forged too"))
    assert [(one.taken, one.contested) for one in side.state.recent.found] == [(1, 2), (4, 5)]
    assert (side.state.statistics.forged, side.state.statistics.duplicates) == (2, 1)
    assert side.state.pending.rows == 5
    query.decide(side, [(task, 3)])
    assert bodies(side) == [b"0", b"forged", b"1", b"2", b"forged too"]


def test_contested_rows_are_dropped_with_their_attempt(query: Query, side: Side) -> None:
    task, stranger = query.task(), query.task()
    side.take(*query.first(task, C, b"0"))
    side.take(*query.first(stranger, C, b"forged"))
    void = side.state.statistics.void
    query.decide(side, [])
    assert (bodies(side), side.state.statistics.void - void, side.state.pending.rows) == ([], 2, 0)


def test_a_decision_of_another_writer_than_the_judge_concerns_no_row(query: Query, side: Side) -> None:
    """A process that may write to the topic can write decisions (M293)."""
    task, stranger = query.task(), Query()
    stranger.judge = Scribe("a stranger")
    side.take(*query.first(task, C, b"0"))
    stranger.decide(side, [(task, 1)])
    stranger.decide(side, [], batch=9)
    stranger.tell(side, Decision(QUERY, 0, begins=False, final=False), [(task, 0)])
    assert bodies(side) == []
    side.take(*query.message(task, C, b"1"))
    query.decide(side, [(task, 2)])
    assert bodies(side) == [b"0", b"1"]
    side.take(*query.first(query.task(batch=1), C, b"of the next batch"))
    assert side.state.pending.rows == 1, "the stranger's batch 9 is decided for its own rows alone"


def test_a_decision_that_comes_too_late_changes_nothing(query: Query, side: Side) -> None:
    query.decide(side, [], batch=5)
    task = query.task(batch=6)
    side.take(*query.first(task, C))
    query.decide(side, [(task, 1)], batch=5)
    query.decide(side, [], batch=4)
    assert side.state.pending.decided == {(QUERY, False, JUDGE_WRITER): 5}
    assert side.state.pending.rows == 1


def test_begins_are_decided_apart_from_messages(query: Query) -> None:
    home = Side("replies")
    task = query.task()
    home.take(*taken(task.begin(C, begin_block(home="replies", target="orders"))))
    query.decide(home, [])
    assert home.state.pending.rows == 1
    query.decide(home, [(task, 1)], begins=True)
    endpoint = home.state.endpoint(Role.INITIATOR, C)
    assert endpoint is not None
    assert endpoint.opener == QUERY, "the query is who may be closed, bounced and tombstoned"
    assert home.state.writers[QUERY].next == 1


def test_a_row_for_a_conversation_that_is_over_comes_back_when_it_is_decided(query: Query, side: Side) -> None:
    task = query.task()
    side.take(*query.message(task, C, b"late"))
    assert side.outputs(HOME) == []
    query.decide(side, [(task, 1)])
    (bounce,) = side.outputs(HOME)
    assert bounce.kind is Kind.BOUNCE
    assert (bounce.detail.writer, bounce.detail.counter, bounce.detail.reason) == (QUERY, 0, BounceReason.NO_ENDPOINT)
    assert bounce.body == b"late"


def test_rows_for_a_side_that_has_ended_come_back(query: Query, side: Side) -> None:
    first, late = query.task(0, "first"), query.task(0, "late", batch=1)
    side.take(*query.first(first, C, b"0"))
    query.decide(side, [(first, 1)])
    endpoint = side.state.endpoint(Role.TARGET, C)
    assert endpoint is not None
    side.end(endpoint)
    side.take(*query.first(late, C, b"1"))
    side.take(*query.message(late, C, b"2"))
    query.decide(side, [(late, 2)], batch=1)
    back = [record for record in side.outputs(HOME) if record.kind is Kind.BOUNCE]
    assert [(one.detail.reason, one.body) for one in back] == [
        (BounceReason.PEER_ENDED, b"1"),
        (BounceReason.PEER_ENDED, b"2"),
    ]


def test_rows_of_a_closed_query_come_back(query: Query, side: Side) -> None:
    side.take(Scribe("somebody").close(side.address, QUERY))
    task = query.task()
    side.take(*query.first(task, C))
    query.decide(side, [(task, 1)])
    (bounce,) = side.outputs(HOME)
    assert bounce.detail.reason is BounceReason.WRITER_CLOSED


def test_a_side_ends_behind_all_rows_of_a_batch_when_one_of_them_says_so(query: Query, side: Side) -> None:
    home, task = Side("replies"), query.task()
    block = begin_block(home="replies", target="orders", group=C)
    home.take(*taken(task.begin(C, block)))
    side.take(*taken(last_row(first_row(task, C, block, "order", b"0"))))
    side.take(*query.message(task, C, b"1"))
    query.decide(home, [(task, 1)], begins=True)
    assert side.outputs(HOME) == [], "nothing ends before it is decided"
    query.decide(side, [(task, 2)])
    assert bodies(side) == [b"0", b"1"]
    (call,) = side.outputs(HOME)
    assert (call.kind, call.detail) == (Kind.END_CALL, None)
    home.take(Scribe("orders").write(Kind.END_CALL, home.address, C), None)
    endpoint = home.state.endpoint(Role.INITIATOR, C)
    assert endpoint is not None
    assert endpoint.state is State.DISCONNECTED_OUTBOUND
    assert [one.kind for one in home.outputs(TARGET)] == [Kind.END]


def test_a_bounced_last_row_still_ends_its_dialog(query: Query, side: Side) -> None:
    task = query.task()
    side.take(*taken(last_row(further_row(task, C, begin_block(group=C), "order", b"late"))))
    query.decide(side, [(task, 1)])
    assert [one.kind for one in side.outputs(HOME)] == [Kind.BOUNCE, Kind.END_CALL]


def test_the_rows_of_a_closed_query_end_nothing(query: Query, side: Side) -> None:
    side.take(Scribe("somebody").close(side.address, QUERY))
    task = query.task()
    side.take(*taken(last_row(further_row(task, C, begin_block(group=C), "order", b""))))
    query.decide(side, [(task, 1)])
    assert Kind.END_CALL not in [one.kind for one in side.outputs(HOME)]


def test_of_a_batch_that_is_not_whole_nothing_is_accepted(query: Query, side: Side) -> None:
    task = query.task()
    side.take(*query.first(task, C, b"0"))
    query.decide(side, [(task, 2)])
    assert side.state.live() == []
    assert (side.state.statistics.missing, side.state.statistics.void) == (1, 1)


def test_a_row_with_an_impossible_number_is_dropped(query: Query, side: Side) -> None:
    writer = Scribe("attempt")
    detail = query.task()._detail(begins=False)
    for counter in (-1, BATCH_RECORDS_MAX):
        suffix = Suffix("order", detail=detail)
        side.take(writer.write(Kind.PENDING, side.address, C, counter=counter, suffix=suffix))
    assert (side.state.statistics.malformed, side.state.statistics.void) == (1, 1)
    assert side.state.pending.rows == 0


def test_a_row_or_a_decision_without_its_detail_is_malformed(side: Side) -> None:
    writer = Scribe("attempt")
    side.take(writer.write(Kind.PENDING, side.address, C))
    owner, detail = Scribe("owner"), Decision(QUERY, 0, begins=False, final=True)
    side.take(owner.write(Kind.DECISION, side.address, C), b"\x00\x00")
    side.take(owner.write(Kind.DECISION, side.address, C, suffix=Suffix(detail=detail)), b"?")
    assert side.state.statistics.malformed == 3


# ------------------------------------------------------------------------------------------------------- its bounds


def test_an_owner_excludes_the_attempts_that_came_first_until_the_rest_fits(query: Query, side: Side) -> None:
    tasks = [query.task(0, name) for name in ("oldest", "older", "young")]
    for task in tasks:
        side.take(*query.first(task, C, b"0"))
        side.take(*query.message(task, C, b"1"))
    assert overflowing(side.state) == []
    with patch.object(module, "PENDING_RECORDS_MAX", 3):
        excluded = overflowing(side.state)
    assert excluded == [Exclude(QUERY, 0, False, task.attempt) for task in tasks[:2]]
    with patch.object(module, "PENDING_BYTES_MAX", 5):
        assert overflowing(side.state) == excluded[:1]
    side.commit(rare=excluded)
    vetoes = [sent.detail for sent in side.outputs(JUDGE)]
    assert vetoes == [Veto(QUERY, 0, False, task.attempt, side.address) for task in tasks[:2]]
    assert side.state.pending.rows == 2, "what is excluded does not count any more"
    side.commit(rare=excluded)
    assert len(side.outputs(JUDGE)) == 2, "and is not excluded again"


def test_the_rows_of_an_excluded_attempt_stay_until_the_judge_has_spoken(query: Query, side: Side) -> None:
    task = query.task()
    side.take(*query.first(task, C, b"0"))
    side.commit(rare=[Exclude(QUERY, 0, False, task.attempt)])
    query.decide(side, [(task, 1)])
    assert bodies(side) == [b"0"], "it had won before"


def test_an_excluded_attempt_is_dropped_when_the_judge_decides_against_it(query: Query, side: Side) -> None:
    loser, other = query.task(0, "loser"), query.task(0, "other")
    side.take(*query.first(loser, C))
    side.take(*query.first(other, C))
    side.commit(rare=[Exclude(QUERY, 0, False, loser.attempt)])
    query.tell(side, Decision(QUERY, 0, begins=False, final=False), [(loser, 0)])
    assert [attempt for _, _, attempt in side.state.pending.attempts] == [other.attempt]
    assert side.state.pending.decided == {(QUERY, False, JUDGE_WRITER): -1}


def test_of_too_many_queries_one_of_which_nothing_waits_is_forgotten(side: Side) -> None:
    busy, idle, third = (identifier(name) for name in ("busy", "idle", "third"))
    with patch("konverse.dialog.state.batches.QUERY_ENTRIES_MAX", 2):
        for name, decided in ((busy, -1), (idle, 3)):
            assert side.state.pending.last_decided((name, False, JUDGE_WRITER)) == -1
            side.state.pending.decided[name, False, JUDGE_WRITER] = decided
        side.state.pending.attempts[(busy, False, JUDGE_WRITER), 4, identifier("attempt")] = {}
        side.state.pending.last_decided((third, False, JUDGE_WRITER))
    assert [query for query, _, _ in side.state.pending.decided] == [busy, third]


# --------------------------------------------------------------------------------------------------------- snapshots


def waiting(query: Query) -> Side:
    side = Side("orders")
    for name in ("one", "two"):
        task = query.task(0, name, batch=4)
        side.take(*query.first(task, C, name.encode()))
        side.take(*query.message(task, C))
        side.take(*query.first(query.task(0, name, batch=4), C, b"contested"))
    query.decide(side, [], batch=3)
    side.commit(rare=[Exclude(QUERY, 4, False, identifier("one"))])
    return side


def test_rows_that_wait_are_state(query: Query) -> None:
    side = waiting(query)
    other = Partition(side.state.identity)
    restore(other, b"".join(Freeze(side.state).pieces()))
    assert digest(other) == digest(side.state)
    assert (other.pending.rows, other.pending.size_bytes) == (side.state.pending.rows, side.state.pending.size_bytes)
    assert [*other.pending.live] == [*side.state.pending.live]
    again = Side("orders")
    again.state = other
    query.decide(again, [(query.task(0, "two", batch=4), 2)], batch=4)
    assert bodies(again) == [b"two", b"contested", b""]


def test_every_part_of_the_pending_batches_is_in_the_digest(query: Query) -> None:
    side = waiting(query)
    pending = side.state.pending
    seen = {digest(side.state)}
    first = next(iter(pending.attempts))

    def differs(what: str) -> None:
        before = len(seen)
        seen.add(digest(side.state))
        assert len(seen) == before + 1, f"{what} is not in the digest"

    changes: dict[str, Any] = {"offset": 99, "flags": 2, "body": b"?", "suffix": b"?", "stamp": (7, [("h", b"v")])}
    for name, value in changes.items():
        pending.attempts[first][0] = pending.attempts[first][0]._replace(**{name: value})
        differs(name)
    del pending.attempts[first][0]
    differs("a row")
    pending.decided[QUERY, False, JUDGE_WRITER] = 2
    differs("the decided batch")
    pending.live.clear()
    differs("who was vetoed")
    side.state.statistics.void += 1
    differs("a statistic")


def test_truncation_spares_the_rows_that_wait(query: Query) -> None:
    side = waiting(query)
    freeze = Freeze(side.state)
    assert freeze.oldest_waiting == 0
    query.decide(side, [(query.task(0, "two", batch=4), 2)], batch=4)
    freeze = Freeze(side.state)
    assert [*freeze.pieces()]
    assert freeze.oldest_waiting == 3, "and those that were accepted, although what came later may stand before them"


def test_many_rows_under_one_number_take_time_in_proportion(query: Query, side: Side) -> None:
    """A stranger writes other content each time, and then everything again. All of them wait (M274), once."""
    writer, detail = Scribe("attempt"), query.task()._detail(begins=False)
    began_s = time.process_time()
    header = writer.write(Kind.PENDING, side.address, C, counter=0, suffix=Suffix("order", detail=detail))
    rows = [(header, (b"%d" % (number % 5_000), 0)) for number in range(10_000)]
    side.take_all(rows)
    assert time.process_time() - began_s < 10
    assert (side.state.pending.rows, side.state.statistics.duplicates) == (5_000, 5_000)
