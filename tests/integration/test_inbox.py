"""A handler's own tables and its messages change together, exactly once."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from konverse.bridge.inbox import DatabaseConnection, Inbox, _check_transactional
from konverse.dialog.transaction.received import Message
from konverse.schemas.errors import BadInput
from konverse.schemas.limits import INBOX_RESULT_BYTES_MAX
from tests.integration.inbox_worker import STEPS
from tests.kit.readme import readme
from tests.kit.servers import Servers, missing
from tests.kit.shop import ORDER, begin, connected, drain, open_shop, receive

Connect = Callable[[], Any]


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    runtime = tmp_path_factory.mktemp("run")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_RUNTIME_DIR", str(runtime))  # its import warns of its default otherwise
            import pgserver  # not every Python has a wheel
    except ImportError:
        missing("there is no wheel with a PostgreSQL server for this Python")
    with pgserver.postgres_server.get_server(tmp_path_factory.mktemp("postgresql"), cleanup_mode="stop") as server:
        yield server.get_uri()


@pytest.fixture(params=["sqlite", "postgresql"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    if request.param == "sqlite":
        return lambda: sqlite3.connect(tmp_path / "tables.db", timeout=30)
    address = request.getfixturevalue("postgresql")
    return lambda: psycopg.connect(address)


@pytest.fixture
def inbox(connect: Connect) -> Iterator[Inbox]:
    inbox = Inbox()
    with closing(connect()) as connection:
        inbox.create(connection)
        inbox.create(connection)
        connection.cursor().execute("CREATE TABLE effects (name VARCHAR(20))")
        connection.commit()
    yield inbox
    with closing(connect()) as connection:
        connection.cursor().execute("DROP TABLE effects")
        connection.cursor().execute(f"DROP TABLE {inbox.table}")
        connection.commit()


def message(name: str, conversation: str = "a conversation", at_s: float = 0) -> Message:
    """A message received at this time of its partition, which is Kafka's."""
    context = SimpleNamespace(now_ms=lambda: round(at_s * 1000))
    return cast("Message", SimpleNamespace(id=name, dialog=SimpleNamespace(id=conversation), context=context))


def effects(connection: Any) -> list[str]:
    cursor = connection.cursor()
    cursor.execute("SELECT name FROM effects ORDER BY name")
    found = [name for (name,) in cursor.fetchall()]
    connection.commit()
    return found


def have(inbox: Inbox, connection: Any, name: str, result: bytes | None = None) -> bytes | None:
    with inbox.once(connection, message(name)) as step:
        if step.first:
            connection.cursor().execute(f"INSERT INTO effects VALUES ('{name}')")
            step.result = result
    return step.result


def test_a_message_handled_again_finds_its_earlier_result(connect: Connect, inbox: Inbox) -> None:
    with closing(connect()) as one, closing(connect()) as two:
        assert have(inbox, one, "a", b"\0 answer") == b"\0 answer"
        assert have(inbox, two, "a", b"another") == b"\0 answer"
        assert have(inbox, two, "b") is None
        assert have(inbox, one, "b") is None
        assert effects(one) == ["a", "b"]


def test_a_handler_that_raises_has_had_no_effects(connect: Connect, inbox: Inbox) -> None:
    with closing(connect()) as connection:
        with suppress(LookupError), inbox.once(connection, message("a")) as step:
            assert step.first
            connection.cursor().execute("INSERT INTO effects VALUES ('half')")
            raise LookupError
        assert effects(connection) == []
        assert have(inbox, connection, "a", b"whole") == b"whole"


def test_a_result_that_is_too_long_is_refused_and_nothing_has_happened(connect: Connect, inbox: Inbox) -> None:
    with closing(connect()) as connection:
        with pytest.raises(BadInput, match="keep it in a table of your own"):
            have(inbox, connection, "a", bytes(INBOX_RESULT_BYTES_MAX + 1))
        assert effects(connection) == []
        assert len(have(inbox, connection, "a", bytes(INBOX_RESULT_BYTES_MAX)) or b"") == INBOX_RESULT_BYTES_MAX


def test_a_result_that_is_not_bytes_is_refused_and_nothing_has_happened(connect: Connect, inbox: Inbox) -> None:
    """SQLite would keep the text "7" as the number 7, and a handler would get seven zero bytes."""
    with closing(connect()) as connection:
        with pytest.raises(BadInput, match="a result must be bytes, not str"):
            have(inbox, connection, "a", cast("Any", "7"))
        assert effects(connection) == []


def test_old_rows_are_forgotten(connect: Connect, inbox: Inbox) -> None:
    with closing(connect()) as connection:
        have(inbox, connection, "a")
        assert inbox.forget(connection, timedelta(days=1)) == 0
        assert inbox.forget(connection, timedelta(seconds=-1)) == 1
        have(inbox, connection, "a")
        assert effects(connection) == ["a", "a"]


