"""What a router does with the messages of one transaction.

Most messages go the way of the one before them: they cost a comparison and a `send`. Everything else is looked at.
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
"""Message type of a redirection, unless another one is chosen. The contract must let the target send it."""

_SENDING: Final = ("SO", "CO")
OVER: Final = ("DO", "CD")
"""Codes of states in which a side has ended."""

_SYSTEM: Final = frozenset({DIALOG_TIMER, END_DIALOG, ERROR})


class Work(Protocol):
    """What was received of a group, and what is done on it: as much of `Transaction` as a router uses.

    Dialogs are endpoints, messages those of `dialog.transaction.received`; this folder does not know them.
    """

    size_bytes: int
    """Of what was staged."""

    @property
    def dialogs(self) -> Sequence[Any]:
        """All conversations of the group."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """The messages; one that was handed out is consumed."""
        ...

    def put_back(self) -> None:
        """Nothing was handed out."""
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
        """BEGIN DIALOG in the group of another one."""
        ...

    def send(self, dialog: Any, message_type: str, body: bytes) -> None:
        """SEND."""
        ...

    def finish(self, dialog: Any) -> None:
        """FIN: nothing more comes from this side."""
        ...

    def end(self, dialog: Any, *, error: int = 0, description: str = "") -> None:
        """END CONVERSATION."""
        ...

    def give_back(self, dialog: Any, message_type: str, body: bytes) -> None:
        """END CONVERSATION, and what is not received of it goes back to who sent it, behind a note."""
        ...


Decide = Callable[[Any], Decision]
"""Says for which service a received message is. Asked once at most in a step."""

Resolve = Callable[[Target, str], Target]
"""Looks at what was decided for a conversation under a contract, where there is a catalog.

Raises for a service that does not exist, does not accept the contract, or is the router's.
"""


class Pair(NamedTuple):
    """The mapping: a dialog that came in, and the one that was begun for it. Either may be missing."""

    inbound: Any
    outbound: Any


class Manner(NamedTuple):
    """How a router routes."""

    mode: str
    redirect_type: str
    resolve: Resolve


class Step:
    """One transaction of a router. Make one for each."""

    def __init__(self, manner: Manner, work: Work, pair: Pair, decide: Decide) -> None:
        self._manner = manner
        self._work = work
        self._decide = decide
        self._inbound, self._outbound = pair
        self.far_service: str = self._outbound.far_service if self._outbound is not None else ""
        self.counts: dict[str, int] = {}
        """As in `Routed`."""
        self._ended: list[Any] = []
        self._from: Any = None
        """The dialog of the message before, where that was passed on."""
        self._onto: Any = None
        """The dialog on which it was,"""
        self._what = ""
        """and as what the next one like it counts."""
        self._note: bytes | None = None
        """Says for whom the messages are that came in, when none of them is to be received."""

    def run(self, messages: Sequence[Any]) -> None:
        """Do what they ask for, in the order in which they are received."""
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
        """Messages, or redirections, to the far service."""
        counts = self.counts
        return counts.get("forwarded", 0) + counts.get("followed", 0) + counts.get("redirected", 0)

    def routed(self) -> Routed:
        """What was done."""
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
        elif self._hears(self._outbound):
            self._pass_on(message, self._outbound, "followed")
        else:
            self._count("dropped")

    def _count(self, what: str, count: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + count

    def _over(self, dialog: Any) -> bool:
        """This side has ended, before or in this step."""
        return dialog.state.code in OVER or any(dialog is ended for ended in self._ended)

    def _hears(self, dialog: Any) -> bool:
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
        if self._hears(self._inbound):
            self._pass_on(message, self._inbound, "replied")
            return
        self._count("dropped")
        if self._inbound is None:
            self._end(self._outbound, PASSED_ON_ERROR, "The conversation that this one was begun for is over.")

    def _pass_end(self, dialog: Any, message: Any) -> None:
        """EndDialog ends both; an Error ends the other one with an Error that names its origin (behaviour 231)."""
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
        """Half-close: when all that one side will ever say was passed on, the other one is told so.

        FIN comes as no message. It is passed on with what it stands behind, as it mostly comes with that, or else with
        whatever is received next of the two dialogs.
        """
        if not self._hears(other):
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
                "received it: it would come back for ever. Let the classifier answer with another service, or null"
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
                "dialogs do not leave their database yet. Redirect its initiator, or leave the instance out"
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
        """Tell the initiator where to go, unless it has ended and hears nothing (behaviour 233).

        A pool gets all that it has sent back besides, and follows by itself.
        """
        if is_of_pool(self._inbound.conversation):
            self._note = redirect_body(target)
            self._count("redirected")
            return
        if self._hears(self._inbound):
            self._work.send(self._inbound, self._manner.redirect_type, redirect_body(target))
            self._count("redirected")
        else:
            self._count("dropped")
        self._end(self._inbound)

    def _give_back(self, messages: Sequence[Any], first: Any) -> None:
        """Receive what stands before the first message for somebody else, and nothing behind that."""
        assert self._note is not None, "it was decided for whom they are"
        work, before = self._work, messages.index(first)
        work.put_back()
        deque(islice(work, before), maxlen=0)
        work.give_back(self._inbound, self._manner.redirect_type, self._note)
        self._ended.append(self._inbound)
