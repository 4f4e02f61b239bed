"""The published pattern of reused conversations, written with client transactions (behaviours 224, 226, 227)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from uuid import UUID

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.system_messages import DIALOG_TIMER, END_DIALOG, ERROR
from tests.kit.oracle import verify
from tests.kit.pools import STREAM_END, STREAMING, Taker, left_open, open_stream, taking
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, ORDER_SERVICE, SHOP_SERVICE, connected, open_shop, queue_of, until

pytestmark = pytest.mark.stack

SESSIONS: Final = ("north", "south")
SENDERS_EACH: Final = 3
TIMER_S: Final = 0.5
RECYCLED: Final = 6
"""Senders go on until so many conversations have ended."""


class SessionConversations:
    """The table of usp_Send: a row for each session, whose lock a sender holds until its messages have arrived."""

    def __init__(self, broker: Broker) -> None:
        self.sent: list[bytes] = []
        """Bodies whose flush has returned."""
        self.used: dict[str, list[UUID]] = {session: [] for session in SESSIONS}
        """Conversations of each session, in the order in which they were begun."""
        self._broker = broker
        self._rows: dict[str, Dialog] = {}
        self._locks = {session: threading.Lock() for session in SESSIONS}

    def send(self, session: str, body: bytes) -> None:
        """Send on the session's conversation, or begin one and set its timer: usp_Send."""
        with self._locks[session]:
            with self._broker.transaction() as transaction:
                dialog = self._rows.get(session)
                if dialog is None:
                    dialog = transaction.begin(SHOP_SERVICE, ORDER_SERVICE, STREAMING)
                    transaction.set_timer(dialog, TIMER_S)
                transaction.send(dialog, ORDER, body)
            self._broker.flush()
            if session not in self._rows:
                self._rows[session] = dialog
                self.used[session].append(dialog.id)
            self.sent.append(body)

    def handle(self, transaction: Transaction) -> None:
        """Drop the row at DialogTimer and send EndOfStream; end what the order service has ended."""
        for message in transaction:
            if message.type == DIALOG_TIMER:
                self._drop(message.dialog.id)
                transaction.send(message.dialog, STREAM_END)
            elif message.type in (END_DIALOG, ERROR):
                transaction.end(message.dialog)

    def _drop(self, conversation: UUID) -> None:
        for session, lock in self._locks.items():
            with lock:
                if session in self._rows and self._rows[session].id == conversation:
                    del self._rows[session]


@pytest.fixture
def broker(servers: Servers, database: str, instance: str) -> Iterator[Broker]:
    """The shop, open for streams, with a transmission queue of its own."""
    with connected(servers.bootstrap, database, instance=instance) as opened:
        open_shop(opened, partitions=2)
        open_stream(opened)
        yield opened
        assert verify(servers.bootstrap, [queue_of(opened, "Orders"), queue_of(opened, "Shop")]) == []


def test_227_nothing_is_sent_behind_end_of_stream_or_lost_when_transactions_of_threads_share_conversations(
    broker: Broker,
) -> None:
    """And 224, 226: one conversation of a session after another, and no endpoint is left."""
    table, taker = SessionConversations(broker), Taker()

    def send_on(session: str, sender: int) -> int:
        number = 0
        while len(taker.finished) < RECYCLED:
            table.send(session, f"{session} {sender} {number}".encode())
            number += 1
        return number

    with taking(broker, table.handle, "Shop"), taking(broker, taker):
        with ThreadPoolExecutor(len(SESSIONS) * SENDERS_EACH) as threads:
            done = [threads.submit(send_on, session, sender) for session in SESSIONS for sender in range(SENDERS_EACH)]
        assert sum(future.result() for future in done) == len(table.sent)
        until(lambda: left_open(broker) == [], "every endpoint is ended")
    assert taker.behind == []
    assert sorted(taker.bodies) == sorted(table.sent)
    begun = [conversation for used in table.used.values() for conversation in used]
    assert sorted(UUID(bytes=conversation) for conversation in taker.finished) == sorted(begun)
    by_conversation: dict[UUID, set[bytes]] = {}
    for message in taker.taken:
        by_conversation.setdefault(message.dialog.id, set()).add(message.body.split()[0])
    assert by_conversation == {one: {session.encode()} for session, used in table.used.items() for one in used}
