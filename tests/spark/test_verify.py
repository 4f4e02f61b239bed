"""The verifier on Spark: the same verdicts and findings as on one machine."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from konverse.bridge.broker import Broker
from konverse.bridge.cli.main import app
from konverse.bridge.verifier.check import PartitionVerdict
from konverse.bridge.verifier.reading import Progress, Verification, Views
from konverse.schemas.catalog import Queue
from konverse.spark.verifying import verdicts
from tests.integration.test_verify import forge
from tests.kit.servers import Servers
from tests.kit.shop import answer, send_orders

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

COUNTED = ("conversations", "accepted", "consumed", "unread", "outputs", "duplicates", "void", "undecodable")


def test_spark_says_what_one_machine_says_of_a_good_history_and_of_a_forged_one(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    def judged(verification: Verification, views: Views, progress: Progress) -> Iterator[PartitionVerdict]:
        return verdicts(spark, verification, views, progress)

    send_orders(shop, dialogs=7, messages=70)
    with shop.reader("Orders", timeout=2.0) as reader:
        assert answer(reader) == 70

    def both() -> list[str]:
        verification = shop.verification(shop.catalog.all(Queue))
        read: list[int] = []
        (ours, findings), (theirs, found) = verification.run(), verification.run(read.append, judged=judged)
        assert found == findings
        for one, other in zip(ours, theirs, strict=True):
            assert [getattr(one, name) for name in COUNTED] == [getattr(other, name) for name in COUNTED]
            assert one.fold.facts() == other.fold.facts()
        assert sum(read) == verification.records
        return [finding.text for finding in findings]

    assert both() == []
    forge(servers, shop, 1_000)
    refuted = both()
    assert refuted
    command = ["verify", "--spark", "--kafka", f"kafka://{servers.bootstrap}", "--database", database, "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1, result.output
    said = json.loads(result.stdout)
    assert not said["holds"]
    assert [finding["text"] for finding in said["findings"]] == refuted
