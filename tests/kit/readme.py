"""Takes programs from the README, the guide and other pages, so that tests can run them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from textwrap import dedent
from typing import Final

from tests.kit.servers import Servers

ROOT: Final = Path(__file__).parents[2]


def readme(beginning: str, servers: Servers, database: str, page: str | None = None) -> str:
    """The program that begins with `beginning`, adapted to these servers. From the guide, or from `page`."""
    return _here(block_of("python", beginning, page), servers, database)


def block_of(language: str, beginning: str, page: str | None = None) -> str:
    """The first code block that begins with `beginning`: of `page`, or of all pages of the guide."""
    pages = [ROOT / page] if page is not None else sorted((ROOT / "docs" / "guide").glob("*.md"))
    found = (
        dedent(block)
        for path in pages
        for block in re.findall(rf"^ *```{language}\n(.*?)^ *```", path.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    )
    return next(block for block in found if block.startswith(beginning))


def commands(beginning: str, database: str, page: str | None = None) -> list[tuple[list[str], str]]:
    """Arguments and standard input of each `konverse` command in the block that begins with `beginning`."""
    block = block_of("sh", beginning, page)
    found = []
    for line in block.replace("--database sales", f"--database {database}").splitlines():
        words = shlex.split(line, comments=True)
        at = words.index("konverse")
        found.append((words[at + 1 :], f"{words[1]}\n" if at else ""))
    return found


def whole_page(page: str, servers: Servers, database: str) -> str:
    """All programs of a page, joined to one."""
    text = (ROOT / page).read_text("utf-8")
    return "\n".join(_here(block, servers, database) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL))


def _here(program: str, servers: Servers, database: str) -> str:
    """Replace addresses, database and waiting time by those of the test."""
    for printed, real in (
        ('"kafka://localhost:9092"', repr(f"kafka://{servers.bootstrap}")),
        ('"redis://localhost:6379"', repr(servers.redis_url)),
        ('database="sales"', f"database={database!r}"),
        ('reader("Orders")', 'reader("Orders", timeout=2)'),
    ):
        program = program.replace(printed, real)
    return program
