"""Data-dependent routing: one step of a router, on what was received of one conversation group.

The first message of a dialog that comes in decides. To forward, the router begins a second dialog to the service that
was decided on, in the conversation group of the first: so the two are received together, in one partition and one
transaction, and to be together in a group is the mapping, both ways. No table is needed, and none can be lost. Later
messages follow it without being classified, what comes back goes to the first dialog, an end ends the other one, and
an Error is passed on with its origin. To redirect, the router tells the initiator where to go, and ends the dialog.

Source: behaviours 230 to 233.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from konverse.schemas.catalog import DIALOG_TIMER, END_DIALOG, ERROR
from konverse.schemas.errors import InvalidRoute, InvalidSettings, InvalidState, NotSupportedYet
from konverse.schemas.groups import own_group
from konverse.schemas.journal import OUTPUT_BYTES
from konverse.schemas.limits import ERROR_DESCRIPTION_CHARACTERS_MAX, HEADER_BYTES_MAX, TRANSACTION_BYTES_MAX
from konverse.schemas.records import Role

from .decisions import Decision, Target, unknown
from .documents import PASSED_ON_ERROR, UNCLASSIFIABLE_ERROR, passed_on, redirect_body, shortened
from .routed import Routed

FORWARD: Final = "forward"
REDIRECT: Final = "redirect"
REDIRECT_TO: Final = "RedirectTo"
"""Message type of a redirection, unless another one is chosen. The contract must let the target send it."""

ASIDE_BYTES: Final = 2 * HEADER_BYTES_MAX + 8 * ERROR_DESCRIPTION_CHARACTERS_MAX
"""Room in a transaction for all that a step does beside passing messages on: a begin and two ends."""

_SENDING: Final = ("SO", "CO")
_OVER: Final = ("DO", "CD")


class Work(Protocol):
    """What was received of a group, and what is done on it: as much of `Transaction` as a router uses.

    Dialogs are endpoints, messages those of `dialog.received`; this folder does not know them.
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

    def begin(self, from_service: str, to_service: str, contract: str, *, related_to: Any, key: bytes | None) -> Any:
        """BEGIN DIALOG in the group of another one."""
        ...

    def send(self, dialog: Any, message_type: str, body: bytes) -> None:
        """SEND."""
        ...

    def end(self, dialog: Any, *, error: int = 0, description: str = "") -> None:
        """END CONVERSATION."""
        ...


Decide = Callable[[Any], Decision]
"""Says for which service a received message is. Asked once at most in a step."""

Resolve = Callable[[Target], Target]
"""Looks at what was decided, where there is a catalog: raises for a service that does not exist, or is the router's."""


class Pair(NamedTuple):
    """The mapping: a dialog that came in, and the one that was begun for it. Either may be missing."""

    inbound: Any
    outbound: Any


class Router:
    """How to route. One serves any number of steps."""

    def __init__(
        self, mode: str = FORWARD, *, redirect_type: str = REDIRECT_TO, resolve: Resolve = lambda target: target
    ) -> None:
        """Raises InvalidSettings for a mode that is neither forward nor redirect."""
        if mode not in (FORWARD, REDIRECT):
            raise InvalidSettings(f"a router works in mode {FORWARD!r} or {REDIRECT!r}, not {mode!r}")
        self.mode = mode
        self.redirect_type = redirect_type
        self.resolve = resolve

    def undecided(self, work: Work) -> Any:
        """The message that has to be classified, or None: the others follow. Nothing is consumed by this.

        Raises InvalidState for a group in which there is no telling which dialogs belong together.
        """
        inbound, outbound = pair_of(work.dialogs)
        if inbound is None or outbound is not None:
            return None
        first = next((message for message in work if message.type != DIALOG_TIMER), None)
        work.put_back()
        return None if first is None or first.type in (END_DIALOG, ERROR) else first

    def step(self, work: Work, decide: Decide) -> Routed:
        """Receive what is there, and do what it asks for. What does not fit into one transaction waits for the next.

        Raises InvalidRoute when it decides on the router itself, InvalidState as `undecided`, NotSupportedYet, and
        what `resolve`, `begin` and `send` of the transaction raise: the caller rolls back, and nothing has happened.
        """
        step = _Step(self, work, decide)
        for message in _fitting(work):
            step.take(message)
        return step.routed()


