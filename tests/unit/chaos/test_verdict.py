"""The verdict at the end of a run, and the checker's view of logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from konverse.bridge.verifier.check import compare, judge
from konverse.bridge.verifier.reading import digest, shorten
from tests.chaos.__main__ import HELD, TOO_FEW, VIOLATED, _product_without, _verdict
from tests.chaos.campaign import PROFILES, Fault, Outcome, _complaints
from tests.chaos.checker import LOST, PHANTOM, Anomaly, check
from tests.chaos.judging import Verdict
from tests.chaos.report import page
from tests.chaos.topics import Topics, bodies_in, living, observe
from tests.unit.bridge.test_verifier import SEEDS, SWARMS, history


def outcome(effective: int, *anomalies: Anomaly) -> Outcome:
    faults = [Fault("kill a process", number, number + 0.5, "pid 7 is gone") for number in range(effective)]
    faults += [Fault("kill Kafka", 3.0, 4.0, "")] * 50
    cell = PROFILES["smoke"][1][0]
    return Outcome(cell, "7/0", Path("/nowhere"), faults, Verdict([*anomalies], {"messages": 9}), 0.0, 1.5, 12)


@pytest.mark.parametrize(
    ("effective", "anomalies", "code"),
    [(40, (), HELD), (39, (), TOO_FEW), (99, (Anomaly(LOST, "c1", "gone"),), VIOLATED)],
)
def test_a_run_holds_only_with_enough_faults_and_no_anomaly(
    effective: int, anomalies: tuple[Anomaly, ...], code: int, tmp_path: Path
) -> None:
    folder = tmp_path / "histories"
    folder.mkdir()
    assert _verdict([outcome(effective, *anomalies)], 40, folder, Console(quiet=True)) == code
    assert folder.exists() == (code == VIOLATED), "histories are kept of runs that failed"


def test_the_verdict_page_names_every_anomaly_with_its_description() -> None:
    text = page([outcome(12, Anomaly(LOST, "c1", "message <3> is gone"))], 40, "make chaos SEED=7")
    assert "1 anomalies" in text
    assert "message &lt;3&gt; is gone" in text
    assert "12 faults had an effect that was seen; 40 are needed" in text
    assert text.count("<rect") == 62


def test_an_exception_or_abort_in_any_process_is_reported(tmp_path: Path) -> None:
    (tmp_path / "owner-1.2.stderr").write_text("a warning\n")
    (tmp_path / "client-0.9.stderr").write_text(
        'Exception in thread x\nTraceback (most recent call last):\n  File "y"\nKeyError: 5\n'
    )
    (tmp_path / "owner-0.4.stderr").write_text("python: queue.h:9: f: Assertion `refcnt > 0' failed.\n")
    complaint, abortion = sorted(_complaints(tmp_path))
    assert complaint.startswith("client-0.9 raised an exception")
    assert "KeyError: 5" in complaint
    assert "refcnt > 0" in abortion


def test_the_product_itself_runs_unless_a_rule_is_left_out(tmp_path: Path) -> None:
    assert _product_without(None, tmp_path) is None
    path = _product_without("duplicates_accepted", tmp_path) or ""
    patched = Path(path.partition(":")[0]) / "konverse"
    assert (patched / "bridge" / "broker.py").exists()
    ours = Path(__file__).parents[3] / "dialog" / "fold" / "ingest.py"
    assert (patched / "dialog" / "fold" / "ingest.py").read_text() != ours.read_text()


def seen(seed: int) -> Topics:
    """The topics of a simulated run that has drained."""
    logs = history(seed)
    owners = {each.writer for each in logs}
    for each in logs:
        each.data = [shorten(record) for record in each.data]
    verdicts = [judge(each.place, each.journal, each.data, owners, digest) for each in logs]
    findings = [finding for verdict in verdicts for finding in verdict.findings]
    bodies = {name: found for each in logs for name, found in bodies_in(each.place.address, each.data)}
    return observe(verdicts, [*findings, *compare(verdicts)], bodies)


def test_of_logs_alone_only_the_senders_are_missing() -> None:
    commits = heard = 0
    unnamed = [seed for seed in SEEDS if not SWARMS[seed].naming]  # chaos begins no conversation anew
    for seed in unnamed[:8]:
        topics = seen(seed)
        commits += sum(len(partition.commits) for partition in topics.partitions.values())
        heard += sum(len(talk.heard) for talk in topics.talks)
        kept = {place: dict(sides) for place, sides in living(topics).items()}
        named = {anomaly.name for anomaly in check([], topics, kept)}
        assert named <= {PHANTOM, LOST}, "what nobody sent was heard, and no handler run is known"
    assert commits > 20
    assert heard > 20
