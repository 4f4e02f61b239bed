"""Damaged histories are judged in tasks of Spark, with the same findings as on one machine."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Final

import pytest
from pyspark.sql import SparkSession

from konverse.bridge.verifier.check import Finding, PartitionVerdict, compare, judge
from konverse.bridge.verifier.reading import digest, shorten
from konverse.spark.verifier_job import packed, unpacked
from tests.kit.damaged_moves import DAMAGED_MOVES
from tests.kit.damages import DAMAGES, History, Logs
from tests.unit.bridge.test_verifier import SEEDS, findings, history

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

ALL: Final = DAMAGES | DAMAGED_MOVES
SOUND: Final = "nothing"
SLICES: Final = 4


def damaged(what: str) -> History:
    """The logs of the first run to which the damage applies, damaged."""
    for seed in SEEDS:
        logs = history(seed)
        if what == SOUND or ALL[what][0](logs, random.Random(seed)):
            return logs
    raise AssertionError(f"no run had what this changes: {what}")


def judged(part: tuple[str, Logs, set[bytes]]) -> tuple[str, bytes]:
    """The result of a task for one partition after it has read the logs."""
    what, logs, owners = part
    data = [shorten(record) for record in logs.data]
    return what, packed(judge(logs.place, logs.journal, data, owners, digest))


def test_each_damage_is_found_by_tasks_as_by_one_machine(spark: SparkSession) -> None:
    histories = {what: damaged(what) for what in (*ALL, SOUND)}
    owners = {what: {each.writer for each in logs} for what, logs in histories.items()}
    parts = [(what, each, owners[what]) for what, logs in histories.items() for each in logs]
    verdicts: defaultdict[str, list[PartitionVerdict]] = defaultdict(list)
    for what, sent in spark.sparkContext.parallelize(parts, SLICES).map(judged).collect():
        verdicts[what].append(unpacked(sent))
    found: dict[str, list[Finding]] = {
        what: [finding for verdict in some for finding in verdict.findings] + list(compare(some))
        for what, some in verdicts.items()
    }
    for what, (_, rules) in ALL.items():
        assert rules & {finding.rule for finding in found[what]}, what
    assert _places(found) == _places({what: findings(logs) for what, logs in histories.items()})
    assert found == {what: _shortened(logs) for what, logs in histories.items()}
    assert found[SOUND] == []


def _shortened(logs: History) -> list[Finding]:
    """The findings on one machine, with digests in place of bodies, which the texts of some findings quote."""
    owners = {each.writer for each in logs}
    verdicts = [judge(each.place, each.journal, [*map(shorten, each.data)], owners, digest) for each in logs]
    return [finding for verdict in verdicts for finding in verdict.findings] + list(compare(verdicts))


def _places(found: dict[str, list[Finding]]) -> dict[str, list[tuple[str, str]]]:
    return {what: [(one.rule, one.partition) for one in some] for what, some in found.items()}
