"""Sides of conversations in the states of partitions, and which of them may be forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
import typer
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

from konverse.bridge.admin.leaks import COMMITS_READ, Sides, _check_kept, active
from konverse.bridge.cli.values import seconds
from konverse.bridge.kafka.clients import LogTruncated
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.views.partitions import Folded, StateReader
from konverse.dialog.state.relocations import Stub
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import AccessDenied, BadInput, KafkaUnavailable
from konverse.schemas.identifiers import Role, journal_topic
from konverse.schemas.limits import JOURNAL_PART_BYTES_MAX
from konverse.schemas.wire.envelope import HEADER
from konverse.schemas.wire.journal import GENESIS_HASH, Commit, CommitOperations, cut, encode_commit
from tests.kit.builders import Pair, begin_block, identifier
from tests.unit.bridge.test_views import folded

NOW_MS = 1_000_000


def sides_of(pair: Pair, unseen: int = 0, *, apart: bool = False) -> Sides:
    """The sides in both partitions of a pair; `unseen` offsets of the target's were not read.

    With `apart` the target is in another database.
    """
    home, target = folded(pair.home), folded(pair.target)
    target = target._replace(ahead=target.ahead._replace(unseen=unseen))
    by_name: dict[str, Folded] = {one.queue.name: one for one in (home, target)}

    def fold(queue: Queue, _partition: int, *, own: bool = True) -> Folded:
        assert own is not (apart and queue.name == target.queue.name)
        return by_name[queue.name]

    queues = [home.queue] if apart else [home.queue, target.queue]
    known = {queue.topic: queue for queue in (home.queue, target.queue)}
    return Sides(cast("StateReader", SimpleNamespace(fold=fold)), queues, known)


def suspects(sides: Sides) -> list[tuple[Role, str]]:
    return [(one.side.role, cause.value) for one, cause in sides._suspects()]


def silent() -> tuple[Pair, bytes]:
    pair = Pair()
    conversation = pair.begin()
    pair.target.receive(pair.receiver(conversation))
    return pair, conversation


def test_a_side_is_judged_together_with_its_peer_in_another_database() -> None:
    pair, conversation = silent()
    assert suspects(sides_of(pair)) == [(Role.INITIATOR, "silent"), (Role.TARGET, "silent")]
    apart = sides_of(pair, apart=True)
    assert suspects(apart) == [(Role.INITIATOR, "silent")]
    assert [one.role for one in apart.all()] == ["initiator"]
    assert [queue.name for queue, _ in apart.elsewhere([conversation])] == ["orders"]
    assert apart.elsewhere([]) == []
    waiting = Pair()
    waiting.begin(messages=1)
    assert suspects(sides_of(waiting, apart=True)) == [], "its message waits at the other side"


def test_sides_whose_peers_may_not_be_read_are_listed_and_not_judged(caplog: pytest.LogCaptureFixture) -> None:
    """Another database may refuse READ on its queues to every user of this one."""
    pair, _ = silent()
    home, target = folded(pair.home), folded(pair.target).queue

    def fold(queue: Queue, _partition: int, *, own: bool = True) -> Folded:
        if not own:
            raise AccessDenied("grant READ on topic orders")
        assert queue == home.queue
        return home

    looking = cast("StateReader", SimpleNamespace(fold=fold))
    sides = Sides(looking, [home.queue], {queue.topic: queue for queue in (home.queue, target)})
    assert [one.role for one in sides.all()] == ["initiator"]
    assert suspects(sides) == []
    (line,) = caplog.messages
    assert line.startswith("orders/0, of another database, was not read")
    assert line.endswith("grant READ on topic orders")


def test_sides_are_listed_with_their_queue_state_and_unread_messages() -> None:
    pair = Pair()
    conversation = pair.begin(messages=2)
    sides = sides_of(pair)
    initiator, target = sides.all()
    assert (initiator.queue, initiator.role, initiator.state, initiator.unread) == ("replies", "initiator", "SO", 0)
    assert (target.queue, target.role, target.state, target.received, target.unread) == ("orders", "target", "CO", 2, 2)
    assert target.conversation == initiator.conversation == UUID(bytes=conversation)
    assert (target.service, target.far_service, target.timer, target.lifetime) == ("store", "shop", None, None)
    assert [*sides.all(folded(pair.target).queue)] == [target]


def test_both_sides_of_a_silent_conversation_are_suspects() -> None:
    pair, _ = silent()
    assert suspects(sides_of(pair)) == [(Role.INITIATOR, "silent"), (Role.TARGET, "silent")]


def test_a_side_whose_peer_is_on_its_way_to_another_partition_is_none() -> None:
    pair, conversation = silent()
    target = pair.receiver(conversation)
    del pair.target.state.sides[Role.TARGET][conversation]
    pair.target.state.table[target.index] = None
    assert suspects(sides_of(pair)) == [(Role.INITIATOR, "never answered")]
    pair.target.state.moves.leave((Role.TARGET, conversation), 0, Stub(pair.home.address, None, None, opened=True))
    assert suspects(sides_of(pair)) == []


def test_logs_not_read_to_their_end_yield_no_suspects() -> None:
    pair, _ = silent()
    assert suspects(sides_of(pair, unseen=1)) == []


def test_an_end_that_is_not_received_makes_a_suspect() -> None:
    pair = Pair()
    (initiator,) = pair.answered("a")
    pair.target.end(pair.receiver(initiator.conversation))
    pair.target.deliver(pair.home)
    assert suspects(sides_of(pair)) == [(Role.INITIATOR, "end unread")]


def test_an_age_beyond_the_retention_of_the_queue_is_refused() -> None:
    queue = Queue("Orders", "orders", "queue", 1, b"i" * 16, b"d" * 16, b"j" * 16, keep_ms=60_000)
    _check_kept([queue], 60.0)
    with pytest.raises(BadInput, match=r"queue 'Orders' keeps received messages for 60 s.*ask for at most 60 s"):
        _check_kept([queue], 61.0)


def test_an_age_beyond_the_retention_of_a_peers_queue_in_another_database_is_refused() -> None:
    """Of a message to the peer, only the logs of that queue may tell."""
    pair, _ = silent()
    sides = sides_of(pair, apart=True)
    sides._elsewhere = [one._replace(queue=replace(one.queue, keep_ms=60_000)) for one in sides._elsewhere]
    kafka: Any = None
    with pytest.raises(BadInput, match=r"queue 'orders' keeps received messages for 60 s.*ask for at most 60 s"):
        sides.leaked(kafka, NOW_MS, 61.0)


# -------------------------------------------------------------------------------------------------- the ends of logs


class Logs:
    """Stands in for a `LogReader`: a data log, and a journal whose records are recent from offset `young` on."""

    def __init__(
        self, data: list[bytes | None], journal: list[bytes], young: int = 0, stamp: tuple[int, int] = (0, 0)
    ) -> None:
        self._headers, self._journal, self._young, self._stamp = data, journal, young, stamp
        self.cut = False

    def ends(self, topic: str, _partition: int) -> tuple[int, int]:
        return 0, len(self._headers if topic == "orders" else self._journal)

    def offset_at(self, topic: str, _partition: int, _timestamp_ms: int) -> int:
        assert topic != "orders", "its records carry the clocks of senders"
        return self._young

    def read(self, topic: str, _partition: int, start: int, end: int) -> Iterator[tuple[list[Any], int]]:
        if self.cut:
            raise LogTruncated
        for at in range(start, end):
            data = topic == "orders"
            header, value = (self._headers[at], b"") if data else (None, self._journal[at])
            yield [_message(at, header, value, self._stamp)], at + 1


def _message(offset: int, header: bytes | None, value: bytes, stamp: tuple[int, int]) -> Any:
    return SimpleNamespace(
        headers=lambda: [] if header is None else [("theirs", b""), (HEADER, header)],
        value=lambda: value,
        timestamp=lambda: stamp,
        offset=lambda: offset,
        error=lambda: None,
    )


def spoken_of(logs: Logs, names: dict[int, bytes], since_ms: int = 0) -> set[bytes]:
    queue = folded(Pair().target).queue
    assert journal_topic(queue.topic, queue.subscription) != queue.topic
    return set().union(*active(cast("LogReader", logs), queue, 0, names, since_ms))


def three() -> list[bytes | None]:
    """Headers of messages on the conversations a, b and c."""
    pair = Pair()
    return [pair.client.message(pair.target.address, identifier(name)) for name in "abc"]


def commit(number: int, ingest_to: int) -> bytes:
    return encode_commit(Commit(1, b"o" * 16, number, GENESIS_HASH, ingest_to, CommitOperations()))


@pytest.mark.parametrize(
    ("journal", "young", "recent"),
    [
        ([commit(1, 2), commit(2, 3)], 1, ["c"]),  # ingested before: a and b
        ([commit(1, 2), commit(2, 3)], 2, []),
        ([commit(1, 2), commit(2, 3)], 0, ["a", "b", "c"]),  # of any age: the journal keeps nothing older
        ([commit(1, 2), b"a stranger", commit(2, 2)], 2, ["c"]),
        ([commit(1, 1), *[commit(2, 0)] * (2 * COMMITS_READ)], 2 * COMMITS_READ + 1, ["b", "c"]),
        ([], 0, ["a", "b", "c"]),
    ],
)
def test_stamps_of_senders_make_data_as_old_as_the_commit_that_has_ingested_them(
    journal: list[bytes], young: int, recent: list[str]
) -> None:
    """Their clocks may be wrong by days."""
    assert spoken_of(Logs(three(), journal, young, (TIMESTAMP_CREATE_TIME, 0)), {}) == {*map(identifier, recent)}


@pytest.mark.parametrize(("stamp_ms", "recent"), [(NOW_MS - 1, ""), (NOW_MS, "abc")])
def test_a_kafka_timestamp_decides_the_age_of_a_record_that_no_owner_has_ingested(stamp_ms: int, recent: str) -> None:
    logs = Logs(three(), [], 0, (TIMESTAMP_LOG_APPEND_TIME, stamp_ms))
    assert spoken_of(logs, {}, NOW_MS) == {*map(identifier, recent)}


def test_conversations_are_active_of_which_data_or_decisions_tell() -> None:
    pair, names = Pair(), {3: identifier("received"), 4: identifier("silent"), 6: identifier("in parts")}
    header = pair.client.message(pair.target.address, identifier("sent"))
    begun = (identifier("begun"), begin_block())
    small = Commit(1, b"o" * 16, 1, GENESIS_HASH, 0, CommitOperations([begun], [3, 5], [4, 4]))
    body = [bytes(JOURNAL_PART_BYTES_MAX // 2)] * 3
    large = Commit(1, b"o" * 16, 2, GENESIS_HASH, 0, CommitOperations(sends=[(6, "reply", body)]))
    parts = cut(large, encode_commit(large))
    assert len(parts) > 1
    logs = Logs([header, None], [encode_commit(small), b"a stranger", *parts])
    assert spoken_of(logs, names) == {identifier(name) for name in ("sent", "received", "begun", "in parts")}


def test_a_log_truncated_during_a_read_raises_an_error_that_asks_for_a_retry() -> None:
    logs = Logs([None], [])
    logs.cut = True
    with pytest.raises(KafkaUnavailable, match="orders/0 was truncated while it was being read; try again"):
        spoken_of(logs, {})


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("90s", 90), ("30m", 1_800), ("1.5h", 5_400), (" 2d ", 172_800)]
)
def test_times_are_written_with_their_unit(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "h", "1w", "-1h", "1h30m", "nan"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a duration"):
        seconds(text)
