"""A client that begins more dialogs than Kafka takes at once waits for room, like one that sends."""

from __future__ import annotations

import pytest

from konverse.schemas.errors import QueueFull, SessionTakenOver
from konverse.schemas.limits import SESSION_RECORD_BYTES, SESSION_WINDOW_BYTES_MAX
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, begin, connected, open_shop

pytestmark = pytest.mark.stack

ROOM_BYTES = 3 * SESSION_RECORD_BYTES


def test_begin_and_set_timer_wait_for_room_and_raise_queue_full_when_there_is_none(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database, send_timeout_s=2) as broker:
        open_shop(broker)
        begin(broker)
        sender = broker._client.sender
        assert sender is not None
        for lane in sender.session.lanes.values():
            lane.room = ROOM_BYTES
        dialogs = [begin(broker) for _ in range(100)]
        for dialog in dialogs:
            dialog.set_timer(3600)
        broker.flush()
        for lane in sender.session.lanes.values():
            lane.room = 0
        with pytest.raises(QueueFull, match=r"have waited 2\.0 s for Kafka.*the call had no effect"):
            begin(broker)
        with pytest.raises(QueueFull, match=r"have waited 2\.0 s for Kafka.*the call had no effect"):
            dialogs[0].set_timer(3600)
        for lane in sender.session.lanes.values():
            lane.room = SESSION_WINDOW_BYTES_MAX
        begin(broker)


def test_waiting_for_room_in_a_session_that_is_over_raises_session_taken_over(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, send_timeout_s=2) as broker:
        open_shop(broker)
        dialog = begin(broker)
        broker.flush()
        sender = broker._client.sender
        assert sender is not None
        for lane in sender.session.lanes.values():
            lane.room = 0
        sender.session.over = SessionTakenOver("somebody has asked for its outcome")
        with pytest.raises(SessionTakenOver):
            begin(broker)
        with pytest.raises(SessionTakenOver):
            dialog.send(ORDER, b"x")
