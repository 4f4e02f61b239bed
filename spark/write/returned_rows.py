"""After a decision, searches for rows that came back: for writes that use conversations of earlier writes.

The driver warns of such rows, and has new conversations succeed those that have ended (`successions`).
"""

from __future__ import annotations

import logging
import time
from typing import Final, NamedTuple

from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.schemas.counting import counted
from konverse.schemas.errors import AccessDenied, KonverseError, MalformedRecord
from konverse.schemas.limits import RETURNED_LOOK_RECORDS_MAX, SUCCESSION_ENTRIES_MAX
from konverse.schemas.wire.envelope import CONVERSATION_AT, PREFIX_BYTES, decode
from konverse.schemas.wire.records import Bounce, BounceReason, Kind
from konverse.spark.connection.clients import kafka_of
from konverse.spark.connection.settings import CLIENT_PREFIX, parse
from konverse.spark.log.topic import Topic
from konverse.spark.read.returned import header_of

from .plan import Plan, is_of_plan
from .settings import WriteSettings
from .successions import Successions

log: Final = logging.getLogger("konverse.spark")

LOOK_BACK_MS: Final = 10_000
"""How far before its own beginning a write searches: rows of the previous write may come back after its end."""

HOMES_MAX: Final = 64
"""Queues for which a process remembers its last look. A forgotten queue is treated as a new one."""

_LOOKED_MS: Final[dict[tuple[str, str], int]] = {}
"""Brokers and topic of a home queue -> time of this process's last look. One process commits all micro-batches of a
stream, and the interval of its trigger may be longer than LOOK_BACK_MS."""

LOOK_WAIT_S: Final = 0.5
"""How long a batch write waits for rows to come back: a running target needs less."""

_OVER: Final = frozenset({BounceReason.ENDED, BounceReason.PEER_ENDED})
"""Reasons of a bounce that mean that the conversation has ended. For others, a new conversation would not help."""

_ANEW: Final = "From the next write on, rows with these keys go to new conversations"
_HELD: Final = (
    "Further rows with their keys also come back until a reader of that queue has ended its sides of these "
    "conversations; write them again after that"
)


class ReturnedRows(NamedTuple):
    """Rows that came back."""

    rows: int
    over: frozenset[bytes]
    """Those of their conversations that have ended."""


def look_for(settings: WriteSettings, plan: Plan, wait_s: float) -> int:
    """Count rows that came back to the plan's homes, after `wait_s`, and warn of them.

    Looks at records since LOOK_BACK_MS before the write began, or before this process's last look if that is earlier.
    The write does not depend on the result: it is 0 when Kafka does not answer.
    """
    time.sleep(wait_s)
    client = {CLIENT_PREFIX + name: value for name, value in settings.client.items()}
    place = parse({**client, "bootstrap": settings.bootstrap, "topic": plan.homes[0].topic})
    home = (place.bootstrap, place.topic)
    since_ms = min(plan.began_ms, _LOOKED_MS.get(home, plan.began_ms)) - LOOK_BACK_MS
    try:
        looked_ms = kafka_time_ms(kafka_of(settings))
        with Topic(place) as topic:
            back = _came_back(topic, [one.partition for one in plan.homes], since_ms)
    except KonverseError as error:
        level = logging.WARNING if isinstance(error, AccessDenied) else logging.INFO
        log.log(
            level,
            "cannot determine whether rows were returned to %s: %s. The write itself is done; read 'mode' = 'returned' "
            "to be certain",
            plan.homes[0].topic,
            error,
        )
        return 0
    _LOOKED_MS.pop(home, None)
    _LOOKED_MS[home] = looked_ms
    if len(_LOOKED_MS) > HOMES_MAX:
        del _LOOKED_MS[next(iter(_LOOKED_MS))]
    if back.rows:
        log.warning(
            "%s, because the targets have ended their conversations. Read these rows from the queue of service %r with "
            "'mode' = 'returned', and write them again. %s",
            counted(
                back.rows,
                "row of this write, or of one shortly before it, was returned",
                "rows of this write, or of one shortly before it, were returned",
            ),
            settings.from_service,
            _ANEW if _succeeded(settings, plan, back.over) else _HELD,
        )
    return back.rows


def _succeeded(settings: WriteSettings, plan: Plan, over: frozenset[bytes]) -> bool:
    """Record that these conversations have ended. Returns whether the next plan has new ones for their keys."""
    new = sorted(over - plan.over)
    if len(plan.over) + len(new) > SUCCESSION_ENTRIES_MAX:
        return False
    try:
        if new:
            Successions(kafka_of(settings), settings.instance, plan.homes[0]).end(new)
    except KonverseError as error:
        level = logging.WARNING if isinstance(error, AccessDenied) else logging.INFO
        topic = plan.homes[0].topic
        log.log(
            level,
            "rows returned to %s keep their ended conversations, so the next rows of their keys return too: %s",
            topic,
            error,
        )
        return False
    return True


def _came_back(topic: Topic, partitions: list[int], since_ms: int) -> ReturnedRows:
    """Rows that came back, among the last RETURNED_LOOK_RECORDS_MAX records of each partition."""
    bounds = topic.bounds(partitions)
    since = topic.since(dict.fromkeys(partitions, since_ms))
    count, over = 0, set[bytes]()
    for partition in partitions:
        end = bounds[partition].end
        start = max(since[partition], bounds[partition].first, end - RETURNED_LOOK_RECORDS_MAX)
        for messages in topic.chunks(partition, start, end):
            back = [header for header in map(header_of, messages) if _is_row_that_came_back(header)]
            count += len(back)
            over.update(header[CONVERSATION_AT:PREFIX_BYTES] for header in back if _is_over(header))
    return ReturnedRows(count, frozenset(over))


def _is_row_that_came_back(header: bytes) -> bool:
    """Whether a record is the BOUNCE of a row, by its conversation id."""
    return (
        len(header) > PREFIX_BYTES
        and header[0] == Kind.BOUNCE << 1
        and is_of_plan(header[CONVERSATION_AT:PREFIX_BYTES])
    )


def _is_over(header: bytes) -> bool:
    try:
        detail = decode(header).suffix.detail
    except MalformedRecord:
        return False
    return isinstance(detail, Bounce) and detail.reason in _OVER
