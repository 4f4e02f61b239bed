"""Waits until the journals show that an operator's instruction was carried out, and reports the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sized
from contextlib import closing
from typing import Final, TypeVar
from uuid import UUID

from konverse.bridge.kafka.clients import Kafka, LogTruncated
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.owner.follower import Follower
from konverse.bridge.reader.operations import awaits_operator, first_of
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.schemas.counting import counted
from konverse.schemas.errors import InvalidState, KonverseError, OutcomeUnknown
from konverse.schemas.identifiers import instruction_topic
from konverse.schemas.limits import INSTRUCTION_MS_MAX
from konverse.schemas.wire.instruction import Action, Instruction, encode
from konverse.schemas.wire.journal import Commit
from konverse.schemas.wire.operations import Skip

LOOK_EVERY_S: Final = 0.1
PendingT = TypeVar("PendingT", bound=Sized)

STILL_COUNTS: Final = (
    f"The instruction stays valid for {INSTRUCTION_MS_MAX // 60_000} minutes: the next reader that gets the partition "
    "carries it out"
)


class Awaited:
    """An action on one side of a conversation whose result is awaited."""

    def __init__(self, action: Action, following: Follower, side: Endpoint, *, ahead: bool = False) -> None:
        """`ahead`: `side` was seen in data that the journal has not ingested yet."""
        self.following = following
        self.first = first_of(side) if action in (Action.RESUME, Action.SKIP) else 0
        """Identifies the message that waited first; 0 for actions that do not depend on it."""
        self._action = action
        self._key = side.role, side.conversation
        self._parked = awaits_operator(side)
        self._skipped, self._seen = False, not ahead
        if action is Action.SKIP:
            following.on_commit = self._see  # SKIP concerns one side only, so the callback is free

    def _see(self, state: Partition, commit: Commit) -> None:
        for operation in commit.operations.rare:
            if isinstance(operation, Skip):
                endpoint = state.table[operation.endpoint]
                self._skipped |= endpoint is not None and (endpoint.role, endpoint.conversation) == self._key

    def done(self) -> bool:
        """Whether the journal, as far as it has been read, shows that the action was carried out.

        Raises InvalidState when the side changed in another way instead, OutcomeUnknown when it has left the partition.
        """
        state = self.following.state
        one = state.endpoint(*self._key)
        conversation = UUID(bytes=self._key[1])
        if one is None and self._key in state.moves.stubs:
            raise OutcomeUnknown(
                f"conversation {conversation} has moved to another partition meanwhile, so the outcome of the "
                f"instruction is unknown. {STILL_COUNTS}; find the conversation with `konverse why {conversation}`, "
                "and give the instruction again"
            )
        self._seen |= self._skipped or (one is not None and self.first in (0, first_of(one)))
        if not self._seen:
            return False
        ended = one is None or one.committed is State.DISCONNECTED_OUTBOUND
        match self._action:
            case Action.END:
                return ended
            case Action.SUSPEND:
                if ended:
                    raise InvalidState(f"conversation {conversation} has ended meanwhile, and was not suspended")
                return one is not None and one.suspended
            case Action.RESUME:
                return one is None or not (awaits_operator(one) and first_of(one) == self.first)
            case _:
                changed = one is None or first_of(one) != self.first or (self._parked and not one.suspended)
                if changed and not self._skipped:
                    raise InvalidState(
                        f"nothing was skipped on conversation {conversation}: a handler has received its first "
                        "message meanwhile, or the conversation was resumed or ended"
                    )
                return changed


def wait_for(awaited: list[Awaited], conversation: UUID, timeout_s: float) -> None:
    """Return when the journals show all actions. Raises OutcomeUnknown after `timeout_s`, and the errors of `done`."""
    left = list(awaited)

    def poll() -> list[Awaited]:
        for following in dict.fromkeys(one.following for one in left):
            following.catch_up()
        left[:] = [one for one in left if not one.done()]
        return left

    def late(_: object) -> OutcomeUnknown:
        return _late(conversation, timeout_s, unowned=all(one.following.head.clean for one in left))

    until_none(poll, time.monotonic() + timeout_s, late)


def check_foremost(kafka: Kafka, instruction: Instruction, place: int, key: bytes) -> None:
    """Raise InvalidState if an earlier instruction to SKIP has dropped the message that `instruction` names.

    Call it when the journal shows that the message was dropped. Operators that skip the same message all see one SKIP
    in the journal. That SKIP belongs to the earliest instruction, because owners carry out instructions in the order of
    the topic. `place` and `key` are the offset and the key of the record of `instruction`. Raises OutcomeUnknown if the
    topic cannot be read.
    """
    topic, conversation = instruction_topic(kafka.settings.instance), UUID(bytes=instruction.conversation)
    said = encode(instruction)
    try:
        with closing(LogReader(kafka)) as reader:
            start = min(place, reader.offset_at(topic, 0, kafka_time_ms(kafka) - 2 * INSTRUCTION_MS_MAX))
            chunks = reader.read(topic, 0, start, place + 1)
            told = [message for messages, _ in chunks for message in messages if message.value() == said]
    except (KonverseError, LogTruncated) as error:
        raise OutcomeUnknown(
            f"the first message of conversation {conversation} was dropped; whether by this instruction or by an "
            f"earlier one is unknown, as the instructions cannot be read: {error}"
        ) from None
    times_ms = {message.offset(): message.timestamp()[1] for message in told}
    still_ms = times_ms.get(place, 0) - INSTRUCTION_MS_MAX  # an instruction older than this was no longer valid
    if any(message.key() != key and times_ms[message.offset()] >= still_ms for message in told):
        raise InvalidState(
            "this instruction dropped nothing: an earlier one has dropped the first message of conversation "
            f"{conversation}. The earlier one may be your own, if you repeat one whose outcome was unknown. Check "
            "which message waits there before you skip another one"
        )


def until_none(poll: Callable[[], PendingT], deadline: float, late: Callable[[PendingT], OutcomeUnknown]) -> None:
    """Call `poll` until it returns an empty result. After the deadline raise `late(result)`."""
    while left := poll():
        if time.monotonic() > deadline:
            raise late(left)
        time.sleep(LOOK_EVERY_S)


def late_sweep(count: int, *, unowned: bool) -> OutcomeUnknown:
    """The error for `count` sides on which an action was not carried out in time. `unowned`: no reader runs."""
    return OutcomeUnknown(
        f"the outcome for {counted(count, 'conversation side')} is unknown: the journal has shown no "
        f"change in time, and {_why(unowned=unowned)}. "
        f"{STILL_COUNTS}. Repeat the command for the sides that got no instruction yet"
    )


def _late(conversation: UUID, timeout_s: float, *, unowned: bool) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the outcome of the instruction for conversation {conversation} is unknown: it was not carried out within "
        f"{timeout_s:.0f} s, and {_why(unowned=unowned)}. {STILL_COUNTS}. `konverse why {conversation}` shows its state"
    )


def _why(*, unowned: bool) -> str:
    if unowned:
        return "no reader of its queue runs: start a worker (`konverse run`)"
    return "a handler works on its group, or the owner of its partition is dead"
