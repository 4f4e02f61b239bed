"""Service Broker's views on real servers: the sources of their rows, and their use by people and scripts."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from konverse.bridge.broker import Broker
from konverse.bridge.views import partitions as looking
from konverse.bridge.views.endpoints import NOT_IN_REDIS
from konverse.bridge.views.partitions import BEHIND, MISSING, NO_REDIS
from konverse.bridge.views.rows import ConversationEndpointRow
from konverse.bridge.views.view_result import View
from konverse.bridge.views.views import COLUMNS
from konverse.dialog.transaction.received import Message
from konverse.schemas.system_messages import END_DIALOG
from tests.kit.commands import run
from tests.kit.readme import readme
from tests.kit.servers import Servers
from tests.kit.shop import (
    ORDER,
    ORDER_SERVICE,
    SHOP_SERVICE,
    begin,
    connected,
    fill,
    open_shop,
    pumped,
    queue_of,
    receive,
    relocate,
    send_orders,
    until,
)

pytestmark = pytest.mark.stack

SHOWN = ("conversation_id", "is_initiator", "state", "send_sequence", "receive_sequence")
"""Columns that Redis holds."""


def shown(broker: Broker) -> View[ConversationEndpointRow]:
    return broker.views.conversation_endpoints("Orders", SHOWN)


def reasons(view: View[Any]) -> set[str]:
    """Why the logs were folded; "redis" where they were not."""
    return {"redis" if source.from_redis else source.reason for source in view.sources}


def facts(view: View[ConversationEndpointRow]) -> set[tuple[object, ...]]:
    return {tuple(getattr(row, column) for column in SHOWN) for row in view}


def test_endpoints_come_from_redis_when_it_has_the_requested_columns_and_equal_those_of_the_logs(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker, partitions=8)  # more than dialogs, so some partitions have no rows
        send_orders(broker, dialogs=5, messages=9)
        assert reasons(shown(broker)) == {MISSING}
        with broker.reader("Orders") as reader, pumped(reader):
            until(lambda: sum(owner.fold.state.unread for owner in reader.owners) == 9, "all are in")
            until(lambda: reasons(shown(broker)) == {"redis"}, "Redis has them")
            folded = broker.views.conversation_endpoints("Orders")
            assert facts(shown(broker)) == facts(folded)
            assert len(folded) == 5
            assert {row.far_service for row in shown(broker)} == {None}
            (reason,) = reasons(folded)
            assert all(column in reason for column in NOT_IN_REDIS)


def test_redis_that_is_behind_empty_or_away_is_not_believed(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "LAG_MS", 0)
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=2, messages=2)
        receive(broker, "Orders", 2)
        assert reasons(shown(broker)) == {"redis"}, "nobody reads, and nothing has come since"
        late = begin(broker)
        late.send(ORDER)
        broker.flush()
        view = shown(broker)
        assert reasons(view) == {BEHIND}
        assert late.id in {row.conversation_id for row in view}
        receive(broker, "Orders", 1)
        assert reasons(shown(broker)) == {"redis"}
        with redis.Redis.from_url(servers.redis_url) as client:
            topic = queue_of(broker, "Orders").topic
            rows = [key for key in client.scan_iter(f"konverse:{{{topic}.*", 1_000) if not key.endswith(b":header")]
            client.delete(rows[0])
        view = shown(broker)
        assert (reasons(view), len(view)) == ({MISSING}, 3)
    with connected(servers.bootstrap, database, redis="redis://127.0.0.1:1") as broker:
        view = shown(broker)
        assert "Redis does not answer" in reasons(view).pop()
        assert len(view) == 3
    with connected(servers.bootstrap, database) as broker:
        assert reasons(shown(broker)) == {NO_REDIS}


def test_the_view_shows_commits_that_redis_has_missed(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "LAG_MS", 0)
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER)
        broker.flush()
        receive(broker, "Orders", 1)
        assert [row.state for row in shown(broker)] == ["CO"]
        with connected(servers.bootstrap, database) as other, other.reader("Orders") as reader:
            dialog.send(ORDER)
            broker.flush()
            with next(reader) as transaction:
                transaction.end(transaction.dialog)
            reader.settle()
        view = shown(broker)
        assert (reasons(view), [row.state for row in view]) == ({BEHIND}, ["DO"])


def test_messages_beyond_the_read_ahead_limit_are_counted_as_unseen(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.bridge.owner.follower.VIEW_AHEAD_RECORDS_MAX", 3)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=1, messages=5)
        view = broker.views.contents("Orders")
        assert [row.message_sequence_number for row in view] == [0, 1, 2]
        assert [source.unseen for source in view.sources] == [2]


def test_a_message_that_will_be_rejected_is_not_listed_in_the_queue(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        broker.admin.alter_message_type(ORDER, "WELL_FORMED_XML")
        dialog = begin(broker)
        for body in (b"<cup/>", b"no XML"):
            dialog.send(ORDER, body)
        broker.flush()
        assert [row.message_body for row in broker.views.contents("Orders") if row.message_type_name == ORDER] == [
            b"<cup/>"
        ]
        assert receive(broker, "Orders", 2)[1].body == b"<cup/>"


def test_numbers_of_objects_stay_and_are_never_given_again(servers: Servers, database: str) -> None:
    def number(broker: Broker) -> int | None:
        return next(row.service_id for row in broker.views.services() if row.name == ORDER_SERVICE)

    with connected(servers.bootstrap, database) as broker, connected(servers.bootstrap, database) as other:
        open_shop(broker)
        first = number(broker)
        assert first is not None
        assert number(other) == first
        broker.admin.drop_service(ORDER_SERVICE)
        broker.admin.create_service(ORDER_SERVICE, queue="Orders")
        second = number(broker)
        assert second is not None
        assert number(other) == second > first
        kinds = {row.name: row.message_type_id for row in broker.views.service_message_types()}
        broker.admin.alter_message_type(ORDER, "EMPTY")
        assert {row.name: row.message_type_id for row in broker.views.service_message_types()} == kinds
        assert len(set(kinds.values())) == len(kinds)
        queues = {row.object_id: row.name for row in broker.views.service_queues()}
        assert {queues[row.service_queue_id] for row in broker.views.service_queue_usages()} == {"Orders", "Shop"}
        assert not broker.views.service_contract_usages()


def test_people_read_tables_and_scripts_read_lines(servers: Servers, database: str) -> None:
    common = ["--kafka", f"kafka://{servers.bootstrap}", "--database", database]
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        sent = send_orders(broker, dialogs=2, messages=3)
    for name, columns in COLUMNS.items():
        queue = ["--queue", "Orders"] if name == "contents" else []
        code, out, err = run("view", name, *queue, *common)
        assert (code, err) == (0, "")
        assert max(map(len, out.splitlines())) <= 80
        assert f"{name}: " in out
        code, out, err = run("view", name, *queue, *common, "--json")
        assert code == 0
        assert all(tuple(json.loads(line)) == columns for line in out.splitlines())
        folded = {"conversation_endpoints", "conversation_groups", "contents", "transmission_queue"}
        assert ("folded from the logs" in err) == (name in folded)
    assert "no Redis is configured" in run("view", "conversation_endpoints", *common)[1]
    code, out, _ = run("view", "contents", "--queue", "Orders", *common, "--json")
    assert {json.loads(line)["message_body"] for line in out.splitlines()} == {
        f"0x{body.hex().upper()}" for bodies in sent.values() for body in bodies
    }


def test_rows_are_chosen_by_columns_that_need_not_be_shown(servers: Servers, database: str) -> None:
    common = ["--kafka", f"kafka://{servers.bootstrap}", "--database", database]
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=1, messages=1)
        with broker.reader("Orders") as reader, pumped(reader):
            fill(reader, 1)
            until(lambda: reasons(shown(broker)) == {"redis"}, "Redis has it")
            view = ["view", "conversation_endpoints", *common, "--redis", servers.redis_url, "--json"]
            code, out, err = run(*view, "--queue", "Orders", "--columns", "state", "--where", "is_initiator=false")
            assert (code, out, err) == (0, '{"state": "CO"}\n', "1 partition from Redis\n")
            again = run(*view, "--queue", "Orders", "--columns", "state", "--where", "is_initiator=FALSE")
            assert again == (code, out, err)
            assert run(*view, "--columns", "state", "--where", "far_service=false")[:2] == (0, "")
            _, out, err = run(*view, "--columns", "is_initiator, state", "--where", f"far_service={ORDER_SERVICE}")
            assert out == '{"is_initiator": true, "state": "SO"}\n'
            assert "Redis does not hold far_service" in err


def test_the_programs_of_the_readme_and_of_the_page_work(
    servers: Servers, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"cup")
        dialog.end()
        broker.flush()
        exec(compile(readme("views = broker.views", servers, database), "README.md", "exec"), {"broker": broker})
        printed = capsys.readouterr().out
        assert f"{dialog.id} CONVERSING with {SHOP_SERVICE}\n1 {ORDER} 0 b'cup'\n" in printed
        assert f"{END_DIALOG} to {ORDER_SERVICE} Shop/0 has no owner\n" in printed
    page = readme("import konverse", servers, database, "docs/views.md")
    exec(compile(page, "views.md", "exec"), {})
    printed = capsys.readouterr().out
    assert f"{ORDER_SERVICE} CONVERSING with {SHOP_SERVICE}\n" in printed
    assert f"1 {ORDER} 0 b'cup'\n{END_DIALOG} to {ORDER_SERVICE} Shop/0 has no owner\nFalse\n" in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("contents",), "contents needs a queue: add --queue"),
        (("services", "--queue", "Orders"), "services takes no queue"),
        (("services", "--columns", "color"), "services has no column color; it has name, service_id"),
        (("services", "--where", "color=1"), "services has no column color"),
        (("services", "--where", "name"), "is not of the form COLUMN=VALUE"),
        (("Orders", "--columns", "state"), "Orders is not a view"),
    ],
)
def test_invalid_arguments_of_a_view_are_refused_with_the_reason(arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run("view", *arguments, "--kafka", "kafka://127.0.0.1:1", COLUMNS="200")
    assert (code, out) == (2, "")
    assert said in err


def test_the_error_for_an_unknown_view_or_queue_suggests_a_similar_name(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
    common = ["--kafka", f"kafka://{servers.bootstrap}", "--database", database]
    for name, meant in (("servces", "services"), ("Order", "Orders")):
        code, out, err = run("view", name, *common)
        assert (code, out) == (2, "")
        assert f"did you mean '{meant}'?" in err


def test_a_relocated_message_keeps_its_id(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        dialog = begin(broker)
        dialog.send(ORDER, b"cup")
        broker.flush()
        (before,) = broker.views.contents("Orders")
        with broker.reader("Orders") as reader:
            fill(reader, 1)
            (partition,) = {owner.identity.partition for owner in reader.owners if owner.fold.state.unread}
            relocate(reader, dialog.id, 1 - partition)
            with pumped(reader):
                until(lambda: len(broker.views.contents("Orders")) == 1, "it has arrived")
        (after,) = broker.views.contents("Orders")
        assert after.message_id == before.message_id
        (message,) = receive(broker, "Orders", 1)
        assert isinstance(message, Message)
        assert message.id == after.message_id
