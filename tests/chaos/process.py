"""The processes of a run: `python -m tests.chaos.process '<part>'`.

An `owner` reads Orders and answers. A `follower` follows Orders and owns nothing. A `client` begins dialogs, sends on
them, ends them, and reads the answers from Shop in a second thread. Each works until it gets a signal:

    SIGUSR2   a client stops sending, and goes on reading
    SIGTERM   finish, write its own folds to the history, end
    SIGQUIT   write the stack of every thread to <process>.stderr
    SIGUSR1   set the clocks' errors from the file <place>.clocks, which later processes of the place read too
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import random
import signal
import sys
import threading
import time
import traceback
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import konverse
from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.reader.reader import Reader
from konverse.dialog.owner.owner import Owner
from konverse.dialog.state.transitions import SENDING
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import (
    ConversationEnded,
    DialogNotFound,
    InvalidState,
    KonverseError,
    OutcomeUnknown,
    QueueFull,
    SteppedDown,
    Unavailable,
)
from konverse.schemas.system_messages import END_DIALOG, ERROR
from tests.kit.shop import NOTE, ORDER, RECEIPT, begin, relocate
from tests.kit.workers import snapshots_every

from .beliefs import Beliefs, place_of, rows_of
from .clock import Clocks
from .follower import follow
from .history import Scribe, brief
from .mail import Mail

GAVE_UP: Final = 3
"""Exit code when Kafka was away for too long. The crew then starts another process."""

IDLE_S: Final = 0.5
ANSWERS_MAX: Final = 3
FLUSH_S: Final = 60.0


@dataclass(frozen=True)
class Part:
    """The task of a process."""

    name: str
    """Unique name of the process; its history is `<folder>/<name>.jsonl`."""
    work: str
    """`owner`, `follower` or `client`."""
    folder: str
    bootstrap: str
    database: str
    seed: int = 0
    batch: int = 10
    dialogs: int = 6
    messages: int = 40
    """Messages on a dialog before it is ended."""
    messages_per_s: float = 60.0
    notes: float = 0.3
    """Share of messages that want no answer."""
    target_ends: float = 0.002
    """Share of the orders after which the owner ends the dialog."""
    together: float = 0.1
    """Share of a client's turns in which it sends on two dialogs in one transaction."""
    looks: float = 0.05
    """Share of a client's turns in which it looks for bounced messages."""
    clerk_writes: float = 0.1
    """Share of the receipts that the owner of Shop answers on the session's dialog."""
    moves: float = 0.01
    """Share of the handler runs after which a conversation is moved to another partition."""
    snapshot_every: int = 100
    """Records and commits between two snapshots. The product's number is too large for a short run."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of `connect`."""
    standby: bool = False
    """Follow the partitions of Orders that others own."""


