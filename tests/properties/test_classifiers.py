"""Classifiers against other programs, and against arbitrary bodies."""

from __future__ import annotations

import json
from typing import Any

import jsonpath
from hypothesis import given
from hypothesis import strategies as st

from konverse.routing.classifiers import avro_field, json_path, key_hash, regular_expression, to_service_name, xpath
from konverse.routing.decisions import Unclassifiable
from konverse.routing.keys.json_path import steps_of
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidSettings
from tests.kit.classifying import ORDER_SCHEMA, Dialog, Letter

NAMES = st.text(st.characters(codec="utf-8"), max_size=4) | st.sampled_from(["a", "b", "the a", "'", '"', "\\"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
STEPS = st.lists(NAMES | st.integers(-4, 4), max_size=4)


def quoted(step: str | int, *, single: bool) -> str:
    """A step in brackets, in the syntax of RFC 9535."""
    if isinstance(step, int):
        return f"[{step}]"
    text = json.dumps(step)[1:-1]
    return "['" + text.replace('\\"', '"').replace("'", "\\'") + "']" if single else f'["{text}"]'


@given(VALUES, STEPS, st.booleans())
def test_a_place_in_a_document_is_the_one_of_a_full_jsonpath(value: Any, steps: list[str | int], single: bool) -> None:
    path = "$" + "".join(quoted(step, single=single) for step in steps)
    assert steps_of(path) == tuple(steps)
    reference = jsonpath.findall(path, json.dumps(value))
    found = json_path(path).explain(Letter(json.dumps(value).encode()))
    if not reference:
        assert isinstance(found.decision, Unclassifiable)
        assert "nothing at" in found.decision.reason
    elif isinstance(reference[0], str) and reference[0]:
        assert found.key == reference[0]
    elif isinstance(reference[0], bool | int):
        assert found.key == json.dumps(reference[0])
    else:
        assert found.key is None


@given(st.text("$.[]'\"\\ab01-_ *:?@,", max_size=9))
def test_every_accepted_path_is_a_singular_jsonpath(text: str) -> None:
    try:
        steps_of("$" + text)
    except InvalidSettings:
        return
    compiled = jsonpath.compile("$" + text, strict=True)
    assert isinstance(compiled, jsonpath.JSONPath)
    assert compiled.singular_query()


def kafkas_partition(key: bytes, partitions: int) -> int:
    """Java's `toPositive(Utils.murmur2(key)) % partitions`, with signed numbers of 32 bits."""

    def word(number: int) -> int:
        return (number + 2**31) % 2**32 - 2**31

    def shifted(number: int, bits: int) -> int:
        return (number % 2**32) >> bits

    m, h = 0x5BD1E995, word(0x9747B28C ^ len(key))
    for place in range(0, len(key) - len(key) % 4, 4):
        k = word(int.from_bytes(key[place : place + 4], "little", signed=True) * m)
        k = word((k ^ shifted(k, 24)) * m)
        h = word(h * m) ^ k
    tail = key[len(key) - len(key) % 4 :]
    for place in reversed(range(len(tail))):
        h ^= word(tail[place] << 8 * place)
    h = word(h * m) if tail else h
    h = word((h ^ shifted(h, 13)) * m)
    return ((h ^ shifted(h, 15)) & 0x7FFFFFFF) % partitions


@given(st.binary(min_size=1, max_size=40), st.integers(1, 50))
def test_a_key_is_placed_among_services_as_kafka_places_it_among_partitions(key: bytes, count: int) -> None:
    services = [f"//{number}" for number in range(count)]
    decided = key_hash(services)(Letter(b"", dialog=Dialog(key)))
    assert decided == Target(services[kafkas_partition(key, count)])


EVERY = [
    to_service_name(),
    xpath("//region"),
    json_path("$.a"),
    avro_field("customer.region", ORDER_SCHEMA),
    regular_expression("(.)=(?P<key>.*)"),
    key_hash(["//a", "//b"]),
]
PIECES = st.lists(
    st.sampled_from(
        [
            b"<message>",
            b"<toServiceName>",
            b"</",
            b"<!DOCTYPE",
            b"<![CDATA[",
            b"&a;",
            b"{",
            b'"a":',
            b"[",
            b"=",
            b"\xff",
            b"\x00",
            b"\\ud800",
            b"x",
            b"<region>",
            b"</region>",
        ]
    )
    | st.binary(max_size=9),
    max_size=12,
).map(b"".join)


@given(PIECES)
def test_every_classifier_answers_any_body_with_a_decision(body: bytes) -> None:
    for classifier in EVERY:
        assert isinstance(classifier(Letter(body)), Target | Unclassifiable)
