"""Objects of a database."""

from __future__ import annotations

import pytest

from konverse.schemas.catalog import Change, Queue, SentBy, decode_change, encode_change
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address
from konverse.schemas.records import Role
from tests.kit.builders import identifier


@pytest.mark.parametrize(
    ("sent_by", "initiator", "target"),
    [(SentBy.INITIATOR, True, False), (SentBy.TARGET, False, True), (SentBy.ANY, True, True)],
)
def test_a_contract_says_who_may_send(sent_by: SentBy, initiator: bool, target: bool) -> None:
    assert (sent_by.allows(Role.INITIATOR), sent_by.allows(Role.TARGET)) == (initiator, target)


def test_a_queue_knows_the_address_of_its_partitions() -> None:
    incarnation = identifier("incarnation")
    queue = Queue("q", "i.d.q", "queue", 4, incarnation, identifier("data"), identifier("journal"))
    assert queue.address(3) == Address("i.d.q", 3, incarnation[:4])


def test_a_dropped_object_is_a_change_without_a_value() -> None:
    dropped = Change(7, "d", "Service", "s", None)
    assert decode_change(encode_change(dropped)) == dropped


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 40, b"\x00\x02d\x02k\x02n\x0a"])
def test_what_is_no_change_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode_change(data)
