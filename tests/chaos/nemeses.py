"""Faults for real processes. Each makes sure that it had an effect and describes it; otherwise it does not count.

Each fault reserves the places that it works on (a process, Kafka or Redis) and leaves them intact. So several faults
can be under way at the same time without undoing each other.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import redis

from konverse.deploy.host.processes import ProcessId
from konverse.schemas.errors import StackError
from tests.kit.shop import until

from .clock import TIME_OF_DAY, UPTIME
from .crew import Crew, Member
from .disk import SmallDisk
from .proxy import Action, Proxy, Trap, Way
from .rig import Rig

WORKS: Final = ("owner", "client", "follower")

PAUSE_S: Final = (7.0, 10.0)
"""Longer than the timeouts of the group's session (3 s), of an append to a journal (3 s) and of any request (6 s)."""

PARTITION_S: Final = (0.5, 7.0)
LATENCY_S: Final = (0.02, 0.4)
CATCH_S: Final = 6.0
"""A trap waits this long for a request."""

REPLACED_S: Final = (3.5, 5.5)
"""Time from killing a process to releasing its held request: other owners have its partitions by then."""

DAY_S: Final = 86_400.0
CLOCK_READ_S: Final = 15.0
"""Owners and sessions read the clock all the time, so they do within this."""

SEEN_S: Final = 10.0
GARBLED_KEYS: Final = 50


class NotNow(Exception):
    """There is no target for the fault, or another fault has it."""


@dataclass
class Arena:
    """Everything that faults can hit."""

    rig: Rig
    crew: Crew
    disk: SmallDisk | None
    random: random.Random
    folder: Path
    topics: dict[str, list[str]]
    """Kind of process → topics to which it produces."""
    _busy: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def taken(self, *places: str) -> Iterator[None]:
        """Reserve these places. `NotNow` when another fault has one."""
        with self._lock:
            if self._busy & set(places):
                raise NotNow
            self._busy.update(places)
        try:
            yield
        finally:
            with self._lock:
                self._busy.difference_update(places)

    @contextmanager
    def process(self, *works: str) -> Iterator[tuple[str, Member]]:
        """Reserve a random process at work."""
        found = [each for work in works or WORKS for each in self.crew.at_work(work)]
        for place, member in self.random.sample(found, len(found)):
            try:
                with self.taken(place):
                    if member is self.crew.members[place] and member.alive and member.lines("start"):
                        yield place, member
                        return
            except NotNow:
                continue
        raise NotNow

    def between(self, bounds: tuple[float, float]) -> float:
        """A random length of time."""
        return self.random.uniform(*bounds)


# ----------------------------------------------------------------------------------------------------------- processes


def kill_process(arena: Arena) -> str:
    """Send SIGKILL. Another process takes the place."""
    return _kill(arena, *WORKS)


def kill_follower(arena: Arena) -> str:
    """Send SIGKILL to a follower, perhaps while it makes a snapshot."""
    return _kill(arena, "follower")


def _kill(arena: Arena, *works: str) -> str:
    with arena.process(*works) as (place, member):
        if not member.kill():
            return ""
        time.sleep(arena.between((0, 1)))
        arena.crew.start(place)
        return f"{member.name}: pid {member.pid} is gone"


def pause_process(arena: Arena) -> str:
    """SIGSTOP for longer than every time-out, so that others take over, then SIGCONT."""
    with arena.process() as (_, member):
        member.send(signal.SIGSTOP)
        try:
            until(lambda: member.state() == "T", f"{member.name} to be stopped", SEEN_S)
            length = arena.between(PAUSE_S)
            time.sleep(length)
            stopped = member.state() == "T"
        finally:
            member.send(signal.SIGCONT)
        return f"{member.name} stood still for {length:.1f} s" if stopped else ""


def shift_clock(arena: Arena) -> str:
    """Shift the time of day of a process and its successors by up to a day. The product does not read it."""
    with arena.process("owner", "client") as (place, member):
        error_s = _move_clock(arena, (place, member), TIME_OF_DAY, lambda _: arena.random.uniform(-DAY_S, DAY_S))
        until(lambda: _told(member, TIME_OF_DAY, error_s, "invoke"), f"{member.name} to be told", CLOCK_READ_S)
        return f"the {TIME_OF_DAY} of {member.name} is wrong by {error_s:+.0f} s"


