"""The programs of the guide are one program, and it works."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import Any

import pytest

from tests.kit.readme import whole_page
from tests.kit.servers import Servers

pytestmark = pytest.mark.stack


def test_the_programs_of_the_guide_work_from_top_to_bottom(servers: Servers, database: str) -> None:
    program, output = whole_page("docs/guide/README.md", servers, database), io.StringIO()
    names: dict[str, Any] = {}
    with redirect_stdout(output):
        exec(compile(program, "docs/guide/README.md", "exec"), names)
    with names["broker"]:
        printed = output.getvalue()
    assert "8432" in printed, "the number of the error"
    assert "CONVERSING //sales/ShopService" in printed or "DISCONNECTED" in printed, "the views"
    assert [activation.queue for activation in names["app"].activations] == ["Orders"]
