"""Whether a consumer group still has members, and so whether an owner that writes nothing is dead.

A dead reader leaves its group after Kafka's session timeout, long before its journal has been silent for
`silence_timeout_s`. Readers without a group (`partitions=…`, substitutes) mark the records of their journals: an empty
group says nothing about them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message

from konverse.bridge.kafka.clients import Kafka, LogTruncated
from konverse.bridge.kafka.headers import header_of, is_without_group
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.kafka.refusals import Need
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import consumer_group, journal_topic
from konverse.schemas.wire.journal import Claim, Commit, Part, decode

RECORDS: Final = 16
"""Number of journal records searched for the last one of an owner: foreign records may follow it."""


class Membership(NamedTuple):
    """An owner and its consumer group."""

    left: bool = False
    """The owner had its partition from the group, and the group has no member: the owner is dead."""
    unknown: str = ""
    """Why the group's members are not known, and what to do; empty if they are, or if the owner needs no group."""


MEMBER: Final = Membership()
"""The group has members, or the owner needs none."""


class ConsumerGroups:
    """The consumer groups of queues. Asks Kafka for the members of each group once."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._known: dict[str, int | str] = {}
        """Group -> number of its members, or why that is not known."""

    def membership(self, queue: Queue, partition: int, owner: bytes, log: LogReader) -> Membership:
        """The membership of the owner with this claim id. Raises KafkaUnavailable when the journal cannot be read."""
        group = consumer_group(queue.topic, queue.subscription)
        if group not in self._known:
            self._known[group] = self._members(group)
        members = self._known[group]
        if (isinstance(members, int) and members) or not _is_of_group(queue, partition, owner, log):
            return MEMBER
        return Membership(unknown=members) if isinstance(members, str) else Membership(left=True)

    def _members(self, group: str) -> int | str:
        """Number of members; 0 for a group that does not exist. A text says why Kafka does not tell."""
        kafka = self._kafka
        try:
            described = kafka.answer(
                lambda timeout_s: kafka.admin.describe_consumer_groups([group], request_timeout=timeout_s)[group]
            )
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return 0
            what = f"the members of consumer group {group} cannot be listed"
            return str(kafka.unavailable(what, error, Need("DESCRIBE", f"group {group}")))
        return len(described.members)


def _is_of_group(queue: Queue, partition: int, owner: bytes, log: LogReader) -> bool:
    """Whether the last record of the journal is this owner's, and the owner is a reader of the consumer group."""
    journal = journal_topic(queue.topic, queue.subscription)
    begin, end = log.ends(journal, partition)
    try:
        chunks = log.read(journal, partition, max(begin, end - RECORDS), end)
        records = [record for chunk, _ in chunks for record in chunk]
    except LogTruncated:  # between the two requests
        return False
    for record in reversed(records):
        decision = decision_of(record)
        if decision is not None:
            return decision.owner == owner and not is_without_group(record)
    return False


def decision_of(record: Message) -> Claim | Commit | Part | None:
    """The decision in a journal record; None for a stranger's record."""
    try:
        return None if header_of(record) is not None else decode(record.value() or b"")
    except MalformedRecord:
        return None