def skip_time(arena: Arena) -> str:
    """A process finds that up to a day has passed, as after a sleep of its machine."""
    with arena.process() as (place, member):
        more_s = arena.random.uniform(1, DAY_S)
        error_s = _move_clock(arena, (place, member), UPTIME, lambda before_s: before_s + more_s)
        lines = until(lambda: _told(member, UPTIME, error_s, "ok"), f"{member.name} to read the {UPTIME}", CLOCK_READ_S)
        return f"the {UPTIME} of {member.name} is wrong by {error_s:+.0f} s, and {lines[0]['reader']} has read it"


def _move_clock(arena: Arena, who: tuple[str, Member], clock: str, change: Callable[[float], float]) -> float:
    """Change a clock's error in the place's file, and return the new error in seconds."""
    place, member = who
    file = arena.folder / f"{place}.clocks"
    errors: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    errors[clock] = error_s = round(change(errors.get(clock, 0.0)), 3)
    file.write_text(json.dumps(errors))
    member.send(signal.SIGUSR1)
    return error_s


def _told(member: Member, clock: str, error_s: float, kind: str) -> list[dict[str, Any]]:
    """History lines about a wrong clock: `invoke` when it is set, `ok` when the product has read it."""
    known = (clock, error_s, kind)
    return [line for line in member.lines("clock") if (line["clock"], line["error_s"], line["type"]) == known]


# ------------------------------------------------------------------------------------------------------------- network


def _cut(proxy: Proxy, ways: tuple[Way, ...], length: float) -> str:
    before = dict(proxy.held_bytes)
    proxy.cut(*ways)
    try:
        time.sleep(length)
        held = sum(proxy.held_bytes[way] - before[way] for way in Way)
    finally:
        proxy.heal()
    sides = " and ".join(way.value for way in ways)
    return f"nothing passed {sides} for {length:.1f} s, {held} bytes were held back" if held else ""


def _ways(choices: random.Random) -> tuple[Way, ...]:
    return choices.choice([(Way.TO_SERVER,), (Way.TO_CLIENT,), tuple(Way)])


def cut_from_kafka(arena: Arena) -> str:
    """A partition between one process and Kafka, in one or both directions."""
    with arena.process() as (place, member):
        effect = _cut(arena.rig.proxies[place], _ways(arena.random), arena.between(PARTITION_S))
        return effect and f"{member.name} and Kafka: {effect}"


def cut_from_redis(arena: Arena) -> str:
    """A partition between all processes and Redis."""
    with arena.taken("redis"):
        effect = _cut(arena.rig.redis, _ways(arena.random), arena.between(PARTITION_S))
        return effect and f"Redis: {effect}"


def slow_down(arena: Arena) -> str:
    """Delay all requests and responses between a process and Kafka."""
    with arena.process() as (place, member):
        proxy, latency, length = arena.rig.proxies[place], arena.between(LATENCY_S), arena.between(PARTITION_S)
        before = proxy.delayed
        proxy.latency_s = latency
        time.sleep(length)
        proxy.latency_s = 0.0
        count = proxy.delayed - before
        return f"{count} requests and answers of {member.name} took {latency * 1e3:.0f} ms longer" if count else ""


def reset_connections(arena: Arena) -> str:
    """Reset every connection of a process to Kafka."""
    with arena.process() as (place, member):
        count = arena.rig.proxies[place].reset()
        return f"{count} connections of {member.name} were reset" if count else ""


# ------------------------------------------------------------------------------------------------------------ requests


@contextmanager
def _trapped(arena: Arena, action: Action) -> Iterator[tuple[str, Member, Trap]]:
    with arena.process(*arena.topics) as (place, member):
        topic = arena.random.choice(arena.topics[arena.crew.parts[place].work])
        trap = arena.rig.proxies[place].trap(Trap(action, topic=topic, nth=arena.random.randint(1, 4)))
        try:
            yield place, member, trap
        finally:
            trap.caught.set()  # later requests pass
            trap.release()


def hold_produce(arena: Arena) -> str:
    """Hold a Produce, kill its process, and release it after a takeover: a zombie's write."""
    with _trapped(arena, Action.HOLD) as (place, member, trap):
        if not trap.caught.wait(CATCH_S) or not member.kill():
            return ""
        arena.crew.start(place)
        length = arena.between(REPLACED_S)
        time.sleep(length)
        trap.release()
        if not trap.answered.wait(SEEN_S):
            return ""
        return f"a Produce of {member.name} to {trap.topic} arrived {length:.1f} s after its process was killed"


def _befall(arena: Arena, action: Action, effect: str) -> str:
    with _trapped(arena, action) as (_, member, trap):
        done = trap.caught if action is Action.DROP else trap.answered
        return f"a Produce of {member.name} to {trap.topic} {effect}" if done.wait(CATCH_S) else ""