class Chaotic:
    """A process at work."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.random = random.Random(f"{part.seed} {part.name}")
        self.scribe = Scribe(Path(part.folder) / f"{part.name}.jsonl", part.name)
        self.beliefs = Beliefs(self.scribe)
        self.clocks = Clocks(lambda clock, wrong, by: self.scribe.ok("clock", clock=clock, error_s=wrong, reader=by))
        self.quiet = threading.Event()
        self.stopping = threading.Event()
        self._parent = os.getppid()
        self._runs = 0
        self._unknown: deque[tuple[str, int, Callable[[], bool]]] = deque()

    def run(self) -> None:
        """Connect, and work until a signal ends it."""
        self.beliefs.listen()
        snapshots_every(self.part.snapshot_every)
        self.clocks.install()
        self._move_clocks()
        signal.signal(signal.SIGUSR2, lambda *_: self.quiet.set())
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())
        signal.signal(signal.SIGUSR1, lambda *_: self._move_clocks())
        part = self.part
        with konverse.connect(f"kafka://{part.bootstrap}", database=part.database, **part.settings) as broker:
            self.scribe.ok("start", pid=os.getpid(), product=str(konverse.__file__))
            if part.work == "follower":
                follow(broker, broker.catalog.get(Queue, "Orders"), lambda: self.over, partial(self._tell, "followed"))
                return
            if part.work == "owner":
                self._serve(broker, "Orders", self._answer)
                return
            serving = threading.Thread(target=self._guarded, args=(self._serve, broker, "Shop", self._hear))
            serving.start()
            self._guarded(self._send, broker)
            serving.join()

    @property
    def over(self) -> bool:
        """SIGTERM has come, or the parent process has ended."""
        return self.stopping.is_set() or os.getppid() != self._parent

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """Run a thread whose exception ends the process."""
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001  # any error ends the process
            os._exit(self.ended_by(error))

    def ended_by(self, error: Exception) -> int:
        """Note the error that ends the process; returns the exit code."""
        expected = isinstance(error, Unavailable | OutcomeUnknown)
        self.scribe.info("gave up" if expected else "stopped", reason=f"{type(error).__name__}: {error}")
        if not expected:
            traceback.print_exception(error)
        return GAVE_UP if expected else 1

    def _move_clocks(self) -> None:
        wrong = Path(self.part.folder) / f"{self.part.name.partition('.')[0]}.clocks"
        if wrong.exists():
            for clock, error_s in json.loads(wrong.read_text()).items():
                self.scribe.invoke("clock", clock=clock, error_s=error_s)
                self.clocks.shift(clock, error_s)

    # ------------------------------------------------------------------------------------------------------ reading

    def _serve(self, broker: Broker, queue: str, handle: Callable[[Transaction, Message, _Run], None]) -> None:
        standby = self.part.standby
        with broker.reader(queue, batch=self.part.batch, timeout=IDLE_S, standby=standby) as reader:
            while not self.over:
                for transaction in reader:
                    with transaction:
                        self._handle(transaction, handle)
                    if self.random.random() < self.part.moves:
                        self._move(reader)
                    if self.over:
                        break
            with suppress(SteppedDown):  # raised once for the partitions lost since the reader began
                reader.settle(FLUSH_S)
            reader.settle(FLUSH_S)
            for owner in reader.owners:
                self._tell("state", owner)

    def _handle(self, transaction: Transaction, handle: Callable[[Transaction, Message, _Run], None]) -> None:
        self._runs += 1
        run = _Run(f"{self.part.name}#{self._runs}")
        for message in transaction:
            endpoint = message.dialog
            run.takes.append([endpoint.conversation.hex(), int(endpoint.role), message.sequence, brief(message.body)])
            if message.type in (END_DIALOG, ERROR):
                run.end(transaction, message)
            elif endpoint.state in SENDING:
                handle(transaction, message, run)
        self.beliefs.finished(transaction, run.name)
        self.scribe.invoke("transaction", id=run.name, takes=run.takes, sends=run.sends, ends=run.ends)

    def _answer(self, transaction: Transaction, message: Message, run: _Run) -> None:
        """Answer an order with some receipts, each with a unique nonce, and seldom end the dialog."""
        if message.type == ORDER and not run.ends:
            for number in range(self.random.randint(1, ANSWERS_MAX)):
                run.send(transaction, message, RECEIPT, b"%s/%d" % (uuid.uuid4().hex.encode(), number))
            if self.random.random() < self.part.target_ends:
                run.end(transaction, message)

    def _hear(self, transaction: Transaction, message: Message, run: _Run) -> None:
        """The owner of Shop answers some receipts itself, as a second writer on the session's dialog."""
        if self.random.random() < self.part.clerk_writes:
            run.send(transaction, message, NOTE, uuid.uuid4().hex.encode())

    def _move(self, reader: Reader) -> None:
        """Move a random conversation to a random partition, if it can go there."""
        living = [endpoint.conversation for owner in reader.owners for endpoint in owner.fold.state.live()]
        if not living:
            return
        conversation, to = self.random.choice(living), self.random.randrange(reader.queue.partitions)
        try:
            went = relocate(reader, uuid.UUID(bytes=conversation), to)
        except DialogNotFound:
            went = False
        (self.scribe.ok if went else self.scribe.fail)("move", conversation=conversation.hex(), to=to)

    def _tell(self, op: str, owner: Owner) -> None:
        self.scribe.ok(op, place=place_of(owner), owner=owner.claim_id.hex(), sides=rows_of(owner))

    # ------------------------------------------------------------------------------------------------------ sending

    def _send(self, broker: Broker) -> None:
        part, dialogs = self.part, [_Talk(begin(broker)) for _ in range(self.part.dialogs)]
        mail = Mail(self.scribe, self.random)
        for talk in dialogs:
            self.scribe.ok("begin", conversation=talk.id)
        while not (self.quiet.wait(self.random.uniform(0, 2 / part.messages_per_s)) or self.over):
            if self.random.random() < part.together:
                self._send_together(broker, self.random.sample(dialogs, 2))
                self._learn()
            if self.random.random() < part.looks:
                mail.look()
            place = self.random.randrange(len(dialogs))
            talk = dialogs[place]
            if not self._send_one(talk) or talk.sent >= part.messages:
                self.scribe.invoke("end", conversation=talk.id)
                talk.dialog.end()
                dialogs[place] = _Talk(begin(broker, related_to=talk.dialog))
                mail.expect(talk.dialog, dialogs[place].dialog)
                self.scribe.ok("begin", conversation=dialogs[place].id)
            self._learn()
        try:
            broker.flush(FLUSH_S)
            self.scribe.ok("flush")
        finally:
            self._learn()
            for conversation, n, _ in self._unknown:
                self.scribe.info("send", conversation=conversation, n=n)

    def _send_one(self, talk: _Talk) -> bool:
        """Send one message; False when the dialog is over."""
        body = b"%s %d %s" % (self.part.name.encode(), talk.sent, uuid.uuid4().hex.encode())
        facts = {"conversation": talk.id, "n": talk.sent}
        self.scribe.invoke("send", **facts, body=brief(body))
        try:
            talk.dialog.send(NOTE if self.random.random() < self.part.notes else ORDER, body)
        except (ConversationEnded, QueueFull) as error:
            self.scribe.fail("send", **facts, error=type(error).__name__)
            return isinstance(error, QueueFull)
        session = talk.dialog._sender.session
        self._unknown.append((talk.id, talk.sent, session.acknowledged(talk.dialog._staged)))
        talk.sent += 1
        return True

    def _send_together(self, broker: Broker, talks: list[_Talk]) -> None:
        """Send one or two messages on each dialog, all of them or none."""
        self._runs += 1
        facts: list[tuple[_Talk, int, bytes]] = []
        for talk in talks:
            for number in range(self.random.randint(1, 2)):
                n = talk.sent + number
                facts.append((talk, n, b"%s %d %s" % (self.part.name.encode(), n, uuid.uuid4().hex.encode())))
        for talk, n, body in facts:
            self.scribe.invoke("send", conversation=talk.id, n=n, body=brief(body))
        name = f"{self.part.name}#t{self._runs}"
        self.scribe.invoke("together", id=name, sends=[[talk.id, brief(body)] for talk, _, body in facts])
        try:
            with broker.transaction() as transaction:
                for talk, _, body in facts:
                    transaction.send(talk.dialog, ORDER, body)
        except (ConversationEnded, InvalidState, QueueFull) as error:  # a dialog has ended, or has redirected messages
            for talk, n, _ in facts:
                self.scribe.fail("send", conversation=talk.id, n=n, error=type(error).__name__)
            return
        for talk, n, _ in facts:
            there = talk.dialog._sender.session.acknowledged(talk.dialog._staged)
            self._unknown.append((talk.id, n, there))
            talk.sent += 1

    def _learn(self) -> None:
        """Note the messages that Kafka has acknowledged."""
        for _ in range(len(self._unknown)):
            conversation, n, there = self._unknown.popleft()
            if there():
                self.scribe.ok("send", conversation=conversation, n=n)
            else:
                self._unknown.append((conversation, n, there))


