"""A Docker engine: a running one, or Debian's, installed and started for this run alone.

An engine of our own has its own socket, and its own storage under the cache folder. So it interferes with no other
engine. Its traces in the kernel (the bridge docker0, rules, forwarding) are removed when it ends.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from tests.compose.shell import CannotRunHere, CommandFailed, Shell, wait_until

FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
TABLES: Final = ("filter", "nat", "raw")
ENGINE_START_S: Final = 60
ENGINE_STOP_S: Final = 60
INSTALL_S: Final = 600


@dataclass(frozen=True)
class Engine:
    """A running engine, and the commands to control it."""

    shell: Shell
    compose: tuple[str, ...]
    """The compose command: `docker compose`, or `docker-compose`."""
    pid: int | None = None
    """The engine's process, when this program has started it."""
    kernel: Kernel | None = None
    """The kernel's settings before this program started the engine."""

    @property
    def ours(self) -> bool:
        """Whether this program has started it."""
        return self.pid is not None

    def ending(self) -> list[list[str]]:
        """The commands that end our engine and restore the kernel."""
        if self.pid is None or self.kernel is None:
            return []
        end = ["sh", "-c", f"kill {self.pid}; while kill -0 {self.pid}; do sleep 0.2; done"]
        return [end, *self.kernel.restoring(self.shell)]

    def docker(self, *words: str | Path, within_s: float = 60) -> str:
        """Run `docker` with `words`."""
        return self.shell.run(["docker", *words], within_s=within_s)

    def describe(self) -> str:
        """Its versions, for the progress lines."""
        version = self.docker("version", "--format", "{{.Server.Version}}").strip()
        compose = self.shell.run([*self.compose, "version", "--short"]).strip()
        started = f", started here as process {self.pid}" if self.pid else ""
        return f"engine {version}, {' '.join(self.compose)} {compose}{started}"


@contextmanager
def engine(shell: Shell, cache: Path, run: Path, *, keep: bool) -> Iterator[Engine]:
    """Find an engine, or start one with its storage in `cache` and its socket in `run`; stop it unless `keep`."""
    if answers(shell):
        yield Engine(shell, find_compose(shell))
        return
    install(shell, {"dockerd": "docker.io"})
    if answers(shell):  # where systemd runs, the package starts its engine
        yield Engine(shell, find_compose(shell))
        return
    with _only_one(cache):
        kernel = Kernel.before(shell)
        own = replace(shell, environment={**shell.environment, "DOCKER_HOST": f"unix://{run / 'docker.sock'}"})
        process = _start(own, cache, run)
        try:
            yield Engine(own, find_compose(own), process.pid, kernel)
        finally:
            if not keep:
                _stop(process)
                for command in kernel.restoring(shell):
                    shell.succeeds(command)


def answers(shell: Shell) -> bool:
    """Whether an engine answers at the address in the environment."""
    return bool(shutil.which("docker")) and shell.succeeds(["docker", "version"], within_s=20)


def find_compose(shell: Shell) -> tuple[str, ...]:
    """Compose as a plug-in of docker, as a program, or as Debian's package."""
    for command in (("docker", "compose"), ("docker-compose",)):
        if shell.succeeds([*command, "version"]):
            return command
    install(shell, {"docker-compose": "docker-compose"})
    return ("docker-compose",)


def install(shell: Shell, packages: dict[str, str]) -> None:
    """Install the Debian packages (values) of missing programs (keys). CannotRunHere where that is impossible."""
    missing = {program: package for program, package in packages.items() if not shutil.which(program)}
    if not missing:
        return
    names = ", ".join(missing)
    if os.geteuid() != 0 or not shutil.which("apt-get") or _distribution() != "debian":
        raise CannotRunHere(f"missing: {names}; only root on Debian can install it here. Start Docker, or be root.")
    apt = ["apt-get", "-o", "DPkg::Lock::Timeout=120", "--yes"]
    installer = replace(shell, environment={**shell.environment, "DEBIAN_FRONTEND": "noninteractive"})
    try:
        installer.run([*apt, "update"], within_s=INSTALL_S)
        # --no-install-recommends leaves out needrestart, which restarts other services.
        installer.run([*apt, "--no-install-recommends", "install", *missing.values()], within_s=INSTALL_S)
    except CommandFailed as failed:
        raise CannotRunHere(f"missing: {names}; apt-get could not install it: {failed}") from failed


