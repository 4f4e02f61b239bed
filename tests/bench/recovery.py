"""Recovery of an owner with 100,000 live conversations, and the pause of its work for a snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from konverse.bridge.reader.reader import Reader
from konverse.bridge.runtime.collector import prepare_collector
from konverse.dialog.fold.fold import Fold
from konverse.dialog.owner.events import AppendSnapshot, Effect
from konverse.dialog.owner.snapshots import SnapshotMaker
from konverse.schemas.identifiers import LogIdentity
from tests.bench import conversations
from tests.bench.clients import PARTITIONS
from tests.bench.many import open_conversations
from tests.bench.model import Case, Figures, Load, Place, Row, Run


def answered(place: Place, load: Load) -> Figures:
    """A queue with `load.messages` messages of `load.conversations` conversations, all received and answered."""
    conversations.filled(place, load)
    with (
        conversations.connect(place) as broker,
        broker.reader(conversations.QUEUE, batch=1_000, partitions=tuple(range(PARTITIONS)), timeout=5) as reader,
    ):
        for transaction in reader:
            with transaction:
                for message in transaction:
                    transaction.send(message.dialog, conversations.REPLY, message.body)
    return {}


def recovery(place: Place, _load: Load) -> Figures:
    """Seconds from taking over all partitions to the first message in a handler."""
    with conversations.connect(place) as broker:
        (dialog,) = conversations.dialogs(broker, 1)
        dialog.send(conversations.MESSAGE, b"the first one")
        broker.flush()
        began = time.perf_counter()
        with broker.reader(conversations.QUEUE, partitions=tuple(range(PARTITIONS))) as reader:
            _first(reader)
            took = time.perf_counter() - began
            live = sum(len(owner.fold.state.live()) for owner in reader.owners)
            restored = sum(len(owner.snapshots._durable) for owner in reader.owners)
    return {"seconds": took, "live": live, "restored": restored}


def _first(reader: Reader) -> None:
    with next(iter(reader)) as transaction:
        if not list(transaction):
            raise RuntimeError("a transaction without a message")


def pause(place: Place, load: Load) -> Figures:
    """Longest pause of an owner's work for a snapshot of one partition, in milliseconds."""
    prepare_collector()  # as every reader does
    identity = LogIdentity(place.name, 0, bytes(16), bytes(16), bytes(16))
    fold = Fold(identity)
    fold.state = open_conversations(identity, load.conversations)
    fold.head.owner, fold.head.offset = bytes(16), 0
    snapshots = SnapshotMaker(fold)
    longest = _timed(lambda: snapshots.begin(0))
    snapshots.confirm()
    total = longest
    written: list[Effect] = []
    while not any(isinstance(effect, AppendSnapshot) and effect.last for effect in written):
        took = _timed(lambda: written.extend(snapshots.go_on()))
        longest, total = max(longest, took), total + took
    return {"longest_ms": 1e3 * longest, "total_s": total}


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


_LIVE: Final = Load(messages=600_000, conversations=100_000)
_MANY: Final = Load(messages=1_000_000, conversations=1_000_000)
CASES: Final = (
    Case((Row("recovery", "seconds", "s"),), Run(recovery, _LIVE, prepare=answered)),
    Case((Row("snapshot-pause", "longest_ms", "ms"),), Run(pause, _MANY)),
)
