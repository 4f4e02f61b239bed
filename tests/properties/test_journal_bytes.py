"""Our own encoder's journal records are those of fastavro, both ways."""

from __future__ import annotations

from io import BytesIO
from typing import Any, cast
from unittest.mock import patch

import pytest
from fastavro import schemaless_reader, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from konverse.dialog.fold.journal import JournalFeed, JournalRecord
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.wire import journal
from konverse.schemas.wire.journal import (
    JOURNAL_SCHEMA,
    Claim,
    Commit,
    Part,
    cut,
    decode,
    encode_claim,
    encode_commit,
    encode_part,
)
from tests.kit.avro_journal import commit_to_avro
from tests.kit.strategies import claims, commits, parts


def written(name: str, value: dict[str, Any]) -> bytes:
    out = BytesIO()
    schemaless_writer(out, JOURNAL_SCHEMA, (name, value), strict=True)
    return out.getvalue()


def read(data: bytes) -> tuple[str, dict[str, Any]]:
    source = BytesIO(data)
    value = schemaless_reader(source, JOURNAL_SCHEMA, None, return_record_name=True)
    assert source.tell() == len(data)
    return cast("tuple[str, dict[str, Any]]", value)


def listed(commit: Commit) -> Commit:
    """The COMMIT with lists where a decoder makes lists."""
    commit.output_acks = list(commit.output_acks)
    commit.rejected = list(commit.rejected)
    return commit


@given(commits)
def test_an_encoded_commit_equals_the_fastavro_output(commit: Commit) -> None:
    assert encode_commit(commit) == written("konverse.Commit", commit_to_avro(commit))


@given(commits)
def test_a_commit_is_read_back_by_us_and_by_fastavro(commit: Commit) -> None:
    data = encode_commit(commit)
    assert decode(data) == listed(commit)
    assert read(data) == ("konverse.Commit", commit_to_avro(commit))


@given(claims)
def test_a_claim_is_read_back_by_us_and_by_fastavro(claim: Claim) -> None:
    data = encode_claim(claim)
    assert decode(data) == claim
    assert data == written("konverse.Claim", claim._asdict())
    assert read(data) == ("konverse.Claim", claim._asdict())


@given(parts)
def test_a_part_is_read_back_by_us_and_by_fastavro(part: Part) -> None:
    data = encode_part(part)
    assert decode(data) == part
    assert data == written("konverse.Part", part._asdict())


@given(commits, st.integers(1, 300), st.data())
def test_a_commit_in_parts_is_whole_when_they_stand_together_in_order_and_else_void(
    commit: Commit, size: int, draw: st.DataObject
) -> None:
    data = encode_commit(commit)
    with patch.object(journal, "JOURNAL_PART_BYTES_MAX", max(size, 1 + len(data) // 200)):
        records = cut(commit, data)
    rows = [JournalRecord(7 + at, record, 70 + at) for at, record in enumerate(records)]
    last = JournalRecord(rows[-1].offset, data, rows[-1].timestamp_ms)
    assert list(JournalFeed("here").decisions(rows)) == [(last, listed(commit))]
    if len(rows) == 1:
        return
    at = draw.draw(st.integers(1, len(rows) - 1))
    moved = [row._replace(offset=row.offset + 1) for row in rows[at:]]
    assert not list(JournalFeed("here").decisions([*rows[:at], *moved])), "something stood between them"
    assert not list(JournalFeed("here").decisions([*rows[:at], *rows[at + 1 :]])), "one is missing"
    again = JournalFeed("here")
    assert not list(again.decisions(rows[:at]))
    assert list(again.decisions(rows)) == [(last, listed(commit))], "a piece that is fed again begins anew"


@given(commits)
def test_a_cut_commit_is_malformed(commit: Commit) -> None:
    data = encode_commit(commit)
    for end in range(0, len(data), 1 + len(data) // 40):
        with pytest.raises(MalformedRecord):
            decode(data[:end])


@given(commits)
def test_a_commit_with_bytes_behind_it_is_malformed(commit: Commit) -> None:
    with pytest.raises(MalformedRecord, match="trailing bytes"):
        decode(encode_commit(commit) + b"\x00")
