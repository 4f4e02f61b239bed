"""Names are escaped injectively, so that no two ever share a topic or a key."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from konverse.schemas.errors import InvalidName
from konverse.schemas.identifiers import (
    catalog_topic,
    check_name,
    consumer_group,
    data_topic,
    escape,
    instruction_topic,
    journal_topic,
    owner_writer,
    snapshot_topic,
    succession_topic,
    view_key,
)
from konverse.schemas.limits import NAME_BYTES_MAX
from tests.kit.strategies import awkward_names, identifiers, names

short_names: Final = awkward_names.filter(lambda name: len(escape(name)) <= 70)
"""Three of them and a suffix fit into a topic name."""

triples: Final = st.tuples(short_names, short_names, short_names)
places: Final = st.tuples(short_names, short_names, st.integers(0, 1023))
KAFKA_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def kafka_sees(topic: str) -> str:
    """The name in Kafka's metrics, where `.` and `_` are alike. Kafka refuses topics that differ only in these."""
    return topic.replace(".", "_")


def topics_of(instance: str, database: str, queue: str) -> list[str]:
    data = data_topic(instance, database, queue)
    of_the_instance = [catalog_topic(instance), instruction_topic(instance), succession_topic(instance)]
    return [data, journal_topic(data), snapshot_topic(data), *of_the_instance]


def unescape(component: str) -> str:
    """The name that `escape` turned into `component`; InvalidName for anything else."""
    out = bytearray()
    i = 0
    while i < len(component):
        if component[i] != "-":
            out += component[i].encode("utf-8", "surrogatepass")
            i += 1
        elif component[i : i + 2] == "--":
            out.append(ord("-"))
            i += 2
        else:
            try:
                out.append(int(component[i + 1 : i + 3], 16))
            except ValueError:
                raise InvalidName(f"{component!r} is not an escaped name") from None
            i += 3
    try:
        name = out.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidName(f"{component!r} is not an escaped name") from None
    if escape(name) != component:
        raise InvalidName(f"{component!r} is not an escaped name")
    return name


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_unescape_is_the_inverse_of_escape(name: str) -> None:
    assert unescape(escape(name)) == name


@given(awkward_names, awkward_names)
def test_two_names_are_never_escaped_alike(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)


@given(awkward_names)
def test_an_escaped_name_contains_no_separator(name: str) -> None:
    assert re.fullmatch(r"([a-zA-Z0-9]|--|-[0-9A-F]{2})*", escape(name))


@given(st.text(st.characters(codec="utf-8"), max_size=12) | st.text("-aA0fF9é", max_size=6))
def test_unescape_takes_nothing_that_escape_does_not_make(component: str) -> None:
    try:
        name = unescape(component)
    except InvalidName:
        return
    assert escape(name) == component


@pytest.mark.parametrize(
    "component", ["-", "-4", "a-", "-ZZ", "-2d", "-+1", "- 1", "-FF", ".", "é", "Ā", "\U0001f600", "-41"]
)
def test_unescape_refuses_components_that_escape_never_produces(component: str) -> None:
    with pytest.raises(InvalidName, match="not an escaped name"):
        unescape(component)


@given(triples, triples)
def test_two_queues_never_share_a_topic(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assume(one != other)
    assert kafka_sees(data_topic(*one)) != kafka_sees(data_topic(*other))


@given(triples, triples)
def test_topics_of_different_purposes_never_collide(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    mine, theirs = topics_of(*one), topics_of(*other)
    assert len({kafka_sees(topic) for topic in mine}) == len(mine)
    for place, topic in enumerate(mine):
        for other_place, other_topic in enumerate(theirs):
            if place != other_place:
                assert kafka_sees(topic) != kafka_sees(other_topic)


@given(triples)
def test_every_topic_is_one_that_kafka_allows(names_of_a_queue: tuple[str, str, str]) -> None:
    for topic in topics_of(*names_of_a_queue):
        assert KAFKA_NAME.fullmatch(topic)
        assert topic not in {".", ".."}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("i", "a.b", "c"), ("i", "a", "b.c")),
        (("i", "a_b", "c"), ("i", "a.b", "c")),
        (("i", "a-b", "c"), ("i", "a--b", "c")),
        (("i", "d", "Orders.queue.journal"), ("i", "d", "Orders")),
        (("i", "d", "q-2E"), ("i", "d", "q.")),
        (("i", "d", "Q"), ("i", "d", "q")),
    ],
)
def test_queues_that_look_alike_have_their_own_topics(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    mine, theirs = topics_of(*one)[:3], topics_of(*other)[:3]
    assert not {kafka_sees(topic) for topic in mine} & {kafka_sees(topic) for topic in theirs}


@given(places, places)
def test_two_partitions_never_share_a_key_of_the_view(one: tuple[str, str, int], other: tuple[str, str, int]) -> None:
    keys = [view_key(data_topic("i", "d", queue), group, number, "header") for queue, group, number in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


@given(short_names, st.integers(0, 1023), st.sampled_from(["header", "e:17"]))
def test_all_keys_of_a_partition_stand_in_one_slot_of_a_cluster(queue: str, number: int, suffix: str) -> None:
    key = view_key(data_topic("i", "d", queue), "queue", number, suffix)
    assert key.count("{") == key.count("}") == 1
    assert key[key.index("{") + 1 : key.index("}")] == f"{data_topic('i', 'd', queue)}.queue/{number}"


@given(triples, triples)
def test_two_subscriptions_never_share_a_consumer_group(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    groups = [consumer_group(data_topic("i", a, b), c) for a, b, c in (one, other)]
    assert (groups[0] == groups[1]) == (one == other)


@given(identifiers, identifiers, st.integers(0, 1023), st.integers(0, 1023))
def test_the_writer_of_an_owner_belongs_to_one_partition_of_one_incarnation(
    one: bytes, other: bytes, number: int, other_number: int
) -> None:
    assert owner_writer(one, number) == owner_writer(one, number)
    same = (one, number) == (other, other_number)
    assert (owner_writer(one, number) == owner_writer(other, other_number)) == same
    assert len(owner_writer(one, number)) == 16


@given(names)
def test_a_proper_name_is_given_back(name: str) -> None:
    assume(len(name.encode()) <= NAME_BYTES_MAX)
    assert check_name("service", name) == name


@given(st.text(max_size=300))
def test_a_name_is_accepted_by_its_length_its_characters_and_its_form_and_a_queues_by_its_first(name: str) -> None:
    proper = (
        0 < len(name.encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX
        and not any(unicodedata.category(character) in {"Cc", "Cs"} for character in name)
        and unicodedata.normalize("NFC", name) == name
    )
    for kind, accepted in (("service", proper), ("queue", proper and not name.startswith("#"))):
        if accepted:
            assert check_name(kind, name) == name
        else:
            with pytest.raises(InvalidName, match=kind):
                check_name(kind, name)
