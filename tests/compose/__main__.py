"""Start the stack of `deploy/compose.yaml` for real, hold a conversation through it and take it down again.

Exit codes: 0 all checks hold; 1 a check fails; 77 no Docker engine on this machine and none can be installed (1 if
CI=true).
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from confluent_kafka import KafkaException
from redis import RedisError

from tests.compose import host, images
from tests.compose.engine import Engine, engine
from tests.compose.shell import CannotRunHere, CheckFailed, Shell
from tests.compose.stack import SERVERS, Stack

OK: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130
SKIPPED: Final = 77

SPARK: Final = "spark://spark-master:7077"
SPARK_SUBMIT: Final = ["spark-submit", "--master", SPARK, "--conf", "spark.ui.enabled=false"]


@dataclass
class Report:
    """Prints progress and collects the failed checks."""

    began_s: float = field(default_factory=time.monotonic)
    failed: list[str] = field(default_factory=list[str])

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began_s:6.1f} s] {text}", flush=True)

    def must(self, title: str, action: Callable[[], str | None]) -> None:
        """Do a step that all later steps need."""
        self.say(f"{title} ...")
        began_s = time.monotonic()
        outcome = action()
        self.say(f"{title}: {outcome or 'done'} ({time.monotonic() - began_s:.1f} s)")

    def check(self, title: str, action: Callable[[], str | None]) -> None:
        """Do a step. A failure does not stop later steps."""
        try:
            self.must(title, action)
        except (CheckFailed, KafkaException, RedisError) as failed:
            self.failed.append(title)
            self.say(f"{title}: FAILED: {failed}")


def check_image(stack: Stack) -> str:
    """Our image runs its command, not as root."""
    user = stack.run("id", "-u").strip()
    if user == "0":
        raise CheckFailed("our image runs as root")
    stack.run("konverse", "--help")
    return f"`konverse --help` as user {user}"


def check_conversation(stack: Stack) -> str:
    """Plain clients inside the network, then conversations through konverse."""
    return "; ".join(stack.run("python", "-m", "tests.compose.conversation").splitlines())


def check_spark(stack: Stack) -> str:
    """A Spark job routes and answers orders on both workers, and the verifier finds no fault."""
    database = f"routed_{uuid.uuid4().hex[:8]}"
    said = stack.run(*SPARK_SUBMIT, "tests/compose/spark_job.py", database, str(SERVERS["spark-worker"])).strip()
    stack.run("konverse", "verify", "--spark", "--master", SPARK, "--database", database)
    return f"{said}; `konverse verify --spark` finds no fault"


def check_volumes(stack: Stack) -> str:
    """Data outlives the containers of Kafka and Redis."""
    host.write(stack)
    stack.discard("kafka", "redis")
    stack.up()
    return host.read(stack)


def check_stack(report: Report, stack: Stack) -> None:
    """Every check on the running stack."""
    report.check("ports and settings from the host", lambda: host.reach(stack))
    report.check("our image", lambda: check_image(stack))
    report.check("conversation", lambda: check_conversation(stack))
    report.check("Spark", lambda: check_spark(stack))
    report.check("volumes", lambda: check_volumes(stack))


def build(stack: Stack) -> str:
    """Build our image and return its name and size."""
    stack.build()
    size = int(stack.engine.docker("image", "inspect", "--format", "{{.Size}}", stack.image))
    return f"{stack.image}, {size / 1e9:.2f} GB"


@contextmanager
def working_stack(report: Report, docker: Engine, cache: Path, *, keep: bool) -> Iterator[Stack]:
    """The stack, built and healthy; taken down afterwards unless `keep`."""
    provided: dict[str, str] = {}
    image = "konverse:test" if docker.ours else f"konverse:test-{os.getpid()}"
    stack = Stack.named(docker, f"konverse-test-{os.getpid()}", image)
    try:
        report.must("images", lambda: _provide(docker, cache, provided))
        report.must("build (minutes the first time)", lambda: build(stack))
        report.must("up until healthy", stack.up)
        yield stack
    finally:
        if report.failed or sys.exc_info()[0]:
            docker.shell.succeeds(stack.command("logs", "--no-color", "--tail", "60"))
        if keep:
            report.say(f"kept, at {stack.ports}; to end it: sh {_write_end(stack, provided)}")
        else:
            report.check("down", stack.down)
            _clean(docker, provided, image)


def _provide(docker: Engine, cache: Path, provided: dict[str, str]) -> str:
    provided.update(images.provide(docker, cache))
    return ", ".join(f"{image} {how}" for image, how in provided.items())


def _clean(docker: Engine, provided: dict[str, str], image: str) -> None:
    """Remove images. Our own engine keeps recent ones in the cache; any other engine keeps none of ours."""
    if docker.ours:
        docker.shell.succeeds(["docker", "image", "prune", "--force", "--filter", "until=24h"], within_s=300)
    else:
        docker.shell.succeeds(["docker", "image", "rm", "--force", image, *images.made_here(provided)], within_s=300)


def _write_end(stack: Stack, provided: dict[str, str]) -> Path:
    """Write a script that ends a kept stack."""
    made = [] if stack.engine.ours else [stack.image, *images.made_here(provided)]
    folder = stack.shell.log.parent
    commands = [
        *(["export", f"{name}={value}"] for name, value in stack.shell.environment.items()),
        [str(word) for word in stack.command("down", "--volumes")],
        *(["docker", "image", "rm", "--force", image] for image in made),
        *stack.engine.ending(),
        ["rm", "-r", str(folder)],
    ]
    script = folder / "end"
    script.write_text("".join(f"{shlex.join(command)}\n" for command in commands), encoding="utf-8")
    return script


def run(options: argparse.Namespace, folder: Path) -> int:
    """Run everything and clean up; returns the exit code."""
    report = Report()
    shell = Shell(folder / "log")
    cache: Path = options.cache
    cache.mkdir(parents=True, exist_ok=True)
    try:
        with ExitStack() as closing:
            report.say("engine ...")
            docker = closing.enter_context(engine(shell, cache, folder, keep=options.keep))
            report.say(docker.describe())
            stack = closing.enter_context(working_stack(report, docker, cache, keep=options.keep))
            check_stack(report, stack)
    except CannotRunHere as reason:
        report.say(f"cannot run here: {reason}")
        return FAILED if os.environ.get("CI") == "true" else SKIPPED
    except CheckFailed as failed:
        report.say(f"FAILED: {failed}")
        report.failed.append("see above")
    except KeyboardInterrupt:
        report.say("interrupted")
        return INTERRUPTED
    if report.failed:
        report.say(f"failed: {', '.join(report.failed)}; the log is {shell.log}")
        return FAILED
    report.say("all checks hold")
    return OK


def main() -> int:
    """Read the options, work in a temporary folder, and delete it unless it is needed."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "konverse" / "compose"
    parser = argparse.ArgumentParser(prog="python -m tests.compose", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the stack and an engine started here running")
    parser.add_argument("--cache", type=Path, default=default, help="images of an engine started here; %(default)s")
    parser.add_argument("--purge", action="store_true", help="delete the cache and do nothing else")
    options = parser.parse_args()
    if options.purge:
        shutil.rmtree(options.cache, ignore_errors=True)
        return OK
    signal.signal(signal.SIGTERM, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="konverse-compose-"))
    code = FAILED
    try:
        code = run(options, folder)
    finally:
        if code != FAILED and not options.keep:
            shutil.rmtree(folder)
    return code


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM acts like Ctrl-C: everything is taken down first."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
