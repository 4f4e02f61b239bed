"""A sending process dies in the middle: acknowledged messages are received once, in order, without gaps."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

import konverse
from konverse.schemas.errors import OutcomeUnknown
from konverse.schemas.identifiers import Role
from tests.kit.oracle import prove_exactly_once, read_queue, sides_of
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, ORDER_SERVICE, answer_once, begin, connected, open_shop, queue_of, send_orders
from tests.kit.workers import Job, Worker

pytestmark = pytest.mark.stack

DIALOGS = 4
MANY = 1_000_000


@pytest.mark.parametrize("acknowledged", [50, 400])
def test_a_sender_killed_midway_leaves_all_acknowledged_messages_and_a_prefix_of_the_rest(
    servers: Servers, database: str, tmp_path: Path, acknowledged: int
) -> None:
    job = Job(servers.bootstrap, database, str(tmp_path / "diary"), work="send", count=MANY, dialogs=DIALOGS)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        with Worker(job) as sender:
            sender.wait_for("acknowledged", acknowledged)
            sender.send_signal(signal.SIGKILL)
            assert sender.wait() == -signal.SIGKILL
        sent = send_orders(broker, dialogs=2, messages=20)
        with broker.reader("Orders", timeout=2) as reader:
            answer_once(reader)
        counts = Counter(event["conversation"] for event in sender.said("acknowledged"))
        numbers = {event["conversation"]: event["dialog"] for event in sender.said("sends")}
        received = sides_of(read_queue(servers.bootstrap, queue_of(broker, "Orders")), Role.TARGET)
        for conversation, number in numbers.items():
            bodies = [body for _, _, body in received[bytes.fromhex(conversation)].accepted]
            assert bodies == [b"order %d" % (number + n * DIALOGS) for n in range(len(bodies))]
            assert len(bodies) >= counts[conversation]
            sent[bytes.fromhex(conversation)] = bodies
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
    assert proof.messages >= acknowledged + 20
    print(f"{proof.messages - 20} messages of the dead sender, {sum(counts.values())} acknowledged")


def test_closing_does_not_wait_for_messages_to_a_dropped_queue(servers: Servers, database: str) -> None:
    broker = konverse.connect(f"kafka://{servers.bootstrap}", database=database)
    open_shop(broker)
    dialog = begin(broker)
    dialog.flush()
    broker.admin.drop_service(ORDER_SERVICE)
    broker.admin.drop_queue("Orders")
    dialog.send(ORDER, b"too late")
    with pytest.raises(
        OutcomeUnknown, match=rf"messages among them: 1 .*the queues of {database}\.{database}\.Orders were dropped"
    ):
        broker.close()
