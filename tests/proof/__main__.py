"""`python -m tests.proof [CHECK …]`: run checks and write their rows of docs/proof.md; without a name, list them.

Exit code 0: all checks hold; 1: a check fails; 2: uncommitted changes, or an unknown check.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Final

from tests.proof.checks import CHECKS, PARTS, ROOT, Result
from tests.proof.page import PAGE, with_row

GIB: Final = 1 << 30


def main(names: list[str]) -> int:
    """Returns the exit code."""
    if not names:
        print("\n".join(f"{name:<14} {check.command:<28} {check.means}".rstrip() for name, check in CHECKS.items()))
        return 0
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        print(f"there is no check {unknown[0]!r}; there are {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    written = [f":!{file.relative_to(ROOT)}" for file in (PAGE, PARTS)]
    if _git("status", "--porcelain", "--", ".", *written):
        print("something is not committed, and a check is of a commit: commit it first", file=sys.stderr)
        return 2
    ran = [_run(name, _git("rev-parse", "--short", "HEAD")) for name in names]
    return 0 if all(result.holds for result in ran) else 1


def _run(name: str, commit: str) -> Result:
    began_s, date = time.monotonic(), datetime.now(UTC).date()
    result = CHECKS[name].run(commit)
    minutes = (time.monotonic() - began_s) / 60
    cells = (
        str(date),
        commit,
        _machine(),
        f"{minutes:.0f} min",
        ("holds: " if result.holds else "FAILS: ") + result.words,
    )
    PAGE.write_text(with_row(PAGE.read_text("utf-8"), name, cells), "utf-8")
    print(f"{name}: {cells[-1]} ({cells[-2]})")
    return result


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
