"""The demonstration's message when it cannot run."""

from __future__ import annotations

from typing import Any

import pytest
from typer import Exit

from examples import demo
from examples.sales.orders import SHIPPED
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
