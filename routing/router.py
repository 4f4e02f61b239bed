"""Data-dependent routing: one step of a router on the messages received from one conversation group.

The first message of an inbound dialog decides. To forward, the router begins a second dialog, to the service that was
decided on, in the conversation group of the first. So the two are received together, in one partition and one
transaction, and the group is the mapping, both ways. No table is needed, and none can be lost. Later messages follow
without being classified, replies go to the inbound dialog, an end ends the other dialog, and an Error is passed on with
its origin. To redirect, the router tells the initiator where to go, and ends the dialog.

Source: behaviours 230 to 233.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from konverse.schemas.errors import InvalidSettings, InvalidState
from konverse.schemas.groups import own_group
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import (
    BODY_BYTES_MAX,
    ERROR_DESCRIPTION_CHARACTERS_MAX,
    HEADER_BYTES_MAX,
    TRANSACTION_BYTES_MAX,
)
from konverse.schemas.system_messages import DIALOG_TIMER, END_DIALOG, ERROR
from konverse.schemas.wire.journal import OUTPUT_BYTES

from .routed import Routed
from .step import FORWARD, OVER, REDIRECT, REDIRECT_TO, Decide, Manner, Pair, Resolve, Step, Work

ASIDE_BYTES: Final = 2 * HEADER_BYTES_MAX + 8 * ERROR_DESCRIPTION_CHARACTERS_MAX
"""Room in a transaction for the operations of a step other than passing messages on: a begin and two ends."""


class Router:
    """The settings of a router, for any number of steps."""

    def __init__(
        self, mode: str = FORWARD, *, redirect_type: str = REDIRECT_TO, resolve: Resolve = lambda target, _: target
    ) -> None:
        """Raises InvalidSettings for a mode that is neither forward nor redirect."""
        if mode not in (FORWARD, REDIRECT):
            raise InvalidSettings(f"a router works in mode {FORWARD!r} or {REDIRECT!r}, not {mode!r}")
        self.mode = mode
        self._manner = Manner(mode, redirect_type, resolve)

    def undecided(self, work: Work) -> Any:
        """The message that must be classified; None when the messages follow earlier ones. Consumes nothing.

        Raises InvalidState for a group whose dialogs are no pair.
        """
        inbound, outbound = pair_of(work.dialogs)
        if inbound is None or outbound is not None:
            return None
        first = next((message for message in work if message.type != DIALOG_TIMER), None)
        work.put_back()
        return None if first is None or first.type in (END_DIALOG, ERROR) else first

    def step(self, work: Work, decide: Decide) -> Routed:
        """Receive the waiting messages and handle them. Those that do not fit into one transaction wait for the next.

        Raises InvalidRoute for a decision on the router itself, InvalidState like `undecided`, NotSupportedYet, and the
        errors of `resolve` and of the transaction's `begin` and `send`. The caller then rolls back, so that nothing has
        happened.
        """
        return self.take_step(work, decide).routed()

    def take_step(self, work: Work, decide: Decide) -> Step:
        """Like `step`, but returns the step itself, for callers that add up the counts themselves."""
        step = Step(self._manner, work, pair_of(work.dialogs), decide)
        step.run(_fitting(work))
        return step


def pair_of(dialogs: Sequence[Any]) -> Pair:
    """The pair in a group. Raises InvalidState for more dialogs, or for an outbound dialog that no router has begun."""
    if len(dialogs) == 2:  # the usual case, without a search
        one, other = dialogs
        if one.state.code not in OVER and other.state.code not in OVER and one.role is not other.role:
            return Pair(one, other) if one.role is Role.TARGET else Pair(other, one)
    living = [dialog for dialog in dialogs if dialog.state.code not in OVER]
    inbound = [dialog for dialog in living if dialog.role is Role.TARGET]
    outbound = [dialog for dialog in living if dialog.role is Role.INITIATOR]
    if len(inbound) > 1 or len(outbound) > 1:
        named = ", ".join(str(dialog.id) for dialog in living)
        raise InvalidState(
            f"conversations {named} are in one group. A router's group holds one inbound and one outbound "
            "conversation: move the others to groups of their own, or end them"
        )
    if outbound and not inbound and outbound[0].group_id == own_group(Role.INITIATOR, outbound[0].conversation):
        raise InvalidState(
            f"conversation {outbound[0].id} from {outbound[0].service!r} to {outbound[0].far_service!r} was not begun "
            "by a router, so the router cannot pass its answers on: begin it from a service on another queue"
        )
    return Pair(inbound[0] if inbound else None, outbound[0] if outbound else None)


def _fitting(work: Work) -> list[Any]:
    """The messages that one transaction can pass on, at least one."""
    messages = list(work)
    room = TRANSACTION_BYTES_MAX - ASIDE_BYTES - work.size_bytes
    if len(messages) * (BODY_BYTES_MAX + OUTPUT_BYTES) <= room:
        return messages  # even if each is as large as possible
    if sum([len(message.body) for message in messages]) + OUTPUT_BYTES * len(messages) <= room:
        return messages
    for count, message in enumerate(messages):
        room -= len(message.body) + OUTPUT_BYTES
        if room < 0 and count:
            work.put_back()
            return list(islice(work, count))
    return messages
