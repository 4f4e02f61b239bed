"""A journal record laid by hand is the one that fastavro writes and reads."""

from __future__ import annotations

from io import BytesIO
from typing import Any, cast

import pytest
from fastavro import schemaless_reader, schemaless_writer
from hypothesis import given

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.journal import JOURNAL_SCHEMA, Claim, Commit, commit_to_avro, decode, encode_claim, encode_commit
from tests.kit.strategies import claims, commits


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
    """With lists where a decoder makes lists."""
    commit.output_acks = list(commit.output_acks)
    commit.rejected = list(commit.rejected)
    return commit


@given(commits)
def test_an_encoded_commit_is_what_fastavro_writes(commit: Commit) -> None:
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


@given(commits)
def test_a_cut_commit_is_malformed(commit: Commit) -> None:
    data = encode_commit(commit)
    for end in range(0, len(data), 1 + len(data) // 40):
        with pytest.raises(MalformedRecord):
            decode(data[:end])


@given(commits)
def test_a_commit_with_bytes_behind_it_is_malformed(commit: Commit) -> None:
    with pytest.raises(MalformedRecord, match="behind its end"):
        decode(encode_commit(commit) + b"\x00")
