"""Every exception that konverse raises, in one tree.

    KonverseError
    ├── BadInput                     the caller's request is invalid or impossible
    │   ├── UnknownObject                 ├── InvalidName           ├── InvalidGroup          ├── TransactionTooLarge
    │   │   ├── ServiceNotFound           ├── InvalidContract       ├── AlreadyExists         ├── ForeignGroup
    │   │   ├── ContractNotFound          ├── InvalidState          ├── NothingChanged        ├── SystemObject
    │   │   ├── MessageTypeNotFound       ├── InvalidSettings       ├── StillUsed             ├── NullHandle
    │   │   ├── SchemaCollectionNotFound  ├── InvalidSchema         ├── ContractTwice         ├── TimerRefused
    │   │   ├── QueueNotFound             ├── InvalidValidation     ├── TypeTwice             ├── TimerBeyondLifetime
    │   │   ├── RouteNotFound             ├── InvalidRoute          ├── PriorityTwice         ├── MoveRefused
    │   │   ├── RoutingTableNotFound      ├── InvalidPriority       ├── NotInContract         ├── NotSupportedYet
    │   │   ├── PriorityNotFound          ├── InvalidTimeout        ├── WrongDirection        ├── PoolInUse
    │   │   ├── SavepointNotFound         ├── InvalidProcedure      ├── BodyTooLarge          └── NullBody
    │   │   └── DialogNotFound            └── InvalidError
    ├── NoPartition                  other readers have all partitions of the queue
    ├── QueueDisabled                the STATUS of the queue is OFF: nothing is delivered from it
    ├── ServiceAltered               ALTER SERVICE moved the service to another queue during a wait
    ├── ConversationEnded            the conversation has ended; nothing was written
    │   └── ConversationOver         the id that the caller chose belongs to a conversation that is over
    ├── Unavailable                  a server cannot be reached
    │   ├── KafkaUnavailable         │   └── AccessDenied     ├── RedisUnavailable     └── ValidatorUnavailable
    ├── QueueFull                    back-pressure: nothing was written, try again
    ├── SteppedDown, GroupLocked     another owner has the partition, or a transaction the group; redelivered later
    ├── OutcomeUnknown, OutcomeExpired    whether the record was written is unknown: for now, or forever
    ├── TransactionLost              a client's transaction was committed but has no effect
    ├── BrokerClosed, SessionTakenOver    used after close; another process closed the session
    ├── TopicMismatch, MalformedRecord    a topic is missing or has other settings; bytes that are not a record
    ├── PartitionHalted              the logs contradict each other; the partition stops with an alarm
    └── StackError                   the local stack cannot run
        ├── JavaNotFound         ├── JavaTooOld           ├── PortTaken            ├── JarsNotResolvable
        └── DiskFull             ├── NotInstalled         ├── ServerDied           └── ServerNotFound

`retriable`: the same call may succeed later without a change. `number`: Service Broker's error number, or None. A class
has the usual number; where the number depends on the call, it is an argument of the constructor.

Texts are bounded. An error that echoes the caller's input keeps at most BAD_INPUT_CHARACTERS_MAX characters, any other
error ERROR_CHARACTERS_MAX.
"""

from __future__ import annotations

from typing import Final

ENDED_TWICE: Final = 8427
"""Number of an END in a state that does not allow it."""
BAD_INPUT_CHARACTERS_MAX: Final = 1_000
"""Maximum length of an error text that echoes the caller's input, in characters."""
ERROR_CHARACTERS_MAX: Final = 4_000
"""Maximum length of any other error text, in characters."""
_END_CHARACTERS: Final = 400
_LEFT_OUT_CHARACTERS: Final = 40


class KonverseError(Exception):
    """Base of all errors of konverse. The text says what was wrong, with which object, and what to do."""

    retriable: bool = False
    number: int | None = None
    characters_max: int = ERROR_CHARACTERS_MAX

    def __init__(self, text: str = "", number: int | None = None) -> None:
        super().__init__(without_middle(text, self.characters_max))
        self.number = self.number if number is None else number


class BadInput(KonverseError):
    """The caller's request is invalid or impossible."""

    characters_max = BAD_INPUT_CHARACTERS_MAX


