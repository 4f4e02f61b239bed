"""`python -m tests.bench [--only ROW] [--quick] [--json]`: measure against plain Kafka and plain Spark.

Every case runs several times in turn with its raw counterpart, each run in a new process. The output is one table and
`build/bench.json`. The exit code is 1 when a bound (`bounds`) does not hold or a row could not be measured.

KONVERSE_TEST_KAFKA and KONVERSE_TEST_REDIS name the servers; otherwise a local stack is started.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

from confluent_kafka.admin import AdminClient
from rich.console import Console

from tests.bench.cases import chosen, row_names
from tests.bench.clients import delete_topics
from tests.bench.report import ProgressLine, problems, table, write
from tests.bench.runner import Result, Runner, judge
from tests.bench.servers import servers

WIDTH: Final = 120
"""Width of a table that goes into a file."""


def main() -> int:
    """Run, show and write; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure against plain Kafka and Spark.")
    parser.add_argument("--only", metavar="ROW", choices=row_names(), help=f"one of {', '.join(row_names())}")
    parser.add_argument("--quick", action="store_true", help="a fifth of the load: shows that it runs, measures little")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON instead of the table")
    arguments = parser.parse_args()

    results = run(arguments.only, arguments.quick)
    text = write(results)
    if arguments.json:
        print(text)
    else:
        console = Console()
        if not console.is_terminal:
            console.width = WIDTH
        console.print(table(results))
        for problem in problems(results):
            console.print(problem, highlight=False, markup=False)
    return 0 if all(result.holds for result in results) else 1


def run(only: str | None, quick: bool) -> list[Result]:
    """Measure and judge the chosen rows."""
    cases = [case.smaller() if quick else case for case in chosen(only)]
    line = ProgressLine(sum(case.rounds * (2 if case.raw else 1) for case in cases))
    token = os.urandom(4).hex()
    results: list[Result] = []
    with line.shown(), servers(any(case.redis for case in cases)) as (bootstrap, redis_url):
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # the stack may end first
        runner = Runner(bootstrap, redis_url, token, line.say, lambda name: delete_topics(admin, name))
        for case in cases:
            results += judge(case, runner.measure(case), quick)
    return results


if __name__ == "__main__":
    sys.exit(main())
