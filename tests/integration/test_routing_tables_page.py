"""The program and the commands on the page about classifiers and routing tables work."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from konverse.bridge.cli.main import app
from konverse.routing.classifiers import json_path
from konverse.schemas.catalog.table_entries import Target
from tests.kit.classifying import Letter
from tests.kit.commands import CliRunner
from tests.kit.readme import whole_page
from tests.kit.servers import Servers

PAGE = "docs/routing-tables.md"


@pytest.mark.stack
def test_the_program_of_the_page_works(servers: Servers, database: str) -> None:
    program, output = whole_page(PAGE, servers, database), io.StringIO()
    names: dict[str, Any] = {}
    with redirect_stdout(output):
        exec(compile(program, PAGE, "exec"), names)
    with names["broker"] as broker:
        assert output.getvalue() == "2\n"
        assert names["classify"](Letter(b'{"region": "coast"}')) == Target("//sales/North")
        again = broker.classifier(json_path("$.region", table="Regions"))
        assert again(Letter(b'{"region": "north"}')) == Target("//sales/South")


def test_the_commands_of_the_page_have_the_options_that_it_shows() -> None:
    text = (Path(__file__).parents[2] / PAGE).read_text("utf-8")
    (block,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    for line in block.splitlines():
        _, group, command, *rest = line.split("#")[0].split(">")[0].split()
        shown = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, [group, command, "--help"]).stdout
        for option in (word for word in rest if word.startswith("--")):
            assert option in shown, line