class InvalidName(BadInput):
    """A name is empty, too long or holds control characters."""

    number = 8412


class InvalidSettings(BadInput):
    """A setting, option or address is missing or has an impossible value."""


class UnknownObject(BadInput):
    """A named object does not exist in this database."""


class ServiceNotFound(UnknownObject):
    """No service of that name (names are compared byte by byte); 8490 in a database that was named by its broker id."""

    number = 8423


class ContractNotFound(UnknownObject):
    """No contract of that name."""

    number = 8425


class MessageTypeNotFound(UnknownObject):
    """No message type of that name."""

    number = 8428


class SchemaCollectionNotFound(UnknownObject):
    """No XML schema collection of that name."""


class QueueNotFound(UnknownObject):
    """No queue of that name."""

    number = 15151


class RouteNotFound(UnknownObject):
    """No route of that name."""

    number = 15151


class RoutingTableNotFound(UnknownObject):
    """No routing table of that name."""


class PriorityNotFound(UnknownObject):
    """No broker priority of that name."""

    number = 15151


class DialogNotFound(UnknownObject):
    """No conversation with that handle."""

    number = 8426


class ForeignGroup(BadInput):
    """A conversation group belongs to one service: another one cannot put a dialog into it."""

    number = 9610


class InvalidGroup(BadInput):
    """A conversation can move only to a group of its own service in its own queue; this group is not one."""

    number = 8439


class AlreadyExists(BadInput):
    """An object of that kind and name exists already."""

    number = 2714


class InvalidContract(BadInput):
    """A contract without a type for the initiator, or with an unknown direction."""

    number = 8492


class ContractTwice(BadInput):
    """A service names a contract twice."""

    number = 8404


class TypeTwice(BadInput):
    """A contract names a message type twice."""

    number = 8403


class NothingChanged(BadInput):
    """An ALTER leaves everything as it is."""

    number = 8493


class InvalidProcedure(BadInput):
    """A handler or classifier cannot be called with its one argument alone, or is async or a generator."""

    number = 9653


class StillUsed(BadInput):
    """An object cannot be dropped as long as others name it."""


class InvalidValidation(BadInput):
    """A message type names a validation that does not exist, or lacks the schema for it."""


class InvalidSchema(BadInput):
    """A schema cannot be read, is too large, or refers to a document outside of it: konverse fetches nothing."""


class InvalidRoute(BadInput):
    """A clause of a route, an entry of a routing table or a classifier's answer is invalid or contradicts another."""


class SavepointNotFound(UnknownObject):
    """The transaction has no savepoint of that name, or was rolled back to an earlier one."""

    number = 6401


class NullHandle(BadInput):
    """None was passed in place of a conversation."""

    number = 8418


class InvalidPriority(BadInput):
    """A broker priority has a level that does not exist."""

    number = 33302


class PriorityTwice(BadInput):
    """Another broker priority has the same contract, local service and remote service."""

    number = 33303


class SystemObject(BadInput):
    """A system object, which every database has: it cannot be changed, and a contract cannot list it."""

    number = 9663


class NotSupportedYet(BadInput):
    """Service Broker supports this, and konverse does not yet."""


class NotInContract(BadInput):
    """The message type does not belong to the contract of the conversation."""

    number = 8431


class WrongDirection(BadInput):
    """The contract lets only the other side send this message type: 8432 at the initiator, 8434 at the target."""

    number = 8432


class NullBody(BadInput):
    """A message body is None. A body that is left out, or b"", is an empty one."""

    number = 8433


class BodyTooLarge(BadInput):
    """The message body is longer than one record may be."""

    number = 8459


class TransactionTooLarge(BadInput):
    """A transaction has more messages, groups or savepoints than fit into one commit, or a batch of Spark more rows."""


class PoolInUse(BadInput):
    """Another process uses the pool of that name; the text says which one."""


class InvalidState(BadInput):
    """The state of the conversation endpoint does not allow this call; 8427 for END CONVERSATION."""

    number = 8429


class InvalidError(BadInput):
    """END WITH ERROR with a wrong code (8419), without a description (8422), or without either (8424)."""

    number = 8419


