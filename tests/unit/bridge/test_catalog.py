"""A process's cache of the catalog."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.catalog.catalog import FIRST_USER_ID, Catalog
from konverse.bridge.catalog.journal import CatalogLog
from konverse.bridge.kafka import log_reader
from konverse.schemas.catalog.objects import (
    Change,
    Contract,
    MessageType,
    Queue,
    SentBy,
    Validation,
    decode_change,
    encode_change,
)
from konverse.schemas.catalog.priorities import BrokerPriority
from konverse.schemas.catalog.routes import AUTO_CREATED_LOCAL, LOCAL, Route
from konverse.schemas.errors import NotInContract, TopicMismatch
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import DEFAULT

KIND, CONTRACT = "//sales/Order", "//sales/Ordering"


def test_a_lookup_from_before_a_catalog_change_is_not_reused_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka: Any = None
    catalog = Catalog(kafka, "default", "sales")
    monkeypatch.setattr(catalog, "refresh", lambda: None)

    def change(offset: int, kind: str, value: MessageType | Contract) -> None:
        catalog._fold(offset, Change(offset, "sales", kind, value.name, value))

    change(0, "message type", MessageType(KIND))
    change(1, "contract", Contract(CONTRACT, {KIND: SentBy.INITIATOR}))
    get = catalog.get

    def get_while_another_one_changes_it(kind: Any, name: str) -> Any:
        found = get(kind, name)
        if kind is Contract:
            change(2, "contract", Contract(CONTRACT))
        return found

    monkeypatch.setattr(catalog, "get", get_while_another_one_changes_it)
    catalog.check_send(CONTRACT, Role.INITIATOR, KIND)
    monkeypatch.setattr(catalog, "get", get)
    with pytest.raises(NotInContract):
        catalog.check_send(CONTRACT, Role.INITIATOR, KIND)


def test_a_record_with_the_header_of_data_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a change of a known object, nor of a dropped queue."""
    kafka: Any = None
    catalog = Catalog(kafka, "default", "sales")
    queue = Queue("Orders", "default.sales.Orders", "s", 1, bytes(16), bytes(16), bytes(16))

    def written(offset: int, value: Any, *headers: tuple[str, bytes]) -> Any:
        data = encode_change(Change(offset, "sales", "queue", "Orders", value))
        return SimpleNamespace(offset=lambda: offset, value=lambda: data, headers=lambda: [*headers])

    forged = written(1, replace(queue, topic="a stranger's"), ("trace", b"1"), ("konverse", b"an envelope"))
    journal = [written(0, queue, ("trace", b"1")), forged, written(2, None, ("konverse", b"\x00"))]
    monkeypatch.setattr(catalog._log, "added", lambda position: iter([(journal[position:], len(journal))]))
    monkeypatch.setattr(catalog._log, "all", lambda: iter([journal]))
    catalog.refresh()
    assert catalog.known(Queue) == [queue]
    journal.append(written(3, None))
    catalog.refresh()
    assert catalog.known(Queue) == []
    assert catalog.dropped_queue("Orders") == queue


def test_changes_that_cannot_be_read_are_logged_once_and_the_object_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer version may have written them, or a stranger."""
    kafka: Any = None
    catalog = Catalog(kafka, "default", "sales")
    known = encode_change(Change(0, "sales", "message type", KIND, MessageType(KIND)))

    def written(offset: int, data: bytes) -> Any:
        return SimpleNamespace(offset=lambda: offset, value=lambda: data, headers=lambda: None)

    journal = [written(0, known), written(1, b"of a newer version"), written(2, b"of a newer version")]
    monkeypatch.setattr(catalog._log, "added", lambda position: iter([(journal[position:], len(journal))]))
    with caplog.at_level(logging.WARNING):
        catalog.refresh()
    (line,) = caplog.messages
    assert line.startswith("record 1 of topic default.catalog cannot be read as a change")
    assert MessageType(KIND) in catalog.known(MessageType)


def test_catalog_lookups_do_not_wait_for_a_refresh_that_waits_for_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that sends a reader's outputs looks their topics up; it must never wait for Kafka."""
    kafka: Any = None
    catalog = Catalog(kafka, "default", "sales")
    catalog._log.topic_id = bytes(16)
    queue = Queue("Orders", "default.sales.Orders", "s", 1, bytes(16), bytes(16), bytes(16))
    catalog._fold(0, Change(0, "sales", "queue", "Orders", queue))
    asked, answered = threading.Event(), threading.Event()

    def asks(position: int) -> Iterator[tuple[list[Any], int]]:
        asked.set()
        assert answered.wait(30)
        yield [], position

    monkeypatch.setattr(catalog._log, "added", asks)
    reading = threading.Thread(target=catalog.refresh)
    reading.start()
    assert asked.wait(30)
    told = threading.Thread(
        target=lambda: (catalog.queues(), catalog.known(Queue), catalog.broker_id, catalog.get(Queue, "Orders")),
        daemon=True,
    )
    told.start()
    told.join(10)
    waits = told.is_alive()
    answered.set()
    reading.join()
    assert not waits


