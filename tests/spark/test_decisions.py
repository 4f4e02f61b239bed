"""Records of a journal: which count, wherever the reading begins, and their rows."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from itertools import combinations
from typing import Any, Final

import pytest

from konverse.dialog.fold.journal import JournalRecord
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.system_messages import Rejection
from konverse.schemas.wire.journal import (
    FOLD_VERSION,
    GENESIS_HASH,
    Claim,
    Commit,
    CommitOperations,
    EndOperation,
    Part,
    encode_claim,
    encode_commit,
    encode_part,
)
from konverse.schemas.wire.operations import Attempt, MoveAway, SetTimer
from konverse.spark.log.decisions import (
    COLUMNS,
    DecisionJudge,
    DecisionRow,
    JournalVerdict,
    JudgedRecord,
    JudgeState,
    rows,
)
from tests.kit.builders import GARBAGE, address_of, begin_block, identifier, log_of

LOG: Final = log_of()
A, B = identifier("owner A"), identifier("owner B")


class Journal:
    """Consecutive journal records."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.hash = GENESIS_HASH
        self.number = 0

    def claim(self, epoch: int, owner: bytes) -> None:
        names = (LOG.incarnation, LOG.data_topic_id, LOG.journal_topic_id)
        self.records.append(encode_claim(Claim(epoch, owner, FOLD_VERSION, *names, clean=True)))

    def commit(self, epoch: int, owner: bytes, *, parts: int = 0, **operations: Any) -> None:
        """Append the next COMMIT; `stale` writes a void one."""
        self.number += 1
        data = encode_commit(Commit(epoch, owner, self.number, self.hash, 0, CommitOperations(**operations)))
        self.hash = hashlib.sha256(data).digest()
        size = -(-len(data) // parts) if parts else 0
        for part in range(parts):
            piece = data[part * size : (part + 1) * size]
            self.records.append(encode_part(Part(owner, self.number, part, parts, piece)))
        if not parts:
            self.records.append(data)

    def stale(self, epoch: int, owner: bytes, number: int) -> None:
        self.records.append(encode_commit(Commit(epoch, owner, number, GENESIS_HASH, 0, CommitOperations())))


@pytest.fixture
def journal() -> Journal:
    """Two owners, the first unaware of the second; a COMMIT in three parts, garbage, and a stray part."""
    made = Journal()
    made.claim(1, A)
    made.commit(1, A)
    made.claim(2, B)
    made.stale(1, A, 2)
    made.commit(2, B)
    made.commit(2, B, parts=3)
    made.records.append(GARBAGE)
    made.records.append(encode_part(Part(B, 9, 1, 2, b"")))
    made.commit(2, B)
    return made


VERDICTS: Final = [
    *("accepted", "accepted", "accepted", "void", "accepted", "part", "part", "accepted", "malformed", "part"),
    "accepted",
]


def judged(decisions: DecisionJudge, made: Journal, start: int = 0) -> list[JudgedRecord]:
    return [decisions.judge(JournalRecord(at, made.records[at], at)) for at in range(start, len(made.records))]


def names(found: list[JudgedRecord]) -> list[str]:
    return [one.verdict.name for one in found]


def test_a_record_has_the_verdict_that_it_has_for_an_owner(journal: Journal) -> None:
    found = judged(DecisionJudge(LOG), journal)
    assert names(found) == VERDICTS
    assert isinstance(found[7].decision, Commit), "the last part stands for all"
    assert "undecodable" in found[8].words


@pytest.mark.parametrize("start", range(11))
def test_the_rest_of_a_journal_without_its_beginning_gets_the_same_verdicts(journal: Journal, start: int) -> None:
    found = names(judged(DecisionJudge(LOG, cut=True), journal, start))
    expected = VERDICTS[start:]
    if start == 3:
        expected[0] = "accepted"  # no remaining record shows that its owner was replaced
    if start in (6, 7):
        expected[: 8 - start] = ["part"] * (8 - start)
    if start in (6, 7):
        assert found[:-1] == expected[:-1]
    else:
        assert found == expected


@pytest.mark.parametrize("place", range(1, 11))
def test_a_judge_restored_from_its_saved_state_gives_the_same_verdicts(journal: Journal, place: int) -> None:
    first, form = DecisionJudge(LOG), JudgeState(LOG)
    for at in range(place):
        first.judge(JournalRecord(at, journal.records[at], at))
    head, body = form.encode(first)
    found = form.decode(json.loads(json.dumps(head)), body)
    assert found.head == first.head
    again = place if first.parts_from is None else first.parts_from
    assert again == (5 if place in (6, 7) else place)
    for one in (found, first.copy()):
        assert names(judged(one, journal, again)) == VERDICTS[again:]


@pytest.mark.parametrize("places", [*combinations(range(6), 3)])
def test_of_two_owners_whose_pieces_stand_between_each_other_the_commit_that_is_whole_counts(
    places: tuple[int, ...],
) -> None:
    """The first owner does not know the second, which writes its COMMIT again."""
    made = Journal()
    made.claim(1, A)
    made.commit(1, A)
    made.claim(2, B)
    behind = len(made.records)
    before = made.number, made.hash
    made.commit(1, A, parts=3)
    made.number, made.hash = before
    made.commit(2, B, parts=3)
    pieces = {A: made.records[behind : behind + 3], B: made.records[behind + 3 :]}
    again = list(pieces[B])
    mixed = [pieces[B if at in places else A].pop(0) for at in range(6)]
    made.records[behind:] = [*mixed, *again]
    made.commit(2, B)
    found = judged(DecisionJudge(LOG), made)
    counting = [at for at, one in enumerate(found) if one.verdict is JournalVerdict.accepted]
    whole = places[2] - places[0] == 2
    last = len(made.records) - 1
    assert counting == [0, 1, 2, behind + (places[2] if whole else 8), last]
    expected = ["part"] * 6
    for theirs, verdict in ((places, "accepted"), ([at for at in range(6) if at not in places], "void")):
        if theirs[2] - theirs[0] == 2:
            expected[theirs[2]] = verdict
    assert names(found)[behind : behind + 6] == expected, "pieces of two owners are never put together"
    assert names(found)[behind + 8] == ("void" if whole else "accepted"), "one COMMIT counts for a number"
    for place in range(behind, last):
        first, form = DecisionJudge(LOG), JudgeState(LOG)
        for at in range(place):
            first.judge(JournalRecord(at, made.records[at], at))
        one = form.decode(*form.encode(first))
        start = place if first.parts_from is None else first.parts_from
        assert names(judged(one, made, start)) == names(found)[start:], "who goes on from here says the same"


def test_a_journal_that_contradicts_itself_is_not_read_on(journal: Journal) -> None:
    journal.number, journal.hash = 4, GENESIS_HASH
    journal.commit(2, B)
    with pytest.raises(PartitionHalted, match="does not follow the record before it"):
        judged(DecisionJudge(LOG), journal)


def shown(row: DecisionRow) -> dict[str, Any]:
    """The columns of a row that are not null."""
    values = {name: column.make(row) for name, column in COLUMNS.items()}
    values["detail"] = json.loads(values["detail"])
    return {name: value for name, value in values.items() if value is not None}


def test_each_operation_has_a_row() -> None:
    conversation, group = identifier("c"), identifier("g")
    operations = CommitOperations(
        begins=[(conversation, begin_block())],
        receive_endpoints=[4],
        receive_positions=[7 << 2 | 1],
        sends=[(4, "//order", [b"one", b"three"])],
        ends=[EndOperation(5, 100, "no such thing")],
        rare=[Attempt([1, 2]), SetTimer(4, 1_000), MoveAway(4, group, address_of("moved", 3))],
    )
    commit = Commit(
        2,
        A,
        9,
        GENESIS_HASH,
        77,
        operations,
        [(address_of("replies"), 12)],
        [(70, Rejection(8430, "no JSON"))],
        [71],
        release=True,
    )
    record = JournalRecord(55, b"", 1_234)
    found = [shown(row) for row in rows(3, JudgedRecord(record, commit, JournalVerdict.accepted))]
    assert [(row["position"], row["operation"]) for row in found] == [
        *((0, "COMMIT"), (1, "REJECT"), (2, "CONTEST"), (3, "BEGIN"), (4, "RECEIVE"), (5, "SEND"), (6, "END")),
        *((7, "ATTEMPT"), (8, "SET_TIMER"), (9, "MOVE_AWAY")),
    ]
    for row in found:
        assert (row["partition"], row["offset"], row["timestamp"], row["verdict"]) == (3, 55, 1_234_000, "accepted")
        assert (row["epoch"], row["owner"], row["number"]) == (2, A, 9)
    replies = address_of("replies")
    acked = {"topic": replies.topic, "partition": 0, "tag": replies.tag.hex(), "counter": 12}
    assert found[0]["detail"] == {"ingest_to": 77, "release": True, "output_acks": [acked]}
    assert found[1]["detail"] == {"offset": 70, "reason": 8430, "fault": "no JSON"}
    assert found[2]["detail"] == {"offset": 71}
    assert (found[3]["conversation"], found[3]["role"]) == (conversation, "INITIATOR")
    assert found[3]["detail"]["contract"] == begin_block().contract
    assert found[3]["detail"]["home"]["topic"] == begin_block().home.topic
    assert (found[4]["endpoint"], found[4]["detail"]) == (4, {"consumed": 7, "error": True, "dialog_timer": False})
    sent = {name: found[5][name] for name in ("endpoint", "message_type", "messages", "bytes", "detail")}
    assert sent == {"endpoint": 4, "message_type": "//order", "messages": 2, "bytes": 8, "detail": {}}
    assert (found[6]["endpoint"], found[6]["detail"]) == (5, {"code": 100, "description": "no such thing"})
    assert ("endpoint" in found[7], found[7]["detail"]) == (False, {"endpoints": [1, 2]})
    assert found[8]["detail"] == {"timeout_ms": 1_000}
    assert (found[9]["endpoint"], found[9]["detail"]["group"]) == (4, group.hex())


def test_a_claim_a_piece_and_garbage_have_one_row_each() -> None:
    record = JournalRecord(5, b"", 1)
    claim = Claim(4, A, FOLD_VERSION, LOG.incarnation, LOG.data_topic_id, LOG.journal_topic_id, clean=False)
    (row,) = (shown(row) for row in rows(0, JudgedRecord(record, claim, JournalVerdict.void)))
    assert (row["operation"], row["epoch"], row["owner"], row["verdict"]) == ("CLAIM", 4, A, "void")
    assert (row["detail"]["clean"], row["detail"]["incarnation"], "number" in row) == (
        False,
        LOG.incarnation.hex(),
        False,
    )
    part = Part(A, 7, 0, 2, b"a slice")
    (row,) = (shown(row) for row in rows(0, JudgedRecord(record, part, JournalVerdict.part)))
    assert (row["operation"], row["number"], row["detail"]) == ("PART", 7, {"part": 0, "parts": 2})
    (row,) = (shown(row) for row in rows(0, JudgedRecord(record, None, JournalVerdict.malformed, "not Avro")))
    assert ("operation" in row, row["detail"], row["verdict"]) == (False, {"error": "not Avro"}, "malformed")


def test_a_claim_of_another_log_is_void() -> None:
    made = Journal()
    made.claim(1, A)
    elsewhere = DecisionJudge(replace(LOG, journal_topic_id=bytes(16)))
    assert names(judged(elsewhere, made)) == ["void"]
