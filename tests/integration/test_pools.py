"""Conversations are reused, recycled and replaced, on real servers (behaviours 224 to 229)."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final
from unittest.mock import Mock, patch

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.client.pool.pool import Pool
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import (
    BadInput,
    BrokerClosed,
    ConversationEnded,
    InvalidSettings,
    InvalidTimeout,
    KafkaUnavailable,
    MessageTypeNotFound,
    NotInContract,
    PoolInUse,
    ServiceNotFound,
)
from konverse.schemas.limits import POOL_ATTEMPTS_MAX
from konverse.schemas.system_messages import DEFAULT
from tests.kit.pool_stress import Load, stress
from tests.kit.pools import STREAM_END, STREAMING, Taker, pool_of, stream_shop, taking
from tests.kit.readme import readme
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    connected,
    drain,
    until,
)

pytestmark = pytest.mark.stack

BYE: Final = "Bye"
WAVING: Final = "//sales/Waving"
"""A contract whose streams end with BYE."""


@pytest.fixture
def broker(servers: Servers, database: str) -> Iterator[Broker]:
    """The shop, open for streams."""
    with stream_shop(servers.bootstrap, database) as broker:
        yield broker


def nothing_open(broker: Broker) -> bool:
    """No endpoint lives in either queue."""
    return not list(broker.views.conversation_endpoints())


def test_a_key_has_one_conversation_until_it_is_recycled(broker: Broker) -> None:
    with taking(broker, Taker()) as taker:
        with pool_of(broker, max_messages=10) as pool:
            numbers = [pool.send(ORDER, b"%d" % number, "one") for number in range(35)]
            assert numbers == [number % 10 for number in range(35)]
            until(lambda: len(taker.bodies) == 35, "all is received")
            assert taker.bodies == [b"%d" % number for number in range(35)]
            until(lambda: pool.conversations == 1, "what was recycled is over")
            assert pool.statistics[:3] == (4, 3, 0)
        assert pool.statistics.recycled == 4
        assert not pool.conversations
        assert len(set(taker.finished)) == 4
        until(lambda: nothing_open(broker), "no endpoint is left")


def test_nothing_follows_end_of_stream_under_concurrent_senders(servers: Servers, database: str) -> None:
    """With 100,000 recycles: `python -m tests.kit.pool_stress`."""
    result = stress(servers.bootstrap, database, Load(recycles=2_000))
    assert result.received >= 6_000
    assert result.begun == result.recycled >= 2_000
    assert (result.behind, result.lost, result.doubled, result.left, result.refuted) == (0, 0, 0, 0, 0)


def test_end_of_stream_is_not_sent_by_hand(broker: Broker) -> None:
    with taking(broker, Taker()) as taker, pool_of(broker) as pool:
        with pytest.raises(BadInput, match=r"which only the pool sends: call pool.recycle\(\)"):
            pool.send(STREAM_END)
        pool.send(ORDER, b"one")
        until(lambda: taker.bodies == [b"one"], "it is received")


def test_replies_through_a_reading_pool_log_one_warning_with_the_remedy(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    def reply(transaction: Transaction) -> None:
        for message in transaction:
            if message.type == ORDER:
                transaction.send(message.dialog, RECEIPT, b"")
            else:
                transaction.end(message.dialog)

    told = "messages for the application wait"
    with caplog.at_level(logging.WARNING, "konverse.pool"), pool_of(broker) as pool, taking(broker, reply):
        for key in ("one", "two"):
            pool.send(ORDER, b"", key)
        until(lambda: told in caplog.text, "the warning is logged")
    assert caplog.text.count(told) == 1
    assert "read=False" in caplog.text


def test_a_conversation_is_recycled_when_it_is_old_although_nothing_is_sent(broker: Broker) -> None:
    with taking(broker, Taker()) as taker, pool_of(broker, max_age=0.5) as pool:
        pool.send(ORDER, b"one")
        until(lambda: pool.statistics.recycled == 1, "it is recycled")
        until(lambda: not pool.conversations, "it is over")
        pool.send(ORDER, b"two")
        until(lambda: taker.bodies == [b"one", b"two"], "both are received")


def test_load_moves_to_a_second_instance_of_the_target_without_a_restart(
    servers: Servers, database: str, broker: Broker
) -> None:
    """One conversation at a time: the second instance gets some only because they are recycled to another partition."""
    with taking(broker, Taker()) as first, pool_of(broker, size=1, max_age=0.3) as pool:
        pool.send(ORDER, b"0")
        until(lambda: first.bodies, "the first instance is at work")
        with connected(servers.bootstrap, database) as other, taking(other, Taker()) as second:
            sent = 1

            def spreads() -> bool:
                nonlocal sent
                pool.send(ORDER, b"%d" % sent)
                sent += 1
                return bool(second.bodies)

            until(spreads, "the second instance gets work")
            pool.recycle()
            until(lambda: len(first.bodies) + len(second.bodies) == sent, "all are received")
            until(lambda: not pool.conversations, "all conversations are over")
        assert sorted(first.bodies + second.bodies) == sorted(b"%d" % number for number in range(sent))


def test_replies_are_the_applications_own(broker: Broker) -> None:
    heard: list[bytes] = []

    def reply(transaction: Transaction) -> None:
        for message in transaction:
            if message.type == ORDER:
                transaction.send(message.dialog, RECEIPT, b"re " + message.body)
            else:
                transaction.end(message.dialog)

    with pool_of(broker, read=False, max_messages=2) as pool, taking(broker, reply), broker.reader("Shop") as shop:

        def hear(transaction: Transaction) -> None:
            heard.extend(message.body for message in pool.answer(transaction))

        thread = threading.Thread(target=shop.run, args=(hear,))
        thread.start()
        for number in range(6):
            pool.send(ORDER, b"%d" % number)
        until(lambda: len(heard) == 6, "the replies are heard")
        until(lambda: pool.conversations == 0, "all conversations are over")
        shop.stop()
        thread.join()
    assert sorted(heard) == [b"re %d" % number for number in range(6)]
    until(lambda: nothing_open(broker), "no endpoint is left")


def test_conversations_of_a_vanished_sender_are_ended_by_their_timers(
    servers: Servers, broker: Broker, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also under a contract and with a type that no pool uses that reads there."""
    monkeypatch.setattr("konverse.bridge.runtime.settings.POOL_SLACK_MS", 0)
    monkeypatch.setattr("konverse.dialog.pool.recycling.POOL_PATIENCE_MS", 1_000)
    broker.admin.create_message_type(BYE)
    broker.admin.create_contract(WAVING, {ORDER: "INITIATOR", BYE: "INITIATOR"})
    broker.admin.alter_service(ORDER_SERVICE, add=[WAVING])
    with connected(servers.bootstrap, database) as other:
        for contract, end_of_stream in ((STREAMING, STREAM_END), (WAVING, BYE)):
            pool = other.pool(
                SHOP_SERVICE, ORDER_SERVICE, contract, end_of_stream=end_of_stream, max_age=2.0, read=False
            )
            pool.send(ORDER, end_of_stream.encode())
            pool.flush()
            pool._worker.over = True  # no process recycles it
    heard = set[tuple[str, str, bytes]]()

    def take(transaction: Transaction) -> None:
        for message in transaction:
            heard.add((message.dialog.contract, message.type, message.body))
            if message.type in {BYE, STREAM_END}:
                transaction.end(message.dialog)

    with taking(broker, take), pool_of(broker):
        until(lambda: nothing_open(broker), "the timer has sent EndOfStream, and no endpoint is left")
    assert heard == {
        (STREAMING, ORDER, STREAM_END.encode()),
        (STREAMING, STREAM_END, b""),
        (WAVING, ORDER, BYE.encode()),
        (WAVING, BYE, b""),
    }


