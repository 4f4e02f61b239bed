"""A TCP proxy that parses Kafka's frames. It cuts, delays and resets connections, and holds, drops or doubles requests.

It stands in front of one listener of a broker (or of Redis, with `framed=False`) and runs in a thread of its own; other
threads order the faults. When a cut is healed, held bytes are delivered, even for a client that has died meanwhile.
Networks may do so, and fencing exists for that.
"""

from __future__ import annotations

import asyncio
import re
import threading
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Self

from konverse.deploy.host.ports import HOST
from konverse.schemas.errors import MalformedRecord

from .frames import PRODUCE, SIZE_BYTES, Produced, Request, correlation_of, produced, request_of

START_DEADLINE_S: Final = 10.0
ANSWER_DEADLINE_S: Final = 5.0
"""Time for which the connection of a client that is gone stays open for the broker's responses."""

_CHUNK_BYTES: Final = 65_536


class Way(Enum):
    """A direction through the proxy."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


class Action(Enum):
    """The effect of a trap on its request."""

    HOLD = "hold"
    """The request and everything behind it on its connection wait until `Trap.release`."""
    DROP = "drop"
    """The server never sees it."""
    DOUBLE = "double"
    """The server gets it twice, the client one response."""
    MUTE = "mute"
    """The server gets it, the client never gets the response."""


@dataclass(eq=False)
class Trap:
    """Waits for the n-th request of a kind and acts on it, once."""

    action: Action
    api_key: int = PRODUCE
    topic: str = ""
    """Only requests that produce to this topic; empty: all."""
    records: re.Pattern[bytes] | None = None
    """Only requests with a batch in which this is found; None: all. Batches are not compressed."""
    nth: int = 1
    caught: threading.Event = field(default_factory=threading.Event)
    answered: threading.Event = field(default_factory=threading.Event)
    """The server has answered the caught request; a doubled one twice."""
    request: Request | None = None
    _released: threading.Event = field(default_factory=threading.Event)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None

    def release(self) -> None:
        """Let a held request pass."""
        self._released.set()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    def takes(self, request: Request) -> bool:
        """Whether this is the request to catch. Counts the requests of its kind."""
        if self.caught.is_set() or request.api_key != self.api_key:
            return False
        if (self.topic or self.records) and not any(map(self._wanted, _produced(request))):
            return False
        self.nth -= 1
        if self.nth:
            return False
        self.request = request
        self._loop = asyncio.get_running_loop()
        self.caught.set()
        return True

    async def released(self) -> None:
        """Wait for `release`."""
        while not self._released.is_set():
            await self._wake.wait()

    def _wanted(self, part: Produced) -> bool:
        named = not self.topic or part.topic == self.topic
        return named and (self.records is None or self.records.search(part.records) is not None)


def _produced(request: Request) -> list[Produced]:
    try:
        return [*produced(request)]
    except MalformedRecord:
        return []


@dataclass(eq=False)
class _Link:
    """A connection through the proxy."""

    client: tuple[StreamReader, StreamWriter]
    server: tuple[StreamReader, StreamWriter]
    unanswered: dict[int, Trap | None] = field(default_factory=dict)
    """Correlation → the trap that caught the request."""
    superfluous: dict[int, Trap] = field(default_factory=dict)
    """Correlation of doubled requests: one of their two responses is dropped."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """A response came, or none can come any more."""

    def abort(self) -> None:
        for _, writer in (self.client, self.server):
            writer.transport.abort()


class Proxy:
    """Listens on `port` and forwards to `upstream`, both on the loopback interface."""

    def __init__(self, port: int, upstream: int, *, framed: bool = True) -> None:
        self.port = port
        self.latency_s = 0.0
        """Delay of every request and response."""
        self.held_bytes = dict.fromkeys(Way, 0)
        """Bytes that cuts have held back so far."""
        self.delayed = 0
        """Delayed requests and responses so far."""
        self._upstream = upstream
        self._framed = framed
        self._traps: list[Trap] = []
        self._links: set[_Link] = set()
        self._cut: set[Way] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"proxy {port}", daemon=True)

    def start(self) -> Self:
        """Listen; AssertionError when that fails."""
        self._thread.start()
        if not self._ready.wait(START_DEADLINE_S) or self._failure is not None:
            raise AssertionError(f"the proxy on port {self.port} does not listen") from self._failure
        return self

    def stop(self) -> None:
        """Close every connection and end the thread."""
        for trap in self._traps:
            trap.release()
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(START_DEADLINE_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ------------------------------------------------------------------------------------------------------ faults

    def cut(self, *ways: Way) -> None:
        """Let nothing pass in these directions until `heal`. Connections stay open, and new ones can be made."""
        self._cut.update(ways)

    def heal(self) -> None:
        """Let everything pass again, held bytes first."""
        self._cut.clear()
        self._loop.call_soon_threadsafe(self._healed.set)

    def reset(self) -> int:
        """Reset every connection; returns their number."""
        links = list(self._links)
        for link in links:
            self._loop.call_soon_threadsafe(link.abort)
        return len(links)

    def trap(self, trap: Trap) -> Trap:
        """Set a trap for a request."""
        self._traps.append(trap)
        return trap

    # ------------------------------------------------------------------------------------------------------ thread

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001  # `start` raises it
            self._failure = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping, self._healed = asyncio.Event(), asyncio.Event()
        server = await asyncio.start_server(self._accept, HOST, self.port)
        self._ready.set()
        await self._stopping.wait()
        server.close()
        for link in self._links:
            link.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._join(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            server = await asyncio.open_connection(HOST, self._upstream)
        except OSError:
            writer.transport.abort()
            return
        link = _Link((reader, writer), server)
        self._links.add(link)
        back = asyncio.create_task(self._to_client(link))
        try:
            await self._to_server(link)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._all_answered(link), ANSWER_DEADLINE_S)
            server[1].close()
            await back
        finally:
            back.cancel()
            self._links.discard(link)
            link.abort()

    async def _to_server(self, link: _Link) -> None:
        """Forward until the client closes."""
        reader, writer = link.client[0], link.server[1]
        with suppress(OSError, asyncio.IncompleteReadError):
            while chunk := await self._read(reader):
                times = 1
                if self._framed:
                    times = await self._judge(link, chunk)
                await self._pass(Way.TO_SERVER, len(chunk))
                writer.write(chunk * times)
                await writer.drain()

    async def _judge(self, link: _Link, frame: bytes) -> int:
        """Return how often to forward the request, after waiting for a trap that holds it."""
        try:
            request = request_of(frame[SIZE_BYTES:])
        except MalformedRecord:
            return 1
        trap = next((trap for trap in self._traps if trap.takes(request)), None)
        if trap is not None and trap.action is Action.DROP:
            return 0
        link.unanswered[request.correlation] = trap
        if trap is None:
            return 1
        if trap.action is Action.HOLD:
            await trap.released()
        if trap.action is not Action.DOUBLE:
            return 1
        link.superfluous[request.correlation] = trap
        return 2

    async def _to_client(self, link: _Link) -> None:
        """Forward until the server closes, even when the client is gone."""
        reader, writer = link.server[0], link.client[1]
        with suppress(OSError, asyncio.IncompleteReadError):
            while chunk := await self._read(reader):
                if self._framed and not self._answers(link, chunk):
                    continue
                await self._pass(Way.TO_CLIENT, len(chunk))
                if writer.is_closing():
                    continue
                with suppress(OSError):
                    writer.write(chunk)
                    await writer.drain()
        link.changed.set()
        writer.close()

    def _answers(self, link: _Link, frame: bytes) -> bool:
        """Whether the client gets this response."""
        number = correlation_of(frame[SIZE_BYTES:])
        link.changed.set()
        if number in link.superfluous and number not in link.unanswered:
            link.superfluous.pop(number).answered.set()
            return False
        trap = link.unanswered.pop(number, None)
        if trap is not None and number not in link.superfluous:
            trap.answered.set()
        return trap is None or trap.action is not Action.MUTE

    @staticmethod
    async def _all_answered(link: _Link) -> None:
        while (link.unanswered or link.superfluous) and not link.server[0].at_eof():
            link.changed.clear()
            await link.changed.wait()

    async def _read(self, reader: StreamReader) -> bytes:
        if not self._framed:
            return await reader.read(_CHUNK_BYTES)
        size = await reader.readexactly(SIZE_BYTES)
        return size + await reader.readexactly(int.from_bytes(size, "big"))

    async def _pass(self, way: Way, size: int) -> None:
        if self.latency_s:
            self.delayed += 1
            await asyncio.sleep(self.latency_s)
        if way in self._cut:
            self.held_bytes[way] += size
            while way in self._cut:
                self._healed.clear()
                await self._healed.wait()
