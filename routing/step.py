"""One step of a router: its work on the messages of one transaction.

Most messages follow the message before them, which costs one comparison and one `send`. `_take` handles all others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidRoute, NotSupportedYet
from konverse.schemas.identifiers import is_of_pool
from konverse.schemas.limits import ROUTER_HOPS_MAX
from konverse.schemas.origins import PASSED_ON_ERROR, passed_on
from konverse.schemas.system_messages import DIALOG_TIMER, END_DIALOG, ERROR, shortened

from .decisions import Decision, unknown
from .documents import UNCLASSIFIABLE_ERROR, redirect_body
from .loops import hops_of
from .routed import Routed

FORWARD: Final = "forward"
REDIRECT: Final = "redirect"
REDIRECT_TO: Final = "RedirectTo"
"""Default message type of a redirection. The contract must let the target send it."""

_SENDING: Final = ("SO", "CO")
OVER: Final = ("DO", "CD")
"""Codes of the states in which a side has ended."""

_SYSTEM: Final = frozenset({DIALOG_TIMER, END_DIALOG, ERROR})


class Work(Protocol):
    """The part of `Transaction` that a router uses: the messages received from a group, and the calls on its dialogs.

    Dialogs are endpoints, and messages are those of `dialog.transaction.received`, which this package does not import.
    """

    size_bytes: int
    """Bytes staged so far."""

    @property
    def dialogs(self) -> Sequence[Any]:
        """All conversations of the group."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the messages; each one yielded is consumed."""
        ...

    def put_back(self) -> None:
        """Take back all messages yielded so far: none is consumed."""
        ...

    def begin(  # noqa: PLR0913  # the clauses of BEGIN DIALOG
        self,
        from_service: str,
        to_service: str,
        contract: str,
        *,
        related_to: Any,
        key: bytes | None,
        lifetime: float | None,
        hops: int,
    ) -> Any:
        """BEGIN DIALOG in the group of `related_to`; `lifetime` in seconds."""
        ...

    def send(self, dialog: Any, message_type: str, body: bytes) -> None:
        """SEND."""
        ...

    def finish(self, dialog: Any) -> None:
        """FIN: this side sends nothing more."""
        ...

    def end(self, dialog: Any, *, error: int = 0, description: str = "") -> None:
        """END CONVERSATION."""
        ...

    def give_back(self, dialog: Any, message_type: str, body: bytes) -> None:
        """END CONVERSATION; its unreceived messages go back to their sender, after a note with this type and body."""
        ...


Decide = Callable[[Any], Decision]
"""Returns the service for a received message. Called at most once in a step."""

Resolve = Callable[[Target, str], Target]
"""`resolve(target, contract)`: checks a decision against the catalog, if there is one; returns the target to use.

Raises for a service that does not exist, does not accept the contract, or is the router's own.
"""


class Pair(NamedTuple):
    """The mapping: an inbound dialog, and the outbound one that was begun for it. Either may be None."""

    inbound: Any
    outbound: Any


class Manner(NamedTuple):
    """Settings that all steps of a router share."""

    mode: str
    redirect_type: str
    resolve: Resolve


