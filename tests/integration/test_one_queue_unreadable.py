"""A queue with deleted topics does not hide the conversations on other queues from operators."""

from __future__ import annotations

from contextlib import suppress

import pytest
from confluent_kafka.admin import AdminClient

from konverse.schemas.errors import DialogNotFound, TopicMismatch
from tests.kit.commands import run
from tests.kit.servers import Servers
from tests.kit.shop import connected, open_shop, pumped, queue_of, sent, until
from tests.kit.topics import delete

pytestmark = pytest.mark.stack


@pytest.mark.parametrize("first", [True, False], ids=["before the others", "behind the others"])
def test_why_and_operators_find_a_conversation_although_another_queue_cannot_be_read(
    servers: Servers, database: str, first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        gone = "A queue that is gone" if first else "Z queue that is gone"
        broker.admin.create_queue(gone)
        dialog = sent(broker, b"0")

        def found() -> set[str]:
            with suppress(DialogNotFound):  # before its BEGIN is ingested
                return {side.queue for side in [*broker.why(dialog.id)][-1]}
            return set()

        with broker.reader("Orders") as orders, broker.reader("Shop") as shop, pumped(orders, shop):
            until(lambda: found() == {"Orders", "Shop"}, "both sides live")
            delete(AdminClient({"bootstrap.servers": servers.bootstrap}), queue_of(broker, gone).topic)
            assert found() == {"Orders", "Shop"}
            assert "a partition was not searched: topic" in caplog.text
            with pytest.raises(TopicMismatch, match="does not exist"):
                broker.operations.resume_all(older_than=0)
            broker.operations.suspend(dialog.id, queue="Orders")
            assert [one.conversation for listed in broker.operations.suspended() for one in listed] == [dialog.id]
            assert [one.conversation for one in broker.operations.resume_all(older_than=0)] == [dialog.id]
            place = ("--kafka", broker.settings.kafka, "--database", database, "--redis", servers.redis_url)
            code, out, _ = run("view", str(dialog.id), *place)
            assert (code, out.count(str(dialog.id))) == (0, 2)
            code, _, err = run("view", gone, *place)
            assert (code, "does not exist" in err) == (7, True)
            broker.operations.end(dialog.id, cleanup=True)
            until(lambda: not (orders.conversations or shop.conversations), "both sides are removed")
        with pytest.raises(TopicMismatch, match="does not exist"):
            list(broker.why(dialog.id))
        with pytest.raises(TopicMismatch, match="does not exist"):
            broker.operations.error_broker_conversations()
