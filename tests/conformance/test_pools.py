"""Behaviours 224 to 229: conversations are reused, recycled, and replaced together with their undelivered messages."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from konverse.bridge.broker import Broker
from konverse.dialog.pool.recycling import RESENT
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.system_messages import END_DIALOG
from tests.kit.pools import STREAM_END, Taker, left_open, open_stream, pool_of, taking
from tests.kit.shop import NOTE, ORDER, begin, end_at_target, pumped, until

pytestmark = pytest.mark.stack


@pytest.fixture
def stream(broker: Broker) -> Broker:
    """The shop, with a contract that has EndOfStream."""
    open_stream(broker)
    return broker


def test_224_two_sends_of_one_session_use_one_dialog_and_other_sessions_use_others(stream: Broker) -> None:
    both = threading.Barrier(2)

    def session(name: bytes) -> None:
        pool.send(ORDER, name)
        both.wait(30)
        pool.send(ORDER, name)

    with taking(stream, Taker()) as taker, pool_of(stream) as pool, ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(session, name) for name in (b"one", b"other")]:
            done.result()
        until(lambda: len(taker.bodies) == 4, "all are received")
    used = {name: {m.dialog.conversation for m in taker.taken if m.body == name} for name in (b"one", b"other")}
    assert [len(conversations) for conversations in used.values()] == [1, 1]
    assert used[b"one"] != used[b"other"]


def test_225_a_send_after_the_dialog_went_to_er_opens_a_new_dialog(
    stream: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with pool_of(stream) as pool, caplog.at_level(logging.ERROR, "konverse.pool"):
        pool.send(ORDER, b"first")
        end_at_target(stream, error=4711)
        until(lambda: pool.statistics.replaced == 1, "the error is heard")
        with taking(stream, Taker()) as taker:
            assert pool.send(ORDER, b"second") == 0
            until(lambda: taker.bodies == [b"second"], "it is received")
        assert pool.statistics.begun == 2
    assert "Code:4711 Description:'no more'" in caplog.text


def test_226_timer_end_of_stream_end_end_dialog_end_and_no_endpoint_is_left(
    stream: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.bridge.runtime.settings.POOL_SLACK_MS", 0)
    story: list[str] = []

    def target(transaction: Transaction) -> None:
        for message in transaction:
            story.append(message.type)
            if message.type == STREAM_END:
                transaction.end(message.dialog)

    def initiator(transaction: Transaction) -> None:
        story.extend(message.type for message in transaction)
        transaction.rollback("begun")
        assert pool.answer(transaction) == []

    def shop() -> None:
        for transaction in reader:
            with transaction:
                transaction.savepoint("begun")
                initiator(transaction)

    with pool_of(stream, max_age=1, read=False) as pool, stream.reader("Shop") as reader:
        monkeypatch.setattr(pool._keeper.pooling, "max_age_ms", 2**40)  # its sender does nothing more
        pool.send(ORDER, b"one")
        thread = threading.Thread(target=shop)
        with taking(stream, target):
            thread.start()
            until(lambda: END_DIALOG in story, "the target has ended")
            until(lambda: not list(stream.views.conversation_endpoints()), "no endpoint is left")
        reader.stop()
        thread.join()
    assert [one.rpartition("/")[2] for one in story] == ["Order", "DialogTimer", "EndOfStream", "EndDialog"]


def test_227_under_concurrent_sends_no_message_follows_end_of_stream_and_no_sender_blocks_forever(
    stream: Broker,
) -> None:
    with taking(stream, Taker()) as taker:
        with pool_of(stream, size=1, max_messages=2, max_age=0.2) as pool, ThreadPoolExecutor(4) as threads:
            for done in [threads.submit(lambda: [pool.send(ORDER, b"") for _ in range(250)]) for _ in range(4)]:
                done.result(60)
        until(lambda: len(taker.bodies) == 1_000, "all are received")
        used = {
            one.dialog.conversation for one in taker.taken
        }  # a busy machine may recycle some before their first send
        until(lambda: used <= {*taker.finished}, "the target has learned of each end")
        until(lambda: not left_open(stream), "no endpoint is left")
        assert sorted(taker.finished) == sorted(used)
        assert (taker.behind, taker.ended) == ([], [])
        assert len(used) <= pool.statistics.begun


@pytest.mark.parametrize(("code", "again"), [(RESENT[2], True), (4711, False)])
def test_228_unacknowledged_messages_are_resent_in_order_with_their_types_for_four_codes_only(
    stream: Broker, monkeypatch: pytest.MonkeyPatch, code: int, again: bool
) -> None:
    assert RESENT == (-8489, -8462, -9719, -28052)
    monkeypatch.setattr("konverse.bridge.client.pool.worker.REST_S", 3600.0)  # it hears of the end when the test wants
    sent = [b"%d" % number for number in range(6)]
    with pool_of(stream, read=False) as pool:
        pool.send(ORDER, b"first")
        with stream.reader("Orders") as reader:
            with next(iter(reader)) as transaction:
                list(transaction)
                if code > 0:
                    transaction.end(transaction.dialog, error=code, description="no more")
            reader.settle()
            if code < 0:
                reader.operations.fail(transaction.dialog.id)
            reader.settle()
        for number, body in enumerate(sent):
            pool.send(ORDER if number % 2 else NOTE, body)
        pool.flush()  # no sender here has heard of the end
        with stream.reader("Shop") as shop, pumped(shop), taking(stream, Taker()) as taker:
            pool._worker._check_all_ms = 0

            def heard() -> int:
                pool._worker._check_all_ms = 0
                pool._worker.wake()
                return pool.statistics.resent + pool.statistics.given_up

            until(lambda: heard() == len(sent), "all have come back")
            pool.send(ORDER, b"behind")
            until(lambda: b"behind" in taker.bodies, "what is sent later is received")
        assert taker.bodies == ([*sent, b"behind"] if again else [b"behind"])
        assert [message.type for message in taker.taken[:-1]] == ([NOTE, ORDER] * 3 if again else [])
        assert pool.statistics[2:5] == ((1, 6, 0) if again else (1, 0, 6))


def test_229_a_pool_takes_the_undelivered_messages_of_an_ended_dialog_before_it_ends_the_dialog(stream: Broker) -> None:
    """The target's end bounces waiting messages. The pool ends after all came back, and nothing stays behind."""
    sent = [b"%d" % number for number in range(6)]
    with pool_of(stream, read=False) as pool:
        pool.send(ORDER, b"first")
        end_at_target(stream)
        for body in sent:  # no reader reads the shop's queue, so the pool has not heard of the end
            pool.send(ORDER, body)
        pool.flush()
        with taking(stream, pool.answer, "Shop"):
            until(lambda: pool.statistics.replaced, "the end is heard")
            with taking(stream, Taker()) as taker:
                until(lambda: taker.bodies == sent, "all that came back is received")
                until(lambda: len(list(stream.views.conversation_endpoints())) == 2, "the first dialog is over")
        assert not list(stream.views.transmission_queue())
        assert pool.statistics.resent == len(sent)
    assert begin(stream).bounced() == []