def test_a_change_that_another_one_overtakes_while_it_is_checked_is_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its lookups do not see a change in between, which has taken the offset that the change expects."""
    kafka: Any = None
    catalog = Catalog(kafka, "default", "sales")
    journal: list[Any] = []

    def append(data: bytes, _what: str = "") -> int:
        offset = len(journal)
        journal.append(SimpleNamespace(offset=lambda: offset, value=lambda: data, headers=lambda: None))
        return offset

    monkeypatch.setattr(catalog._log, "added", lambda position: iter([(journal[position:], len(journal))]))
    monkeypatch.setattr(catalog._log, "append", append)
    monkeypatch.setattr(catalog._log, "check_readable", lambda _what: None)
    catalog._log.topic_id = bytes(16)
    catalog.change("urgent", lambda: BrokerPriority("urgent", level=3), BrokerPriority)
    theirs = [BrokerPriority("urgent", level=9)]

    def decide() -> BrokerPriority:
        known = catalog.get(BrokerPriority, "urgent")
        if theirs:
            append(encode_change(Change(len(journal), "sales", "broker priority", "urgent", theirs.pop())))
        catalog.all(BrokerPriority)
        return replace(known, contract=CONTRACT)

    catalog.change("urgent", decide, BrokerPriority)
    assert catalog.known(BrokerPriority) == [BrokerPriority("urgent", CONTRACT, level=9)]


def test_a_change_reads_the_journal_once_however_much_its_check_looks_up(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka: Any = None
    catalog = Catalog(kafka, "default", "sales")
    catalog._log.topic_id = bytes(16)
    written: list[bytes] = []
    reads: list[int] = []

    def added(position: int) -> Iterator[tuple[list[Any], int]]:
        reads.append(position)
        yield [], position

    monkeypatch.setattr(catalog._log, "added", added)

    def append(data: bytes, _what: str) -> int:
        written.append(data)
        return len(written) - 1

    monkeypatch.setattr(catalog._log, "append", append)

    def decide() -> MessageType:
        assert catalog.find(Queue, "absent") is None
        assert catalog.all(Queue) == []
        return MessageType(KIND)

    catalog.change(KIND, decide, MessageType)
    catalog.change(CONTRACT, lambda: Contract(CONTRACT), Contract)
    assert reads == [0, 0, 1, 2]  # the first change is made again behind the id of the database
    assert [decode_change(record).expected_offset for record in written] == [0, 1, 2]
    assert catalog.get_known(MessageType, KIND) == MessageType(KIND)
    assert catalog.id_of(Contract, CONTRACT) == FIRST_USER_ID + 2


def test_an_alter_keeps_the_number_of_a_built_in_object_and_a_drop_does_not() -> None:
    kafka: Any = None
    catalog = Catalog(kafka, "default", "sales")

    def change(offset: int, kind: str, name: str, value: Any) -> None:
        catalog._fold(offset, Change(offset, "sales", kind, name, value))

    change(0, "route", AUTO_CREATED_LOCAL, Route(AUTO_CREATED_LOCAL, LOCAL, "//sales/OrderService"))
    change(1, "message type", DEFAULT, MessageType(DEFAULT, Validation.EMPTY))
    assert (catalog.id_of(Route, AUTO_CREATED_LOCAL), catalog.id_of(MessageType, DEFAULT)) == (1, 14)
    change(2, "route", AUTO_CREATED_LOCAL, None)
    assert catalog.id_of(Route, AUTO_CREATED_LOCAL) is None, "it is dropped"
    change(3, "route", AUTO_CREATED_LOCAL, Route(AUTO_CREATED_LOCAL, LOCAL))
    change(4, "route", AUTO_CREATED_LOCAL, Route(AUTO_CREATED_LOCAL, LOCAL, "//sales/OrderService"))
    assert catalog.id_of(Route, AUTO_CREATED_LOCAL) == FIRST_USER_ID + 3, "it was created anew, and then altered"


class Ends:
    """Stands in for a `LogReader` of the catalog's topic: its ends, answer by answer; the last answer repeats."""

    def __init__(self, *ends: int) -> None:
        self._ends = [*ends]

    def ends(self, _topic: str, _partition: int) -> tuple[int, int]:
        return 0, self._ends.pop(0) if len(self._ends) > 1 else self._ends[0]

    def read(self, _topic: str, _partition: int, start: int, end: int) -> Iterator[tuple[list[Any], int]]:
        assert (start, end) == (7, 8)
        yield [], end


def test_a_catalog_is_cut_when_kafka_says_so_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has just started may not know the end yet."""
    kafka: Any = None
    log = CatalogLog(kafka, "default")
    monkeypatch.setattr(log_reader, "END_ASKED_EVERY_S", 0)
    monkeypatch.setattr(log._topics, "topic_id", lambda _topic: b"")
    monkeypatch.setattr(log, "_reader", Ends(5, 5, 8))
    assert list(log.added(7)) == [([], 8)]
    monkeypatch.setattr(log, "_reader", Ends(5))
    with pytest.raises(TopicMismatch, match="ends at 5 although it was read to 7"):
        list(log.added(7))
