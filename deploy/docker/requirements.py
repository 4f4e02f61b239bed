"""Writes two lists for pip, installed before the wheel, so that each gets an image layer of its own.

    extra.txt  the requirements of one extra (Spark, pandas, …) in their pinned versions, to be installed without their
               dependencies: the large packages, whose list seldom changes
    all.txt    all requirements, to be installed with the versions of `constraints.txt`, which change often

Usage: python requirements.py pyproject.toml constraints.txt spark folder
"""

import re
import sys
import tomllib
from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9._-]+")


def main(pyproject: str, constraints: str, extra: str, folder: str) -> None:
    """Read `pyproject` and `constraints`; write both lists into `folder`."""
    project = tomllib.loads(Path(pyproject).read_text(encoding="utf-8"))["project"]
    pins = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", Path(constraints).read_text(encoding="utf-8"), re.MULTILINE))
    of_extra = project["optional-dependencies"][extra]
    _write(Path(folder, "extra.txt"), [_pinned(requirement, pins) for requirement in of_extra])
    _write(Path(folder, "all.txt"), [*project["dependencies"], *of_extra])


def _pinned(requirement: str, pins: dict[str, str]) -> str:
    name = NAME.match(requirement)
    if name is None or name[0] not in pins:
        return requirement
    return f"{name[0]}=={pins[name[0]]}"


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
