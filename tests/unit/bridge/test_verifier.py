"""The verifier on logs of simulated runs: it accepts them, and finds every damage."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import pytest

from konverse.bridge.verifier import reading as verifying
from konverse.bridge.verifier.check import Finding, Held, PartitionVerdict, Place, compare, judge
from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.bridge.verifier.fold.ingest import ingest
from konverse.bridge.verifier.fold.moved_state import MovedState
from konverse.bridge.verifier.fold.state import CODES
from konverse.bridge.verifier.journal import JournalJudge
from konverse.bridge.verifier.reading import PartitionReader, digest, shorten
from konverse.bridge.verifier.records import Record
from konverse.bridge.verifier.view import Shown, compare_view
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.identifiers import Role, time_of_writer
from konverse.schemas.wire.journal import FOLD_VERSION, Claim, encode_claim
from konverse.schemas.wire.records import Bounce, BounceReason, Kind
from tests.kit.builders import Scribe, address_of, begin_block, identifier
from tests.kit.damaged_moves import DAMAGED_MOVES
from tests.kit.damages import DAMAGES, History, Logs, envelope_of
from tests.kit.simulator.checks import check
from tests.kit.simulator.choices import Choices
from tests.kit.simulator.swarm import draw
from tests.kit.simulator.tuning import tuned
from tests.kit.simulator.world import World

pytestmark = pytest.mark.xdist_group("histories")  # simulated once, not by each worker

SWARMS = {seed: draw(Choices(seed, None)) for seed in range(70)}
SEEDS = [
    seed for seed, swarm in SWARMS.items() if not (swarm.own_bounds or swarm.losses or swarm.forgers or swarm.cuts)
]
"""Runs whose state depends only on the product's own bounds."""


@cache
def simulated(seed: int) -> tuple[tuple[Place, tuple[Record, ...], tuple[Record, ...]], ...]:
    choices = Choices(seed, None)
    swarm = draw(choices)
    with tuned(choices, swarm):
        world = World(choices, swarm)
        world.run()
        check(world)

    def copied(records: list[object]) -> tuple[Record, ...]:
        return tuple(Record(r.offset, r.header, r.body, r.timestamp_ms, r.order) for r in records)  # type: ignore[attr-defined]

    return tuple(
        (place.verified(), copied([*place.journal.records]), copied([*place.data.records])) for place in world.places
    )


def history(seed: int) -> History:
    return [Logs(place, [*journal], [*data]) for place, journal, data in simulated(seed)]


def findings(logs: History) -> list[Finding]:
    owners = {each.writer for each in logs}
    verdicts = [judge(each.place, each.journal, each.data, owners) for each in logs]
    compared = list(compare(verdicts))
    sent = [pickle.loads(pickle.dumps(verdict)) for verdict in verdicts]  # as tasks of Spark do
    assert list(compare(sent)) == compared
    return [finding for verdict in verdicts for finding in verdict.findings] + compared


@pytest.mark.parametrize("what", [*DAMAGES, *DAMAGED_MOVES])
def test_a_history_that_breaks_the_promise_is_refuted(what: str) -> None:
    do, rules = (DAMAGES | DAMAGED_MOVES)[what]
    tried = 0
    for seed in SEEDS:
        logs = history(seed)
        if not do(logs, random.Random(seed)):
            continue
        tried += 1
        found = findings(logs)
        assert rules & {finding.rule for finding in found}, f"seed {seed}: {found[:3]}"
        if tried == 5:
            return
    assert tried, "no run had what this changes"


def _ingested(logs: Logs) -> int:
    return judge(logs.place, logs.journal, logs.data, ()).fold.ingested_to


def _forge(logs: History) -> bool:
    """Replace a duplicate by a stranger's BOUNCE of a received message."""
    for home in logs:
        seen: set[bytes | None] = set()
        for at, record in enumerate(home.data):
            if record.header not in seen or record.offset >= _ingested(home):
                seen.add(record.header)
                continue
            received = next(
                (
                    (heard, each.place.address)
                    for each in logs
                    for side in judge(each.place, each.journal, each.data, ()).fold.sides
                    for heard in side.heard
                    if heard.kind is Kind.MESSAGE and heard.writer and heard.origin is None
                ),
                None,
            )
            if received is None:
                return False
            detail = Bounce(received[0].writer, received[0].counter, received[1], BounceReason.ENDED)
            header = Scribe("a stranger").bounce(home.place.address, identifier("c"), detail)
            home.data[at] = record._replace(header=header)
            return True
    return False


