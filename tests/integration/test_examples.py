"""The examples run, more than once in one database, and print their result."""

from __future__ import annotations

import io
import re
import runpy
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from examples import answering
from examples.patterns import asynchronous_call, fan_out_fan_in, request_reply, saga, scheduled_work
from konverse.bridge.broker import Broker
from konverse.schemas.system_messages import END_DIALOG
from tests.kit.answering import Run
from tests.kit.servers import Servers
from tests.kit.shop import connected, until

pytestmark = pytest.mark.stack

FOLDER: Final = Path(answering.__file__).parent

Example = Callable[[str], list[str]]


@pytest.fixture
def example(servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Example:
    """Runs an example like `python -m` and returns the printed lines."""
    monkeypatch.setenv("KONVERSE_KAFKA", f"kafka://{servers.bootstrap}")
    monkeypatch.setenv("KONVERSE_DATABASE", database)
    monkeypatch.setenv("EXAMPLES_TABLES", str(tmp_path))

    def run(name: str) -> list[str]:
        output = io.StringIO()
        with redirect_stdout(output):
            runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        return output.getvalue().splitlines()

    return run


def test_all_examples_live_side_by_side_in_one_database(servers: Servers, database: str) -> None:
    modules = [
        import_module(".".join(file.relative_to(FOLDER.parent).with_suffix("").parts))
        for file in sorted((*FOLDER.glob("*.py"), *FOLDER.glob("patterns/*.py")))
    ]
    creating = [
        module for module in modules if getattr(getattr(module, "create", None), "__module__", "") == module.__name__
    ]
    assert len(creating) >= 14
    with connected(servers.bootstrap, database) as broker:
        for module in (*creating, *reversed(creating)):
            module.create(broker)


def test_the_catalog_is_built_and_taken_down_again(example: Example) -> None:
    lines = example("catalog")
    assert lines == example("catalog")
    assert lines[0].startswith("refused (8492): contract '//books/Booking'")
    assert "//books/Ledger is on queue Books" in lines
    assert "//books/Invoice has bodies of validation X" in lines
    assert any(line.startswith("refused: contract '//books/Booking' is used by service") for line in lines)
    assert lines[-1] == "dropped again"


def test_dialogs_are_answered_and_end(example: Example) -> None:
    lines = example("dialogs")
    assert lines[:2] == ["begun: //library/Reader to //library/Librarian", "rolled back: changed my mind"]
    assert sorted(lines[2:-1]) == ["#0 shelf K", "#0 shelf M", "#0 shelf Z"]
    assert lines[-1] == "0 conversations are open"
    assert sorted(example("dialogs")) == sorted(lines)


def test_the_groups_example_receives_related_messages_together(example: Example) -> None:
    lines = [
        "south: [Naples is booked] [Rome is booked]",
        "north: [Bergen is booked] [Narvik is booked] [Oslo is booked]",
    ]
    assert example("groups") == lines
    assert example("groups") == lines


def test_conversations_moved_to_one_group_are_answered_together(example: Example) -> None:
    lines = ["asked: still smokes", *["answered: the printer is replaced"] * 2]
    assert example("regrouping") == lines
    assert example("regrouping") == lines


def test_urgent_messages_are_handled_first_and_a_wrong_reply_is_rolled_back(example: Example) -> None:
    lines = [
        "level 10: a broken leg",
        "level 5: a cut",
        "level 5: a fever",
        "a plaster on a broken leg",
        "a plaster on a cut",
        "rest against a fever",
    ]
    assert example("priorities") == lines
    assert example("priorities") == lines


def test_timers_remind_and_lifetimes_end(example: Example) -> None:
    expected = [
        "given up",
        "nobody answered, reminder 1",
        "nobody answered, reminder 2",
        "the buyer hears: -8489 The dialog has outlived the LIFETIME with which it was begun.",
        "the buyer hears: 1 nobody answered",
        "the lifetime is over: -8489",
    ]
    assert sorted(example("timers")) == expected
    assert sorted(example("timers")) == expected


def test_the_errors_example_distinguishes_application_errors_from_broker_errors(example: Example) -> None:
    lines = example("errors")
    assert lines[:2] == ["WrongDirection (8432)", "MessageTypeNotFound (8428)"]
    told = "\n".join(lines)
    assert "Senders: an application's error 4711: an empty letter" in told
    assert re.search(r"Senders: the broker's error -9615: .*", told)
    assert re.search(r"Senders: the broker's error -8408: .*", told)
    assert "Senders: the other side has ended" in told
    assert lines[-1] == "ConversationEnded (8429)"


def test_a_program_answers_under_konverse_run(
    servers: Servers, database: str, tmp_path: Path, example: Example
) -> None:
    with connected(servers.bootstrap, database) as broker:
        answering.create(broker)
    with Run(servers, database, tmp_path, app="examples.answering:app"):
        lines = ["7 squared is 49", "8 squared is 64", "9 squared is 81"]
        assert example("answering") == lines
        assert example("answering") == lines


def test_effects_outside_happen_once(example: Example) -> None:
    lines = example("effects")
    assert "booked already, the answer is the same: booking 1" in lines
    assert "bookings: 3, together 60" in lines
    assert sorted(lines[2:]) == [f"receipt for booking {number}" for number in (1, 2, 3)]
    assert sorted(example("effects")) == sorted(lines)


def test_the_looking_example_lists_messages_without_consuming_them(
    example: Example, servers: Servers, database: str
) -> None:
    lines = example("looking")
    assert lines[:3] == [
        "waits: //depot/Parcel #0, b'a book'",
        "waits: //depot/Parcel #1, b'a lamp'",
        f"on its way: {END_DIALOG} to //depot/Depot: DepotSenders/0 has no owner",
    ]
    assert any(line.startswith("initiator //depot/Sender, ") for line in lines)
    assert lines[-2:] == ["0 messages wait, states: none", "on its way: 0"]
    with connected(servers.bootstrap, database) as broker:
        assert list(broker.views.contents("Depot")) == []


def test_a_question_is_answered_even_when_another_client_fetches_the_answer(
    servers: Servers, database: str, tmp_path: Path, example: Example
) -> None:
    lines = [
        "CHF: 0.94",
        "XYZ: error 404, there is no rate of XYZ",
        "CHF on a holiday: error -8489, ",
        "NOK, fetched later: 11.60",
    ]
    with connected(servers.bootstrap, database) as broker:
        request_reply.create(broker)
    with Run(servers, database, tmp_path, app="examples.patterns.request_reply:app"):
        for _ in range(2):
            told = example("patterns/request_reply")
            assert [line[: len(head)] for line, head in zip(told, lines, strict=True)] == lines


def test_an_article_goes_to_each_subscriber_of_one_of_its_tags(example: Example) -> None:
    wanting = {0: "%", 1: "B", 2: "C", 5: "%"}
    tags = enumerate(("%", "B", "C", "D", "E", "%", "G", "H", "I", "J"))
    lines = [f"subscriber {number} of {tag}: {int(number in wanting)}" for number, tag in tags]
    lines.append("subscriptions left: 0")
    assert example("patterns/publish_subscribe") == lines
    assert example("patterns/publish_subscribe") == lines


def test_answers_of_several_services_come_together_in_one_also_without_those_that_are_late(
    servers: Servers, database: str, tmp_path: Path, example: Example
) -> None:
    lines = [f"{pallets} pallets: {40 * pallets} by //freight/Ship, of 3 offers" for pallets in (3, 4)]
    with connected(servers.bootstrap, database) as broker:
        fan_out_fan_in.create(broker)
    with Run(servers, database, tmp_path, app="examples.patterns.fan_out_fan_in:app"):
        assert example("patterns/fan_out_fan_in") == lines
        assert example("patterns/fan_out_fan_in") == lines
        with connected(servers.bootstrap, database) as broker:
            until(lambda: open_sides(broker) == 0, "nothing is left open")


def test_a_saga_goes_through_or_back(servers: Servers, database: str, tmp_path: Path, example: Example) -> None:
    lines = [
        "Oslo: booked",
        "Venice: no car in Venice",
        *("flight booked", "hotel booked", "car booked"),
        *("flight booked", "hotel booked", "hotel taken back", "flight taken back"),
    ]
    with connected(servers.bootstrap, database) as broker:
        saga.create(broker)
    with Run(servers, database, tmp_path, app="examples.patterns.saga:app"):
        assert example("patterns/saga") == lines
        assert example("patterns/saga") == lines
        with connected(servers.bootstrap, database) as broker:
            until(lambda: open_sides(broker) == 0, "nothing is left open")


def test_scheduled_work_is_done_again_and_again_until_it_is_stopped(
    servers: Servers, database: str, tmp_path: Path, example: Example
) -> None:
    lines = [f"round {number}: all is well" for number in (1, 2, 3)]
    with connected(servers.bootstrap, database) as broker:
        scheduled_work.create(broker)
    with Run(servers, database, tmp_path, app="examples.patterns.scheduled_work:app"):
        assert example("patterns/scheduled_work") == lines
        assert example("patterns/scheduled_work") == lines
        with connected(servers.bootstrap, database) as broker:
            until(lambda: open_sides(broker) == 0, "nothing is left open")


def test_a_function_is_called_and_its_result_is_fetched_by_id(
    servers: Servers, database: str, tmp_path: Path, example: Example
) -> None:
    lines = [
        "result: 3.0",
        "result: ['to', 'be', 'or', 'not']",
        "raised: error 1, ZeroDivisionError: division by zero",
        "raised: error 2, no function 'eval' is registered",
    ]
    with connected(servers.bootstrap, database) as broker:
        asynchronous_call.create(broker)
    with Run(servers, database, tmp_path, app="examples.patterns.asynchronous_call:app"):
        assert example("patterns/asynchronous_call") == lines
        assert example("patterns/asynchronous_call") == lines


def test_work_moves_between_readers_that_come_and_go(example: Example) -> None:
    lines = ["Anna alone: ['Anna']", "Anna and Ben: ['Anna', 'Ben']", "Ben alone: {'Ben': 24}"]
    assert example("patterns/load_balancing") == lines
    assert example("patterns/load_balancing") == lines


def open_sides(broker: Broker) -> int:
    """Number of conversation endpoints, closed ones included."""
    return len(list(broker.views.conversation_endpoints()))


def test_every_example_is_listed_and_run() -> None:
    listed = re.findall(
        r"^\| \[[a-z_/]+\.py\]\(([a-z_/]+)\.py\)", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE
    )
    aside = {"__init__", "demo", "spark_demo", "routing_demo", "patterns/__init__", "patterns/tables"}
    paths = [*FOLDER.glob("*.py"), *FOLDER.glob("patterns/*.py")]
    assert sorted(listed) == sorted({path.relative_to(FOLDER).with_suffix("").as_posix() for path in paths} - aside)
    here = Path(__file__).read_text("utf-8")
    assert [name for name in listed if f'example("{name}")' not in here] == []
