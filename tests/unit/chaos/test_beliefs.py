"""Beliefs about commits in the history of a process with several readers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from konverse.dialog.owner.staging import Staging
from konverse.dialog.transaction.transaction import Transaction
from tests.chaos.beliefs import Beliefs
from tests.chaos.history import Scribe, read


def staging() -> Staging:
    made = Staging.__new__(Staging)
    made.overtaken = []
    return made


def transaction() -> Transaction:
    return Transaction.__new__(Transaction)


def owner(name: str, of: Staging) -> Any:
    identity = SimpleNamespace(data_topic=name, partition=0)
    flight = SimpleNamespace(commit=SimpleNamespace(number=1))
    return SimpleNamespace(staging=of, identity=identity, claim_id=b"\xaa", _in_flight=flight)


def test_two_owners_that_commit_at_the_same_time_record_their_own_transactions(tmp_path: Path) -> None:
    scribe = Scribe(tmp_path / "client.jsonl", "client")
    beliefs = Beliefs(scribe)
    shop, transmitter = staging(), staging()
    runs = [transaction() for _ in range(4)]
    for number, run in enumerate(runs):
        beliefs.finished(run, f"run {number}")
    shop.overtaken = runs[:1]
    beliefs._on_merge((None, runs[2:]), transmitter)
    beliefs._on_merge((None, runs[:2]), shop)
    beliefs._on_commit([object()], owner("transmission", transmitter), 0)
    beliefs._on_commit([object()], owner("shop", shop), 0)
    scribe.close()
    held = {line["place"]: line["transactions"] for line in read(tmp_path.glob("*.jsonl"))}
    assert held == {"transmission/0": ["run 2", "run 3"], "shop/0": ["run 1"]}
