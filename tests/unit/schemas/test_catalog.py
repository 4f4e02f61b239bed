"""Objects of a database."""

from __future__ import annotations

import pytest

from konverse.schemas.catalog.objects import Change, Queue, SentBy, Service, decode_change, encode_change
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address, Role
from tests.kit.builders import identifier


@pytest.mark.parametrize(
    ("sent_by", "initiator", "target"),
    [(SentBy.INITIATOR, True, False), (SentBy.TARGET, False, True), (SentBy.ANY, True, True)],
)
def test_sent_by_allows_the_sides_that_it_names(sent_by: SentBy, initiator: bool, target: bool) -> None:
    assert (sent_by.allows(Role.INITIATOR), sent_by.allows(Role.TARGET)) == (initiator, target)


def test_a_queue_knows_the_address_of_its_partitions() -> None:
    incarnation = identifier("incarnation")
    queue = Queue("q", "i.d.q", "queue", 4, incarnation, identifier("data"), identifier("journal"))
    assert queue.address(3) == Address("i.d.q", 3, incarnation[:4])


def test_a_dropped_object_is_a_change_without_a_value() -> None:
    dropped = Change(7, "d", "Service", "s", None)
    assert decode_change(encode_change(dropped)) == dropped


def test_a_service_knows_where_it_was_before() -> None:
    service = Service.of("s", "A", ["c"])
    there = service.on_queue("B")
    assert (there.queue, there.queues_before, there.contracts) == ("B", ("A",), ("c",))
    assert there.on_queue("C").queues_before == ("A", "B")
    assert there.on_queue("A").queues_before == ("B",), "where it is it was not before"
    assert there.on_queue("B") is there


@pytest.mark.parametrize("service", [Service.of("s", "A", ["c"]), Service("s", "B", ("c",), ("A",))])
def test_a_service_is_read_as_it_was_written(service: Service) -> None:
    change = Change(7, "d", "Service", "s", service)
    assert decode_change(encode_change(change)) == change


def test_a_service_that_never_moved_is_written_as_ever() -> None:
    """So that older versions can read these catalogs."""
    data = encode_change(Change(7, "d", "Service", "s", Service.of("s", "A", ["c"])))
    assert data.endswith(b"\x02s\x02A\x02\x02c\x00")


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 40, b"\x00\x02d\x02k\x02n\x0a"])
def test_undecodable_catalog_changes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode_change(data)
