"""The records by which a chaos run is judged when its queues delete records."""

from __future__ import annotations

from datetime import timedelta

import pytest

from konverse.bridge.reader.reader import Reader
from konverse.dialog.owner import snapshots as snapshotting
from konverse.schemas.identifiers import journal_topic
from tests.chaos.archive import Archive
from tests.chaos.history import brief
from tests.chaos.judging import look, what_is_left
from tests.chaos.topics import Topics
from tests.integration.test_snapshots import log_start
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, answer_once, begin, connected, open_shop, queue_of, until, work

pytestmark = pytest.mark.stack

TURNS = 5
MESSAGES = 100


def snapshot_written(reader: Reader) -> bool:
    work(reader)
    return not any(owner.snapshots.busy for owner in reader.owners)


def heard(topics: Topics) -> set[str]:
    """Digests of the accepted orders."""
    return {word.body for talk in topics.talks if talk.role for word in talk.heard if word.body}


def test_records_are_deleted_only_after_the_archive_has_them(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshotting, "SNAPSHOT_EVERY_RECORDS", 60)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, keep=timedelta(0))
        queues = [queue_of(broker, "Orders"), queue_of(broker, "Shop")]
        logs = (queues[0].topic, journal_topic(queues[0].topic))
        with Archive(servers.bootstrap, queues) as archive:
            dialogs = [begin(broker) for _ in range(5)]
            sent = [b"order %d" % number for number in range(TURNS * MESSAGES)]
            unsent = iter(sent)
            for _ in range(TURNS):
                for number in range(MESSAGES):
                    dialogs[number % len(dialogs)].send(ORDER, next(unsent))
                broker.flush()
                with broker.reader("Orders", batch=5, timeout=1) as reader:
                    assert answer_once(reader) == MESSAGES
                    reader.settle()
                    until(lambda: snapshot_written(reader), "the snapshot is written")
            until(lambda: all(log_start(servers, topic) for topic in logs), "both logs are truncated")
            verdicts, topics = look(servers.bootstrap, queues, archive=archive)
            _, left = look(servers.bootstrap, queues)
            assert archive.holes == []
        assert topics.findings == []
        assert heard(topics) == {brief(body) for body in sent}
        assert sum(verdict.consumed for verdict in verdicts) == len(sent)
        assert heard(left) < heard(topics), "the logs themselves do not hold it any more"
        assert what_is_left(servers.bootstrap, queues) == []
