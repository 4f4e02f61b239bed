"""The programs of the README and of the pages, to be run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.kit.servers import Servers


def readme(beginning: str, servers: Servers, database: str, page: str = "README.md") -> str:
    """The program of the README, or of another page, that begins so, for these servers and without endless patience."""
    text = (Path(__file__).parents[2] / page).read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    program: str = next(block for block in blocks if block.startswith(beginning))
    return _here(program, servers, database)


def commands(beginning: str, database: str, page: str = "README.md") -> list[tuple[list[str], str]]:
    """The commands of a page that stand where one begins so, for this database: arguments of `konverse`, and input."""
    text = (Path(__file__).parents[2] / page).read_text("utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    block: str = next(block for block in blocks if block.startswith(beginning))
    found = []
    for line in block.replace("--database sales", f"--database {database}").splitlines():
        words = shlex.split(line, comments=True)
        at = words.index("konverse")
        found.append((words[at + 1 :], f"{words[1]}\n" if at else ""))
    return found


def whole_page(page: str, servers: Servers, database: str) -> str:
    """All programs of a page, as one."""
    text = (Path(__file__).parents[2] / page).read_text("utf-8")
    return "\n".join(_here(block, servers, database) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL))


def _here(program: str, servers: Servers, database: str) -> str:
    """For these servers."""
    for printed, real in (
        ('"kafka://localhost:9092"', repr(f"kafka://{servers.bootstrap}")),
        ('"redis://localhost:6379"', repr(servers.redis_url)),
        ('database="sales"', f"database={database!r}"),
        ('reader("Orders")', 'reader("Orders", timeout=2)'),
    ):
        program = program.replace(printed, real)
    return program
