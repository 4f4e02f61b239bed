"""`konverse accept-loss`: unread data was deleted, the partition halts, and an operator lets it continue without."""

from __future__ import annotations

import json
import logging
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from konverse.bridge.admin import loss
from konverse.bridge.admin.loss import LossAcceptance
from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.owner import log_starts as beginnings
from konverse.bridge.reader.reader import Reader
from konverse.dialog.owner import snapshots as snapshotting
from konverse.schemas.errors import InvalidState, KafkaUnavailable, PartitionHalted
from konverse.schemas.identifiers import journal_topic, snapshot_topic
from konverse.schemas.system_messages import ERROR, read_error
from tests.integration.test_topics_changed import reading
from tests.kit.commands import run
from tests.kit.oracle import read_raw, snapshots_of
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    begin,
    connected,
    cut,
    drain,
    fill,
    open_shop,
    queue_of,
    receive,
    until,
    work,
)

pytestmark = pytest.mark.stack

MANY = 24
"""So many dialogs have homes in both of two partitions: the other case has a chance of 1 in 8 million."""


def ordered(broker: Broker, count: int) -> Dialog:
    """Begin a dialog, and send the orders 0 … count - 1 on it. Kafka has them."""
    dialog = begin(broker)
    for number in range(count):
        dialog.send(ORDER, b"%d" % number)
    broker.flush()
    return dialog


def ingested(broker: Broker, count: int) -> None:
    """Let a reader ingest and commit `count` messages, and close it. The messages wait."""
    with broker.reader("Orders", timeout=1) as reader:
        fill(reader, count)
        reader.settle()


def received_from_another(servers: Servers, database: str) -> list[bytes]:
    with connected(servers.bootstrap, database) as another:
        begin(another).send(ORDER, b"new")
        another.flush()
        return [message.body for message in receive(another, "Orders", 1)]


def until_saved(servers: Servers, broker: Broker, reader: Reader) -> None:
    def saved() -> bool:
        work(reader)
        return bool(snapshots_of(servers.bootstrap, queue_of(broker, "Orders")))

    until(saved, "a snapshot")


def konverse(servers: Servers, database: str, *arguments: str) -> tuple[int, str, str]:
    where = ("--kafka", f"kafka://{servers.bootstrap}", "--database", database)
    code, out, error = run(*arguments, *where, COLUMNS="200")
    return code, out, error


