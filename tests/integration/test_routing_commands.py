"""`konverse router explain` and `konverse table`, used by people and scripts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.cli.main import app
from konverse.schemas.catalog.table_entries import Target
from tests.kit.classifying import ORDER_SCHEMA
from tests.kit.commands import CliRunner
from tests.kit.readme import commands, readme
from tests.kit.regions import open_regions, service_of
from tests.kit.servers import Servers
from tests.kit.shop import ORDER_SERVICE, connected, open_shop, sent

pytestmark = pytest.mark.kafka

NORTH, SOUTH, WEST = map(service_of, ("north", "south", "west"))
ELSEWHERE = "0f8fad5b-d9cb-469f-a165-70867728950e"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def broker(servers: Servers, database: str) -> Iterator[Broker]:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        open_regions(broker)
        yield broker


@pytest.fixture
def run(broker: Broker) -> Run:
    """Run a command in the database of the test."""
    place = {"KONVERSE_KAFKA": f"kafka://{broker.settings.bootstrap}", "KONVERSE_DATABASE": broker.database}

    def command(*arguments: str, text: str | bytes = "") -> tuple[int, str, str]:
        answered = CliRunner(env={"COLUMNS": "80", **place}).invoke(app, arguments, input=text)
        return answered.exit_code, answered.stdout, answered.stderr

    return command


def test_a_table_is_made_changed_shown_and_dropped(broker: Broker, run: Run) -> None:
    created = run("table", "create", "Regions", f"n={NORTH}", f"a=b={SOUTH}", "--default", f"{WEST}@{ELSEWHERE}")
    assert created[0] == 2, "a key has no = in it on the command line"
    assert "there is no service" in created[2]
    code, out, _ = run("table", "create", "Regions", f"n={NORTH}", "--default", f"{WEST}@{ELSEWHERE}")
    assert (code, out) == (0, "routing table 'Regions' is created: version 1, 1 key\n")
    code, out, _ = run("table", "set", "Regions", f"s={SOUTH}", f"n={WEST}", "--router", ORDER_SERVICE)
    assert (code, out) == (0, "routing table 'Regions' is changed: version 2, 2 keys\n")
    code, out, _ = run("table", "show", "Regions")
    assert code == 0
    assert "Regions, version 2: 2 keys" in out
    assert f"other keys: {WEST}@{ELSEWHERE}" in out
    assert f"routers: {ORDER_SERVICE}" in out
    code, out, _ = run("table", "show", "Regions", "--key", "s", "--json")
    assert json.loads(out)["entries"] == {"s": SOUTH}
    assert run("table", "remove", "Regions", "s", "n")[0] == 0
    assert run("table", "set", "Regions", "--no-default")[0] == 0
    assert "other keys: no service" in run("table", "show", "Regions")[1]
    code, _, err = run("table", "set", "Regions", f"x={ORDER_SERVICE}")
    assert code == 2
    assert f"loop through '{ORDER_SERVICE}' to '{ORDER_SERVICE}'" in err
    code, out, _ = run("list", "--json")
    (listed,) = json.loads(out)["routing_tables"]
    assert listed == {"name": "Regions", "version": 4, "keys": 0, "default": "", "routers": [ORDER_SERVICE]}
    assert run("table", "drop", "Regions")[0] == 0
    code, _, err = run("table", "show", "Regions")
    assert (code, "there is no routing table 'Regions'" in err) == (2, True)


def test_table_entries_come_from_files_and_the_output_of_show_is_valid_input(
    broker: Broker, run: Run, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(f'key,service,broker_instance\n"n,1",{NORTH},\ns,{SOUTH},{ELSEWHERE}\n\n', "utf-8")
    assert run("table", "create", "Regions", "--file", str(rows))[0] == 0
    entries = {"n,1": Target(NORTH), "s": Target(SOUTH, ELSEWHERE)}
    assert broker.admin.routing_table("Regions").entries == entries
    code, out, _ = run("table", "show", "Regions", "--json")
    assert code == 0
    assert run("table", "create", "Again", "--file", "-", text=out)[0] == 0
    assert broker.admin.routing_table("Again").entries == entries
    assert run("table", "set", "Again", f"w={WEST}", "--file", "-", text=json.dumps({"e": NORTH}))[0] == 0
    assert broker.admin.routing_table("Again").entries == {**entries, "w": Target(WEST), "e": Target(NORTH)}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b,c,d\n", "line 1: 4 columns; a row has key,service,broker_instance"),
        (f"n,{NORTH}\nn,{SOUTH}\n", "key 'n' is given more than once"),
        (f'{{"n": "{NORTH}", "n": "{SOUTH}"}}', "key 'n' is given more than once"),
        ("{", "not a JSON document"),
        ('{"n": {"service": 7}}', "key 'n' has no service"),
        (b"\xff", "not encoded in UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_holds_no_entries_is_refused(run: Run, tmp_path: Path, text: str | bytes | None, says: str) -> None:
    place = tmp_path / "entries"
    if text is not None:
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, _, err = run("table", "create", "Regions", "--file", str(place))
    assert code == 2
    assert says in err


def test_a_decision_is_explained(broker: Broker, run: Run, tmp_path: Path) -> None:
    broker.admin.create_routing_table("Regions", {"north": NORTH}, default=("//far", ELSEWHERE))
    body = tmp_path / "order.json"
    body.write_text('{"region": "north"}', "utf-8")
    code, out, _ = run("router", "explain", str(body), "--classifier", "json_path:$.region", "--table", "Regions")
    assert code == 0
    said = [line.split(maxsplit=1) for line in out.splitlines()]
    assert said == [
        ["classifier", "json_path"],
        ["key", "'north'"],
        ["table", "'Regions', version 1: an entry"],
        ["service", NORTH],
    ]
    described = json.dumps({"kind": "json_path", "path": "$.region", "table": "Regions"})
    code, out, _ = run("router", "explain", "-", "--classifier", described, "--json", text='{"region": "east"}')
    assert (code, json.loads(out)) == (
        0,
        {
            "classifier": json.loads(described),
            "key": "east",
            "table": "Regions",
            "version": 1,
            "by_default": True,
            "service": "//far",
            "broker_instance": ELSEWHERE,
            "reason": f"in broker instance {ELSEWHERE}",
        },
    )
    broker.admin.alter_routing_table("Regions", without_default=True)
    (tmp_path / "classifier").write_text(described, "utf-8")
    code, out, _ = run(
        "router", "explain", "-", "--classifier", f"@{tmp_path / 'classifier'}", text='{"region": "east"}'
    )
    assert (code, out.splitlines()[-1]) == (
        0,
        "service     none: Routing table 'Regions' (version 2) has no service for key 'east'.",
    )


def test_explain_shows_the_service_for_a_body(broker: Broker, run: Run, tmp_path: Path) -> None:
    named = f"<message><toServiceName>{NORTH}</toServiceName></message>"
    assert f"service     {NORTH}\n" in run("router", "explain", "-", text=named)[1]
    out = run("router", "explain", "-", text=named.replace(NORTH, "//nowhere"))[1]
    assert "service     none: There is no service '//nowhere'." in out
    code, out, _ = run("router", "explain", "-", text=b"\xff")
    assert code == 0
    assert "key         none" in out
    schema = tmp_path / "order.avsc"
    schema.write_text(ORDER_SCHEMA, "utf-8")
    broker.admin.create_routing_table("Numbers", {"7": SOUTH})
    wanted = ["router", "explain", "-", "--classifier", "avro_field:number", "--table", "Numbers"]
    datum = b"\x0e\x00" + bytes(8)
    assert f"service     {SOUTH}" in run(*wanted, "--schema", str(schema), text=datum)[1]
    broker.admin.create_message_type("Order", "AVRO", schema=ORDER_SCHEMA)
    assert f"service     {SOUTH}" in run(*wanted, "--type", "Order", text=datum)[1]
    assert "has no Avro schema" in run(*wanted, "--type", "Invoice", text=datum)[1]
    hashed = run("router", "explain", "-", "--classifier", f"key_hash:{NORTH}", "--key", "a customer")[1]
    assert f"service     {NORTH}" in hashed


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--classifier", "by:chance"], "not a kind of classifier"),
        (["--classifier", "json_path:a"], "not a valid JSONPath"),
        (["--classifier", "@/nowhere"], "cannot be read"),
        (["--table", "Nothing"], "there is no routing table 'Nothing'"),
    ],
)
def test_explain_exits_with_code_2_for_an_invalid_classifier_or_an_unknown_table(
    run: Run, options: list[str], says: str
) -> None:
    text = "<message><toServiceName>x</toServiceName></message>"
    code, _, err = run("router", "explain", "-", *options, text=text)
    assert code == 2
    assert says in err


def test_the_classifier_the_table_and_the_commands_of_the_readme_route_explain_and_change(
    servers: Servers, broker: Broker, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    for body in (b'{"region": "north"}', b'{"region": "coast"}'):
        sent(broker, body)
    head = "import konverse\nfrom konverse.routing.classifiers import json_path"
    exec(compile(readme(head, servers, broker.database), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed in {f"{routed} []\n" for routed in ({NORTH: 1, SOUTH: 1}, {SOUTH: 1, NORTH: 1})}
    (explain, text), (change, _) = commands("echo '", broker.database)
    assert run(*explain, text=text)[1].endswith(f"'Regions', version 1: by default\nservice     {SOUTH}\n")
    assert run(*change)[:2] == (0, "routing table 'Regions' is changed: version 2, 2 keys\n")
    assert run(*explain, text=text)[1].endswith(f"'Regions', version 2: an entry\nservice     {NORTH}\n")