@dataclass
class _Run:
    """A handler run and its actions."""

    name: str
    takes: list[list[Any]] = field(default_factory=list)
    sends: list[list[Any]] = field(default_factory=list)
    ends: list[list[Any]] = field(default_factory=list)

    def send(self, transaction: Transaction, message: Message, message_type: str, body: bytes) -> None:
        """Answer a message."""
        transaction.send(message.dialog, message_type, body)
        self.sends.append([message.dialog.conversation.hex(), int(message.dialog.role), brief(body)])

    def end(self, transaction: Transaction, message: Message) -> None:
        """End the dialog of a message."""
        transaction.end(message.dialog)
        self.ends.append([message.dialog.conversation.hex(), int(message.dialog.role)])


@dataclass
class _Talk:
    """A client's dialog, and the number of messages sent on it."""

    dialog: Dialog
    sent: int = 0

    @property
    def id(self) -> str:
        return self.dialog.id.hex


def main() -> int:
    """Do the part on the command line."""
    process = Chaotic(Part(**json.loads(sys.argv[1])))
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d ms %(levelname)s %(message)s")
    faulthandler.register(signal.SIGQUIT)
    try:
        process.run()
    except KonverseError as error:
        code = process.ended_by(error)
        sys.stderr.write(f"{time.monotonic():.3f} {error!r}\n")
        os._exit(code)  # the other thread may wait for Kafka
    return 0


if __name__ == "__main__":
    sys.exit(main())
