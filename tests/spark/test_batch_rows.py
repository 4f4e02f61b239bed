"""Rows of batches in a log equal those of an owner's fold, however the log is cut into calls and tasks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from confluent_kafka import Message
from hypothesis import example, given
from hypothesis import strategies as st

from konverse.dialog.batch.task import Task, TaskOf
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.batches import encode_winners
from konverse.schemas.wire.envelope import HEADER
from konverse.schemas.wire.records import Decision, Kind, Suffix
from konverse.spark.log import batch_rows
from konverse.spark.log.acceptance import Acceptance
from konverse.spark.log.columns import COLUMNS
from konverse.spark.log.ingest import Ingest, IngestedRows, RecordVerdict
from konverse.spark.log.states import ACCEPTANCES, States
from tests.kit.batches import JUDGE, JUDGE_WRITER, QUERY, RUN, Query, ReceivedMessages
from tests.kit.builders import Scribe, Side, begin_block, identifier

CONVERSATIONS = [identifier(name) for name in ("a", "b")]
TASKS = [(batch, number, attempt) for batch in range(3) for number in range(2) for attempt in range(2)]


def log_of(records: list[ReceivedMessages]) -> list[Message]:
    """Records as a consumer returns them."""
    return [
        Message(
            topic="t",
            partition=0,
            offset=offset,
            key=b"k",
            value=body,
            headers=[(HEADER, header)],
            timestamp=(1, time_ms(offset)),
        )
        for offset, (header, body) in enumerate(records)
    ]


def time_ms(offset: int) -> int:
    """Time of the record; unique, because clocks of different writers differ."""
    return 1_000_000 + offset * (7 if offset % 2 else 3)


def pieces(messages: list[Message], cuts: list[int]) -> list[list[Message]]:
    places = [0, *sorted(cuts), len(messages)]
    return [messages[start:end] for start, end in pairwise(places) if start < end]


def received(parts: list[IngestedRows]) -> dict[bytes, list[tuple[int, bytes | None, int]]]:
    """Conversation → offset, body and time of acceptance (ms) of each message, by sequence."""
    found: dict[bytes, dict[int, tuple[int, bytes | None, int]]] = {}
    for rows in parts:
        times = COLUMNS["accepted_time"].make(rows).cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_pylist()
        for row, message in enumerate(rows.messages):
            if rows.verdict[row] == RecordVerdict.accepted:
                assert rows.frame.kind[row] == Kind.MESSAGE
                known = found.setdefault(bytes(rows.frame.conversation[row].tobytes()), {})
                assert int(rows.sequence[row]) == len(known), "each number once, in order"
                known[int(rows.sequence[row])] = (int(rows.offsets[row]), message.value(), times[row])
    return {conversation: [*known.values()] for conversation, known in found.items()}


def decision(
    judge: Scribe, side: Side, winners: list[tuple[bytes, int]], batch: int, *, final: bool
) -> ReceivedMessages:
    suffix = Suffix(detail=Decision(QUERY, batch, begins=False, final=final))
    return judge.write(Kind.DECISION, side.address, QUERY, suffix=suffix), encode_winners(tuple(winners))


@st.composite
def logs(draw: st.DrawFn) -> list[ReceivedMessages]:
    """Messages of a session, rows of executions, decisions, and repeated records."""
    side, session, judge, query = Side("orders"), Scribe("session"), Scribe("judge"), Query()
    stranger = Scribe("stranger")
    shared = draw(st.booleans())  # attempts of two batches have one name
    tasks = {of: query.task(of[1], f"attempt {of[shared:]}", of[0]) for of in TASKS}
    log: list[ReceivedMessages] = [
        (session.first(side.address, one, begin_block(group=one)), b"begin") for one in CONVERSATIONS
    ]
    written = dict.fromkeys(TASKS, 0)
    for at in range(draw(st.integers(0, 25))):
        what = draw(st.sampled_from(["row"] * 5 + ["message", "again", "decide", "decide", "veto", "forge", "usurp"]))
        conversation = draw(st.sampled_from(CONVERSATIONS))
        of = draw(st.sampled_from(TASKS))
        if what == "row":
            log.append(query.message(tasks[of], conversation, b"row %d" % at))
            written[of] += 1
        elif what == "message":
            log.append((session.message(side.address, conversation), b"message %d" % at))
        elif what == "again":
            log.append(draw(st.sampled_from(log)))
        elif what == "forge":  # a stranger writes under a number of the attempt, taken or not
            forged = query.task(of[1], f"attempt {of[shared:]}", of[0])
            forged.numbers(side.address, draw(st.integers(0, written[of])), 0)
            log.append(query.message(forged, conversation, draw(st.sampled_from([b"forged", b"row 0"]))))
        elif what == "usurp":  # a stranger decides
            winners = [(tasks[of].attempt, written[of])]
            log.append(decision(stranger, side, winners, of[0], final=draw(st.booleans())))
        else:
            won = [(of[0], number, draw(st.integers(0, 1))) for number in range(2)]
            too_many = draw(st.sampled_from([0] * 9 + [1]))
            winners = [(tasks[one].attempt, written[one] + too_many) for one in won if written[one]]
            log.append(decision(judge, side, winners, of[0], final=what == "decide"))
    return log


def log_of_one_attempt_in_two_batches() -> list[ReceivedMessages]:
    """Two executions with one id, in batches 1 and 2 of a query. The first is dropped, then decided; so is the second.

    A veto and a decision mean the rows of their own batch.
    """
    side, session, judge, query = Side("orders"), Scribe("session"), Scribe("judge"), Query()
    earlier, later = (query.task(0, "attempt", batch) for batch in (1, 2))
    log: list[ReceivedMessages] = [
        (session.first(side.address, one, begin_block(group=one)), b"begin") for one in CONVERSATIONS
    ]
    log += [query.message(task, CONVERSATIONS[0], body) for task, body in ((later, b"of 2"), (earlier, b"of 1"))]
    log.append(decision(judge, side, [(earlier.attempt, 0)], 1, final=False))
    log.append(decision(judge, side, [], 1, final=True))
    log.append(decision(judge, side, [(later.attempt, 1)], 2, final=True))
    return log


@example(log_of_one_attempt_in_two_batches(), [], [False])
@example(log_of_one_attempt_in_two_batches(), [5], [False, True])
@given(logs(), st.lists(st.integers(0, 50), max_size=4), st.lists(st.booleans(), min_size=5, max_size=5))
def test_rows_of_batches_equal_those_of_the_owners_fold(
    log: list[ReceivedMessages], cuts: list[int], others: list[bool]
) -> None:
    """The log is read in pieces; `others` says before which of them another task continues."""
    side = Side("orders")
    for offset, (header, body) in enumerate(log):
        side.take_all([(header, (body, time_ms(offset)))])
    expected = {}
    for conversation in CONVERSATIONS:
        endpoint = side.state.endpoint(Role.TARGET, conversation)
        assert endpoint is not None
        expected[conversation] = [(offset, body, stamp) for offset, _, body, stamp in endpoint.queue]
    messages = log_of(log)
    ingest, parts = Ingest(Acceptance(), tag=None), []
    for piece, continues in zip(pieces(messages, [cut % (len(log) + 1) for cut in cuts]), others, strict=False):
        if continues:
            ingest = handed_over(ingest, messages, piece[0].offset() or 0)
        parts += ingest.take(piece)
    assert received(parts) == expected
    own = [offset for rows in parts if rows.decided_at is None for offset in rows.offsets.tolist()]
    assert own == [*range(len(log))], "each record once, in its place"
    waiting = ingest.batches.oldest()
    oldest = side.state.pending.oldest()
    assert waiting == oldest


def handed_over(ingest: Ingest, messages: list[Message], at: int) -> Ingest:
    """Continue like a task that finds the state of another one."""
    acceptance: Any = ingest._acceptance.copy()  # the reader keeps it separately
    waits_from = ingest.batches.oldest()
    made = Ingest(acceptance, tag=None)
    if waits_from is not None:
        made.recall(messages[waits_from:at])
    return made


@pytest.mark.parametrize("wins", [True, False], ids=["it is said to win", "its batch stays open"])
@pytest.mark.parametrize("comes_again", [False, True], ids=["once", "again behind the veto"])
def test_a_row_dropped_by_a_veto_stays_dropped_for_the_task_that_continues(wins: bool, comes_again: bool) -> None:
    side, query = Side("orders"), Query()
    waits, loses = query.task(0, "waits", batch=2), query.task(1, "loses", batch=1)
    row, lost = (query.message(task, CONVERSATIONS[0], b"row") for task in (waits, loses))
    log = [row, lost, decision(query.judge, side, [(loses.attempt, 0)], 1, final=False)]
    log += [lost] * comes_again
    handed_over_at = len(log)
    log += [decision(query.judge, side, [(loses.attempt, 1)], 1, final=True)] * wins
    log += [decision(query.judge, side, [(waits.attempt, 1)], 2, final=True)] * wins
    log += [decision(query.judge, side, [], 0, final=True)] * (not wins)
    messages = log_of(log)
    ingest = Ingest(Acceptance(), tag=None)
    ingest.take(messages[:handed_over_at])
    ingest = handed_over(ingest, messages, handed_over_at)
    parts = ingest.take(messages[handed_over_at:])
    accepted = [offset for part in parts if part.decided_at is not None for offset in part.offsets.tolist()]
    assert accepted == ([3] * comes_again + [0] if wins else [])
    assert ingest.batches.oldest() == (None if wins else 0)


def test_a_veto_is_remembered_while_the_rows_before_it_may_be_read_again() -> None:
    side, query, known = Side("orders"), Query(), Acceptance()
    waits, loses = query.task(0, "waits", batch=2), query.task(1, "loses", batch=1)
    rows = [query.message(task, CONVERSATIONS[0], b"row") for task in (waits, loses)]
    ingest = Ingest(known, tag=None)
    log = [*rows, decision(query.judge, side, [(loses.attempt, 0)], 1, final=False)]
    ingest.take(log_of(log))
    assert [*known.vetoed.values()] == [2]
    log.append(decision(query.judge, side, [(waits.attempt, 1)], 2, final=True))
    ingest.take(log_of(log)[3:])
    assert known.vetoed == {}


def test_decisions_vetoes_and_the_first_waiting_offset_are_saved_with_the_state(tmp_path: Any) -> None:
    known = Acceptance()
    known.decided = {QUERY + b"\0" + JUDGE_WRITER: 7}
    known.vetoed = {QUERY + b"\0" + JUDGE_WRITER + bytes(8) + QUERY: 5}
    known.waits_from = 3
    States(str(tmp_path), "topic", "reader", "any", ACCEPTANCES).keep(0, 0, 10, known)
    from konverse.spark.log import states  # clears this process's cache

    states._WARM.clear()
    found = States(str(tmp_path), "topic", "reader", "any", ACCEPTANCES).newest(0, 0, 10)
    assert found is not None
    assert (found[0], found[1].decided, found[1].waits_from) == (10, {QUERY + b"\0" + JUDGE_WRITER: 7}, 3)
    assert found[1].vetoed == known.vetoed


def test_rows_of_a_batch_that_are_gone_with_the_start_of_the_log_leave_the_others() -> None:
    side, query = Side("orders"), Query()
    task = query.task()
    rows = [query.message(task, CONVERSATIONS[0], b"%d" % number) for number in range(3)]
    log = [*rows, decision(query.judge, side, [(task.attempt, 3)], 0, final=True)]
    for cut, bodies in ((False, []), (True, [b"1", b"2"])):
        ingest = Ingest(Acceptance(cut=cut), tag=None)
        parts = ingest.take(log_of(log)[1:])
        accepted = [m.value() for part in parts for m, v in zip(part.messages, part.verdict, strict=True) if not v]
        assert accepted == bodies
        assert ingest.batches.lost_at == (3 if cut else None)


def test_the_counters_of_written_rows_are_the_owners_or_null_where_the_start_of_the_log_is_gone() -> None:
    side, query = Side("orders"), Query()
    log: list[ReceivedMessages] = []
    for batch, count in enumerate((3, 2, 1)):
        task = query.task(0, f"attempt {batch}", batch)
        log += [query.message(task, CONVERSATIONS[0], b"row") for _ in range(count)]
        log.append(decision(query.judge, side, [(task.attempt, count)], batch, final=True))
    for header, body in log:
        side.take(header, body)
    messages, whole = log_of(log), Ingest(Acceptance(), tag=None)
    assert counters(whole.take(messages)) == [0, 1, 2, 3, 4, 5]
    assert side.state.writers[QUERY].next == 6
    cut = Ingest(Acceptance(cut=True), tag=None, cut=True)
    assert counters(cut.take(messages[4:7])) == [None, None]
    continued = Ingest(cut._acceptance.copy(), tag=None, cut=True)
    assert counters(continued.take(messages[7:])) == [None], "the next task does not know the number of deleted rows"
    known = Ingest(Acceptance(), tag=None)
    known.take(messages[:4])
    known = Ingest(known._acceptance.copy(), tag=None, cut=True)
    assert counters(known.take(messages[5:])) == [4, 5], "the first row of the second batch is deleted"


def test_a_record_with_a_negative_counter_is_malformed_and_shows_none() -> None:
    side, forger = Side("orders"), Scribe("forger")
    ingest = Ingest(Acceptance(), tag=None)
    (rows,) = ingest.take(log_of([(forger.message(side.address, CONVERSATIONS[0], counter=-1), b"forged")]))
    assert COLUMNS["counter"].make(rows).to_pylist() == [None]
    assert COLUMNS["verdict"].make(rows).to_pylist() == ["malformed"]


def test_each_of_many_rows_under_one_number_is_examined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign producer may write any number of them; comparing each with all others would never end."""
    examined: list[Message] = []

    def content(row: Message, real: Any = batch_rows._content) -> tuple[object, ...]:
        examined.append(row)
        return tuple(real(row))

    monkeypatch.setattr(batch_rows, "_content", content)
    rows = [Query.message(Query.task(0, "first"), CONVERSATIONS[0], b"%d" % (number % 150)) for number in range(300)]
    ingest = Ingest(Acceptance(), tag=None)
    ingest.take(log_of(rows))
    judge, side = Scribe("judge"), Side("orders")
    decided = decision(judge, side, [(Query.task(0, "first").attempt, 1)], 0, final=True)
    (_, accepted) = ingest.take(log_of([*rows, decided])[-1:])
    assert accepted.offsets.tolist() == list(range(150))
    assert len(examined) == len(rows)


