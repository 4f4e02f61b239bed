"""The files of the guide's page about testing, run by pytest as a user runs them, and the page's commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.kit.commands import run
from tests.kit.readme import ROOT, commands
from tests.kit.servers import Servers
from tests.kit.shop import connected, open_shop

PAGE: Final = "docs/guide/testing.md"
BLOCK: Final = re.compile(r"^```python\n# (\w+\.py)(.*?)^```", re.MULTILINE | re.DOTALL)


def write_files(folder: Path) -> None:
    """Write the page's files. Their blocks begin with a comment that names the file."""
    for name, text in BLOCK.findall((ROOT / PAGE).read_text("utf-8")):
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write("#" + text)


def run_pytest(folder: Path, *arguments: str, **variables: str) -> str:
    """Run pytest in the folder, without the settings of this run; `konverse` is that of this interpreter."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "KONVERSE_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=kept | variables | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("local_servers")
def test_the_tests_of_the_page_pass_on_servers_that_they_start(tmp_path: Path) -> None:
    write_files(tmp_path)
    assert "7 passed" in run_pytest(tmp_path)


@pytest.mark.stack
def test_the_tests_of_the_page_take_the_servers_that_the_environment_names(servers: Servers, tmp_path: Path) -> None:
    write_files(tmp_path)
    addresses = {"KONVERSE_KAFKA": f"kafka://{servers.bootstrap}", "KONVERSE_REDIS": servers.redis_url}
    assert "1 passed" in run_pytest(tmp_path, "-k", "its_price", **addresses)


@pytest.mark.stack
def test_the_commands_of_the_page_verify_a_database_and_refuse_another_name(servers: Servers, database: str) -> None:
    kafka = f"kafka://{servers.bootstrap}"
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
    for arguments, _ in commands("konverse verify", database, PAGE):
        assert run(*arguments, KONVERSE_KAFKA=kafka)[0] == 0
    assert run("verify", "Oders", "--database", database, KONVERSE_KAFKA=kafka)[0] == 2
    away = {"KONVERSE_KAFKA": "kafka://127.0.0.1:1", "KONVERSE_CONNECT_TIMEOUT_S": "1"}
    assert run("verify", "--database", database, **away)[0] == 6
