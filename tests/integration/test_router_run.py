"""Routers that `konverse run` starts, and the command that shows their figures."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from konverse.bridge.broker import Broker
from konverse.bridge.cli.main import app
from konverse.bridge.router import figures as router_figures
from konverse.routing.routed import Routed
from konverse.schemas.identifiers import catalog_topic, router_key
from tests.kit.answering import Run
from tests.kit.commands import CliRunner
from tests.kit.forwarding import HANG
from tests.kit.regions import answer_in, heard, kinds, open_regions, service_of
from tests.kit.servers import Servers
from tests.kit.shop import ORDER_SERVICE, connected, open_shop, sent, until

pytestmark = pytest.mark.stack

APP = "tests.kit.forwarding:app"


def look(*options: str) -> dict[str, Any]:
    """One output of `konverse router watch`."""
    answered = CliRunner().invoke(app, ["router", "watch", ORDER_SERVICE, "--json", "--count", "1", *options])
    assert answered.exit_code == 0, answered.output
    return dict(json.loads(answered.stdout))


@pytest.mark.slow
def test_a_process_whose_classifier_hangs_ends_itself_and_the_message_is_tried_again(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        open_regions(broker)
        dialog = sent(broker, HANG)
        with Run(servers, database, tmp_path, "--readers", "processes", app=APP) as worker:
            (line, *_) = worker.wait_for("this process exits, and the attempt counts as failed")
            assert str(dialog.id) in line["message"]
            worker.wait_for("with code 103 in a handler; it is restarted")
            (tmp_path / "released").touch()
            assert [*answer_in(broker, "north", 1)] == [HANG]
            assert worker.stop() == 0, worker.text


def test_router_watch_shows_figures_while_messages_flow(
    servers: Servers, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KONVERSE_REDIS", servers.redis_url)
    monkeypatch.setenv("KONVERSE_KAFKA", f"kafka://{servers.bootstrap}")
    monkeypatch.setenv("KONVERSE_DATABASE", database)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        open_regions(broker)
        assert look()["processes"] == 0
        for body in (b"north 1", b"north 2", b"south 1", b"nowhere"):
            sent(broker, body)
        with Run(servers, database, tmp_path, app=APP) as worker:
            assert kinds(_answered(broker)) == {"Receipt": 3, "Error": 1}
            shown = until(lambda: found if (found := look())["replied"] == 3 else {}, "all of it is shown")
            assert shown["processes"] == 1
            assert shown["targets"] == {service_of("north"): 2, service_of("south"): 1}
            assert (shown["forwarded"], shown["rejected"], shown["messages"]) == (3, 1, 7)
            assert [one["text"] for one in shown["last_errors"]] == ["no such region"]
            answered = CliRunner().invoke(app, ["router", "watch", ORDER_SERVICE, "--count", "2", "--every", "0.1"])
            (first, second) = answered.stdout.splitlines()
            assert first.startswith(f"{ORDER_SERVICE}: 1 process, 7 messages")
            assert second.endswith("last error: no such region")
            assert worker.stop() == 0, worker.text


def _answered(broker: Broker) -> list[Any]:
    answer_in(broker, "north", 2)
    answer_in(broker, "south", 1)
    return heard(broker, 4)


def test_a_process_that_begins_takes_out_the_figures_of_gone_ones_that_are_too_many(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_figures, "ROUTER_PROCESS_ENTRIES_MAX", 2)
    with (
        connected(servers.bootstrap, database, redis=servers.redis_url) as broker,
        Redis.from_url(servers.redis_url) as redis,
    ):
        open_shop(broker)
        router = broker.router(ORDER_SERVICE)(lambda _: None)
        key = router_key(catalog_topic(database), database, ORDER_SERVICE)
        counts = {"targets": {}, **dict.fromkeys((one.name for one in fields(Routed) if one.name != "targets"), 1)}
        for process, at_ms in (("three", 3), ("one", 1), ("two", 2)):
            redis.hset(key, process, json.dumps({"at_ms": at_ms, **counts, "last_errors": []}))
        with router_figures.publishing(broker, router):
            assert redis.hlen(key) == 3, "few of them stay until the key goes"
        redis.hset(key, "none", "no figures")
        with router_figures.publishing(broker, router):
            assert redis.hlen(key) == 2
        assert redis.hexists(key, "three")
        assert router_figures.read_figures(broker, ORDER_SERVICE).processes == 1


def test_a_router_that_is_run_again_is_shown_once(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        open_regions(broker)
        router = broker.router(ORDER_SERVICE)(lambda _: service_of("north"))
        for count in (1, 2):
            sent(broker, b"north")
            router.run(timeout=1)
            assert router.routed.forwarded == count
            shown = router_figures.read_figures(broker, ORDER_SERVICE)
            assert (shown.processes, shown.routed) == (1, router.routed)


def test_watching_without_redis_reports_that_none_was_named(servers: Servers, database: str) -> None:
    common = ["--kafka", f"kafka://{servers.bootstrap}", "--database", database]
    answered = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["router", "watch", ORDER_SERVICE, *common])
    assert answered.exit_code == 2
    assert "no Redis is configured" in answered.stderr


def test_watching_an_unknown_service_reports_that_it_does_not_exist(servers: Servers, database: str) -> None:
    common = ["--kafka", f"kafka://{servers.bootstrap}", "--redis", servers.redis_url, "--database", database]
    answered = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["router", "watch", "//nobody", "--count", "1", *common])
    assert answered.exit_code == 2
    assert "there is no service '//nobody'" in answered.stderr