@given(st.lists(st.tuples(st.sampled_from(["row", "row", "decide", "veto"]), st.integers(0, 4), st.integers(0, 1))))
def test_of_too_many_queries_the_one_that_the_owner_forgets_is_forgotten(steps: list[tuple[str, int, int]]) -> None:
    side, judge, known = Side("orders"), Scribe("judge"), Acceptance()
    ingest = Ingest(known, tag=None)
    log: list[ReceivedMessages] = []
    for step, number, batch in steps:
        query = identifier(f"query {number}")
        task = Task(TaskOf(query, JUDGE, JUDGE_WRITER, RUN, batch, 0), identifier(f"attempt {number} {batch}"))
        if step == "row":
            log.append(Query.message(task, CONVERSATIONS[0], b"row"))
        else:
            suffix = Suffix(detail=Decision(query, batch, begins=False, final=step == "decide"))
            header = judge.write(Kind.DECISION, side.address, query, suffix=suffix)
            log.append((header, encode_winners(((task.attempt, 1),))))
    with (
        patch("konverse.dialog.state.batches.QUERY_ENTRIES_MAX", 2),
        patch("konverse.spark.log.batch_rows.QUERY_ENTRIES_MAX", 2),
    ):
        side.take_all([(header, (body, 0)) for header, body in log])
        for message in log_of(log):
            ingest.take([message])
    theirs = [
        (query + bytes((begins,)) + writer, batch)
        for (query, begins, writer), batch in side.state.pending.decided.items()
    ]
    assert [*known.decided.items()] == theirs
    assert ingest.batches.oldest() == side.state.pending.oldest()


