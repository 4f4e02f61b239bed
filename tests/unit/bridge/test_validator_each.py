"""Several bodies in one question to the validating process: each gets the answer that it would get alone."""

from __future__ import annotations

from contextlib import closing

import pytest

from konverse.bridge.validation import validator as module
from konverse.bridge.validation.rules import SchemaRule
from konverse.bridge.validation.validator import EncodedRule, Validator
from konverse.bridge.validation.worker import Answer, RequestKind
from konverse.schemas.catalog.objects import Validation
from tests.unit.bridge.test_validator import NESTED_AVRO

JSON, AVRO = Validation.JSON_SCHEMA, Validation.AVRO


@pytest.mark.parametrize("known_before", [True, False])
def test_each_of_several_bodies_has_the_answer_that_it_has_alone(known_before: bool) -> None:
    nested, array = (
        EncodedRule.of(SchemaRule(AVRO, (NESTED_AVRO,))),
        EncodedRule.of(SchemaRule(AVRO, ('{"type": "array", "items": "null"}',))),
    )
    endless = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00"
    with closing(Validator()) as validator:
        for known, bodies in ((nested, [b"\x00", b"?", b"\x02" * 900_000, b"\x00"]), (array, [endless, b"\x00"] * 2)):
            if known_before:
                validator.check(known)
            found = validator.validate_each(known, bodies)
            assert found == [validator.validate(known, body) for body in bodies]
            assert [examined for _, examined in found].count(False) == bodies.count(bodies[-2])
        assert validator.validate_each(nested, []) == []


def test_more_bodies_than_one_question_may_have_are_asked_about_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    known = EncodedRule.of(SchemaRule(AVRO, ('"bytes"',)))
    asked: list[int] = []
    bodies = [b"\x02a", b"\x02", b"\x06abc", b"\x02b", b"\x02c", b"\x02d"]
    monkeypatch.setattr(module, "VALIDATION_RECORDS_MAX", 3)
    monkeypatch.setattr(module, "VALIDATION_BYTES_MAX", 4)
    with closing(Validator()) as validator:
        validator.check(known)
        answers = validator._answers

        def noting(operation: RequestKind, rule: EncodedRule, data: bytes, count: int) -> list[Answer]:
            asked.append(count)
            return answers(operation, rule, data, count)

        monkeypatch.setattr(validator, "_answers", noting)
        found = validator.validate_each(known, bodies)
    assert [not fault for fault, _ in found] == [True, False, True, True, True, True]
    assert asked == [2, 1, 2, 1]


def test_an_unreadable_schema_is_reported_for_each_body_without_a_process_crash() -> None:
    known = EncodedRule.of(SchemaRule(JSON, ("{",)))
    with closing(Validator()) as validator:
        found = validator.validate_each(known, [b"{}"] * 5)
        assert [examined for _, examined in found] == [False] * 5
        assert all("is not a JSON document" in fault for fault, _ in found)
        assert validator.deaths == 0