class Step:
    """One transaction of a router; not reusable."""

    def __init__(self, manner: Manner, work: Work, pair: Pair, decide: Decide) -> None:
        self._manner = manner
        self._work = work
        self._decide = decide
        self._inbound, self._outbound = pair
        self.far_service: str = self._outbound.far_service if self._outbound is not None else ""
        self.counts: dict[str, int] = {}
        """Counts by field name of `Routed`."""
        self._ended: list[Any] = []
        self._from: Any = None
        """The dialog of the previous message, if it was passed on."""
        self._onto: Any = None
        """The dialog on which the previous message was passed on."""
        self._what = ""
        """The count to which the next message of that dialog belongs."""
        self._note: bytes | None = None
        """Body of the note after which inbound messages are given back; None unless a pool is redirected."""

    def run(self, messages: Sequence[Any]) -> None:
        """Handle the messages in order."""
        send, system, along = self._work.send, _SYSTEM, 0
        for message in messages:
            kind = message.type
            if message.dialog is self._from and kind not in system:
                send(self._onto, kind, message.body)
                along += 1
                continue
            if along:
                self._count(self._what, along)
                along = 0
            self._take(message)
            if self._note is not None:
                self._give_back(messages, message)
                return
        if along:
            self._count(self._what, along)
        for dialog, other in ((self._inbound, self._outbound), (self._outbound, self._inbound)):
            if dialog is not None and dialog.finished is not None and dialog.finished.peer:
                self._pass_finish(dialog, other, messages)

    @property
    def to(self) -> int:
        """Number of messages or redirections to the far service."""
        counts = self.counts
        return counts.get("forwarded", 0) + counts.get("followed", 0) + counts.get("redirected", 0)

    def routed(self) -> Routed:
        """The counts of this step."""
        return Routed(**self.counts, targets={self.far_service: self.to} if self.to else {})

    def _take(self, message: Any) -> None:
        dialog, kind = message.dialog, message.type
        if kind == DIALOG_TIMER:
            return
        if kind in _SYSTEM:
            self._pass_end(dialog, message)
        elif self._over(dialog):
            self._count("dropped")
        elif dialog is self._outbound:
            self._pass_back(message)
        elif self._outbound is None:
            self._classify(message)
        elif self._can_send(self._outbound):
            self._pass_on(message, self._outbound, "followed")
        else:
            self._count("dropped")

    def _count(self, what: str, count: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + count

    def _over(self, dialog: Any) -> bool:
        """Whether this side has ended, before or in this step."""
        return dialog.state.code in OVER or any(dialog is ended for ended in self._ended)

    def _can_send(self, dialog: Any) -> bool:
        if dialog is None or dialog.state.code not in _SENDING:
            return False
        return all(dialog is not ended for ended in self._ended)

    def _end(self, dialog: Any, error: int = 0, description: str = "") -> None:
        self._work.end(dialog, error=error, description=description)
        self._ended.append(dialog)
        self._from = None

    def _pass_on(self, message: Any, onto: Any, what: str) -> None:
        self._work.send(onto, message.type, message.body)
        self._count(what)
        self._from, self._onto = message.dialog, onto
        self._what = "replied" if onto is self._inbound else "followed"

    def _pass_back(self, message: Any) -> None:
        if self._can_send(self._inbound):
            self._pass_on(message, self._inbound, "replied")
            return
        self._count("dropped")
        if self._inbound is None:
            self._end(self._outbound, PASSED_ON_ERROR, "The conversation that this one was begun for is over.")

    def _pass_end(self, dialog: Any, message: Any) -> None:
        """EndDialog ends both dialogs; an Error ends the other with an Error that names its origin (behaviour 231)."""
        if self._over(dialog):
            return
        other = self._inbound if dialog is self._outbound else self._outbound
        if other is not None and not self._over(other):
            if message.type == ERROR:
                self._end(other, PASSED_ON_ERROR, passed_on(dialog.far_service, message.body))
            else:
                self._end(other)
            self._count("ended")
        self._end(dialog)

    def _pass_finish(self, dialog: Any, other: Any, messages: Sequence[Any]) -> None:
        """Half-close: when all messages of one dialog were passed on and its peer has sent FIN, send FIN on the other.

        FIN is not received as a message. Usually it has arrived with the last messages and is passed on with them, else
        with the next message received from either dialog.
        """
        if not self._can_send(other):
            return
        taken = max([message.sequence for message in messages if message.dialog is dialog], default=-1) + 1
        if dialog.received == max(taken, dialog.consumed):
            self._work.finish(other)

    def _classify(self, message: Any) -> None:
        """The first message decides (behaviours 230, 232, 233)."""
        inbound = self._inbound
        decision = self._decide(message)
        if not isinstance(decision, Target):
            self._reject(decision.reason or unknown(message.type))
            return
        if decision.service == inbound.service and decision.broker_instance is None:
            raise InvalidRoute(
                f"conversation {inbound.id} was classified as one for {decision.service!r}, which is the router that "
                "received it: it would loop forever. Let the classifier answer with another service, or null"
            )
        target = self._manner.resolve(decision, inbound.contract)
        self.far_service = target.service
        if self._manner.mode == REDIRECT:
            self._redirect(target)
        else:
            self._forward(message, target)

    def _reject(self, reason: str) -> None:
        self._end(self._inbound, UNCLASSIFIABLE_ERROR, shortened(reason))
        self._count("rejected")

    def _forward(self, message: Any, target: Target) -> None:
        inbound = self._inbound
        if target.broker_instance is not None:
            raise NotSupportedYet(
                f"conversation {inbound.id} was classified as one for broker instance {target.broker_instance}: "
                "a router that forwards cannot name a database yet. Redirect its initiator, or leave the instance out "
                "and create a route"
            )
        hops = hops_of(inbound.conversation) + 1
        if hops > ROUTER_HOPS_MAX:
            self._reject(
                f"The conversation has come through {ROUTER_HOPS_MAX} routers, from {inbound.far_service!r} to "
                f"{inbound.service!r} last, which would pass it on to {target.service!r}: they may route in a circle."
            )
            return
        self._outbound = self._work.begin(
            inbound.service,
            target.service,
            inbound.contract,
            related_to=inbound,
            key=inbound.key,
            lifetime=message.lifetime_left,
            hops=hops,
        )
        self._pass_on(message, self._outbound, "forwarded")

    def _redirect(self, target: Target) -> None:
        """Tell the initiator where to go, unless it has ended (behaviour 233).

        A pool also gets back all its messages; it follows the redirection by itself.
        """
        if is_of_pool(self._inbound.conversation):
            self._note = redirect_body(target)
            self._count("redirected")
            return
        if self._can_send(self._inbound):
            self._work.send(self._inbound, self._manner.redirect_type, redirect_body(target))
            self._count("redirected")
        else:
            self._count("dropped")
        self._end(self._inbound)

    def _give_back(self, messages: Sequence[Any], first: Any) -> None:
        """Consume the messages before `first`, which is for another service; give back `first` and all after it."""
        assert self._note is not None, "the target is decided"
        work, before = self._work, messages.index(first)
        work.put_back()
        deque(islice(work, before), maxlen=0)
        work.give_back(self._inbound, self._manner.redirect_type, self._note)
        self._ended.append(self._inbound)
