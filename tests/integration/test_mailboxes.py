"""Late messages bounce to their home and are redirected, on real servers (protocol.md section 3)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import BouncedMessage, Dialog
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import BadInput, ConversationEnded, InvalidState
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.records import BounceReason
from tests.kit.oracle import verify
from tests.kit.readme import block_of
from tests.kit.servers import Servers
from tests.kit.shop import NOTE, ORDER, begin, connected, drain, open_shop, pumped, queue_of, until
from tests.kit.workers import Job, Worker

pytestmark = pytest.mark.stack

LATE = [b"late %d" % number for number in range(5)]


@contextmanager
def over(servers: Servers, database: str) -> Iterator[tuple[Broker, Broker, Dialog]]:
    """A shop, a session that reads no queue, and its dialog, which is over without its knowledge."""
    with connected(servers.bootstrap, database) as shop, connected(servers.bootstrap, database) as session:
        open_shop(shop)
        dialog = begin(session)
        dialog.send(ORDER, b"first")
        dialog.flush()
        for queue in ("Orders", "Shop", "Orders"):  # the target ends, home ends, the target forgets
            with shop.reader(queue, timeout=1) as reader:
                for transaction in reader:
                    with transaction:
                        for message in transaction:
                            transaction.end(message.dialog)
        yield shop, session, dialog


def came_back(dialog: Dialog, count: int) -> list[BouncedMessage]:
    """Wait until `count` messages of the dialog have come back."""

    def all_of_them() -> list[BouncedMessage]:
        found = dialog.bounced(timeout=1)
        return found if len(found) == count else []

    return until(all_of_them, f"{count} messages come back")


def bodies(broker: Broker) -> list[bytes]:
    """Bodies that the order service receives until nothing more comes."""
    return [message.body for message in drain(broker, "Orders")]


def test_late_messages_are_redirected_in_order_once_although_their_homes_owner_is_killed(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    job = Job(servers.bootstrap, database, str(tmp_path / "diary"), queue="Shop", partitions=[0], idle_s=None)
    with over(servers, database) as (shop, session, dialog):
        for body in LATE:
            dialog.send(ORDER, body)
        dialog.flush()
        assert bodies(shop) == []
        with Worker(replace(job, die_at="before emission")) as first:
            messages = came_back(dialog, len(LATE))
            assert [(m.type, m.body, m.sequence, m.reason) for m in messages] == [
                (ORDER, body, number, BounceReason.NO_ENDPOINT) for number, body in enumerate(LATE, 1)
            ]
            following = begin(session, related_to=dialog)
            for message in messages:
                message.redirect(following)
            assert following.send(ORDER, b"and then") == -1
            assert first.wait() == -signal.SIGKILL, first.errors
        with Worker(job) as second:
            received: list[bytes] = []

            def all_received() -> bool:
                received.extend(bodies(shop))
                return len(received) > len(LATE)

            until(all_received, "the redirected messages and the one behind them")
            assert received == [*LATE, b"and then"]
            assert dialog.bounced() == []
            following.flush()
            assert not second.errors
        assert verify(servers.bootstrap, [queue_of(shop, "Orders"), queue_of(shop, "Shop")]) == []


def test_a_home_in_the_same_process_answers_and_decided_bounces_are_not_offered_again(
    servers: Servers, database: str
) -> None:
    with over(servers, database) as (shop, session, dialog):
        with session.reader("Shop") as home, shop.reader("Orders") as orders, pumped(orders, home):
            dialog.send(NOTE, b"one")
            dialog.send(ORDER, b"two")
            one, two = came_back(dialog, 2)
            one.confirm()
            assert [message.body for message in dialog.bounced()] == [b"two"]
            following = begin(session)
            two.redirect(following)
            two.redirect(following)
            assert dialog.bounced() == []
            (owner,) = home.owners
            until(lambda: not len(owner.fold.state.mailbox), "the mailbox is empty")
            until(lambda: dialog.bounced() == [] and not _remembered(session), "what was decided is forgotten")
            (target,) = orders.owners
            until(lambda: target.fold.state.sides[Role.TARGET], "the message is at its target")
        assert bodies(shop) == [b"two"]
        assert verify(servers.bootstrap, [queue_of(shop, "Orders"), queue_of(shop, "Shop")]) == []


def test_the_first_decision_about_a_bounced_message_counts(servers: Servers, database: str) -> None:
    """The new dialog has not begun, so a REDIRECT waits. A CONFIRM behind it would not wait."""
    with over(servers, database) as (shop, session, dialog):
        with shop.reader("Shop") as home, shop.reader("Orders") as orders, pumped(home, orders):
            for body in LATE:
                dialog.send(ORDER, body)
            dialog.flush()
            *redirected, confirmed = came_back(dialog, len(LATE))
            following, other = (begin(session, related_to=dialog) for _ in range(2))
            for late in redirected:
                late.redirect(following)
                late.confirm()
                late.redirect(other)
            confirmed.confirm()
            confirmed.redirect(following)
            following.send(ORDER, b"behind")
            until(
                lambda: sum(owner.fold.state.unread for owner in orders.owners) == len(LATE), "all are at their target"
            )
        with shop.reader("Orders", timeout=1) as reader:
            received = [(m.dialog.id, m.body) for transaction in reader for m in _taken(transaction)]
        assert received == [(following.id, body) for body in (*LATE[:-1], b"behind")]


def _taken(transaction: Transaction) -> list[Message]:
    with transaction:
        return list(transaction)


def test_a_message_stays_when_the_new_dialog_has_ended_meanwhile(servers: Servers, database: str) -> None:
    with over(servers, database) as (shop, session, dialog):
        dialog.send(ORDER, b"late")
        following = begin(session)
        following.send(ORDER, b"first")
        session.flush()
        with shop.reader("Orders", timeout=1) as reader:
            for transaction in reader:
                with transaction:
                    for message in transaction:
                        transaction.end(message.dialog)
        with shop.reader("Shop") as home, shop.reader("Orders") as orders, pumped(home, orders):
            (owner,) = home.owners or until(lambda: home.owners, "home has an owner")
            until(lambda: [e for e in owner.fold.state.live() if e.state.code == "DI"], "home has heard of the end")
            (late,) = came_back(dialog, 1)
            late.redirect(following)
            (again,) = came_back(dialog, 1)
            assert again.body == b"late"
            last = begin(session)
            again.redirect(last)
            until(lambda: sum(owner.fold.state.unread for owner in orders.owners), "the message is at its target")
        assert bodies(shop) == [b"late"]


def test_the_redirects_of_the_readme_work(servers: Servers, database: str) -> None:
    block = block_of("python", "following = broker.begin_dialog")
    with over(servers, database) as (shop, session, dialog):
        dialog.send(ORDER, b"late")
        dialog.flush()
        with shop.reader("Shop") as home, shop.reader("Orders") as orders, pumped(home, orders):
            until(lambda: home.owners and len(home.owners[0].fold.state.mailbox.entries), "the message is back")
            exec(compile(block, "ends-and-errors.md", "exec"), {"broker": session, "dialog": dialog})
            until(lambda: sum(owner.fold.state.unread for owner in orders.owners) == 2, "both are at their target")
        assert bodies(shop) == [b"late", b"sent after the redirected messages"]


def test_a_redirect_that_cannot_be_is_refused(servers: Servers, database: str) -> None:
    with over(servers, database) as (shop, session, dialog):
        dialog.send(ORDER, b"late")
        dialog.flush()
        assert bodies(shop) == []
        with shop.reader("Shop") as home, pumped(home):
            (late,) = came_back(dialog, 1)
            with pytest.raises(InvalidState, match="begin one with `related_to`"):
                late.redirect(begin(shop))
            for nothing in (None, "a dialog", dialog):
                with pytest.raises(BadInput, match="to another dialog"):
                    late.redirect(cast("Any", nothing))
            over_already = begin(session)
            over_already.end()
            with pytest.raises(ConversationEnded):
                late.redirect(over_already)
            assert repr(late) == f"<BouncedMessage {ORDER} of {dialog.id}: NO_ENDPOINT>"
            late.confirm()
            until(lambda: not dialog.bounced(), "the message is confirmed")


def _remembered(broker: Broker) -> int:
    return sum(map(len, broker._client.mailboxes._decisions._known.values()))


def test_a_home_without_questions_is_closed_after_a_pause(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("homes", "mailboxes"):
        monkeypatch.setattr(f"konverse.bridge.client.{module}.REST_S", 0.2)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.flush()
        for _ in range(2):
            assert dialog.bounced() == []
            until(lambda: not broker._client.mailboxes._homes.followed, "nobody is followed")
