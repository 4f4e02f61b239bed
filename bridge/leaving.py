"""What a sender says when it has to give something up: no room for a message, or the end of the program."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from konverse.dialog.lane import Lane, SessionDialog
from konverse.schemas.errors import OutcomeUnknown, QueueFull, TopicMismatch

if TYPE_CHECKING:
    from .sending import Sender

log: Final = logging.getLogger("konverse.sending")

GOODBYE_S: Final = 1.0
"""Saying goodbye at the end of a program may take so long: it only spares memory at the destinations."""


def no_room(dialog: SessionDialog | None, lane: Lane | None, timeout_s: float, failure: object) -> QueueFull:
    """Why something was not taken, with what to do."""
    if dialog is not None and dialog.blocked:
        return QueueFull(
            f"a transaction with this dialog has not arrived for {timeout_s} s; is the transmission queue served "
            "(`konverse transmit`)? This was not taken, try again later"
        )
    assert lane is not None
    return QueueFull(
        f"{len(lane.origins)} records to {lane.address.topic} have waited {timeout_s} s for Kafka (last failure: "
        f"{failure}); this was not taken, try again later"
    )


def not_acknowledged(what: str, timeout_s: float, failure: object, token: bytes) -> OutcomeUnknown:
    """Kafka stays silent."""
    return OutcomeUnknown(
        f"Kafka has not acknowledged {what} within {timeout_s} s (last failure: {failure}). "
        "They are kept and sent again; wait once more to learn of them",
        token,
    )


def not_verified(timeout_s: float, failure: object, token: bytes) -> OutcomeUnknown:
    """Kafka has everything, maybe in a topic that has only the name of the right one."""
    return OutcomeUnknown(
        f"Kafka has acknowledged all, and has not said within {timeout_s} s whether the topics are still those of the "
        f"queues (last failure: {failure}). Flush once more to learn of it",
        token,
    )


def not_arrived(timeout_s: float, token: bytes) -> OutcomeUnknown:
    """Kafka has transactions, and what they send is not where it goes."""
    return OutcomeUnknown(
        f"what transactions send has not arrived within {timeout_s} s; is the transmission queue served (`konverse "
        "transmit`)? What Kafka has of them happens, and what is sent meanwhile by others on the same dialogs may "
        "come first; wait once more to learn of it",
        token,
    )


def given_up(waiting: int, vain: list[Lane], failure: object, token: bytes) -> OutcomeUnknown:
    """A sender was closed; `vain`: all that waits goes there, where nobody takes it."""
    topics = ", ".join(sorted({lane.address.topic for lane in vain}))
    why = f"as the queues of {topics} were dropped, or their topics deleted" if vain else f"last failure: {failure}"
    return OutcomeUnknown(
        f"the broker was closed while {waiting} records were not acknowledged by Kafka ({why}). They are given up: "
        "some of them may have arrived, none goes again",
        token,
    )


def leave(sender: Sender, timeout_s: float, failure: object) -> None:
    """The program ends without `close`: deliver what waits, or say how much of it is given up."""
    goodbye_s = GOODBYE_S
    try:
        sender.settle(timeout_s)
    except TopicMismatch as error:
        goodbye_s = 0.0
        log.error("the program ends: %s", error)  # noqa: TRY400  # it says it all
    except OutcomeUnknown:
        goodbye_s = 0.0
        log.error(  # noqa: TRY400  # where in this module says nothing to whoever reads it
            "the program ends and Kafka does not answer: %d messages are given up; some of them may have arrived "
            "(last failure: %s). Call flush() or close() before the end to wait longer, and to be told",
            sender.session.messages_waiting,
            failure,
        )
    with suppress(OutcomeUnknown, TopicMismatch):
        sender.close(goodbye_s)