class TimerRefused(BadInput):
    """The state of the conversation endpoint does not allow a timer."""

    number = 8458


class MoveRefused(BadInput):
    """The state of the conversation endpoint, or of the destination group, does not allow the move."""

    number = 8438


class InvalidTimeout(BadInput):
    """A timer or a lifetime is not between a millisecond and 2,147,483,647 seconds."""

    number = 8411


class TimerBeyondLifetime(BadInput):
    """A timer would be due after the lifetime of its conversation."""

    number = 8410


class ConversationEnded(KonverseError):
    """The conversation has ended; nothing was written."""

    number = 8429


class ConversationOver(ConversationEnded):
    """The conversation with this id is over, and the call did not ask for a new one."""


class Unavailable(KonverseError):
    """A server cannot be reached."""

    retriable = True


class KafkaUnavailable(Unavailable):
    """No Kafka broker answers."""


class AccessDenied(KafkaUnavailable):
    """Kafka denies this process's principal an operation on a resource; the text says which right to grant."""

    principal = operation = resource = ""


class RedisUnavailable(Unavailable):
    """Redis does not answer. Calls on conversations never raise it: they go on without Redis."""


class ValidatorUnavailable(Unavailable):
    """Bodies cannot be validated here: a library is missing, or the validator process does not answer."""


class QueueDisabled(KonverseError):
    """The STATUS of the queue is OFF: its messages wait until it is ON."""

    retriable = True
    number = 9617


class GroupLocked(KonverseError):
    """Another transaction has locked the group. The messages are redelivered; no failed attempt is counted."""

    retriable = True
    number = 1222


class ServiceAltered(KonverseError):
    """ALTER SERVICE moved the service to another queue; its messages are received there from now on."""

    number = 8468


class NoPartition(KonverseError):
    """Other readers have all partitions of the queue, and no conversation of it lives in this process."""

    retriable = True


class QueueFull(KonverseError):
    """Too many records wait for their acknowledgement; nothing was written."""

    retriable = True


class SteppedDown(KonverseError):
    """Another owner has taken the partition. Work that was not committed is redelivered there."""

    retriable = True


class OutcomeUnknown(KonverseError):
    """The record was handed to Kafka and no answer came: it may or may not be in the log."""

    def __init__(self, text: str, token: bytes = b"") -> None:
        super().__init__(text)
        self.token = token
        """Argument for `broker.outcome`, in any process, also after a crash; empty when the record is not a message."""


class OutcomeExpired(KonverseError):
    """The fate of the message can never be known. Do not send it again without asking the receiver."""


class SessionTakenOver(KonverseError):
    """Another process closed this session, to ask for its outcome or to adopt its dialogs: connect again to go on.

    It is raised as well when Kafka has lost records that it had acknowledged to the session.
    """


class TransactionLost(KonverseError):
    """A client's transaction was committed but has no effect: nothing of it is received. Repeat it."""


class BrokerClosed(KonverseError):
    """The broker, session or reader has been closed."""


class TopicMismatch(KonverseError):
    """A topic is missing, was recreated, or has settings that would lose messages."""


class MalformedRecord(KonverseError):
    """The bytes are not a record of this kind; the only error of every decoder."""


class PartitionHalted(KonverseError):
    """The logs contradict each other (hash, offset, topic id): the partition stops rather than guess (protocol I17)."""


WAY_ON: Final = (
    "Restore Kafka's storage; or give the queue's conversations up: drop the queue with force=True, create it again, "
    "and end the far sides WITH CLEANUP"
)
"""Advice to an operator when the logs of a partition no longer yield its state."""


class StackError(KonverseError):
    """The local stack cannot be started, found or stopped."""


class NotInstalled(StackError):
    """An optional part of konverse is not installed; the text names the extra."""


def without_middle(text: str, most: int) -> str:
    """The text, shortened in the middle: its beginning names the object, and its end the remedy."""
    if len(text) <= most:
        return text
    begin = most - _END_CHARACTERS - _LEFT_OUT_CHARACTERS
    left_out = f"… ({len(text) - begin - _END_CHARACTERS:,} characters more) …"
    return f"{text[:begin]}{left_out}{text[-_END_CHARACTERS:]}"
