"""Databases of one instance, and routes among them: 16, 20, 42, 134, 156 to 159, 163, 165 to 170, 176, 222 and 223."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.catalog.routes import AUTO_CREATED_LOCAL
from konverse.schemas.errors import AlreadyExists, InvalidState, ServiceNotFound
from konverse.schemas.system_messages import ERROR, read_error
from tests.kit.databases import COPIES, Instance, several_databases
from tests.kit.servers import Servers
from tests.kit.shop import (
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    begin,
    connected,
    handle,
    living,
    pumped,
    receive,
    until,
)

pytestmark = pytest.mark.stack


@pytest.fixture
def instance(servers: Servers) -> Iterator[Instance]:
    with several_databases(servers.bootstrap) as made:
        yield made


def test_156_a_broker_id_prefers_its_own_routes_and_without_one_an_id_is_drawn(instance: Instance) -> None:
    """And 158: an id is drawn. And 159: a route that names the service comes before AutoCreatedLocal."""
    instance.route_to("east", "East")
    assert instance.spread() == Counter(east=60)
    assert instance.spread(broker_instance=instance.id_of("west")) == Counter(west=60)
    instance.route_to("west", "West")
    assert min(instance.spread()[database] for database in COPIES) > 10
    assert instance.spread(broker_instance=instance.id_of("east")) == Counter(east=60)


def test_157_without_an_id_routes_that_name_none_come_first(instance: Instance) -> None:
    instance.route_to("east", "East")
    instance.sales.admin.create_route("Any", "LOCAL", service_name=ORDER_SERVICE)
    assert min(instance.spread()[database] for database in COPIES) > 10


def test_163_an_expired_route_is_not_followed_until_a_new_lifetime_revives_it(instance: Instance) -> None:
    instance.route_to("east", "East", lifetime=timedelta(seconds=2))
    instance.sales.admin.drop_route(AUTO_CREATED_LOCAL)
    assert instance.spread() == Counter(east=60)

    def is_over() -> bool:
        try:
            begin(instance.sales)
        except ServiceNotFound:
            return True
        return False

    until(is_over, "the route expires", 20)
    assert [route.name for route in instance.sales.views.routes()] == ["East"]
    instance.sales.admin.alter_route("East", lifetime=timedelta(hours=1))
    assert instance.spread() == Counter(east=60)


def test_165_the_routes_of_the_own_database_count_and_no_others(instance: Instance, servers: Servers) -> None:
    name = instance.sales.settings.instance
    with connected(servers.bootstrap, "msdb", instance=name) as msdb:
        for broker in (msdb, instance["west"]):
            broker.admin.create_route(
                "East", "LOCAL", service_name=ORDER_SERVICE, broker_instance=instance.id_of("east")
            )
    instance.sales.catalog.refresh()
    assert min(instance.spread()[database] for database in COPIES) > 10


def test_166_a_dialog_that_names_a_database_goes_there_without_any_route(instance: Instance) -> None:
    instance.sales.admin.drop_route(AUTO_CREATED_LOCAL)
    with pytest.raises(ServiceNotFound, match="no route of database 'sales'"):
        begin(instance.sales)
    assert instance.spread(broker_instance=instance.id_of("west")) == Counter(west=60)


def test_167_the_own_database_comes_before_the_others(instance: Instance) -> None:
    """And 168: several copies share new dialogs, and a dialog that was begun stays where it is."""
    assert min(instance.spread()[database] for database in COPIES) > 10
    one = begin(instance.sales, conversation_id=uuid.uuid4())
    there = instance.place_of(one)
    assert {instance.place_of(begin(instance.sales, conversation_id=one.id)) for _ in range(5)} == {there}
    instance.sales.admin.create_queue("Orders", partitions=1)
    instance.sales.admin.create_service(ORDER_SERVICE, queue="Orders", contracts=[ORDERING])
    assert instance.spread() == Counter(sales=60)
    assert instance.place_of(one) == there


def test_169_related_dialogs_may_reach_different_copies_unless_they_name_one(instance: Instance) -> None:
    first = begin(instance.sales)
    related = [begin(instance.sales, related_to=first) for _ in range(30)]
    assert {instance.place_of(dialog) for dialog in related} == {*COPIES}
    assert {dialog.begin.group for dialog in related} == {first.begin.group}
    named = [begin(instance.sales, related_to=first, broker_instance=instance.id_of("east")) for _ in range(30)]
    assert {instance.place_of(dialog) for dialog in named} == {"east"}


def test_170_replies_come_back_to_the_database_of_the_initiator(instance: Instance) -> None:
    """Each side is judged by the catalog of its own database, and the other's routes change nothing."""
    for database in COPIES:
        instance[database].admin.drop_route(AUTO_CREATED_LOCAL)
    dialog = begin(instance.sales, broker_instance=instance.id_of("west"))
    dialog.send(ORDER, b"question")
    dialog.flush()
    west = instance["west"]

    def reply(transaction: Transaction) -> list[bytes]:
        bodies = []
        for message in transaction:
            bodies.append(message.body)
            transaction.send(message.dialog, RECEIPT, b"re " + message.body)
            transaction.end(message.dialog)
        return bodies

    assert handle(west, "Orders", reply) == [b"question"]
    assert [message.body for message in receive(instance.sales, "Shop", 2)] == [b"re question", b""]
    dialog.end()
    instance.sales.flush()
    with instance.sales.reader("Shop") as shop, west.reader("Orders") as orders, pumped(shop, orders):
        until(lambda: (shop.conversations, orders.conversations) == (0, 0), "both sides are over")