def pair_of(dialogs: Sequence[Any]) -> Pair:
    """The pair that a group is. Raises InvalidState when it has more, or a dialog that no router has begun."""
    living = [dialog for dialog in dialogs if dialog.state.code not in _OVER]
    inbound = [dialog for dialog in living if dialog.role is Role.TARGET]
    outbound = [dialog for dialog in living if dialog.role is Role.INITIATOR]
    if len(inbound) > 1 or len(outbound) > 1:
        named = ", ".join(str(dialog.id) for dialog in living)
        raise InvalidState(
            f"conversations {named} are in one group, and a router maps one that came in to one that it began: move "
            "them apart, or end those that are too many"
        )
    if outbound and not inbound and outbound[0].group_id == own_group(Role.INITIATOR, outbound[0].conversation):
        raise InvalidState(
            f"conversation {outbound[0].id} from {outbound[0].service!r} to {outbound[0].far_service!r} was not begun "
            "by a router, so there is nobody to pass its answers to: let it come from a service on another queue"
        )
    return Pair(inbound[0] if inbound else None, outbound[0] if outbound else None)


class _Step:
    """What is done with the messages of one transaction."""

    def __init__(self, router: Router, work: Work, decide: Decide) -> None:
        self._router = router
        self._work = work
        self._decide = decide
        self._inbound, self._outbound = pair_of(work.dialogs)
        self._far_service: str = self._outbound.far_service if self._outbound is not None else ""
        self._ended: list[Any] = []
        self._counts = Counter[str]()
        self._to = 0
        """Messages or redirections to the far service."""

    def routed(self) -> Routed:
        """What was done."""
        return Routed(**self._counts, targets={self._far_service: self._to} if self._to else {})

    def take(self, message: Any) -> None:
        """One message, in the order in which they are received."""
        dialog, kind = message.dialog, message.type
        if kind == DIALOG_TIMER:
            return
        if kind in (END_DIALOG, ERROR):
            self._pass_end(dialog, message)
        elif self._over(dialog):
            self._counts["dropped"] += 1
        elif dialog is self._outbound:
            self._pass_back(message)
        elif self._outbound is None:
            self._classify(message)
        elif self._hears(self._outbound):
            self._pass_on(message, "followed")
        else:
            self._counts["dropped"] += 1

    def _over(self, dialog: Any) -> bool:
        """This side has ended, before or in this step."""
        return dialog.state.code in _OVER or any(dialog is ended for ended in self._ended)

    def _hears(self, dialog: Any) -> bool:
        return dialog is not None and dialog.state.code in _SENDING and not self._over(dialog)

    def _end(self, dialog: Any, error: int = 0, description: str = "") -> None:
        self._work.end(dialog, error=error, description=description)
        self._ended.append(dialog)

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
            self._counts["ended"] += 1
        self._end(dialog)

    def _pass_back(self, message: Any) -> None:
        if self._hears(self._inbound):
            self._work.send(self._inbound, message.type, message.body)
            self._counts["replied"] += 1
            return
        self._counts["dropped"] += 1
        if self._inbound is None:
            self._end(self._outbound, PASSED_ON_ERROR, "The conversation that this one was begun for is over.")

    def _pass_on(self, message: Any, what: str) -> None:
        self._work.send(self._outbound, message.type, message.body)
        self._counts[what] += 1
        self._to += 1

    def _classify(self, message: Any) -> None:
        """The first message decides (behaviours 230, 232, 233)."""
        inbound = self._inbound
        decision = self._decide(message)
        if not isinstance(decision, Target):
            self._end(inbound, UNCLASSIFIABLE_ERROR, shortened(decision.reason or unknown(message.type)))
            self._counts["rejected"] += 1
            return
        if decision.service == inbound.service and decision.broker_instance is None:
            raise InvalidRoute(
                f"conversation {inbound.id} was classified as one for {decision.service!r}, which is the router that "
                "received it: it would come back for ever. Let the classifier answer with another service, or null"
            )
        target = self._router.resolve(decision)
        self._far_service = target.service
        if self._router.mode == REDIRECT:
            self._redirect(target)
            return
        if target.broker_instance is not None:
            raise NotSupportedYet(
                f"conversation {inbound.id} was classified as one for broker instance {target.broker_instance}: "
                "dialogs do not leave their database yet. Redirect its initiator, or leave the instance out"
            )
        self._outbound = self._work.begin(
            inbound.service, target.service, inbound.contract, related_to=inbound, key=inbound.key
        )
        self._pass_on(message, "forwarded")

    def _redirect(self, target: Target) -> None:
        """Tell the initiator where to go, unless it has ended and hears nothing (behaviour 233)."""
        if self._hears(self._inbound):
            self._work.send(self._inbound, self._router.redirect_type, redirect_body(target))
            self._counts["redirected"] += 1
            self._to += 1
        else:
            self._counts["dropped"] += 1
        self._end(self._inbound)


def _fitting(work: Work) -> list[Any]:
    """As many of the messages as one transaction can pass on; one at least."""
    messages = list(work)
    room = TRANSACTION_BYTES_MAX - ASIDE_BYTES - work.size_bytes
    for count, message in enumerate(messages):
        room -= len(message.body) + OUTPUT_BYTES
        if room < 0 and count:
            work.put_back()
            return list(islice(work, count))
    return messages
