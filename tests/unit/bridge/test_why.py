"""The text about the partition of a conversation."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from konverse.bridge.views.membership import MEMBER, Membership
from konverse.bridge.views.reading_state import describe_unseen, reading_state
from konverse.bridge.views.why import _of_the_partition, _Search, _Side
from konverse.dialog.fold.journal import JournalHead
from konverse.schemas.errors import AccessDenied, KonverseError, PartitionHalted, TopicMismatch
from tests.kit.builders import Pair, log_of
from tests.unit.bridge.test_views import folded

NOW_MS = 1_800_000_000_000


def told(head: JournalHead, waiting: int, membership: Membership = MEMBER) -> list[str]:
    state = reading_state(head, waiting, NOW_MS, 60.0)
    return [*_of_the_partition(state._replace(membership=membership))]


def test_the_text_about_a_partition_without_a_live_owner_says_so() -> None:
    head = JournalHead(log_of())
    head.now_ms = NOW_MS
    assert told(head, 0) == ["Its partition has no owner: no reader of the queue runs."]
    head.clean = False
    assert told(head, 0) == []
    head.now_ms -= 3_600_000
    (dead,) = told(head, 0)
    assert "has written nothing for 3,600 s, and is dead" in dead
    (behind, _) = told(head, 1_234)
    assert "ingested 1,234 offsets of its partition" in behind
    (behind, _) = told(head, 1)
    assert "ingested 1 offset of its partition" in behind


def test_the_text_about_a_silent_owner_says_what_its_consumer_group_tells() -> None:
    head = JournalHead(log_of())
    head.clean, head.now_ms = False, NOW_MS - 42_000
    assert told(head, 0) == []
    assert told(head, 0, Membership(left=True)) == [
        "Its owner has written nothing for 42 s, has left its consumer group, and is dead: start a reader."
    ]
    assert told(head, 0, Membership(unknown="Kafka refuses. Grant it")) == [
        "Whether its owner lives is not known: Kafka refuses. Grant it."
    ]


def test_uningested_offsets_are_mentioned_only_if_there_are_any() -> None:
    assert describe_unseen(0, []) == ""
    assert "in the 1 offset of logs" in describe_unseen(1, [])
    unread = describe_unseen(1_234, ["Orders", "Shop"])
    assert "in the 1,234 offsets of logs that no owner has ingested. No reader runs for 'Orders', 'Shop'" in unread


@pytest.mark.parametrize("error", [PartitionHalted("halted"), TopicMismatch("deleted"), AccessDenied("no right")])
def test_a_side_is_shown_even_if_the_other_one_in_another_database_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: KonverseError
) -> None:
    pair = Pair()
    conversation = pair.begin(messages=1)
    home, target = folded(pair.home).queue, folded(pair.target).queue
    catalog: Any = SimpleNamespace(queues=lambda: {target.topic: target}, database_of=lambda _topic: "other")
    kafka: Any = None
    search = _Search(kafka, catalog, UUID(bytes=conversation))
    endpoint = next(one for one in pair.home.state.live() if one.conversation == conversation)
    search.found.append(_Side("sales", home, 0, endpoint, ["It waits."]))
    search._around[home.address(0)] = []

    def look(*_: object) -> None:
        raise error

    monkeypatch.setattr(search, "look", look)
    with caplog.at_level(logging.WARNING):
        search.look_elsewhere()
    (side,) = search.sides()
    assert (side.role, side.reasons) == ("initiator", ["It waits."])
    assert caplog.messages == [f"orders/0, where the other side lives, was not read: {error}"]
