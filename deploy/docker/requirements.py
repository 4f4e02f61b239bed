"""Print what konverse and one of its extras require, one requirement a line.

The image installs the requirements in a layer of their own, before the wheel: a change of our source then does not
install Spark again. Usage: python requirements.py pyproject.toml spark
"""

import sys
import tomllib
from pathlib import Path


def main(pyproject: str, extra: str) -> None:
    """Read `pyproject` and print its dependencies and those of `extra`."""
    project = tomllib.loads(Path(pyproject).read_text(encoding="utf-8"))["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"][extra]]
    sys.stdout.writelines(f"{requirement}\n" for requirement in requirements)


if __name__ == "__main__":
    main(*sys.argv[1:])