def test_134_a_named_database_without_the_service_fails(instance: Instance) -> None:
    unknown = uuid.uuid4()
    with pytest.raises(ServiceNotFound, match="has that broker id") as refused:
        begin(instance.sales, broker_instance=unknown)
    assert refused.value.number == 8423
    with pytest.raises(ServiceNotFound, match="has no service of that name") as refused:
        begin(instance.sales, broker_instance=instance.id_of("sales"))
    assert refused.value.number == 8490


def test_016_the_database_of_the_target_judges_the_contract(instance: Instance) -> None:
    instance["east"].admin.alter_service(ORDER_SERVICE, drop=[ORDERING])
    dialog = begin(instance.sales, broker_instance=instance.id_of("east"))
    dialog.send(ORDER, b"refused")
    dialog.flush()
    with instance["east"].reader("Orders", timeout=2) as reader:
        assert list(reader) == []
    (error,) = receive(instance.sales, "Shop", 1)
    assert (error.type, read_error(error.body)[0]) == (ERROR, -8408)


def test_020_a_service_that_every_database_has_dropped_is_not_found(instance: Instance) -> None:
    for left, database in zip((["west"], []), COPIES, strict=True):
        instance[database].admin.drop_service(ORDER_SERVICE)
        instance.sales.catalog.refresh()
        if left:
            assert instance.spread() == Counter(west=60)
    with pytest.raises(ServiceNotFound, match="no database of this instance has a service of that name"):
        begin(instance.sales)


def test_042_both_sides_name_the_database_of_the_other(instance: Instance) -> None:
    dialog = begin(instance.sales, broker_instance=instance.id_of("west"))
    with instance.sales.transaction() as transaction:
        transaction.send(dialog, ORDER, b"in a transaction")
    instance.sales.flush()
    with instance["west"].reader("Orders") as reader:
        until(lambda: living(reader) == 1, "the message is there")
        for database, broker, role in (("west", instance.sales, True), ("sales", instance["west"], False)):
            rows = [row for row in broker.views.conversation_endpoints() if row.conversation_id == dialog.id]
            assert [row.is_initiator for row in rows] == [role]
            assert [row.far_broker_instance for row in rows] == [str(instance.id_of(database))]
    assert [row for row in instance["west"].views.transmission_queue() if row.conversation_handle == dialog.id] == []


def test_176_a_database_whose_broker_is_disabled_gets_no_dialogs_until_it_is_enabled(instance: Instance) -> None:
    instance["east"].admin.alter_database(enabled=False)
    instance.sales.catalog.refresh()
    assert instance.spread() == Counter(west=60)
    with pytest.raises(ServiceNotFound, match="the broker of its database is disabled"):
        begin(instance.sales, broker_instance=instance.id_of("east"))
    instance["west"].admin.alter_database(enabled=False)
    instance.sales.catalog.refresh()
    with pytest.raises(ServiceNotFound, match="the broker of its database is disabled"):
        begin(instance.sales)
    instance.sales.admin.alter_database(enabled=False)
    with pytest.raises(InvalidState, match="the broker of database 'sales' is disabled, so no dialog begins there"):
        begin(instance.sales)
    instance.sales.admin.alter_database(enabled=True)
    shown = {row.name: row.is_broker_enabled for row in instance.sales.views.databases()}
    assert shown == {"sales": True, "east": False, "west": False}
    instance["west"].admin.alter_database(enabled=True)
    instance.sales.catalog.refresh()
    assert instance.spread() == Counter(west=60)


def test_222_a_new_broker_has_another_id_and_no_conversations_and_their_peers_get_error_8462(
    instance: Instance,
) -> None:
    west, old = instance["west"], instance.id_of("west")
    instance.route_to("west", "West")
    one, another = begin(instance.sales), begin(instance.sales)
    for dialog in (one, another):
        dialog.send(ORDER, b"unread")
    instance.sales.flush()
    with west.reader("Orders") as reader, pumped(reader):
        until(lambda: living(reader) == 2, "both have arrived")
        made = west.admin.alter_database(new_broker=True, timeout=30)
        assert living(reader) == 0, "and nobody was told"
        assert [row.state for row in instance.sales.views.conversation_endpoints()] == ["SO", "SO"]
        one.send(ORDER, b"after")
        instance.sales.flush()
        (error,) = receive(instance.sales, "Shop", 1)
    assert (error.type, read_error(error.body)[0], error.dialog.id) == (ERROR, -8462, one.id)
    assert made.broker_id == str(instance.id_of("west")) != str(old)
    instance.sales.catalog.refresh()
    with pytest.raises(ServiceNotFound, match="no database of this instance has that broker id"):
        begin(instance.sales)
    instance.sales.admin.alter_route("West", broker_instance=made.broker_id)
    assert instance.spread() == Counter(west=60)


def test_223_of_two_databases_with_one_id_only_one_can_be_enabled(instance: Instance) -> None:
    east, west = instance["east"], instance["west"]
    with pytest.raises(AlreadyExists, match="that of database 'east' is enabled and has the same id") as refused:
        west.admin.alter_database(broker_id=instance.id_of("east"))
    assert refused.value.number == 9772
    west.admin.alter_database(broker_id=instance.id_of("east"), enabled=False)
    with pytest.raises(AlreadyExists) as refused:
        west.admin.alter_database(enabled=True)
    assert refused.value.number == 9772
    instance.sales.catalog.refresh()
    assert instance.spread(broker_instance=instance.id_of("east")) == Counter(east=60)
    east.admin.alter_database(new_broker=True)
    west.admin.alter_database(enabled=True)
    instance.sales.catalog.refresh()
    assert instance.spread(broker_instance=instance.id_of("west")) == Counter(west=60)
