"""Journal records that contradict themselves."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from fastavro import schemaless_writer

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.limits import COMMIT_BYTES_MAX
from konverse.schemas.wire.journal import (
    JOURNAL_SCHEMA,
    Claim,
    Commit,
    CommitOperations,
    decode,
    encode_claim,
    encode_commit,
)
from tests.kit.avro_journal import commit_to_avro
from tests.kit.builders import identifier


def commit(**columns: Any) -> Commit:
    return Commit(3, identifier("o"), 9, bytes(32), 77, CommitOperations(**columns))


def written(changes: dict[str, Any]) -> bytes:
    """A commit of two outputs and one receive, with some of its Avro fields changed."""
    plain = commit(
        receive_endpoints=[0],
        receive_positions=[4],
        sends=[(0, "a", [b"xx"]), (1, "b", [b"y"])],
    )
    out = BytesIO()
    schemaless_writer(out, JOURNAL_SCHEMA, ("konverse.Commit", commit_to_avro(plain) | changes), strict=True)
    return out.getvalue()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"receive_endpoints": b""}, "receive columns differ"),
        ({"receive_positions": bytes(16)}, "receive columns differ"),
        ({"send_endpoints": bytes(8)}, "send columns differ"),
        ({"send_types": bytes(2)}, "send columns differ"),
        ({"send_sizes": bytes(8)}, "bodies do not have the sizes"),
        ({"send_bodies": b"xxyz"}, "bodies do not have the sizes"),
        ({"send_types": b"\x00\x00\x02\x00"}, "names a message type which it does not list"),
        ({"types": []}, "names a message type which it does not list"),
        ({"receive_endpoints": bytes(7)}, "not Avro"),
        ({"send_sizes": bytes(3)}, "not Avro"),
    ],
)
def test_columns_that_do_not_fit_together_are_malformed(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(MalformedRecord, match=reason):
        decode(written(changes))


def test_columns_that_fit_together_are_not() -> None:
    record = decode(written({}))
    assert isinstance(record, Commit)
    assert record.operations.sends == [(0, "a", [b"xx"]), (1, "b", [b"y"])]


@pytest.mark.parametrize(
    ("sends", "read"),
    [
        ([(7, "a", [b"1"]), (7, "a", [b"2"])], [(7, "a", [b"1", b"2"])]),
        ([(7, "a", [b"1"]), (7, "b", [b"2"]), (7, "a", [b""])],) * 2,
        ([(7, "a", [b"1"]), (8, "a", [b"2", b"3"]), (7, "a", [b"4"])],) * 2,
    ],
    ids=["one run", "types", "endpoints"],
)
def test_outputs_keep_their_order_and_are_read_in_runs(sends: Any, read: Any) -> None:
    record = decode(encode_commit(commit(sends=sends)))
    assert isinstance(record, Commit)
    assert record.operations.sends == read


def test_columns_are_little_endian_wherever_they_are_written() -> None:
    data = encode_commit(commit(receive_endpoints=[1], receive_positions=[0x0102]))
    assert bytes([1, 0, 0, 0, 0, 0, 0, 0, 16, 2, 1, 0, 0, 0, 0, 0, 0]) in data


def test_columns_are_little_endian_on_a_big_endian_machine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("konverse.schemas.wire.columns._BIG_ENDIAN", True)
    data = encode_commit(commit(receive_endpoints=[1], receive_positions=[2]))
    assert bytes(7) + b"\x01" in data, "swapped"
    record = decode(data)
    assert isinstance(record, Commit)
    assert record.operations.receive_endpoints == [1]


@pytest.mark.parametrize("size", [COMMIT_BYTES_MAX + 1, 2 * COMMIT_BYTES_MAX])
def test_a_record_that_is_too_long_is_not_looked_into(size: int) -> None:
    with pytest.raises(MalformedRecord, match=f"{size} bytes; at most {COMMIT_BYTES_MAX} are allowed"):
        decode(bytes(size))


@pytest.mark.parametrize("kind", ["claim", "commit"])
def test_every_cut_of_a_record_is_malformed(kind: str) -> None:
    ids = (identifier("i"), identifier("d"), identifier("j"))
    claim = encode_claim(Claim(1, identifier("o"), 1, *ids, clean=True))
    data = claim if kind == "claim" else written({})
    for end in range(len(data)):
        with pytest.raises(MalformedRecord):
            decode(data[:end])


@pytest.mark.parametrize("data", [b"", b"\x04", b"\x01", b"\xff" * 100])
def test_a_journal_record_that_is_neither_a_claim_nor_a_commit_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode(data)


@pytest.mark.parametrize(
    ("columns", "anything"),
    [
        ({}, False),
        ({"receive_endpoints": [0]}, True),
        ({"sends": [(0, "a", [b""])]}, True),
        ({"ends": [None]}, True),
        ({"begins": [None]}, True),
        ({"rare": [None]}, True),
    ],
)
def test_operations_are_true_when_there_are_any(columns: dict[str, Any], anything: bool) -> None:
    assert bool(CommitOperations(**columns)) is anything
