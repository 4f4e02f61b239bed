"""Sides of conversations in the states of partitions, and which of them may be forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
import typer

from konverse.bridge.admin.leaks import Sides, _check_kept, active
from konverse.bridge.cli.times import seconds
from konverse.bridge.kafka.clients import LogTruncated
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.views.partitions import Folded, StateReader
from konverse.dialog.state.relocations import Stub
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import BadInput, KafkaUnavailable
from konverse.schemas.identifiers import Role, journal_topic
from konverse.schemas.limits import JOURNAL_PART_BYTES_MAX
from konverse.schemas.wire.envelope import HEADER
from konverse.schemas.wire.journal import GENESIS_HASH, Commit, CommitOperations, cut, encode_commit
from tests.kit.builders import Pair, begin_block, identifier
from tests.unit.bridge.test_views import folded

NOW_MS = 1_000_000


def sides_of(pair: Pair, unseen: int = 0) -> Sides:
    """The sides in both partitions of a pair; `unseen` offsets of the target's were not read."""
    home, target = folded(pair.home), folded(pair.target)
    target = target._replace(ahead=target.ahead._replace(unseen=unseen))
    by_name: dict[str, Folded] = {one.queue.name: one for one in (home, target)}
    reader = SimpleNamespace(fold=lambda queue, _partition: by_name[queue.name])
    return Sides(cast("StateReader", reader), [home.queue, target.queue])


def suspects(sides: Sides, since_ms: int = NOW_MS) -> list[tuple[Role, str]]:
    return [(one.side.role, cause.value) for one, cause in sides._suspects(since_ms)]


def silent() -> tuple[Pair, bytes]:
    pair = Pair()
    conversation = pair.begin()
    pair.target.receive(pair.receiver(conversation))
    return pair, conversation


def test_sides_are_listed_with_where_they_live_and_what_waits() -> None:
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


def test_what_was_not_read_to_the_end_accuses_nobody() -> None:
    pair, _ = silent()
    assert suspects(sides_of(pair, unseen=1)) == []


def test_an_end_that_came_lately_was_not_forgotten_yet() -> None:
    pair = Pair()
    (initiator,) = pair.answered("a")
    pair.target.end(pair.receiver(initiator.conversation))
    pair.target.deliver(pair.home)
    sides = sides_of(pair)
    ended = [one.side for one in sides._found if one.side.role is Role.INITIATOR]
    assert suspects(sides, since_ms=ended[0].newest_ms) == []
    assert suspects(sides, since_ms=ended[0].newest_ms + 1) == [(Role.INITIATOR, "end unread")]


def test_what_a_queue_does_not_keep_is_not_asked_for() -> None:
    queue = Queue("Orders", "orders", "queue", 1, b"i" * 16, b"d" * 16, b"j" * 16, keep_ms=60_000)
    _check_kept([queue], 60.0)
    with pytest.raises(BadInput, match=r"queue 'Orders' keeps received messages for 60 s"):
        _check_kept([queue], 61.0)


# -------------------------------------------------------------------------------------------------- the ends of logs


class Logs:
    """Stands in for a `LogReader`: some young records of a data log and a journal."""

    def __init__(self, data: list[bytes | None], journal: list[bytes]) -> None:
        self._headers, self._journal = data, journal
        self.cut = False

    def ends(self, _topic: str, _partition: int) -> tuple[int, int]:
        return 0, max(len(self._headers), len(self._journal))

    def offset_at(self, _topic: str, _partition: int, _timestamp_ms: int) -> int:
        return 0

    def read(self, topic: str, _partition: int, _start: int, _end: int) -> Iterator[tuple[list[Any], int]]:
        if self.cut:
            raise LogTruncated
        if topic == "orders":
            yield [_message(at, header, b"") for at, header in enumerate(self._headers)], len(self._headers)
        else:
            yield [_message(at, None, value) for at, value in enumerate(self._journal)], len(self._journal)


def _message(offset: int, header: bytes | None, value: bytes) -> Any:
    return SimpleNamespace(
        headers=lambda: [] if header is None else [("theirs", b""), (HEADER, header)],
        value=lambda: value,
        timestamp=lambda: (0, NOW_MS),
        offset=lambda: offset,
        error=lambda: None,
    )


def spoken_of(logs: Logs, names: dict[int, bytes]) -> set[bytes]:
    queue = folded(Pair().target).queue
    assert journal_topic(queue.topic, queue.subscription) != queue.topic
    return set().union(*active(cast("LogReader", logs), queue, 0, names, 0))


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


def test_a_log_that_is_cut_while_it_is_read_is_read_again_by_whoever_asks() -> None:
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
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no time"):
        seconds(text)
