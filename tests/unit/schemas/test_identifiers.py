"""Valid names, and the errors of invalid ones."""

from __future__ import annotations

from uuid import NAMESPACE_URL, RFC_4122, UUID, uuid5

import pytest

from konverse.schemas.errors import InvalidName
from konverse.schemas.identifiers import (
    catalog_topic,
    check_name,
    consumer_group,
    conversation_in,
    data_topic,
    escape,
    incarnation_tag,
    instruction_topic,
    is_internal,
    is_of_pool,
    journal_topic,
    mark_of,
    open_topic,
    owner_writer,
    pool_group,
    pool_namespace,
    session_writer,
    snapshot_topic,
    succession_topic,
    time_of_writer,
    transmission_topic,
    view_key,
)
from konverse.schemas.limits import NAME_BYTES_MAX, TOPIC_NAME_LENGTH_MAX
from tests.kit.builders import identifier


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the queue name is empty; give it at least one character"),
        ("n" * (NAME_BYTES_MAX + 1), f"has {NAME_BYTES_MAX + 1} bytes; at most {NAME_BYTES_MAX} are allowed"),
        ("ö" * (NAME_BYTES_MAX // 2 + 1), f"has {NAME_BYTES_MAX + 2} bytes"),
        ("a\nb", r"holds the control character '\\n'; remove it"),
        ("a\x00b", r"holds the control character '\\x00'"),
        ("a\x7fb", r"holds the control character '\\x7f'"),
        ("a\ud800b", r"holds the control character '\\ud800'"),
        ("o\u0308", "is not in Unicode form NFC; normalise it first"),
    ],
)
def test_a_name_is_refused_with_the_reason_and_the_remedy(name: str, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason) as caught:
        check_name("queue", name)
    assert caught.value.number == 8412


@pytest.mark.parametrize(
    "name",
    [
        "n",
        "n" * NAME_BYTES_MAX,
        "ö" * (NAME_BYTES_MAX // 2),
        "//konverse.example/Orders",
        "a b",
        "\u5317\u4eac",
        "-",
        ".",
        "..",
        "\U0001f600",
    ],
)
def test_a_name_may_be_anything_else(name: str) -> None:
    assert check_name("service", name) == name


@pytest.mark.parametrize(
    ("name", "component"),
    [("Orders2", "Orders2"), ("a-b", "a--b"), ("a.b", "a-2Eb"), ("a_b", "a-5Fb"), ("ä", "-C3-A4"), ("a/b", "a-2Fb")],
)
def test_a_name_is_escaped_like_this(name: str, component: str) -> None:
    assert escape(name) == component


def test_topics_and_keys_are_named_like_this() -> None:
    data = data_topic("prod", "shop", "Orders.new")
    assert data == "prod.shop.Orders-2Enew"
    assert journal_topic(data) == "prod.shop.Orders-2Enew.queue.journal"
    assert snapshot_topic(data, "a group") == "prod.shop.Orders-2Enew.a-20group.snapshot"
    assert catalog_topic("prod") == "prod.catalog"
    assert consumer_group(data) == "prod.shop.Orders-2Enew.queue"
    assert view_key(data, "queue", 7, "header") == "konverse:{prod.shop.Orders-2Enew.queue/7}:header"


def test_the_error_for_a_too_long_topic_name_lists_the_names_to_shorten() -> None:
    fits = "q" * (TOPIC_NAME_LENGTH_MAX - len("i.d."))
    assert len(data_topic("i", "d", fits)) == TOPIC_NAME_LENGTH_MAX
    with pytest.raises(
        InvalidName, match=r"has 250 characters; Kafka allows 249\. Shorten the instance, database or queue"
    ):
        data_topic("i", "d", fits + "q")
    with pytest.raises(InvalidName, match="Kafka allows 249"):
        journal_topic(data_topic("i", "d", fits))


def test_a_tag_is_the_beginning_of_an_incarnation() -> None:
    assert incarnation_tag(identifier("incarnation")) == identifier("incarnation")[:4]


def test_a_session_id_is_a_uuid_of_version_7_with_its_time() -> None:
    found = UUID(bytes=session_writer(1_800_000_000_000, (1 << 74) - 1))
    assert (found.version, found.variant) == (7, RFC_4122)
    assert time_of_writer(found.bytes) == 1_800_000_000_000
    assert session_writer(1, 0) != session_writer(1, 1 << 73)
    assert time_of_writer(owner_writer(identifier("incarnation"), 0)) is None


def test_a_pool_knows_its_conversations_by_their_ids_and_takes_next_to_no_others_for_them() -> None:
    group = pool_group(pool_namespace("sales", "a pool"), "a key")
    conversation = conversation_in(group, bytes(range(16)))
    assert len(conversation) == 16
    assert mark_of(conversation) == mark_of(group)
    assert is_of_pool(conversation)
    by_names = [uuid5(NAMESPACE_URL, f"{number}").bytes for number in range(2_000)]
    assert [one for one in by_names if is_of_pool(one)] == []
    assert not is_of_pool(UUID(bytes=conversation, version=4).bytes)


@pytest.mark.parametrize("name", ["journal", "snapshot", "catalog", "Orders", "open", "a.b"])
def test_all_topics_except_data_topics_are_internal_for_any_queue_name(name: str) -> None:
    for data in (data_topic("konverse", name, name), transmission_topic(name)):
        assert not is_internal(data)
        assert is_internal(journal_topic(data))
        assert is_internal(snapshot_topic(data))
    for topic in (open_topic, catalog_topic, instruction_topic, succession_topic):
        assert is_internal(topic(name))
