"""Changes of the transmission queue from outside, and the errors of clients with transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final

from konverse.bridge.broker import Broker
from konverse.bridge.client import transmission
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KonverseError, OutcomeUnknown, QueueNotFound, TopicMismatch
from konverse.schemas.identifiers import journal_topic, snapshot_topic, transmission_topic
from tests.integration.outside import (
    SAVED,
    TRUNCATED,
    WAITING,
    Row,
    Scene,
    again,
    begins_at,
    cut,
    gone,
    grown,
    is_empty,
    is_saved,
    save_often,
    setting,
)
from tests.integration.outside_columns import QUIET_S, word_for
from tests.kit.oracle import snapshots_of, verify
from tests.kit.shop import DEADLINE_S, ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE, until

HEADING: Final = "The transmission queue"


def _changed(part: str, name: str, value: str, needed: str) -> Row:
    part = f"transmission {part}"
    return Row(WAITING, setting(part, name, value), setting(part, name, needed))


def dropped(scene: Scene) -> None:
    """Follow the errors: drop the queue."""
    with scene.another() as another:
        another.admin.drop_queue("transmission", force=True)


def cut_and_written_again(scene: Scene) -> None:
    """Delete the snapshots, and wait until the owner that runs has noticed and written others."""
    cut("transmission snapshot")(scene)
    topic = snapshot_topic(transmission_topic(scene.broker.settings.instance))
    numbers = range(len(scene.admin.list_topics(topic, timeout=10).topics[topic].partitions))
    until(lambda: not any(is_empty(scene, topic, number) for number in numbers), "the snapshots are written again")


HARMS: Final = {
    "data topic deleted": Row(WAITING, gone("transmission data"), dropped),
    "data topic made again": Row(WAITING, again("transmission data"), dropped),
    "journal deleted": Row(WAITING, gone("transmission journal"), dropped),
    "journal made again": Row(WAITING, again("transmission journal"), dropped),
    "snapshot topic deleted": Row(WAITING, gone("transmission snapshot"), dropped),
    "snapshot topic made again": Row(SAVED, again("transmission snapshot")),
    "records of the snapshot topic deleted": Row(SAVED, cut("transmission snapshot")),
    "records of the snapshot topic deleted after a truncation": Row(TRUNCATED, cut_and_written_again),
    "records deleted": Row(WAITING, cut("transmission data")),
    "records of the journal deleted": Row(WAITING, cut("transmission journal"), dropped),
    "partitions added": Row(WAITING, grown("transmission data", "transmission journal", "transmission snapshot")),
    "`retention.ms` set": _changed("data", "retention.ms", "86400000", "-1"),
    "`retention.bytes` set": _changed("data", "retention.bytes", "100000000", "-1"),
    "journal compacted": _changed("journal", "cleanup.policy", "compact", "delete"),
    "data topic compacted": _changed("data", "cleanup.policy", "compact", "delete"),
    "`max.message.bytes` lowered": _changed("data", "max.message.bytes", "900000", "1000000"),
    "`min.insync.replicas` raised": _changed("data", "min.insync.replicas", "2", "1"),
    "`message.timestamp.type` of the journal changed": _changed(
        "journal", "message.timestamp.type", "CreateTime", "LogAppendTime"
    ),
}
"""Row of the page → the change."""


def prepare(scene: Scene, before: str) -> None:
    """The living sender has made transactions before; an owner has saved its state, or truncated its logs too."""
    with ExitStack() as meanwhile:
        if before in {SAVED, TRUNCATED}:
            save_often(meanwhile)
        if before == TRUNCATED:
            meanwhile.callback(setattr, transmission, "KEEP_MS", transmission.KEEP_MS)
            transmission.KEEP_MS = 0  # type: ignore[misc]  # a constant, for the checkers
        _transact(scene.broker, b"a transaction before")
        queue = scene.broker.operations.transmission_queue()
        assert queue is not None
        if before == SAVED:
            until(lambda: any(_snapshots(scene, queue)), "an owner has saved its state")
        while before == TRUNCATED and not all(_journals(scene, queue)):
            with scene.another(transmit=False) as another:  # its transactions have one of the partitions
                for _ in range(3):
                    _transact(another, b"another one before")
    own = scene.broker._client._transmission
    assert own is not None
    reader = own._reader
    assert reader is not None
    until(lambda: is_saved(reader), "no snapshot is on its way")
    if before == TRUNCATED:  # this process has read its partition's journal to the end
        _transact(scene.broker, b"the last one before")


def _snapshots(scene: Scene, queue: Queue) -> list[int]:
    """Number of snapshots in each partition."""
    return [len(snapshots_of(scene.servers.bootstrap, queue, number)) for number in range(queue.partitions)]


def _journals(scene: Scene, queue: Queue) -> list[int]:
    """First offset of each partition's journal."""
    return [begins_at(scene, journal_topic(queue.topic), number) for number in range(queue.partitions)]


