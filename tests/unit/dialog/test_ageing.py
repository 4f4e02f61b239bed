"""When a session must take a new id (protocol.md section 5, rule 5)."""

from __future__ import annotations

import pytest

from konverse.dialog.session.lanes import Lane, Single
from konverse.dialog.session.rotation import LOOK_EVERY_MS, Age, AgeWatch
from konverse.schemas.limits import SESSION_ANSWER_MS_MAX, SESSION_IDLE_MS_MAX, SESSION_LOOK_MS_MAX, WRITER_HORIZON_MS
from tests.kit.builders import address_of, identifier

EARLY_MS = SESSION_IDLE_MS_MAX - SESSION_LOOK_MS_MAX


class Watched:
    """A session's clock and one of its lanes."""

    def __init__(self) -> None:
        self.ageing = AgeWatch(0)
        self.lane = Lane(address_of(), identifier("a session"))
        self.now_ms = 0

    def send(self) -> None:
        self.lane.put(Single(bytes(39), 0, b""), b"", None)
        self.lane.window.sent = self.lane.next

    def after(self, ms: int) -> Age:
        self.now_ms += ms
        return self.ageing.check_age({self.lane.address: self.lane}, self.now_ms)

    def hours(self, count: int) -> list[Age]:
        """The session's age after each hour."""
        return [self.after(3_600_000) for _ in range(count)]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_an_id_grows_old_an_hour_before_nothing_may_be_sent_under_it(watched: Watched) -> None:
    assert watched.after(EARLY_MS) is Age.FRESH
    assert watched.after(LOOK_EVERY_MS) is Age.OLD


def test_a_destination_grows_old_after_its_last_record(watched: Watched) -> None:
    watched.ageing = AgeWatch(0)
    for _ in range(5):
        watched.send()
        watched.lane.window.drained()
        watched.after(SESSION_LOOK_MS_MAX)
    seen = watched.now_ms - SESSION_LOOK_MS_MAX
    assert watched.after(EARLY_MS - SESSION_LOOK_MS_MAX) is Age.OLD, "as the id is"
    assert watched.now_ms - seen == EARLY_MS


def test_a_record_that_was_made_after_a_long_silence_is_doubtful(watched: Watched) -> None:
    watched.send()
    watched.lane.window.drained()
    watched.after(LOOK_EVERY_MS)
    watched.send()
    assert watched.after(SESSION_IDLE_MS_MAX + 1) is Age.DOUBTFUL


def test_a_record_that_counts_is_not_doubtful(watched: Watched) -> None:
    watched.send()
    watched.lane.window.drained()
    watched.after(LOOK_EVERY_MS)
    watched.send()
    watched.lane.window.drained()
    assert watched.after(SESSION_IDLE_MS_MAX + 1) is Age.OLD


def test_a_record_that_is_not_acknowledged_for_a_day_is_doubtful(watched: Watched) -> None:
    watched.send()
    day = SESSION_ANSWER_MS_MAX // 3_600_000
    assert Age.DOUBTFUL not in watched.hours(day)
    assert watched.hours(1) == [Age.DOUBTFUL]
    watched.lane.window.drained()
    assert watched.hours(1) == [Age.DOUBTFUL], "once in doubt, for ever"


def test_records_that_are_acknowledged_later_and_later_are_not_doubtful(watched: Watched) -> None:
    for _ in range(40):
        watched.send()
        watched.lane.window.acked = watched.lane.next - 1
        assert watched.hours(1) != [Age.DOUBTFUL]


def test_the_time_limits_of_a_session_are_less_than_a_tenth_of_the_writer_horizon() -> None:
    assert SESSION_IDLE_MS_MAX + SESSION_ANSWER_MS_MAX + SESSION_LOOK_MS_MAX < WRITER_HORIZON_MS // 10