def _distribution() -> str:
    with suppress(OSError):
        return platform.freedesktop_os_release().get("ID", "")
    return ""


@contextmanager
def _only_one(cache: Path) -> Iterator[IO[str]]:
    """Lock the cache: two engines on one storage would damage it."""
    with (cache / "lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            raise CannotRunHere(f"another run of tests.compose works in {cache}; wait for its end") from taken
        yield lock


def _start(shell: Shell, cache: Path, run: Path) -> subprocess.Popen[bytes]:
    folders = {"--data-root": cache / "engine", "--exec-root": run / "exec", "--pidfile": run / "dockerd.pid"}
    options = [f"{name}={folder}" for name, folder in folders.items()]
    command = ["dockerd", *options, f"--host={shell.environment['DOCKER_HOST']}"]
    log = run / "dockerd.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=shell.variables(), start_new_session=True
        )
    try:
        wait_until(lambda: _is_up(process, shell, log), within_s=ENGINE_START_S, what="dockerd answers")
    except BaseException:
        _stop(process)
        raise
    return process


def _is_up(process: subprocess.Popen[bytes], shell: Shell, log: Path) -> bool:
    if process.poll() is not None:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
        raise CannotRunHere(f"dockerd ended with code {process.returncode}: {' '.join(last)}")
    return answers(shell)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the engine; it ends its containerd itself."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(ENGINE_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Kernel:
    """The kernel's settings before our engine started."""

    other_engine: bool
    forwarding: str
    forward_policy: str

    @classmethod
    def before(cls, shell: Shell) -> Kernel:
        """Read the kernel's settings. Docker's rules without an engine come from a killed run."""
        rules = _rules(shell, "filter")
        policy = next((line.split()[1] for line in rules if line.startswith(":FORWARD ")), "ACCEPT")
        left = any(line.startswith(":DOCKER") for line in rules)
        return cls(_engine_runs(), FORWARDING.read_text(encoding="ascii").strip(), "ACCEPT" if left else policy)

    def restoring(self, shell: Shell) -> list[list[str]]:
        """The commands that restore rules, forwarding and bridge; none beside another engine."""
        if self.other_engine:
            return []
        return [
            *(command for table in TABLES for command in undo(table, _rules(shell, table))),
            ["iptables", "--policy", "FORWARD", self.forward_policy],
            ["sh", "-c", f"echo {self.forwarding} > {FORWARDING}"],
            ["ip", "link", "delete", "docker0"],
        ]


def undo(table: str, rules: list[str]) -> list[list[str]]:
    """The commands that remove Docker's rules and chains from a table, given as `iptables-save` prints it."""
    iptables = ["iptables", "-t", table]
    chains = [rule.split()[0][1:] for rule in rules if rule.startswith(":DOCKER")]
    appended = [shlex.split(rule)[1:] for rule in rules if rule.startswith("-A ")]
    jumps = [words for words in appended if words[0] not in chains and _is_docker(words)]
    return [
        *([*iptables, "-D", *words] for words in jumps),
        *([*iptables, "-F", chain] for chain in chains),
        *([*iptables, "-X", chain] for chain in chains),
    ]


def _is_docker(words: list[str]) -> bool:
    """Whether a rule is the engine's own. Those of a compose network (br-...) go with the network."""
    return any(word.startswith(("DOCKER", "docker0")) for word in words) and not any(
        word.startswith("br-") for word in words
    )


def _rules(shell: Shell, table: str) -> list[str]:
    with suppress(CommandFailed):
        return shell.run(["iptables-save", "-t", table]).splitlines()
    return []


def _engine_runs() -> bool:
    for name in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):  # it has just ended
            if name.read_text(encoding="utf-8").strip() == "dockerd":
                return True
    return False
