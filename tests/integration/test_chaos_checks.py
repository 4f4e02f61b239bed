"""Processes of a chaos run and their judgement: the product holds, and a product without deduplication does not."""

from __future__ import annotations

import os
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from konverse.schemas.errors import StackError
from tests.chaos.campaign import PLACES, Campaign, Cell, Ground
from tests.chaos.crew import ROOT, Crew
from tests.chaos.judging import Verdict, drained, judge
from tests.chaos.nemeses import KILLS, PARTITIONS, REDIS
from tests.chaos.process import Part
from tests.chaos.proxy import Action, Trap
from tests.chaos.report import write
from tests.chaos.rig import Rig, rig
from tests.kit.servers import missing
from tests.kit.shop import connected, open_shop, queue_of
from tests.simulation.mutation import build, mutant

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE_S = 60.0
RECEIPT = re.compile(rb"[0-9a-f]{32}/\d")
"""The body of an answer to the client. On a busy machine the owner's first output may be an ACK alone."""

DRAIN_S = 8.0
"""For the product that holds. The other never drains."""


def run(proxied: Rig, database: str, folder: Path, python_path: str | None) -> tuple[Verdict, Crew]:
    """An owner dies after its outputs arrived and before it learns that. The next owner sends them again."""
    parts = {
        work: Part(work, work, str(folder), proxied.bootstrap(work), database, target_ends=0.0, batch=3)
        for work in ("owner", "client")
    }
    crew = Crew(parts, python_path)
    with connected(proxied.stack.bootstrap, database) as broker:
        open_shop(broker)
        orders, shop = queue_of(broker, "Orders"), queue_of(broker, "Shop")
        trap = proxied.proxies["owner"].trap(Trap(Action.MUTE, topic=shop.topic, records=RECEIPT))
        try:
            crew.fill()
            assert trap.answered.wait(PATIENCE_S), crew.members["owner"].errors
            assert crew.members["owner"].kill()
            crew.start("owner").wait_for("transaction")  # before it, the outputs of the dead one have come again
            seen = len(crew.members["client"].lines("transaction"))
            crew.members["client"].wait_for("transaction", seen + 20)
            crew.hush()
            drained(proxied.stack.bootstrap, [orders, shop], folder, DRAIN_S)
            crew.finish()
        finally:
            crew.end()
        return judge(broker, [orders, shop], folder, ""), crew


def test_the_product_holds_although_outputs_come_again(proxied: Rig, database: str, tmp_path: Path) -> None:
    verdict, crew = run(proxied, database, tmp_path, None)
    assert verdict.anomalies == []
    assert verdict.figures["records that came again and were dropped"] > 0, "nothing came again"
    assert verdict.figures["messages received by commits that count"] > 20
    assert crew.started == 3


def test_a_product_without_deduplication_is_found_out(proxied: Rig, database: str, tmp_path: Path) -> None:
    build(tmp_path, mutant("duplicates_accepted"))
    folder = tmp_path / "run"
    folder.mkdir()
    verdict, crew = run(proxied, database, folder, os.pathsep.join((str(tmp_path), str(ROOT))))
    for member in crew.members.values():
        assert Path(member.lines("start")[0]["product"]).is_relative_to(tmp_path), "it was another product"
    assert "duplicate" in {anomaly.name for anomaly in verdict.anomalies}


@pytest.mark.nightly
def test_a_short_run_under_faults_holds_and_is_reported(tmp_path: Path) -> None:
    """A moment of `make chaos`: faults of each kind that a shared machine bears."""
    faults = {**KILLS, **PARTITIONS, **REDIS}
    cell = Cell("a moment", 8.0, faults, gap_s=(0.2, 0.6))
    folder = tmp_path / "run"
    folder.mkdir()
    try:
        with rig(PLACES) as servers:
            outcome = Campaign(Ground(servers), cell, "1", folder).run(print)
    except StackError as error:
        missing(error)
    assert outcome.verdict.anomalies == []
    assert outcome.effective.total() >= 3
    assert outcome.verdict.figures["messages sent by sessions"] > 20
    write(tmp_path / "report.html", [outcome], 3, "make chaos SEED=1")
    text = (tmp_path / "report.html").read_text()
    picture = ET.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    assert len(picture.findall("rect")) == len(outcome.faults)
    assert all(words in text for words in ("No anomaly.", "make chaos SEED=1", *outcome.effective))
    assert "http" not in text