def test_a_pool_that_was_closed_says_so_and_loses_nothing(broker: Broker) -> None:
    pool = pool_of(broker)
    with taking(broker, Taker()) as taker:
        pool.send(ORDER, b"one", "key")
        pool.send(ORDER, b"two")
        pool.close()
        pool.close()
        for again in ("key", None):
            with pytest.raises(BrokerClosed, match=r"the pool to .*OrderService was closed"):
                pool.send(ORDER, b"three", again)
        until(lambda: sorted(taker.bodies) == [b"one", b"two"], "both are received")


def test_a_conversation_whose_first_message_was_refused_ends_without_a_word(broker: Broker) -> None:
    with taking(broker, Taker()) as taker, pool_of(broker) as pool:
        with pytest.raises(MessageTypeNotFound):
            pool.send("//sales/Nothing", b"one", "key")
        pool.recycle()
        until(lambda: not pool.conversations, "it is over")
        assert taker.finished == []
    until(lambda: nothing_open(broker), "no endpoint is left")


def test_a_pool_hears_of_ends_again_when_its_queue_was_off(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with taking(broker, Taker()) as taker, pool_of(broker) as pool, caplog.at_level(logging.WARNING, "konverse"):
        pool.send(ORDER, b"one")
        until(lambda: taker.bodies, "it is received")
        broker.admin.alter_queue("Shop", status=False)
        until(lambda: "is OFF" in caplog.text or "QueueDisabled" in caplog.text, "its reader has seen that")
        broker.admin.alter_queue("Shop", status=True)
        pool.recycle()
        until(lambda: not pool.conversations, "the conversation is over", deadline_s=20.0)


def test_a_named_pool_is_opened_once_however_many_threads_want_it(broker: Broker) -> None:
    together, opened, refused = threading.Barrier(4), list[Pool](), list[PoolInUse]()

    def open_it() -> None:
        together.wait()
        try:
            opened.append(pool_of(broker, name="orders", read=False))
        except PoolInUse as error:
            refused.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(opened), len(refused)) == (1, 3)