def _transact(broker: Broker, body: bytes) -> None:
    with broker.transaction() as transaction:
        dialog = transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
        transaction.send(dialog, ORDER, body)
    broker.flush()


def _topics(scene: Scene) -> list[str]:
    return [transmission_topic(scene.broker.settings.instance)]


def _said(scene: Scene, call: Callable[[], object]) -> str:
    try:
        call()
    except KonverseError as error:
        return word_for(error, _topics(scene))
    return "goes on"


def _sends(scene: Scene, broker: Broker, body: bytes) -> str:
    def call() -> None:
        _transact(broker, body)
        scene.acknowledged[body] = None

    return _said(scene, call)


def living_sender(scene: Scene) -> str:
    return _sends(scene, scene.broker, b"of a living sender")


def new_sender(scene: Scene) -> str:
    with ExitStack() as exits:
        exits.enter_context(suppress(TopicMismatch, OutcomeUnknown))  # closing repeats earlier errors
        return _sends(scene, exits.enter_context(scene.another()), b"of a new sender")


def next_owner(scene: Scene) -> str:
    """`konverse transmit`."""

    def call() -> None:
        with scene.another() as another, another.transmitter() as reader:
            in_time = threading.Timer(QUIET_S, reader.close)
            in_time.start()
            try:
                for _ in reader:
                    pass
            finally:
                in_time.cancel()

    return _said(scene, call)


def verifies(scene: Scene) -> str:
    findings: list[object] = []

    def call() -> None:
        with scene.another() as another:
            found = another.operations.transmission_queue()
            if found is None:
                raise QueueNotFound
            findings.extend(verify(scene.servers.bootstrap, [found]))

    word = _said(scene, call)
    return {"goes on": "refutes" if findings else "holds"}.get(word, word)


def why(scene: Scene) -> str:
    found: list[object] = []

    def call() -> None:
        with scene.another() as another:
            found.extend(side for sides in another.why(scene.waiting.id) for side in sides)

    word = _said(scene, call)
    return {"goes on": "says"}.get(word, word)


def views(scene: Scene) -> str:
    def call() -> None:
        with scene.another() as another:
            list(another.views.transmission_queue())

    word = _said(scene, call)
    return {"goes on": "says"}.get(word, word)


def way_on(scene: Scene, row: Row) -> str:
    """An administrator follows the errors. Then transactions arrive, acknowledged ones included."""
    if row.mend is not None:
        row.mend(scene)
    if row.mend is not dropped:  # transactions of unknown outcome arrive
        scene.broker.flush(DEADLINE_S)
    with suppress(KonverseError):
        scene.broker.close()
    with scene.another() as another:
        _transact(another, b"behind it")
    wanted = {b"behind it", *scene.acknowledged}
    with scene.another() as another, another.reader("Orders", timeout=DEADLINE_S) as reader:
        for transaction in reader:
            with transaction:
                scene.received += [message.body for message in transaction]
            if wanted <= {*scene.received, *scene.read}:
                return "goes on"
    raise AssertionError(f"{wanted - {*scene.received, *scene.read}} is not received")


PROBES: Final[dict[str, Callable[[Scene], str]]] = {
    "living sender": living_sender,
    "new sender": new_sender,
    "next owner": next_owner,
    "verify": verifies,
    "why": why,
    "views": views,
}