def double_produce(arena: Arena) -> str:
    """A Produce arrives twice."""
    return _befall(arena, Action.DOUBLE, "arrived twice")


def drop_produce(arena: Arena) -> str:
    """A Produce is lost without an error."""
    return _befall(arena, Action.DROP, "never arrived")


def mute_produce(arena: Arena) -> str:
    """A Produce arrives, and its response is lost."""
    return _befall(arena, Action.MUTE, "was answered, and the answer did not arrive")


# --------------------------------------------------------------------------------------------------------------- Redis


def _redis(arena: Arena) -> Any:
    return redis.Redis.from_url(arena.rig.stack.redis_url)


def flush_redis(arena: Arena) -> str:
    """FLUSHALL."""
    with arena.taken("redis"), _redis(arena) as client, client.pipeline() as pipeline:
        before, _, after = pipeline.dbsize().flushall().dbsize().execute()
        return f"{before} keys were flushed, DBSIZE {after}" if before and not after else ""


def garble_redis(arena: Arena) -> str:
    """Overwrite keys of the view with garbage of another type."""
    with arena.taken("redis"), _redis(arena) as client:
        keys = sorted(client.scan_iter(match="konverse:*", count=1000))
        chosen = arena.random.sample(keys, min(GARBLED_KEYS, len(keys)))
        for key in chosen:
            with client.pipeline() as pipeline:
                pipeline.delete(key).set(key, arena.random.randbytes(20)).execute()
        return f"{len(chosen)} of {len(keys)} keys hold garbage" if chosen else ""


def kill_redis(arena: Arena) -> str:
    """Send SIGKILL, and restart Redis empty."""
    return _kill_server(arena, "redis")


# --------------------------------------------------------------------------------------------------------------- Kafka


def _kill_server(arena: Arena, name: str) -> str:
    stack = arena.rig.stack
    with arena.taken(name):
        pid = stack.pids[name]
        stack.kill(name)
        gone = ProcessId.of(pid) is None
        time.sleep(arena.between((0, 1)))
        _restart(arena, name)
        return f"{name}: pid {pid} is gone" if gone else ""


def _restart(arena: Arena, name: str) -> None:
    for attempt in range(3):
        try:
            arena.rig.stack.restart(name)
        except StackError:  # the machine may be too busy
            if attempt == 2:
                raise
        else:
            return


def kill_broker(arena: Arena) -> str:
    """Send SIGKILL, and restart Kafka."""
    return _kill_server(arena, "kafka")


def pause_broker(arena: Arena) -> str:
    """SIGSTOP for longer than any client waits for an append, then SIGCONT."""
    with arena.taken("kafka"):
        pid = arena.rig.stack.pids["kafka"]
        length = arena.between(PAUSE_S)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(length)
            stopped = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")
        finally:
            os.kill(pid, signal.SIGCONT)
        return f"Kafka stood still for {length:.1f} s" if stopped else ""


def fill_disk(arena: Arena) -> str:
    """Fill the disk of Kafka's logs until Kafka ends, then make room and restart it."""
    disk, stack = arena.disk, arena.rig.stack
    if disk is None:
        raise NotNow
    with arena.taken("kafka", "redis"):
        pid = stack.pids["kafka"]
        try:
            disk.fill()
            deadline = time.monotonic() + SEEN_S
            while (running := ProcessId.of(pid) is not None) and time.monotonic() < deadline:
                time.sleep(0.1)
        finally:
            disk.free()
        if running:
            return ""
        _restart(arena, "kafka")
        return f"Kafka (pid {pid}) ended for want of room"


Nemesis = Callable[[Arena], str]
"""Makes a fault and returns the observed effect; empty without one. `NotNow` when there is no target."""

KILLS: Final = {"kill a process": kill_process, "kill a follower": kill_follower}
SERVERS: Final = {"kill Kafka": kill_broker, "stop Kafka": pause_broker}
PARTITIONS: Final = {
    "cut off from Kafka": cut_from_kafka,
    "reset connections": reset_connections,
    "slow the network down": slow_down,
}
REDIS: Final = {
    "flush Redis": flush_redis,
    "garble Redis": garble_redis,
    "kill Redis": kill_redis,
    "cut off from Redis": cut_from_redis,
}
PAUSES: Final = {"stop a process": pause_process}
REQUESTS: Final = {
    "hold a Produce": hold_produce,
    "double a Produce": double_produce,
    "drop a Produce": drop_produce,
    "mute a Produce": mute_produce,
}
DISK: Final = {"fill the disk": fill_disk}
CLOCKS: Final = {"shift a clock": shift_clock, "skip some time": skip_time}
