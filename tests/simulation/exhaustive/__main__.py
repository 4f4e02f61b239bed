"""`python -m tests.simulation.exhaustive [--workers 2] [--commits 2] [--restarts 1] [--copies 1] [--json]`.

Visits every state of claim and commit in a world of that size, driven by the product's own classes. When an invariant
is violated, prints a shortest path to the violation and exits with 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, fields

import konverse

from .model import Scope
from .search import Found, search


def main() -> int:
    """Search and show the result; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.exhaustive", description="Visit every state of claim and commit."
    )
    for size in fields(Scope):
        parser.add_argument(f"--{size.name}", type=int, default=size.default, metavar="N", help="default %(default)s")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = vars(parser.parse_args())
    as_json = arguments.pop("json")
    found = search(Scope(**arguments))
    if as_json:
        print(json.dumps({"konverse": konverse.__file__, **asdict(found)}, indent=1))
    else:
        _show(found)
    return 0 if found.violation is None else 1


def _show(found: Found) -> None:
    scope = found.scope
    print(
        f"workers {scope.workers}, commits {scope.commits}, restarts {scope.restarts}, copies {scope.copies}: "
        f"{found.states:,} states, {found.transitions:,} transitions, {found.seconds:.1f} s"
    )
    print(
        f"{found.journals:,} journals of up to {found.records_max} records and {found.commits_max} commits; "
        f"no state is farther than {found.moves_max} moves"
    )
    if found.violation is None:
        print("everything holds")
        return
    for number, move in enumerate(found.path, 1):
        print(f"{number:3}  {move}")
    print(f"     {found.violation}")


if __name__ == "__main__":
    sys.exit(main())
