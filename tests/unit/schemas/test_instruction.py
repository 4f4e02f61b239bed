"""An operator's instruction to the owners of a queue, as a record of its topic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import ERROR_DESCRIPTION_CHARACTERS_MAX, INSTRUCTION_BYTES_MAX, NAME_BYTES_MAX
from konverse.schemas.system_messages import shortened
from konverse.schemas.wire.instruction import Action, Instruction, decode, encode
from tests.kit.strategies import counters, identifiers

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=50)
descriptions = texts.map(shortened)
"""Descriptions of an Error, which XML can carry."""
instructions = st.builds(
    Instruction,
    database=texts,
    queue=texts,
    conversation=identifiers,
    first=counters,
    action=st.sampled_from([Action.RESUME, Action.SKIP, Action.END]),
    error=st.just(0),
    description=st.just(""),
    role=st.sampled_from([None, *Role]),
) | st.builds(
    Instruction,
    database=texts,
    queue=texts,
    conversation=identifiers,
    first=counters,
    action=st.just(Action.END),
    error=st.integers(1, 2**31 - 1),
    description=descriptions,
)


@given(instructions)
def test_a_decoded_instruction_equals_the_encoded_one(said: Instruction) -> None:
    assert decode(encode(said)) == said


@given(instructions, st.data())
def test_other_bytes_are_malformed(said: Instruction, data: st.DataObject) -> None:
    there = encode(said)
    cut = data.draw(st.integers(0, len(there) - 1))
    for other in (there[:cut], there + b"x", b"\x02" + there[1:], data.draw(st.binary(max_size=40))):
        with pytest.raises(MalformedRecord):
            decode(other)


@pytest.mark.parametrize(
    "impossible",
    [
        Instruction("sales", "Orders", b"c" * 16, -1, Action.SKIP),
        Instruction("sales", "Orders", b"c" * 16, 1, Action.END, -1, "x"),
        Instruction("sales", "Orders", b"c" * 16, 1, Action.END, 1, ""),
        Instruction("s" * INSTRUCTION_BYTES_MAX, "Orders", b"c" * 16, 1, Action.SKIP),
    ],
)
def test_invalid_instructions_are_malformed(impossible: Instruction) -> None:
    with pytest.raises(MalformedRecord):
        decode(encode(impossible))


def test_the_longest_one_is_taken() -> None:
    name, text = "ä" * (NAME_BYTES_MAX // 2), "\N{GRINNING FACE}" * ERROR_DESCRIPTION_CHARACTERS_MAX
    longest = Instruction(name, name, b"c" * 16, 2**63 - 1, Action.END, 2**31 - 1, text, Role.INITIATOR)
    assert decode(encode(longest)) == longest
