"""A process's cache of the catalog."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.catalog.catalog import Catalog
from konverse.schemas.catalog.objects import Change, Contract, MessageType, Queue, SentBy, encode_change
from konverse.schemas.errors import NotInContract
from konverse.schemas.identifiers import Role

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