def test_a_pool_that_could_not_be_made_has_left_nothing(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(broker._pools, "_read", Mock(side_effect=KafkaUnavailable("nobody answers")))
        with pytest.raises(KafkaUnavailable):
            pool_of(broker, name="orders")
    with pool_of(broker, name="orders"):
        pass


def test_recycling_conversations_does_not_wait_for_room(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise `close` would wait a minute, a send's time-out without room, for each of its conversations."""
    pool = pool_of(broker, read=False)
    for number in range(5):
        pool.send(ORDER, b"", f"key {number}")
    pool.flush()
    with monkeypatch.context() as patched:
        patched.setattr(broker._client.open_sender(), "_has_room", lambda _dialog: False)
        pool.close(timeout=0)
    assert pool.statistics.recycled == 5


def test_threads_that_end_leave_their_conversations_to_the_next_ones(broker: Broker) -> None:
    with taking(broker, Taker()) as taker, pool_of(broker) as pool:
        for number in range(3):
            thread = threading.Thread(target=pool.send, args=(ORDER, b"%d" % number))
            thread.start()
            thread.join()
        until(lambda: len(taker.bodies) == 3, "all are received")
        assert len({message.dialog.conversation for message in taker.taken}) == 1
        assert len(pool._slots.by_name) == len(pool._slots.sends) == 1, (
            "who comes later under the name of one that ended is another"
        )


def test_a_thread_whose_conversation_made_room_for_others_is_the_same_session(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.dialog.pool.pool.POOL_KEY_ENTRIES_MAX", 1)
    with taking(broker, Taker()) as taker, pool_of(broker) as pool:
        pool.send(ORDER, b"one")
        pool.send(ORDER, b"two", "key")
        pool.send(ORDER, b"three")
        until(lambda: len(taker.bodies) == 3, "all are received")
        assert pool._groups.threads == {0: threading.get_ident()}


def test_a_pool_tries_a_message_on_ten_conversations_and_then_raises_and_logs_the_failure(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with pool_of(broker) as pool:
        dialog = Mock(**{"send.side_effect": ConversationEnded("its target has ended it"), "id.bytes": b"nobody's"})
        with patch.object(pool, "_dialog", return_value=dialog), pytest.raises(ConversationEnded, match="has ended it"):
            pool.send(ORDER, b"one")
        assert dialog.send.call_count == POOL_ATTEMPTS_MAX == 10
        assert "failed to send on a conversation 10 times in a row: its target has ended it" in caplog.text


@pytest.mark.parametrize("used", [False, True])
def test_a_message_that_is_sent_while_its_conversation_is_recycled_is_before_the_end_of_stream(
    broker: Broker, used: bool
) -> None:
    """A sender takes no lock of the pool. It may use a conversation that was unused until its age was checked."""
    with taking(broker, Taker()) as taker, pool_of(broker) as pool:
        dialog = pool._dialog("key", "key")
        if used:
            dialog.send(ORDER, b"before")
        sender = pool._keeper.context.sender

        def after_a_send(call: Callable[..., None]) -> Callable[..., None]:
            def meanwhile(decision: Any) -> None:
                with suppress(ConversationEnded):  # later decisions come when the conversation is closed
                    dialog.send(ORDER, b"meanwhile")
                call(decision)

            return meanwhile

        with (
            patch.object(sender, "apply_news", after_a_send(sender.apply_news)),
            patch.object(sender, "decide", after_a_send(sender.decide)),
        ):
            pool.recycle()
            until(lambda: taker.finished or taker.ended, "the target has learned of the end")
        assert (taker.finished, taker.ended, taker.behind) == ([dialog.id.bytes], [], [])
        assert taker.bodies == [b"before"] * used + [b"meanwhile"]


def test_what_a_pool_recycles_itself_is_not_counted_as_a_failed_attempt(broker: Broker) -> None:
    """225: ten conversations that their target has ended. Those that the pool itself has closed do not count."""
    with taking(broker, Taker()) as taker, pool_of(broker) as pool:
        find, begun = pool._dialog, 0

        def find_and_recycle(*arguments: Any) -> Dialog:
            nonlocal begun
            dialog, begun = find(*arguments), begun + 1
            if begun <= 2 * POOL_ATTEMPTS_MAX:
                pool.recycle()
            return dialog

        with patch.object(pool, "_dialog", find_and_recycle):
            pool.send(ORDER, b"one", "key")
        until(lambda: taker.bodies == [b"one"], "it is received")
        assert begun == 2 * POOL_ATTEMPTS_MAX + 1


def test_a_home_that_does_not_answer_is_logged_once_and_does_not_block_the_pool(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with taking(broker, Taker()), pool_of(broker) as pool:
        pool.send(ORDER, b"one")
        home = pool._slots.by_name[threading.get_ident()].last.begin.home  # type: ignore[union-attr]
        with (
            patch.object(pool._worker, "_ask", side_effect=KafkaUnavailable("silence")),
            caplog.at_level(logging.WARNING),
        ):
            pool._worker._check_home(home, [])
            pool._worker._check_home(home, [])
        assert (
            len(re.findall(r"cannot check its conversations in \S+ after 1 attempt, retrying: silence", caplog.text))
            == 1
        )


def test_closing_a_pool_waits_for_absent_targets_until_its_timeout_or_briefly_by_default(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.bridge.client.pool.pool.POOL_CLOSE_MS_MAX", 2**40)
    monkeypatch.setattr("konverse.bridge.client.pool.pool.POOL_STILL_MS_MAX", 1)
    left: list[int] = []

    def close(pool: Pool, **options: float) -> None:
        pool.close(**options)
        left.append(pool.conversations)

    first, second = pool_of(broker), pool_of(broker)
    for pool in (first, second):
        pool.send(ORDER, b"one")
    close(first)
    closing = threading.Thread(target=close, args=(second,), kwargs={"timeout": DEADLINE_S})
    closing.start()
    until(lambda: second.statistics.recycled, "it is recycled")
    with taking(broker, Taker()):  # joining the group takes far longer than a moment
        closing.join()
    assert left == [1, 0]


def test_invalid_arguments_of_a_pool_and_its_sends_are_refused(broker: Broker) -> None:
    with pytest.raises(NotInContract, match="'EndOfStream' is not in contract"):
        broker.pool(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
    with pytest.raises(NotInContract):
        broker.pool(SHOP_SERVICE, ORDER_SERVICE)
    with pytest.raises(MessageTypeNotFound):
        pool_of(broker, end_of_stream="Over")
    with pytest.raises(ServiceNotFound):
        broker.pool(SHOP_SERVICE, "nobody", STREAMING)
    with pytest.raises(InvalidTimeout):
        pool_of(broker, max_age=1e10)
    with pytest.raises(InvalidSettings, match="size is 20000"):
        pool_of(broker, size=20_000)
    for clause in ("size", "max_messages", "max_age", "lifetime"):
        with pytest.raises(InvalidSettings, match=f"^{clause} is 0; "):
            pool_of(broker, **{clause: 0})
    with pool_of(broker, read=False) as pool:
        with pytest.raises(BadInput, match="must be str or bytes, not 7"):
            pool.send(ORDER, b"", 7)  # type: ignore[arg-type]
        for wrong in list[Any]([[], {}, bytearray(b"x")]):
            with pytest.raises(BadInput, match="must be str or bytes"):
                pool.send(ORDER, b"", wrong)
        with pytest.raises(BadInput, match="UTF-8"):
            pool.send(ORDER, b"", "\ud800")
        with pytest.raises(NotInContract):
            pool.send(DEFAULT, b"")
        assert drain(broker, "Orders", quiet_s=0.1) == []


def test_the_program_of_the_readme_works(
    broker: Broker, servers: Servers, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = readme("import konverse\n\n\ndef take", servers, database)
    exec(compile(program, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("PoolStatistics(begun=12, recycled=12, replaced=0")
    assert len(printed) == 1_001