def test_a_message_that_was_received_and_came_back_is_refuted() -> None:
    tried = 0
    for seed in SEEDS[:12]:
        logs = history(seed)
        if _forge(logs):
            tried += 1
            assert "I6" in {finding.rule for finding in findings(logs)}, seed
    assert tried


def _at(moment: float, logs: History) -> History:
    """The logs at a moment of the run: all appends to all logs are ordered."""
    latest = moment * max(record.order for each in logs for record in (*each.journal, *each.data))
    found = []
    for each in logs:
        journal, data = ([one for one in log if one.order <= latest] for log in (each.journal, each.data))
        end = data[-1].offset + 1 if data else 0
        found.append(Logs(each.place._replace(certain_to=end, data_end=end), journal, data))
    return found


def _hold_data(logs: Logs) -> None:
    """A transaction is open from the end of the owner's reads."""
    end = _ingested(logs)
    logs.data = [record for record in logs.data if record.offset < end]
    logs.place = logs.place._replace(certain_to=end, data_end=end)


def _hold_journal(logs: Logs) -> None:
    """Half of the records are behind the beginning of an open transaction."""
    logs.journal = logs.journal[: len(logs.journal) // 2]


@pytest.mark.parametrize(
    ("hold", "held"), [(_hold_data, Held(data=True)), (_hold_journal, Held(journal=True))], ids=["data", "journal"]
)
def test_nothing_is_refuted_that_stands_behind_an_open_transaction(hold: Callable[[Logs], None], held: Held) -> None:
    needed = 0
    for seed in SEEDS[:5]:
        for moment in (0.4, 0.8):
            for at in range(len(history(seed))):
                logs = _at(moment, history(seed))
                hold(logs[at])
                needed += bool(findings(logs))
                logs[at].place = logs[at].place._replace(held=held)
                assert not findings(logs), (seed, moment, at)
    assert needed, "no run had anything there"


def test_readable_records_are_judged_although_a_transaction_is_open() -> None:
    tried = 0
    for seed in SEEDS[:12]:
        for each in (logs := history(seed)):
            each.place = each.place._replace(held=Held(data=True))
            places = _duplicate_of_a_session(each)
            if places is not None:
                tried += 1
                each.data[places[0]] = each.data[places[0]]._replace(body=b"what a stranger wrote")
                assert "I23" in {finding.rule for finding in findings(logs)}, seed
                break
    assert tried


def test_a_cut_log_whose_snapshots_cannot_be_read_is_not_called_cut() -> None:
    place = history(SEEDS[0])[0].place._replace(journal_start=7, data_start=9, data_end=9)
    assert [finding.rule for finding in judge(place, [], [], ()).findings] == ["cut", "cut"]
    held = Held(data=True, journal=True, snapshots=True)
    assert not judge(place._replace(held=held), [], [], ()).findings


def _duplicate_of_a_session(logs: Logs) -> tuple[int, int] | None:
    """Indexes of two ingested records with one counter of one session, of which the first one was accepted."""
    seen: dict[bytes, int] = {}
    expected: Counter[bytes] = Counter()
    ingested = _ingested(logs)
    for at, record in enumerate(logs.data):
        envelope = envelope_of(record)
        if envelope is None or record.header is None or envelope.tag != logs.place.address.tag:
            continue
        if envelope.kind is Kind.PENDING or time_of_writer(envelope.writer) is None or record.offset >= ingested:
            continue
        if record.header in seen:
            return seen[record.header], at
        if envelope.counter == expected[envelope.writer]:  # else it stands behind a gap, and only its copy counts
            expected[envelope.writer] += 1
            seen[record.header] = at
    return None


@pytest.mark.parametrize("forged", [0, 1], ids=["the first", "the second"])
def test_other_content_under_a_counter_is_refuted_and_both_offsets_named(forged: int) -> None:
    tried = 0
    for seed in SEEDS:
        for each in (logs := history(seed)):
            places = _duplicate_of_a_session(each)
            if places is None:
                continue
            tried += 1
            at = places[forged]
            each.data[at] = each.data[at]._replace(body=b"what a stranger wrote")
            said = [finding.text for finding in findings(logs) if finding.rule == "I23"]
            first, second = (each.data[place].offset for place in places)
            assert any(f"offsets {first} and {second} " in text for text in said), (seed, said)
            break
        if tried == 3:
            return
    assert tried


def test_foreign_malformed_and_copied_records_are_counted() -> None:
    at, conversation, session = address_of("there"), identifier("a"), Scribe("a session")
    place = Place(at.topic, at.partition, at.tag + bytes(12), b"d" * 16, b"j" * 16, 4, 4)
    headers = [None, b"no envelope", session.message(at, conversation, tag=b"else"), None]
    fold = SecondFold(place.address, identifier("an owner"))
    for offset, header in enumerate(headers):
        ingest(fold, Record(offset, header, b"", 0, offset))
    verdict = PartitionVerdict(place, fold, JournalJudge(place.identity))
    assert (verdict.foreign, verdict.malformed, verdict.copied) == (2, 1, 1)


def test_a_journal_of_newer_fold_rules_is_not_judged_by_the_older_ones() -> None:
    """M19. A verdict by the wrong rules could be a false proof."""
    at = address_of("there")
    place = Place(at.topic, at.partition, at.tag + bytes(12), b"d" * 16, b"j" * 16, 1, 0)

    def journal(rules: int) -> list[Record]:
        return [Record(0, None, encode_claim(Claim(1, identifier("me"), rules, *place.identity, clean=True)), 0)]

    assert judge(place, journal(FOLD_VERSION), [], ()).findings == []
    with pytest.raises(PartitionHalted, match=rf"{place.name} from offset 0 on needs fold rules {FOLD_VERSION + 1}"):
        judge(place, journal(FOLD_VERSION + 1), [], ())


def test_a_snapshot_of_newer_fold_rules_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """M19. Where the logs before it are deleted, every COMMIT behind it would be called void."""
    found = [SimpleNamespace(end=SimpleNamespace(fold_version=FOLD_VERSION + late)) for late in (0, 1)]
    log: Any = SimpleNamespace(ends=lambda *_: (0, 0))
    extent: Any = SimpleNamespace(snapshots="s", place=SimpleNamespace(partition=0, name="orders/0", identity=()))
    reading = PartitionReader(log, (), None)
    monkeypatch.setattr(reading, "_read", lambda *_: iter(()))
    monkeypatch.setattr(verifying, "starts", lambda *_: found[:1])
    assert reading._snapshots(extent) == found[:1]
    monkeypatch.setattr(verifying, "starts", lambda *_: found)
    with pytest.raises(PartitionHalted, match=f"a snapshot of orders/0 needs fold rules {FOLD_VERSION + 1}"):
        reading._snapshots(extent)


# --------------------------------------------------------------------------------------------------- harmless changes


def test_simulated_histories_pass_verification() -> None:
    for seed in SEEDS:
        assert findings(history(seed)) == []


def _behind(log: list[Record]) -> int:
    return log[-1].offset + 1 if log else 0


def _again(log: list[Record], record: Record) -> None:
    log.append(record._replace(offset=_behind(log)))


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_duplicate_late_and_garbage_records_cause_no_findings(seed: int) -> None:
    logs, rng = history(seed), random.Random(seed)
    for each in logs:
        for record in rng.sample(each.data, min(3, len(each.data))):
            _again(each.data, record)
        for record in rng.sample(each.journal, min(3, len(each.journal))):
            _again(each.journal, record)
        each.data.append(Record(_behind(each.data), rng.randbytes(60), b"garbage", 0))
        each.data.append(Record(_behind(each.data), None, None, 0))
        each.journal.append(Record(_behind(each.journal), None, rng.randbytes(60), 0))
        zombie = Claim(1, b"a zombie's claim", 1, *(each.place[2:5]), False)
        each.journal.append(Record(_behind(each.journal), None, encode_claim(zombie), 0))
        end = _behind(each.data)
        each.place = each.place._replace(data_end=end, certain_to=end)
    assert findings(logs) == []


@pytest.mark.parametrize(("void", "number", "holds"), [(2, 3, True), (2, 4, False), (0, 3, False)])
def test_a_sequence_gap_is_accepted_only_if_it_equals_the_number_of_voids(void: int, number: int, holds: bool) -> None:
    at, conversation, session = address_of("there"), identifier("a"), Scribe("a session")
    fold = SecondFold(at, identifier("an owner"))
    headers = [session.first(at, conversation, begin_block(target="there"))]
    headers += [session.write(Kind.VOID, at, conversation) for _ in range(void)]
    headers.append(session.message(at, conversation, sequence=number))
    for offset, header in enumerate(headers):
        ingest(fold, Record(offset, header, b"", 0, offset))
    assert (fold.problems == []) is holds


def test_a_claim_of_another_log_does_not_count() -> None:
    (logs, *_) = history(0)
    place = logs.place
    stranger = encode_claim(Claim(10**6, b"another's owner!", 1, b"x" * 16, place.data_topic_id, b"y" * 16, True))
    logs.journal.insert(0, Record(-1, None, stranger, 0))
    assert judge(place, logs.journal, logs.data, ()).void >= 1
    assert not judge(place, logs.journal, logs.data, ()).findings


def test_digests_of_bodies_are_enough() -> None:
    """As read from a live system."""
    accepted = 0
    for seed in SEEDS[:10]:
        logs = history(seed)
        for each in logs:
            each.data = [shorten(record) for record in each.data]
        owners = {each.writer for each in logs}
        verdicts = [judge(each.place, each.journal, each.data, owners, digest) for each in logs]
        assert not [finding for verdict in verdicts for finding in verdict.findings]
        assert list(compare(verdicts)) == []
        accepted += sum(verdict.accepted for verdict in verdicts)
    assert accepted > 0


# --------------------------------------------------------------------------------------------------------------- view


def test_states_are_named_as_the_product_names_them() -> None:
    assert tuple(state.code for state in State) == CODES


def test_a_view_is_compared_with_the_state_of_the_logs_at_its_offset() -> None:
    compared = 0
    for seed in SEEDS[:10]:
        for each in history(seed):
            for offset in [record.offset for record in each.journal[::5]]:
                upto = [record for record in each.journal if record.offset <= offset]
                before = judge(each.place, upto, each.data, ()).fold.facts()
                verdict = judge(each.place._replace(shown_at=offset), each.journal, each.data, ())
                assert list(compare_view(verdict, Shown(offset, before))) == []
                for key, facts in before.items():
                    wrong = before | {key: ("CO", 77, *facts[2:])}
                    assert [finding.rule for finding in compare_view(verdict, Shown(offset, wrong))] == ["view"]
                    compared += 1
    assert compared > 10


def _moved_once_more(begins_at_a_snapshot: bool, seen: Sequence[str], arrived: Sequence[str]) -> list[Finding]:
    """One side leaves a partition and arrives at another, in these states. The first one may be read in part."""
    key = (int(Role.INITIATOR), identifier("a")), 1

    def in_state(code: str) -> MovedState:
        nothing: Any = ()
        return MovedState(
            here, False, code, here, b"", b"", 0, 0, -1, nothing, nothing, None, nothing, None, nothing, 5
        )

    logs = next(logs for logs in map(history, SEEDS) if len(logs) > 1)
    verdicts = [judge(each.place, each.journal, each.data, {each.writer for each in logs}) for each in logs]
    left, other = verdicts[:2]
    here = left.fold.address
    left.fold.moves.left[key] = [*map(in_state, seen)]
    other.fold.moves.arrived[key] = [*map(in_state, arrived)]
    if begins_at_a_snapshot:
        verdicts[0] = replace(left, place=left.place._replace(start=cast("Any", object())))
    return [*compare(verdicts)]


@pytest.mark.parametrize("begins_at_a_snapshot", [False, True])
def test_a_side_that_arrives_as_it_has_not_left_is_refuted(begins_at_a_snapshot: bool) -> None:
    (found,) = _moved_once_more(begins_at_a_snapshot, ["CO"], ["DO"])
    assert found.rule == "I3"
    assert _moved_once_more(begins_at_a_snapshot, ["CO"], ["CO"]) == []


def test_moves_before_the_snapshot_are_not_compared_with_moves_after_it() -> None:
    """The conversation was begun again under its id, and has moved in both of its lives."""
    assert _moved_once_more(True, ["CO"], ["DO", "CO"]) == []
    (found,) = _moved_once_more(False, ["CO"], ["DO", "CO"])
    assert "arrived as" in found.text
