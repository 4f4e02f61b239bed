"""Bounced messages: reads the mailboxes at the dialogs' homes, and confirms or redirects their messages.

When a reader of this process owns the home's partition, the reader's state answers; otherwise the home's journal is
read. A background thread asks homes until every redirected message has arrived, because later messages of the dialog
wait for that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.owner.follower import CATCH_UP_S
from konverse.bridge.reader.readers import Readers
from konverse.bridge.runtime.threads import EXPECTED_ERRORS, in_background
from konverse.dialog.queries.hearing import needs_another_id
from konverse.dialog.queries.offering import Decisions
from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.session.rotation import forgeries_told
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import alarm_of_session
from konverse.schemas.errors import BrokerClosed, KafkaUnavailable
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.records import BounceId, Notice

from .homes import REST_S, Homes, Question
from .outcomes import follow

if TYPE_CHECKING:
    from konverse.bridge.catalog.catalog import Catalog

    from .sender import Sender

log: Final = logging.getLogger("konverse.mailboxes")

POLL_S: Final = 0.05
RETRY_S: Final = 1.0
ANSWER_S_MIN: Final = 5.0
"""A home may always take this long to answer: a new client needs time to connect."""

_ANSWERED: Final = Future[Any]()
_ANSWERED.set_result(None)

CLOSE_S: Final = 10.0
"""On close, wait this long for redirected messages to arrive, so that the messages after them can be sent."""


class Mailboxes:
    """The mailboxes of all dialogs of a broker. Thread-safe."""

    def __init__(self, kafka: Kafka, catalog: Catalog, readers: Readers) -> None:
        self._catalog = catalog
        self._readers = readers
        self._homes = Homes(lambda address: follow(kafka, catalog, address))
        self._lock = threading.Lock()
        """Held while the background thread is started."""
        self._decisions = Decisions()
        self._forged: set[tuple[bytes, Address]] = set()
        """Logged forgeries: session id, and the partition to which a stranger writes under it."""
        self._sender: Sender | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._closed = False

    # ------------------------------------------------------------------------------------------------------- calls

    def bounced(self, sender: Sender, dialog: SessionDialog, timeout_s: float) -> list[Bounced]:
        """Bounced messages of a dialog that its session may decide about; waits up to `timeout_s` for the first one."""
        deadline = time.monotonic() + timeout_s
        while True:
            found, _ = self.read(
                sender,
                dialog.begin.home,
                lambda one: one.conversation == dialog.conversation,
                lambda _: None,
                timeout_s=deadline - time.monotonic(),
            )
            if found or time.monotonic() >= deadline:
                return found
            time.sleep(POLL_S)

    def read(
        self,
        sender: Sender,
        home: Address,
        wanted: Callable[[Bounced], bool],
        question: Question,
        *,
        timeout_s: float = CATCH_UP_S,
    ) -> tuple[list[Bounced], Any]:
        """The `wanted` messages in a home's mailbox that the session may decide about, and the answer to `question`.

        Both come from one state of the home. If that state says that a destination refuses the session's present id,
        the session takes another one. Raises the errors of `ask`.
        """
        session = sender.session
        ids = session.ids

        def read_state(state: Partition) -> tuple[bool, list[Bounced], Any]:
            self._log_forgeries(forgeries_told(state, ids, [*session.lanes]))
            return needs_another_id(session, state), self._decisions.offered(state, session, wanted), question(state)

        shut_out, found, answer = self.ask(home, read_state, keep_up=True, timeout_s=timeout_s)
        if shut_out:
            sender.replace_id()
        return found, answer

    def _log_forgeries(self, notices: Iterable[Notice]) -> None:
        """Log each forgery once."""
        for notice in notices:
            if (notice.writer, notice.at) not in self._forged:
                self._forged.add((notice.writer, notice.at))
                log.error("%s", alarm_of_session(notice))

    def confirm(self, sender: Sender, dialog: SessionDialog, bounce: BounceId) -> None:
        """Send the home a CONFIRM for a bounced message."""
        sender.decide(lambda session: self._decisions.confirm(session, dialog, bounce))

    def redirect(self, sender: Sender, to: SessionDialog, bounced: Bounced) -> None:
        """Send the home a REDIRECT of a bounced message to the dialog `to`."""
        self._catalog.check_send(to.begin.contract, Role.INITIATOR, bounced.message_type)
        sender.decide(lambda session: self._decisions.redirect(session, to, bounced.id))
        self._sender = sender
        self._wake_thread()

    # -------------------------------------------------------------------------------------------------------- homes

    def ask(self, home: Address, question: Question, *, keep_up: bool, timeout_s: float = CATCH_UP_S) -> Any:
        """The answer of a partition, home or target, to `question`.

        With `keep_up` a reader of this process that owns the partition first commits and fetches. Raises
        KafkaUnavailable when there is no answer within `timeout_s`, or `ANSWER_S_MIN` if that is longer.
        """
        wait_s = min(max(ANSWER_S_MIN, timeout_s), threading.TIMEOUT_MAX)
        answer = self._asked(home, question, keep_up=keep_up)
        try:
            return answer.result(wait_s)
        except TimeoutError:
            answer.cancel()
            raise KafkaUnavailable(
                f"{home.topic}/{home.partition} was not read to its end within {wait_s:g} s. Reading goes on; try again"
            ) from None

    def _asked(self, home: Address, question: Question, *, keep_up: bool) -> Future[Any]:
        reader = self._readers.owner_of(home)
        if reader is not None:
            if keep_up:
                reader.keep_up()
            found = reader.ask(home.partition, question)
            if found is not None:
                answer: Future[Any] = Future()
                answer.set_result(found)
                return answer
        answer = self._homes.ask(home, question)
        self._start()  # the background thread closes homes that are no longer asked
        return answer

    # -------------------------------------------------------------------------------------------------------- news

    def _wake_thread(self) -> None:
        self._start()
        self._wake.set()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = in_background("konverse-mailboxes", self._run)

    def _run(self) -> None:
        """While redirected messages have not arrived, ask all homes at the same time; each answers when it can."""
        answers: dict[Address, Future[Any]] = {}
        again_at: dict[Address, float] = {}
        while not self._closed:
            awaited = self._awaited()
            self._homes.close_rested()
            for home, dialog in awaited.items():
                if time.monotonic() < again_at.get(home, 0.0) or not answers.get(home, _ANSWERED).done():
                    continue
                try:
                    answers.pop(home, _ANSWERED).result()
                    answers[home] = self._read_home(dialog)
                except BrokerClosed:
                    return
                except EXPECTED_ERRORS as error:
                    log.warning(
                        "cannot check in %s/%d whether redirected messages have arrived, retrying: %s",
                        home.topic,
                        home.partition,
                        error,
                    )
                    again_at[home] = time.monotonic() + RETRY_S
            self._wake.wait(POLL_S if awaited else REST_S)
            self._wake.clear()

    def _read_home(self, dialog: SessionDialog) -> Future[Any]:
        sender = self._sender
        assert sender is not None

        def question(home: Partition) -> bool:
            sender.apply_news(lambda session: session.read_home(home))
            return True

        sender.wait_for_id()  # before the question, which runs while the reader or the follower is locked
        return self._asked(dialog.begin.home, question, keep_up=False)

    def _awaited(self) -> dict[Address, SessionDialog]:
        """Homes of dialogs whose redirected messages have not arrived, each with one of its dialogs."""
        if self._sender is None or self._closed:
            return {}
        return {dialog.begin.home: dialog for dialog in self._sender.redirecting}

    def close(self) -> None:
        """Wait up to `CLOSE_S` for redirected messages for which later messages wait, then stop."""
        deadline = time.monotonic() + CLOSE_S
        while any(dialog.held for dialog in self._awaited().values()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self._homes.close()

    def after_fork(self) -> None:
        """Mark as closed in a forked child (`bridge.runtime.forks`)."""
        self._closed = True
        self._lock = threading.Lock()
        self._homes.after_fork()
