"""Options are checked before reading; an error names the wrong option and the remedy."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import pytest

from konverse.schemas.errors import InvalidName, InvalidSettings
from konverse.spark.connection.settings import Offsets, Position, Since, parse

GIVEN: Final = {"bootstrap": "one:9092", "topic": "orders"}


def test_a_queue_is_read_from_the_topic_of_its_name() -> None:
    settings = parse({"bootstrap": "one:9092", "queue": "Orders", "database": "shop-1"})
    assert (settings.topic, settings.queue) == ("konverse.shop--1.Orders", "Orders")
    assert parse({"bootstrap": "one:9092", "queue": "q"}).topic == "konverse.default.q"
    assert parse({"bootstrap": "one:9092", "queue": "q", "database": "d", "instance": "i"}).topic == "i.d.q"


def test_brokers_are_given_as_addresses_or_urls() -> None:
    brokers = "kafka://one:9092, two:9093,kafka://[::1]:9094/"
    assert parse({**GIVEN, "bootstrap": brokers}).bootstrap == "one:9092,two:9093,[::1]:9094"


def test_names_of_options_are_compared_without_case() -> None:
    settings = parse({"BOOTSTRAP": "one:9092", "Topic": "orders", "startingoffsets": "LATEST", "INCLUDE": "All"})
    assert settings.include_all
    assert settings.starting == Offsets("latest", {})


def test_offsets_are_given_per_partition() -> None:
    settings = parse({**GIVEN, "startingOffsets": '{"0": 7, "2": "latest"}', "endingOffsets": '{"0": 9}'})
    assert [settings.starting.of(partition) for partition in range(3)] == [7, "earliest", "latest"]
    assert [settings.ending.of(partition) for partition in range(2)] == [9, "latest"]


@pytest.mark.parametrize(
    ("time", "position"),
    [
        ("0", Since(0)),
        ("1970-01-01T00:00:00.001+00:00", Since(1)),
        (str(2**63 - 1), Since(2**63 - 1)),
        ("9999-12-31T23:59:59-14:00", Since(253_402_351_199_000)),
        ("1969-12-31T23:59:59.999+00:00", "earliest"),  # -1 ms, which Kafka takes for the end of the log
        ("1969-12-31T23:59:59.997+00:00", "earliest"),
        ("1970-01-01T00:00:00+01:00", "earliest"),
        ("0001-01-01T00:00:00+14:00", "earliest"),
    ],
)
def test_a_time_before_1970_is_that_of_the_first_record(time: str, position: Position) -> None:
    """A read that starts there reads all, and one that ends there, before its first record, reads nothing."""
    settings = parse({**GIVEN, "startingTimestamp": time, "endingTimestamp": time})
    assert settings.starting == settings.ending == Offsets(position, {})


def test_groups_are_for_messages_accepted_or_all() -> None:
    asked = {include: parse({**GIVEN, "include": include}) for include in ("groups", "Accepted, groups", "all,groups")}
    assert all(settings.include_groups for settings in asked.values())
    assert [settings.include_all for settings in asked.values()] == [False, False, True]
    with pytest.raises(InvalidSettings, match="'groups' of option 'include' is for mode 'messages'"):
        parse({**GIVEN, "include": "all,groups", "mode": "journal"})


def test_settings_of_the_client_are_passed_on() -> None:
    assert parse({**GIVEN, "kafka.security.protocol": "SSL"}).client == {"security.protocol": "SSL"}


def test_an_incarnation_is_known_by_its_first_four_bytes() -> None:
    incarnation = UUID("0a0b0c0d-0000-4000-8000-000000000000")
    assert parse({**GIVEN, "incarnation": str(incarnation)}).tag == b"\x0a\x0b\x0c\x0d"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"partitions": "0;1"}, "'partitions' is '0;1'; give numbers"),
        ({"partitions": "-1"}, "'partitions' is '-1'; give numbers"),
        ({"conversations": "one"}, "'conversations' is 'one'; give ids"),
        ({"conversations": str(UUID(int=1)), "mode": "journal"}, "'conversations' does not apply to mode 'journal'"),
        ({"partitions": "1", "mode": "returned"}, "'partitions' does not apply to mode 'returned'"),
        (
            {"incarnation": str(UUID(int=1)), "mode": "conversations"},
            "'incarnation' chooses among messages; remove it for mode 'conversations'",
        ),
        ({"pushFilters": "true"}, "'pushFilters' is unknown"),
        ({"quue": "q"}, "'quue' is unknown .* did you mean 'queue'"),
        ({"minPartitions": "4"}, "'minPartitions' is unknown .* Known are bootstrap, "),
        ({"bootstrap": ""}, "'bootstrap' is missing; give it .*host:port"),
        ({"bootstrap": "localhost"}, "'localhost', which is not an address; write 'host:port'"),
        ({"bootstrap": "one:9092,two:99999"}, "'two:99999', which is not an address"),
        ({"bootstrap": "http://one:9092"}, "which is not an address"),
        ({"topic": ""}, "'topic' is empty"),
        ({"queue": "q"}, "'topic' and 'queue' exclude each other"),
        ({"include": "some"}, "'include' is 'some'; give 'accepted' or 'all'"),
        ({"include": "all,accepted"}, "'include' is 'all,accepted'"),
        ({"incarnation": "new"}, "'incarnation' is 'new'; give .* UUID"),
        ({"startingOffsets": "first"}, "'startingOffsets' is 'first'; give 'earliest'"),
        ({"startingOffsets": "[1]"}, "'startingOffsets' is"),
        ({"endingOffsets": '{"0": -1}'}, "'endingOffsets' holds -1; an offset is 0 or more"),
        ({"endingOffsets": '{"-1": 1}'}, "'endingOffsets' is"),
        ({"endingOffsets": '{"0": true}'}, "holds True"),
        (
            {"startingTimestamp": str(2**63)},
            "'startingTimestamp' is '9223372036854775808'; give .* 9223372036854775807 at",
        ),
        ({"endingTimestamp": "9" * 5_000}, r"'endingTimestamp' is '9+\.\.\.9+'; give milliseconds since 1970"),
        ({"kafka.bootstrap.servers": "one:9092"}, "give 'bootstrap' instead"),
        ({"kafka.": "1"}, "'kafka.' names no setting; write kafka.<setting>, such as"),
        ({"KAFKA. ": "1"}, "'KAFKA. ' names no setting"),
        ({"stateFolder": "/tmp/\0a"}, "'stateFolder' is .*; give the absolute path .* without NUL"),
        ({"maxRows": "0"}, "'maxRows' is '0'; give the rows of a micro-batch, 1 to 9223372036854775807"),
        ({"maxRows": str(2**63)}, "'maxRows' is '9223372036854775808'; give"),
        ({"startingOffsets": '{"0": 9223372036854775808}'}, "holds 9223372036854775808; an offset is 0 or more, up to"),
        ({"partitions": "2147483648"}, "'partitions' is '2147483648'; give numbers"),
        ({"kafka.isolation.level": "read_uncommitted"}, "'kafka.isolation.level' cannot be changed"),
    ],
)
def test_a_wrong_option_is_named_with_the_remedy(changed: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        parse({**GIVEN, **changed})


NINES: Final = "9" * 5_000  # more digits than Python converts
BRACKETS: Final = "[" * 5_000  # deeper than Python's stack


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"startingOffsets": BRACKETS}, "'startingOffsets' is .*; give 'earliest', 'latest' or offsets per partition"),
        ({"startingOffsets": '{"0": ' + BRACKETS}, "'startingOffsets' is .*; give 'earliest'"),
        ({"startingOffsets": f'{{"{NINES}": 1}}'}, "'startingOffsets' is .*; give 'earliest'"),
        ({"startingOffsets": f'{{"0": {NINES}}}'}, "'startingOffsets' is .*; give 'earliest'"),
        (
            {"endingOffsets": f'{{"0": {"9" * 4_000}}}'},
            r"'endingOffsets' holds 9+\.\.\.9+; an offset is 0 or more, up to",
        ),
        ({"endingOffsets": f'{{"0": "{NINES}"}}'}, "'endingOffsets' holds .*; an offset is 0 or more"),
        ({"endingOffsets": f'{{"0": {"[" * 200}{"]" * 200}}}'}, "'endingOffsets' holds .*; an offset is 0 or more"),
        ({"startingTimestamp": NINES}, "'startingTimestamp' is .*; give milliseconds"),
        ({"startingTimestamp": "x" * 5_000}, "'startingTimestamp' is .*; give milliseconds"),
        ({"maxRows": NINES}, "'maxRows' is .*; give the rows of a micro-batch, 1 to"),
        ({"partitions": f"0,{NINES}"}, "'partitions' is .*; give numbers of partitions"),
        ({"conversations": NINES}, "'conversations' is .*; give ids"),
        ({"incarnation": NINES}, "'incarnation' is .*; give the queue's incarnation"),
        ({"bootstrap": f"one:{NINES}"}, "'bootstrap' holds .*, which is not an address"),
        ({"include": NINES}, "'include' is .*; give 'accepted'"),
        ({"mode": NINES}, "'mode' is .*; the modes are"),
        ({"failOnDataLoss": NINES}, "'failOnDataLoss' is .*; give 'true'"),
        ({"stateFolder": NINES}, "'stateFolder' is .*; give the absolute path"),
        ({NINES: "1"}, r"option '9+\.\.\.9+' is unknown"),
    ],
)
def test_a_wrong_option_of_thousands_of_characters_is_named_and_not_repeated(
    changed: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidSettings, match=words) as refused:
        parse({**GIVEN, **changed})
    assert len(str(refused.value)) < 1_000


@pytest.mark.parametrize("twice", ['{"0": 1, "00": 2}', '{"0": 1, "0": 1}'])
def test_a_partition_has_one_offset(twice: str) -> None:
    with pytest.raises(
        InvalidSettings, match=r"'startingOffsets' is .*, which names partition 0 twice; give one offset"
    ):
        parse({**GIVEN, "startingOffsets": twice})


def test_numbers_may_begin_with_zeros() -> None:
    zeros = "0" * 5_000
    settings = parse({**GIVEN, "startingOffsets": f'{{"{zeros}1": 7}}', "maxRows": f"{zeros}2", "partitions": zeros})
    assert (settings.starting.of(1), settings.max_rows, settings.partitions) == (7, 2, frozenset({0}))


def test_neither_queue_nor_topic_is_an_error() -> None:
    with pytest.raises(InvalidSettings, match=r"'queue' is missing; give .* or a Kafka 'topic'"):
        parse({"bootstrap": "one:9092", "database": "d"})


def test_the_error_for_a_read_of_a_table_without_options_explains_the_cause() -> None:
    words = (
        r"'queue' is missing; .*'topic'\. A table over konverse has no options, as Spark keeps none of .* saveAsTable "
        r"or CREATE TABLE: use df\.write\.format\('konverse'\)\.save\(\), or CREATE TEMPORARY VIEW … USING konverse"
    )
    with pytest.raises(InvalidSettings, match=words):
        parse({})


def test_names_follow_the_rules_for_names() -> None:
    with pytest.raises(InvalidName, match="queue name is empty"):
        parse({"bootstrap": "one:9092", "database": "d", "queue": ""})
