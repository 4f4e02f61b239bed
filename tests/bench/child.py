"""Runs one function of a case in a new process: `python -m tests.bench.child '<json>'`. The last line has the figures.

A run must not inherit the heap or client threads of another run. The runner starts this module. To profile a run, start
it by hand:

    python -m tests.bench.child '{"function": "tests.bench.send:raw",
        "place": {"bootstrap": "127.0.0.1:9092", "redis_url": "", "name": "trial"}, "load": {"messages": 200000}}'
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Final

from tests.bench.model import Figures, Load, Place, Unwritten

ROOT: Final = Path(__file__).resolve().parents[2]
RUN_S_MAX: Final = 600.0
"""The longest run, Spark's, takes less than a minute. A run of ten minutes has hung."""

TAIL_LINES: Final = 12


class RunFailed(RuntimeError):
    """A run ended without figures."""


def fresh(function: Callable[[Place, Load], Figures], place: Place, load: Load) -> Figures:
    """Call a module's function in a new process and return its figures.

    Raises Unwritten when the function does. In every other failure, raises RunFailed with the end of the standard
    error.
    """
    name = f"{function.__module__}:{function.__qualname__}"
    order = json.dumps({"function": name, "place": asdict(place), "load": asdict(load)})
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.child", order],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that a JVM of the child ends too
    ) as process:
        try:
            said, complained = process.communicate(timeout=RUN_S_MAX)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"{name} was ended after {RUN_S_MAX:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    lines = said.splitlines()
    if process.returncode or not lines:
        tail = "\n".join(complained.splitlines()[-TAIL_LINES:])
        raise RunFailed(f"{name} ended with {process.returncode}:\n{tail}")
    answer: Figures | None = json.loads(lines[-1])
    if answer is None:
        raise Unwritten(name)
    return answer


def main() -> None:
    """Run the function that the argument names."""
    order = json.loads(sys.argv[1])
    module, _, name = order["function"].partition(":")
    function: Callable[[Place, Load], Figures] = getattr(import_module(module), name)
    try:
        answer = function(Place(**order["place"]), Load(**order["load"]))
    except Unwritten:
        answer = None
    print(json.dumps(answer), flush=True)
    os._exit(0)  # clients would take seconds to close


if __name__ == "__main__":
    main()
