"""An operator in any process: which conversations there are, which of them somebody has forgotten, and their end."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Annotated, Final
from uuid import UUID

from pydantic import SkipValidation

from konverse.dialog.endpoint import Endpoint
from konverse.schemas.catalog import Queue
from konverse.schemas.errors import BadInput
from konverse.schemas.instruction import Action

from .accepting import Accepting
from .arguments import Seconds, checked
from .forgotten import ConversationSide, Leaked, Sides
from .instructing import OBEYED_S
from .kafka_time import kafka_time_ms
from .validating.validator import Validator
from .views.listing import View
from .views.looking import Looking

SILENT_S: Final = 3_600.0
"""On what nobody has said or done anything for so long may be forgotten."""


Leaks = Annotated[Iterable[Leaked], SkipValidation]
"""What `leaked` has given, or some of it; a view is no list, so it is looked at where it is used."""


class Tidying(Accepting):
    """The part of a broker that is for whoever looks after what others have left."""

    _validator: Validator

    @checked
    def conversations(self, queue: str | None = None) -> View[ConversationSide]:
        """Each side of each conversation of a queue, or of all of the database.

        Folded from the logs, as `views` does, without disturbing anybody; Redis is not needed. Raises QueueNotFound.
        """
        self._check_open()
        only = self._named(queue)
        return self._sides(self.catalog.all(Queue) if only is None else [only]).all(only)

    @checked
    def leaked(self, *, older_than: Seconds = SILENT_S, queue: str | None = None) -> View[Leaked]:
        """The sides that somebody has forgotten, each with why and what to do; of a queue, or of all of the database.

        On the conversation nobody has said or done anything for `older_than` seconds, by Kafka's time. All queues of
        the database are read, since a side is judged together with its peer, and the records of the last `older_than`
        seconds where something seems to be forgotten. Raises QueueNotFound, KafkaUnavailable, and BadInput for more
        than a queue keeps its records.
        """
        self._check_open()
        only = self._named(queue)
        sides = self._sides(self.catalog.all(Queue))
        return sides.leaked(self._kafka, kafka_time_ms(self._kafka), older_than, only)

    @checked
    def end_leaked(self, leaked: Leaks, *, timeout: Seconds = OBEYED_S) -> list[UUID]:
        """Have conversations ended that `leaked` has given, WITH CLEANUP: both sides go, with all that waits for them.

        They are looked at again before: one on which something was said or done since then goes on. Returns those
        that are ended. Owners do it, as with `end`. Raises BadInput for what is nothing of that kind, OutcomeUnknown
        when an owner has not done it within `timeout` seconds.
        """
        self._check_open()
        wanted = _those(leaked)
        if not wanted:
            return []
        still = {_key(one) for one in self.leaked(older_than=min(one.silent_s for one in wanted))}
        changed = {one.conversation for one in wanted if _key(one) not in still}
        ending = {one.conversation.bytes for one in wanted if one.conversation not in changed}
        ended = dict[bytes, None]()

        def meant(one: Endpoint) -> bool:
            if one.conversation in ending:
                ended[one.conversation] = None
            return one.conversation in ending

        self._sweep(Action.CLEANUP, None, meant, timeout)
        return [UUID(bytes=conversation) for conversation in ended]

    def _named(self, queue: str | None) -> Queue | None:
        return None if queue is None else self.catalog.get(Queue, queue)

    def _sides(self, queues: list[Queue]) -> Sides:
        with closing(Looking(self._kafka, self.catalog, self._validator, None)) as looking:
            return Sides(looking, queues)


def _those(leaked: object) -> list[Leaked]:
    given = [*leaked] if isinstance(leaked, Iterable) else []
    found = [one for one in given if isinstance(one, Leaked)]
    if len(found) < len(given) or not isinstance(leaked, Iterable):
        raise BadInput(f"end_leaked takes what `broker.leaked` has given, not {leaked!r}")
    return found


def _key(one: Leaked) -> tuple[UUID, str, str, int, int]:
    """What of a side changes when something is said to it, or done with it."""
    return one.conversation, one.role, one.state, one.received, one.unread
