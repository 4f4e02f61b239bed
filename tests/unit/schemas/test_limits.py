"""The bounds of the product fit together."""

from __future__ import annotations

import pytest

from konverse.schemas import limits
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import DIALOG_TIMER, END_DIALOG, ERROR
from konverse.schemas.wire.journal import Commit, CommitOperations, encode_commit
from konverse.schemas.wire.records import Kind
from konverse.schemas.wire.varint import LOW_MASK
from tests.kit.builders import identifier

KAFKA_DEFAULT_RECORD_BYTES = 1_000_000


def test_every_bound_is_a_positive_number_with_its_unit_last() -> None:
    names = r"BYTES|LENGTH|ENTRIES|RECORDS|PART|ALARMS|GROUPS|WRITERS|CHARACTERS|CODE|TOMBSTONES|HOPS|THREADS|MS"
    units = rf"({names}|ATTEMPTS|READERS|SUSPECTS)"
    bounds = {name: value for name, value in vars(limits).items() if name.isupper()}
    assert len(bounds) > 20
    for name, value in bounds.items():
        assert isinstance(value, int), name
        assert value > 0, name
    assert not [name for name in bounds if not any(unit in name for unit in (*units.strip("()").split("|"), "BUCKETS"))]


def test_the_largest_message_fits_into_a_record_of_kafkas_default_size() -> None:
    header = limits.HEADER_BYTES_MAX + limits.FORWARD_BYTES_MAX
    assert limits.BODY_BYTES_MAX + header + limits.KEY_BYTES_MAX < KAFKA_DEFAULT_RECORD_BYTES


def test_a_transaction_that_joins_a_nearly_full_commit_fits_into_a_record() -> None:
    assert limits.COMMIT_BYTES_TARGET + limits.TRANSACTION_BYTES_MAX < limits.COMMIT_BYTES_MAX


def test_a_handler_can_pass_on_the_largest_message() -> None:
    assert limits.TRANSACTION_BYTES_MAX > limits.BODY_BYTES_MAX


def test_a_commit_of_as_many_groups_as_may_share_it_fits_into_a_record() -> None:
    count = limits.COMMIT_GROUPS_MAX
    operations = CommitOperations(receive_endpoints=[2**40] * count, receive_positions=[2**40] * count)
    data = encode_commit(Commit(1, identifier("o"), 1, bytes(32), 0, operations))
    assert len(data) < limits.COMMIT_BYTES_MAX


@pytest.mark.parametrize("name", [END_DIALOG, ERROR, DIALOG_TIMER])
def test_names_of_system_messages_are_names(name: str) -> None:
    assert len(name.encode()) <= limits.NAME_BYTES_MAX


def test_enums_are_numbered_as_the_avro_schema_orders_them() -> None:
    from konverse.schemas.wire.envelope import ENVELOPE_SCHEMA

    fields = {field["name"]: field["type"] for field in ENVELOPE_SCHEMA["fields"]}
    assert [kind.name for kind in Kind] == [*fields["kind"]["symbols"], Kind.LATER.name]
    assert [role.name for role in Role] == fields["role"]["symbols"]
    assert [*Kind] == [*range(len(Kind))]


def test_a_window_is_larger_than_one_round_of_the_tables() -> None:
    """Otherwise the prediction of counters would be renewed in vain."""
    assert limits.SESSION_WINDOW_BYTES_MAX // limits.SESSION_RECORD_BYTES > LOW_MASK
