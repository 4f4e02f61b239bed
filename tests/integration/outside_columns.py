"""Attempts of each client after a change of topics, and docs/outside.md's word for the result."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Final

import pytest

from konverse.bridge.client.dialog import Dialog
from konverse.bridge.client.pool.pool import Pool
from konverse.schemas.errors import (
    ConversationEnded,
    DialogNotFound,
    KonverseError,
    OutcomeUnknown,
    PartitionHalted,
    SteppedDown,
    TopicMismatch,
)
from konverse.schemas.system_messages import END_DIALOG, ERROR
from tests.integration.outside import PARKED, READ_SERVICE, Row, Scene, parked
from tests.kit.oracle import read_raw, verify
from tests.kit.shop import DEADLINE_S, ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE, queue_of, until

LOST_CODE: Final = -9719
LOST_LINE: Final = re.compile(r"LOST: the records (\d+) to (\d+) of")
LOST_FINDING: Final = re.compile(r"the records (\d+) to (\d+) were deleted")
QUIET_S: Final = 2.0
SEEN_S: Final = 2.0
"""A running reader notices a change within this time."""
COMMITTED_S: Final = 5.0
"""A running reader commits what it has received within this time."""


def word_for(error: BaseException, topics: list[str]) -> str:
    """The page's word for an error. The error must name its topic."""
    if isinstance(error, TopicMismatch):
        assert any(topic in str(error) for topic in topics), f"names no topic: {error}"
        return "TopicMismatch"
    if isinstance(error, PartitionHalted):
        assert "accept-loss" in str(error) or "force=True" in str(error), f"no way on: {error}"
        return "halts"
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    if isinstance(error, ConversationEnded):
        return "told"
    raise error


def running_reader(scene: Scene) -> str:
    with ExitStack() as exits:
        exits.enter_context(suppress(TopicMismatch, OutcomeUnknown))
        another = exits.enter_context(scene.another())
        dialog = another.begin_dialog(SHOP_SERVICE, READ_SERVICE, ORDERING)
        try:
            dialog.send(ORDER, b"to a reader that runs")
            dialog.flush()
        except (TopicMismatch, OutcomeUnknown):
            scene.running.join(SEEN_S)
            if not scene.ended:
                return "goes on"
        for _ in range(round(DEADLINE_S * 10)):
            if scene.ended:
                return word_for(scene.ended[0], scene.topics)
            if b"to a reader that runs" in scene.read:
                scene.running.join(SEEN_S)
                return word_for(scene.ended[0], scene.topics) if scene.ended else _settled(scene)
            threading.Event().wait(0.1)
    raise AssertionError("neither ended nor received anything")


def _settled(scene: Scene) -> str:
    """Whether the COMMIT of what the running reader has received is in its journal."""
    try:
        scene.reader.settle(COMMITTED_S)
    except (SteppedDown, OutcomeUnknown):
        return "waits"
    except KonverseError as error:
        return word_for(error, scene.topics)
    return "goes on"


def _told(scene: Scene, body: bytes, call: Callable[[bytes], Dialog | None], topics: Sequence[str] = ()) -> str:
    try:
        dialog = call(body)
    except KonverseError as error:
        return word_for(error, [*scene.topics, *topics])
    scene.acknowledged[body] = None if dialog is None else dialog.id
    return "goes on"


def living_sender(scene: Scene) -> str:
    def call(body: bytes) -> Dialog:
        scene.send(scene.living, body)
        return scene.living

    return _told(scene, b"of a living sender", call)


def new_sender(scene: Scene, topics: Sequence[str] = ()) -> str:
    """A new sender's result. An error must name the topic of the queue, or one of `topics`."""
    with ExitStack() as exits:
        exits.enter_context(suppress(TopicMismatch, OutcomeUnknown))  # closing repeats earlier errors
        another = exits.enter_context(scene.another())

        def call(body: bytes) -> Dialog:
            dialog = another.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
            dialog.send(ORDER, body)
            dialog.flush()
            return dialog

        return _told(scene, b"of a new sender", call, topics)


def _pooled(scene: Scene, pool: Pool, body: bytes) -> str:
    def call(body: bytes) -> None:
        pool.send(ORDER, body, key="a key")
        scene.broker.flush()

    return _told(scene, body, call)


def pool(scene: Scene) -> str:
    return _pooled(scene, scene.pool, b"of a pool")


def named_pool(scene: Scene) -> str:
    return _pooled(scene, scene.named, b"of a named pool")


def client_transaction(scene: Scene) -> str:
    def call(body: bytes) -> Dialog:
        with scene.broker.transaction() as transaction:
            dialog = transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
            transaction.send(dialog, ORDER, body)
        scene.broker.flush()
        return dialog

    return _told(scene, b"of a transaction", call)


def why(scene: Scene) -> str:
    """A running reader saves a snapshot when it finds its data deleted; until then `why` cannot fold them."""
    deadline = time.monotonic() + SEEN_S
    said = _why(scene)
    while said == "halts" and time.monotonic() < deadline:
        time.sleep(0.1)
        said = _why(scene)
    return said


def _why(scene: Scene) -> str:
    try:
        found = [side for sides in scene.broker.why(scene.waiting.id) for side in sides]
    except DialogNotFound:
        return "finds none"
    except KonverseError as error:
        return word_for(error, scene.topics)
    assert found
    return "says"


def verifies(scene: Scene) -> str:
    findings = verify(scene.servers.bootstrap, [queue_of(scene.broker, "Orders"), queue_of(scene.broker, "Shop")])
    if not findings:
        return "holds"
    assert all(finding.text for finding in findings)
    return "refutes"