def test_a_halted_partition_continues_after_an_operator_accepts_the_loss(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        known = begin(broker)
        known.send(ORDER, b"in a snapshot")
        broker.flush()
        with monkeypatch.context() as often:
            often.setattr(snapshotting, "SNAPSHOT_EVERY_RECORDS", 0)
            often.setattr(snapshotting, "RECORDS_PER_ENDPOINT", 0)
            with broker.reader("Orders", timeout=1) as reader:
                fill(reader, 1)
                until_saved(servers, broker, reader)
    with connected(servers.bootstrap, database) as broker:
        unknown = ordered(broker, 3)
        ingested(broker, 4)
        cut(broker, 3)
        with pytest.raises(PartitionHalted, match=f"konverse accept-loss Orders 0 --database {database}"):
            drain(broker, "Orders")

        code, out, _ = konverse(servers, database, "accept-loss", "Orders", "0", "--json")
        assert code == 0
        listed = json.loads(out)
        assert (listed["first"], listed["log_begins"], listed["accepted"]) == (1, 3, False)
        shown = {one["conversation"]: (one["role"], one["known"]) for one in listed["conversations"]}
        assert shown[str(known.id)] == ("target", True)
        assert shown[str(unknown.id)] == ("target", False), "found in a record that was not deleted"
        with pytest.raises(PartitionHalted):
            drain(broker, "Orders")

        code, out, error = konverse(servers, database, "accept-loss", "Orders", "0", "--yes")
        assert (code, error) == (0, "")
        assert f"the records 1 to {listed['last']} are lost" in out
        assert "can be read again; konverse verify reports the loss" in out

        told = receive(broker, "Orders", 2)
        assert {(one.type, one.dialog.id) for one in told} == {(ERROR, known.id), (ORDER, known.id)}
        (far,) = receive(broker, "Shop", 1)
        assert (far.type, far.dialog.id) == (ERROR, known.id)
        assert read_error(far.body)[0] == -9719
        assert received_from_another(servers, database) == [b"new"]
        code, out, error = konverse(servers, database, "verify")
        assert code == 1
        assert f"the records 1 to {listed['last']} were deleted" in out + error

        with pytest.raises(InvalidState, match=r"partition 0 of queue .* has lost nothing"):
            broker.operations.accept_loss("Orders", 0)


def test_the_peer_of_a_lost_conversation_is_counted_and_gets_an_error_without_further_sends(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as sender:
        open_shop(sender)
        dialog = ordered(sender, 6)
    with connected(servers.bootstrap, database) as broker:
        with broker.reader("Orders", timeout=1, max_messages=2) as reader, next(reader) as transaction:
            assert [message.body for message in transaction] == [b"0", b"1"]
        cut(broker, -1)
        code, out, _ = konverse(servers, database, "accept-loss", "Orders", "0", "--yes")
        assert code == 0
        assert "1 conversation as far as known" in out
        assert str(dialog.id) in out
        (leaked,) = [one for one in broker.operations.leaked(older_than=0) if one.conversation == dialog.id]
        assert "The records 0 to" in leaked.why
        assert "LOST" in leaked.why
        (told,) = receive(broker, "Shop", 1)
        assert (told.type, told.dialog.id) == (ERROR, dialog.id)
        assert read_error(told.body)[0] == -9719
        code, out, _ = konverse(servers, database, "why", str(dialog.id))
        assert code == 0
        assert "The records 0 to" in out


def test_a_command_that_dies_half_way_is_run_again(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command dies before it tells the far sides, then before LOST. The third run succeeds; one Error arrives."""

    def dies(*_: object) -> None:
        raise SystemExit("killed")

    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = ordered(broker, 4)
        ingested(broker, 4)
        cut(broker, -1)
        for step in ("fail_peers", "give_up"):
            with monkeypatch.context() as patched:
                patched.setattr(LossAcceptance, step, dies)
                with pytest.raises(SystemExit):
                    broker.operations.accept_loss("Orders", 0)
            assert broker.operations.lost("Orders", 0) is not None
        (told,) = receive(broker, "Shop", 1)
        assert (told.type, told.dialog.id, read_error(told.body)[0]) == (ERROR, dialog.id, -9719)
        broker.operations.accept_loss("Orders", 0)
        assert broker.operations.lost("Orders", 0) is None
        assert drain(broker, "Shop") == []
        assert received_from_another(servers, database) == [b"new"]


def test_a_loss_that_grows_while_it_is_listed_is_listed_again(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = ordered(broker, 4)
        ingested(broker, 4)
        cut(broker, 2)

        class Overtaken(LogReader):
            def ends(self, topic: str, partition: int) -> tuple[int, int]:
                found = super().ends(topic, partition)
                cut(broker, -1)
                return found

        with monkeypatch.context() as patched:
            patched.setattr(loss, "LogReader", Overtaken)
            with pytest.raises(KafkaUnavailable, match=r"/0 was truncated while it was being read; try again"):
                broker.operations.lost("Orders", 0)
        lost = broker.operations.lost("Orders", 0)
        assert lost is not None
        assert [one.conversation for one in lost.conversations] == [dialog.id]


def test_a_partition_without_a_snapshot_loses_all_and_the_other_ones_are_read_meanwhile(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        dialogs = [begin(broker) for _ in range(MANY)]
        for dialog in dialogs:
            dialog.send(ORDER, b"0")
        broker.flush()
        ingested(broker, MANY)
        halted = next(number for number in (0, 1) if broker.operations.lost("Orders", number) is None)
        cut(broker, 1, halted)
        loss = broker.operations.lost("Orders", halted)
        assert loss is not None
        assert (loss.first, loss.log_begins) == (0, 1)
        with broker.reader("Orders", partitions=[1 - halted]) as reader:
            fill(reader, 1)
            given_up = broker.operations.accept_loss("Orders", halted)
            assert given_up.last == loss.last
            assert not reader.closed
            with next(reader) as transaction:
                assert [message.body for message in transaction] == [b"0"]
        with connected(servers.bootstrap, database) as another:
            fresh = [begin(another) for _ in range(MANY)]
            for dialog in fresh:
                dialog.send(ORDER, b"fresh")
            another.flush()
            wanted = {dialog.id for dialog in fresh}
            found: set[UUID] = set()
            with another.reader("Orders", timeout=DEADLINE_S) as reader:
                for transaction in reader:
                    with transaction:
                        found |= {message.dialog.id for message in transaction if message.body == b"fresh"}
                    if found == wanted:
                        break


def test_a_running_reader_saves_data_deleted_from_its_log_so_that_no_loss_has_to_be_accepted(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(beginnings, "WATCH_EVERY_S", 0.2)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        ordered(broker, 3)
        with broker.reader("Orders", timeout=1) as reader, caplog.at_level(logging.ERROR):
            fill(reader, 3)
            reader.settle()
            cut(broker, 3)

            until_saved(servers, broker, reader)
        code, _, error = konverse(servers, database, "accept-loss", "Orders", "0", "--yes")
        assert code == 2
        assert "has lost nothing that it needs" in error
        assert [message.body for message in receive(broker, "Orders", 3)] == [b"0", b"1", b"2"]
        errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        assert not errors, "its data is saved, so there is nothing to report; a client that connects may warn"
    received: list[bytes] = []
    with connected(servers.bootstrap, database) as broker, reading(broker, received):
        begin(broker).send(ORDER, b"new")
        until(lambda: received == [b"new"], "the next reader goes on")


def _newest(reader: Reader) -> int:
    work(reader)
    (owner,) = reader.owners
    return owner.snapshots.newest


def test_a_running_reader_writes_its_snapshot_again_when_it_was_deleted(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The records that it replaced are deleted as well, so the next reader would have nothing to recover from."""
    monkeypatch.setattr(beginnings, "WATCH_EVERY_S", 0.2)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        queue = queue_of(broker, "Orders")
        ordered(broker, 3)
        with broker.reader("Orders", timeout=1) as reader, caplog.at_level(logging.ERROR):
            with monkeypatch.context() as often:
                often.setattr(snapshotting, "SNAPSHOT_EVERY_RECORDS", 0)
                often.setattr(snapshotting, "RECORDS_PER_ENDPOINT", 0)
                fill(reader, 3)
                until_saved(servers, broker, reader)
            until(lambda: _newest(reader) >= 0, "it is written")
            written = _newest(reader)
            cut(broker, 3)
            cut(broker, -1, topic=snapshot_topic(queue.topic, queue.subscription))
            until(lambda: _newest(reader) > written, "another one is written")
            assert any("the last snapshot of" in record.getMessage() for record in caplog.records)
        assert [message.body for message in receive(broker, "Orders", 3)] == [b"0", b"1", b"2"]


def answered(answer: bytes, *arguments: str) -> tuple[int, str]:
    """Exit code and standard error of a command whose question is answered on a terminal."""
    terminal, side = pty.openpty()
    process = subprocess.Popen(
        [Path(sys.executable).parent / "konverse", *arguments],
        stdin=side,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    os.close(side)
    os.write(terminal, answer)
    _, said = process.communicate(timeout=2 * DEADLINE_S)
    os.close(terminal)
    return process.returncode, said.decode()


def test_a_loss_that_the_operator_refuses_is_not_given_up(servers: Servers, database: str) -> None:
    """The command asks. After a no nothing is written: the partition is halted as before, and no side has an Error."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        begin(broker).send(ORDER, b"0")
        broker.flush()
        ingested(broker, 1)
        cut(broker, -1)
        queue = queue_of(broker, "Orders")
        written = read_raw(servers.bootstrap, journal_topic(queue.topic), 0)
        where = ("--kafka", f"kafka://{servers.bootstrap}", "--database", database)
        for answer in (b"n\n", b"\n", b"\x04"):
            code, said = answered(answer, "accept-loss", "Orders", "0", *where)
            assert code == 0, said
            assert "Give all of this up?" in said
            assert "nothing was given up" in said
        assert read_raw(servers.bootstrap, journal_topic(queue.topic), 0) == written
        assert broker.operations.lost("Orders", 0) is not None
        with pytest.raises(PartitionHalted):
            drain(broker, "Orders")
        assert drain(broker, "Shop") == []

        code, said = answered(b"y\n", "accept-loss", "Orders", "0", *where)
        assert code == 0, said
        assert broker.operations.lost("Orders", 0) is None
        (told,) = receive(broker, "Shop", 1)
        assert read_error(told.body)[0] == -9719


def test_a_suspended_conversation_whose_messages_were_deleted_is_given_up_too(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        begin(broker).send(ORDER, b"poison")
        broker.flush()
        with broker.reader("Orders", timeout=1) as reader:
            for transaction in reader:
                with suppress(ZeroDivisionError), transaction:
                    raise ZeroDivisionError
            assert reader.operations.suspended
        cut(broker, 1)
        with pytest.raises(PartitionHalted, match="konverse accept-loss Orders 0"):
            drain(broker, "Orders")
        broker.operations.accept_loss("Orders", 0)
        assert received_from_another(servers, database) == [b"new"]
