"""Paths of the stack's files, and the variables of its compose file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
HERE: Final = Path(__file__).resolve().parent
COMPOSE_FILE: Final = ROOT / "deploy" / "compose.yaml"
PAGE: Final = ROOT / "docs" / "docker.md"

VARIABLE: Final = re.compile(r"\$\{(?P<name>\w+):-(?P<default>[^}]*)\}")


def variables() -> dict[str, str]:
    """The variables of the compose file, with their defaults. AssertionError when one has two defaults."""
    found: dict[str, str] = {}
    for match in VARIABLE.finditer(COMPOSE_FILE.read_text(encoding="utf-8")):
        name, default = match["name"], match["default"]
        assert found.setdefault(name, default) == default, f"{name} has two defaults"
    return found