def next_reader(scene: Scene) -> str:
    """The next reader's result. Every acknowledged message is received, or its conversation has failed."""
    try:
        with scene.broker.reader("Orders", timeout=QUIET_S) as reader:
            for transaction in reader:
                with transaction:
                    scene.received += [message.body for message in transaction if message.type == ORDER]
                    scene.failed |= {message.dialog.id for message in transaction if message.type == ERROR}
    except KonverseError as error:
        return word_for(error, scene.topics)
    with scene.broker.reader("Shop", timeout=QUIET_S) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    if message.type == ERROR:
                        scene.failed.add(message.dialog.id)
                    if message.type in (ERROR, END_DIALOG):
                        transaction.end(message.dialog)
    return "goes on"


def said_truly(scene: Scene, row: Row) -> None:
    """Check the page's promise for each message that a sender was told is in Kafka, sent before the change or after it.

    Where a reader has stopped, an administrator first follows its error.
    """
    _mend(scene, row)
    word = next_reader(scene)
    if word == "halts":
        try:
            scene.broker.operations.accept_loss("Orders", 0)
        except PartitionHalted as halted:
            _is_kept_until_dropped(scene, str(halted))
            return
        word = next_reader(scene)
    if word != "goes on":
        assert scene.acknowledged.keys() == scene.before, "no sender of a topic that is gone reports success"
        return
    scene.note_records()
    until(lambda: _silent(scene) <= _lost(scene), "what is not received came back, failed, or is named as lost")
    for dialog in (scene.living, scene.waiting):
        with suppress(KonverseError):
            scene.send(dialog, b"further, " + dialog.id.bytes)
    own = {body for body, conversation in scene.acknowledged.items() if conversation is not None}
    until(lambda: not _silent(scene) & own, "a sender that sends on learns of what was deleted")


def _mend(scene: Scene, row: Row) -> None:
    if row.mend is not None:
        row.mend(scene)
    if not scene.ended:
        until(lambda: _settled(scene) == "goes on", "the running reader has committed what it received")
    if row.before == PARKED:  # the running reader has saved its own
        until(lambda: _parks(scene), "the running reader has saved the message that is parked")
        scene.broker.operations.resume(scene.there.id, queue="Read")
        until(lambda: b"parked" in scene.read, "the message that was parked is received")


def _parks(scene: Scene) -> bool:
    try:
        return parked(scene, "Read") == [1]
    except PartitionHalted:
        return False


def _is_kept_until_dropped(scene: Scene, said: str) -> None:
    """Not even the loss can be accepted: what was flushed is in Kafka, and each reading reports the rest."""
    assert "drop the queue with force=True, create it again" in said
    assert verifies(scene) == "refutes"
    assert why(scene) == "halts"
    bodies = {record.value for record in read_raw(scene.servers.bootstrap, queue_of(scene.broker, "Orders").topic, 0)}
    assert scene.acknowledged.keys() - scene.before <= bodies


def _silent(scene: Scene) -> set[bytes]:
    """Bodies of acknowledged messages that are not received and have not come back, and of which no side has an Error.

    A pool takes the Errors of its conversations itself, and logs each with its code.
    """
    next_reader(scene)  # a pool resends bounced messages
    found = {*scene.received, *scene.read}
    found |= {bounced.body for dialog in (scene.living, scene.waiting) for bounced in dialog.bounced()}
    logged = "".join(line for line in scene.said.lines if f"Code:{LOST_CODE} " in line)
    last = {one.body: one.conversation for one in sorted(scene.logged)}
    failed = {body for body, one in last.items() if one in scene.failed or str(one) in logged}
    return scene.acknowledged.keys() - found - failed


def _lost(scene: Scene) -> set[bytes]:
    """Bodies of conversations of which all records are in a LOST of the reader's log, and in one that verify lists."""
    topic = queue_of(scene.broker, "Orders").topic
    lines = [line for line in scene.said.lines if f" of {topic}/0 were deleted" in line]
    findings = verify(scene.servers.bootstrap, [queue_of(scene.broker, "Orders"), queue_of(scene.broker, "Shop")])
    texts = [finding.text for finding in findings if finding.rule == "lost"]
    lost = _offsets(LOST_LINE, lines) & _offsets(LOST_FINDING, texts)
    here = [one for one in scene.logged if one.topic == topic]
    partial = {one.conversation for one in here if one.offset not in lost}
    return {one.body for one in here if one.conversation not in partial}


def _offsets(pattern: re.Pattern[str], texts: Sequence[str]) -> set[int]:
    found = (match for text in texts for match in pattern.finditer(text))
    return {offset for match in found for offset in range(int(match[1]), int(match[2]) + 1)}


def drop_and_create(scene: Scene) -> str:
    """Create a queue with the same name, send and receive."""
    scene.broker.admin.drop_service(ORDER_SERVICE)
    scene.broker.admin.drop_queue("Orders", force=True)
    scene.broker.admin.create_queue("Orders")
    scene.broker.admin.create_service(ORDER_SERVICE, queue="Orders", contracts=[ORDERING])
    with pytest.raises((TopicMismatch, ConversationEnded)):
        scene.send(scene.waiting, b"to the former queue")
    with scene.another() as another:
        dialog = another.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
        dialog.send(ORDER, b"to the next queue")
        dialog.flush()
        with another.reader("Orders", timeout=DEADLINE_S) as reader, next(reader) as transaction:
            assert [message.body for message in transaction] == [b"to the next queue"]
    return "goes on"


PROBES: Final[dict[str, Callable[[Scene], str]]] = {
    "running reader": running_reader,
    "living sender": living_sender,
    "pool": pool,
    "named pool": named_pool,
    "transaction": client_transaction,
    "new sender": new_sender,
    "why": why,
    "next reader": next_reader,
    "verify": verifies,
    "drop and create": drop_and_create,
}
"""Column of the page → the attempt, in order."""
