"""An owner's warnings about foreign records, and their frequency."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.owner.alarms import log_alarms
from konverse.bridge.runtime import log_throttle
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.dialog.fold.journal import JournalFeed, JournalRecord
from konverse.dialog.state.recent import Alarm, Forgery, alarm_of, alarm_of_session
from konverse.schemas.identifiers import Address, session_writer
from konverse.schemas.wire.records import Notice, NoticeReason


def owner_of(place: str, journal: JournalFeed) -> Any:
    return SimpleNamespace(fold=SimpleNamespace(head=SimpleNamespace(where=place), journal=journal))


def test_a_stranger_that_writes_on_and_on_is_spoken_of_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    notice = Notice(session_writer(1_000, 7), 3, Address("sales.Orders", 0, b"tag!"), NoticeReason.FORGED)
    forged = alarm_of(Forgery(notice.writer, 5, 7, 9), "sales.Orders/0"), alarm_of_session(notice)
    alarms = [*forged, Alarm("records were lost")]
    said = LogThrottle()
    for place in ("sales.Orders/0", "sales.Orders/1"):
        feed = JournalFeed(place)
        feed.alarms = deque(alarms * 3)
        log_alarms(owner_of(place, feed), "sales.Orders.queue.journal", said)
        assert not feed.alarms
    texts = [alarm.text for alarm in alarms]
    assert caplog.messages == [*texts, *texts[2:] * 2] * 2


def test_a_few_forgeries_at_once_are_logged_each_and_a_flood_is_not(caplog: pytest.LogCaptureFixture) -> None:
    writer, feed = session_writer(1_000, 7), JournalFeed("sales.Orders/0")
    feed.alarms = deque(alarm_of(Forgery(writer, at, at, at + 1), "sales.Orders/0") for at in range(100, 150))
    log_alarms(owner_of("sales.Orders/0", feed), "sales.Orders.queue.journal", LogThrottle())
    assert len(caplog.messages) == 10


def test_undecodable_records_of_a_journal_are_counted_in_one_line_that_names_the_remedy(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, topic = LogThrottle(), "sales.Orders.queue.journal"
    garbage = [JournalRecord(at, b"garbage", at) for at in range(5, 505)]
    before, feed = JournalFeed("sales.Orders/0"), JournalFeed("sales.Orders/0")
    for one in (before, feed):  # the partition is claimed again
        assert not [*one.decisions(garbage)]
        log_alarms(owner_of("sales.Orders/0", one), topic, said)
        assert not one.alarms
    (line,) = caplog.messages
    assert "sales.Orders/0 is undecodable: " in line
    assert "500 records" in line
    assert f"write to topic {topic}, and revoke that right" in line
    monkeypatch.setattr(log_throttle, "AGAIN_S", 0.0)
    later = LogThrottle()
    for at in (600, 601):
        assert not [*feed.decisions([JournalRecord(at, b"garbage", at)])]
        log_alarms(owner_of("sales.Orders/0", feed), topic, later)
    assert [text for text in caplog.messages if "502 records" in text] == caplog.messages[2:]


def test_one_undecodable_record_is_one(caplog: pytest.LogCaptureFixture) -> None:
    feed = JournalFeed("sales.Orders/0")
    assert not [*feed.decisions([JournalRecord(7, b"", 7)])]
    log_alarms(owner_of("sales.Orders/0", feed), "sales.Orders.queue.journal", LogThrottle())
    (line,) = caplog.messages
    assert line.startswith("journal record 7 of sales.Orders/0 is undecodable: ")
    assert "1 record is undecodable so far; it has no effect" in line