def test_rows_are_old_by_kafkas_time(connect: Connect, inbox: Inbox) -> None:
    """The age is measured from the newest message, without the machine's clock."""
    with closing(connect()) as connection:
        for name, at_s in (("a", 1_000.0), ("b", 4_000.0), ("c", 4_601.0)):
            with inbox.once(connection, message(name, at_s=at_s)):
                pass
        assert inbox.forget(connection, timedelta(hours=1)) == 1
        assert inbox.forget(connection, timedelta(minutes=10)) == 1
        assert inbox.forget(connection, timedelta()) == 0


def test_a_connection_that_commits_by_itself_is_refused(tmp_path: Path, postgresql: str) -> None:
    with (
        closing(sqlite3.connect(tmp_path / "tables.db", isolation_level=None)) as one,
        closing(psycopg.connect(postgresql, autocommit=True)) as two,
    ):
        for connection in (one, two):
            with (
                pytest.raises(BadInput, match="autocommit"),
                Inbox().once(cast("DatabaseConnection", connection), message("a")),
            ):
                pass


def test_a_connection_that_is_in_a_transaction_is_refused(connect: Connect, inbox: Inbox) -> None:
    """So is the connection of another thread: its commit would include the other's changes."""
    with closing(connect()) as connection, inbox.once(connection, message("a")) as step:
        with pytest.raises(BadInput, match="each thread a connection of its own"), inbox.once(connection, message("b")):
            pass
        with pytest.raises(BadInput, match="commit it first"):
            inbox.forget(connection, timedelta())
        step.result = b"went on"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="SQLite connections of this Python have no autocommit")
def test_a_sqlite_connection_without_autocommit_can_be_used() -> None:
    """It always has a transaction open, as PEP 249 demands."""
    made: Any = sqlite3.connect
    inbox = Inbox()
    with closing(made(":memory:", autocommit=False)) as connection:
        inbox.create(connection)
        for first in (True, False):
            with inbox.once(connection, message("a")) as step:
                assert step.first is first


def test_the_transaction_that_a_sqlite_connection_always_has_is_not_the_callers() -> None:
    class Connection:
        autocommit, in_transaction = False, True

    Connection.__module__ = "sqlite3"
    _check_transactional(cast("Any", Connection()))


def test_a_broken_connection_is_not_taken_for_one_in_a_transaction() -> None:
    """Its driver raises its own error, by which a handler knows that it has to connect again."""
    broken = SimpleNamespace(autocommit=False, info=SimpleNamespace(transaction_status=TransactionStatus.UNKNOWN))
    _check_transactional(cast("Any", broken))


def test_errors_that_lost_data_led_to_are_one_for_each_conversation(connect: Connect, inbox: Inbox) -> None:
    with closing(connect()) as connection:
        for name in ("one", "two"):
            with inbox.once(connection, message("same", name)) as step:
                assert step.first


@pytest.mark.parametrize("table", ["", "in box", "a.b.c", "x; DROP TABLE y", "1x"])
def test_an_invalid_table_name_is_refused(table: str) -> None:
    with pytest.raises(BadInput, match="not a valid table name"):
        Inbox(table)


@pytest.mark.stack
def test_the_inbox_of_the_readme_works(
    servers: Servers, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        for body in (b"cup", b"pot"):
            dialog.send(ORDER, body)
        dialog.end()
        broker.flush()
        drain(broker, "Shop")  # passes the end on
        program = readme("import sqlite3\n", servers, database)
        exec(compile(program, "README.md", "exec"), {})
        with closing(sqlite3.connect("orders.db")) as connection:
            assert connection.execute("SELECT what FROM orders").fetchall() == [(b"cup",), (b"pot",)]


@pytest.mark.nightly
@pytest.mark.stack
def test_a_worker_that_is_killed_at_every_step_books_each_order_once(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    amounts = [3, 5, 7, 11, 13, 17]
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialogs = [begin(broker) for _ in range(2)]
        for number, amount in enumerate(amounts):
            dialogs[number % 2].send(ORDER, b"%d" % amount)
        broker.flush()
        command = [sys.executable, "-m", "tests.integration.inbox_worker", servers.bootstrap, database, str(tmp_path)]
        codes = [subprocess.run(command, check=False, timeout=120).returncode for _ in range(len(STEPS) + 1)]
        assert codes == [-signal.SIGKILL] * len(STEPS) + [0], "it was killed once at each step"
        receipts = receive(broker, "Shop", len(amounts))
        assert drain(broker, "Shop") == []
    with closing(sqlite3.connect(tmp_path / "accounts.db")) as connection:
        totals = [total for (total,) in connection.execute("SELECT total FROM booked ORDER BY total")]
    assert totals[-1] == sum(amounts)
    assert len(totals) == len(amounts)
    assert sorted(int(receipt.body) for receipt in receipts) == totals
