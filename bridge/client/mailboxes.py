"""Messages that came back: what a sender finds in the mailboxes at its dialogs' homes, and what it does about them.

The state of a home is that of its owner, when a reader of this process owns the partition, else what its journal says.
A thread of ours asks it while something that was redirected has not arrived: what was sent behind it waits for that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.owner.follower import CATCH_UP_S
from konverse.bridge.runtime.threads import FORESEEN, in_background
from konverse.dialog.queries.hearing import needs_another_id
from konverse.dialog.queries.offering import Decisions
from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.session.rotation import forgeries_told
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import alarm_of_session
from konverse.schemas.errors import BadInput, BrokerClosed, InvalidState, KafkaUnavailable
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.records import NO_SEQUENCE, BounceId, BounceReason, Notice

from .homes import REST_S, Homes, Question
from .outcomes import follow

if TYPE_CHECKING:
    from konverse.bridge.catalog.catalog import Catalog
    from konverse.bridge.reader.reader import Reader

    from .dialog import Dialog
    from .sender import Sender

log: Final = logging.getLogger("konverse.mailboxes")

POLL_S: Final = 0.05
RETRY_S: Final = 1.0
ANSWER_S_MIN: Final = 5.0
"""A home has so long to answer in any case: a client that is new needs some time to connect."""

_ANSWERED: Final = Future[Any]()
_ANSWERED.set_result(None)

CLOSE_S: Final = 10.0
"""A broker that is closed waits so long for redirected messages, so that what was sent behind them can leave."""


class BouncedMessage:
    """A message of a dialog that was not received and came back. It stays until it is confirmed or redirected."""

    __slots__ = ("_bounced", "_mailboxes", "_sender", "_staged")

    def __init__(self, mailboxes: Mailboxes, sender: Sender, staged: SessionDialog, bounced: Bounced) -> None:
        self._mailboxes = mailboxes
        self._sender = sender
        self._staged = staged
        self._bounced = bounced

    @property
    def type(self) -> str:
        """Message type."""
        return self._bounced.message_type

    @property
    def body(self) -> bytes:
        """Body."""
        return self._bounced.body or b""

    @property
    def sequence(self) -> int | None:
        """Number that `send` returned; None for a message that was redirected before, or sent behind such a one."""
        sequence = self._bounced.sequence
        return None if sequence == NO_SEQUENCE else sequence

    @property
    def reason(self) -> BounceReason:
        """Why it came back."""
        return self._bounced.bounce.reason

    def confirm(self) -> None:
        """Let it go: the application knows of it. Returns at once.

        What is called first counts: after a `redirect` this changes nothing, as a second time does not. Raises
        QueueFull when Kafka takes nothing for a while.
        """
        self._mailboxes.confirm(self._sender, self._staged, self._bounced.id)

    def redirect(self, to_dialog: Dialog) -> None:
        """Send it on another dialog with the same home, behind what was sent on that one before. Returns at once.

        Home moves it in one step: it is received once, whatever crashes and whoever asks again. Several leave in the
        order of the calls. Later messages of the new dialog wait until home says that it has arrived. When the new
        dialog has ended meanwhile it stays, and `bounced` gives it again; until then a further `redirect`, or one after
        a `confirm`, changes nothing.

        Raises BadInput for what is no other dialog, InvalidState when the dialogs have different homes: begin the new
        one with `related_to`. Raises NotInContract or WrongDirection for its type, ConversationEnded when the new
        dialog was ended, QueueFull.
        """
        staged = getattr(to_dialog, "_staged", None)
        if staged is None or staged is self._staged:
            raise BadInput(
                f"a message that came back is redirected to another dialog of this broker, not to {to_dialog!r}"
            )
        if self._sender is not to_dialog._sender or self._staged.begin.home != staged.begin.home:  # noqa: SLF001
            raise InvalidState(
                f"a message that came back to {_place(self._staged)} cannot be redirected to a dialog whose home is "
                f"{_place(staged)}, or that another broker began; begin one with `related_to` the first dialog"
            )
        self._mailboxes.redirect(self._sender, staged, self._bounced)

    def __repr__(self) -> str:
        return f"<BouncedMessage {self.type} of {UUID(bytes=self._bounced.conversation)}: {self.reason.name}>"


class Mailboxes:
    """Of all dialogs of a broker. Thread-safe."""

    def __init__(self, kafka: Kafka, catalog: Catalog, readers: Callable[[], Sequence[Reader]]) -> None:
        self._catalog = catalog
        self._readers = readers
        self._homes = Homes(lambda address: follow(kafka, catalog, address))
        self._lock = threading.Lock()
        """Held while our thread is started."""
        self._decisions = Decisions()
        self._forged: set[tuple[bytes, Address]] = set()
        """Ids of sessions and partitions of which it was said that a stranger writes there in their names."""
        self._sender: Sender | None = None
        self._thread: threading.Thread | None = None
        self._awaken = threading.Event()
        self._closed = False

    # ------------------------------------------------------------------------------------------------------- calls

    def bounced(self, sender: Sender, dialog: SessionDialog, timeout_s: float) -> list[BouncedMessage]:
        """What waits in the mailbox for this dialog's session, or for its successor; waits for the first one."""
        deadline = time.monotonic() + timeout_s
        while True:
            found, _ = self.look(
                sender,
                dialog.begin.home,
                lambda one: one.conversation == dialog.conversation,
                lambda _: None,
                timeout_s=deadline - time.monotonic(),
            )
            if found or time.monotonic() >= deadline:
                return [BouncedMessage(self, sender, dialog, bounced) for bounced in found]
            time.sleep(POLL_S)

    def look(
        self,
        sender: Sender,
        home: Address,
        wanted: Callable[[Bounced], bool],
        question: Question,
        *,
        timeout_s: float = CATCH_UP_S,
    ) -> tuple[list[Bounced], Any]:
        """What is wanted of a home's mailbox and may be decided by the session, and the home's answer at that time.

        The session takes another id when home has heard that its present one is not heard somewhere. Raises what `ask`
        raises.
        """
        session = sender.session
        ids = session.ids

        def read(state: Partition) -> tuple[bool, list[Bounced], Any]:
            self._tell_of_forgeries(forgeries_told(state, ids, [*session.lanes]))
            return needs_another_id(session, state), self._decisions.offered(state, session, wanted), question(state)

        shut_out, found, answer = self.ask(home, read, keep_up=True, timeout_s=timeout_s)
        if shut_out:
            sender.doubt()
        return found, answer

    def _tell_of_forgeries(self, told: Iterable[Notice]) -> None:
        """Each once."""
        for notice in told:
            if (notice.writer, notice.at) not in self._forged:
                self._forged.add((notice.writer, notice.at))
                log.error("%s", alarm_of_session(notice))

    def confirm(self, sender: Sender, dialog: SessionDialog, bounce: BounceId) -> None:
        """CONFIRM."""
        sender.decide(lambda session: self._decisions.confirm(session, dialog, bounce))

    def redirect(self, sender: Sender, to: SessionDialog, bounced: Bounced) -> None:
        """REDIRECT."""
        self._catalog.check_send(to.begin.contract, Role.INITIATOR, bounced.message_type)
        sender.decide(lambda session: self._decisions.redirect(session, to, bounced.id))
        self._sender = sender
        self._listen()

    # -------------------------------------------------------------------------------------------------------- homes

    def ask(self, home: Address, question: Question, *, keep_up: bool, timeout_s: float = CATCH_UP_S) -> Any:
        """The answer of a home, or a target. To `keep_up` is to let a reader of this process read on meanwhile.

        Raises KafkaUnavailable when it has none within `timeout_s`, and `ANSWER_S_MIN`; others are answered meanwhile.
        """
        wait_s = max(ANSWER_S_MIN, timeout_s)
        answer = self._asked(home, question, keep_up=keep_up)
        try:
            return answer.result(wait_s)
        except TimeoutError:
            answer.cancel()
            raise KafkaUnavailable(
                f"{home.topic}/{home.partition} was not read to its end within {wait_s:g} s; ask again, it is read on"
            ) from None

    def _asked(self, home: Address, question: Question, *, keep_up: bool) -> Future[Any]:
        for reader in self._readers():
            if reader.queue.topic == home.topic and not reader.closed and home.partition in reader.partitions:
                if keep_up:
                    reader.keep_up()
                found = reader.ask(home.partition, question)
                if found is not None:
                    answer: Future[Any] = Future()
                    answer.set_result(found)
                    return answer
        answer = self._homes.ask(home, question)
        self._start()  # our thread closes it when it has rested for long
        return answer

    # -------------------------------------------------------------------------------------------------------- news

    def _listen(self) -> None:
        self._start()
        self._awaken.set()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = in_background("konverse-mailboxes", self._run)

    def _run(self) -> None:
        """Ask homes while something that was redirected has not arrived, all at once: each answers when it can."""
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
                    answers[home] = self._tell(dialog)
                except BrokerClosed:
                    return
                except FORESEEN as error:
                    log.warning("no news of messages that were redirected: %s", error)
                    again_at[home] = time.monotonic() + RETRY_S
            self._awaken.wait(POLL_S if awaited else REST_S)
            self._awaken.clear()

    def _tell(self, dialog: SessionDialog) -> Future[Any]:
        sender = self._sender
        assert sender is not None

        def question(home: Partition) -> bool:
            sender.hear(lambda session: session.home_says(home))
            return True

        sender.wait_for_id()  # now: the question is asked while the reader, or the following, is locked
        return self._asked(dialog.begin.home, question, keep_up=False)

    def _awaited(self) -> dict[Address, SessionDialog]:
        """Homes from which news is awaited, with a dialog of each."""
        if self._sender is None or self._closed:
            return {}
        return {dialog.begin.home: dialog for dialog in self._sender.redirecting}

    def close(self) -> None:
        """Wait a little for what was redirected, and stop."""
        deadline = time.monotonic() + CLOSE_S
        while any(dialog.held for dialog in self._awaited().values()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        self._closed = True
        self._awaken.set()
        if self._thread is not None:
            self._thread.join()
        self._homes.close()

    def forked(self) -> None:
        """In a forked child: closed, see `bridge.runtime.forks`."""
        self._closed = True
        self._lock = threading.Lock()
        self._homes.forked()


def _place(dialog: SessionDialog) -> str:
    home = dialog.begin.home
    return f"{home.topic}/{home.partition}"