def test_a_row_of_a_forgotten_query_does_not_wait_again_for_the_task_that_continues() -> None:
    side, waits = Side("orders"), Query.task(0, "waits", batch=1)
    log = [Query.message(waits, CONVERSATIONS[0], b"row")]
    judge = Scribe("judge")
    for number in range(3):
        query = identifier(f"query {number}")
        task = Task(TaskOf(query, JUDGE, JUDGE_WRITER, RUN, 0, 0), identifier(f"attempt {number}"))
        log.append(Query.message(task, CONVERSATIONS[0], b"row"))
        suffix = Suffix(detail=Decision(query, 0, begins=False, final=True))
        log.append((judge.write(Kind.DECISION, side.address, query, suffix=suffix), encode_winners(())))
    log.append(decision(judge, side, [(waits.attempt, 1)], 1, final=True))
    messages, ingest = log_of(log), Ingest(Acceptance(), tag=None)
    with patch("konverse.spark.log.batch_rows.QUERY_ENTRIES_MAX", 2):
        ingest.take(messages[:-1])
        assert ingest.batches.oldest() == 0
        continued = handed_over(ingest, messages, len(messages) - 1)
        (_, accepted) = continued.take(messages[-1:])
    assert accepted.offsets.tolist() == [0]
    assert continued.batches.oldest() is None, "the rows of the other queries are void"


def counters(parts: list[IngestedRows]) -> list[int | None]:
    """The column `counter` of the rows that decisions have accepted."""
    return [one for rows in parts if rows.decided_at is not None for one in COLUMNS["counter"].make(rows).to_pylist()]
