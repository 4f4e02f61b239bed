"""Every exception that konverse raises, in one tree.

    KonverseError
    ├── BadInput                     the caller asked for something that cannot be
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
    ├── NoPartition                  this process has no partition of the queue: others have them all
    ├── QueueDisabled                nobody receives from a queue whose STATUS is OFF
    ├── ServiceAltered               a service went to another queue while something of it was waited for
    ├── ConversationEnded            the peer ended; nothing was written
    │   └── ConversationOver         an id of the caller's choice is that of a conversation that is over
    ├── Unavailable                  a server cannot be reached
    │   ├── KafkaUnavailable         │   └── AccessDenied     ├── RedisUnavailable     └── ValidatorUnavailable
    ├── QueueFull                    back-pressure: nothing was written, try again
    ├── SteppedDown, GroupLocked     another has the partition, or the conversation group; the work is done again
    ├── OutcomeUnknown, OutcomeExpired    whether it was written: cannot be known yet; never, as it was asked too late
    ├── BrokerClosed, SessionTakenOver    used after close; or somebody asked what became of the messages, which ends it
    ├── TopicMismatch, MalformedRecord    a topic is missing or has other settings; bytes that are not a record
    ├── PartitionHalted              Kafka broke its promise; the partition stops with an alarm
    └── StackError                   the local stack cannot run
        ├── JavaNotFound         ├── JavaTooOld           ├── PortTaken            ├── JarsNotResolvable
        └── DiskFull             ├── NotInstalled         ├── ServerDied           └── ServerNotFound

`retriable`: the same call may succeed later without a change. `number`: Service Broker's, or None; of some it depends.

What stands in errors: numbers that depend on the call, and texts no longer than a person reads.
"""

from __future__ import annotations

from typing import Final

ENDED_TWICE: Final = 8427
"""Number of an END in a state that does not allow it."""
BAD_INPUT_CHARACTERS_MAX: Final = 1_000
"""Of the text of an error that echoes what a caller gave."""
ERROR_CHARACTERS_MAX: Final = 4_000
"""Of the text of any other error."""
_END_CHARACTERS: Final = 400
_LEFT_OUT_CHARACTERS: Final = 40


class KonverseError(Exception):
    """Base of all. The text says what was wrong, with which object, and what to do."""

    retriable: bool = False
    number: int | None = None
    characters_max: int = ERROR_CHARACTERS_MAX

    def __init__(self, text: str = "", number: int | None = None) -> None:
        super().__init__(without_middle(text, self.characters_max))
        self.number = self.number if number is None else number


class BadInput(KonverseError):
    """The caller asked for something that cannot be."""

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
    """A conversation moves to groups of its own service in its own queue, and this is none of them."""

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
    """What is to answer a queue cannot be called with a transaction alone."""

    number = 9653


class StillUsed(BadInput):
    """An object cannot be dropped as long as others name it."""


class InvalidValidation(BadInput):
    """A message type names a validation that does not exist, or lacks the schema for it."""


class InvalidSchema(BadInput):
    """A schema cannot be read, is too large, or refers to what is not in it: nothing is ever fetched."""


class InvalidRoute(BadInput):
    """What cannot be, or not together: clauses of a route, entries of a routing table, a classifier's answer."""


class SavepointNotFound(UnknownObject):
    """The transaction has no savepoint of that name, or it was rolled back to one before that."""

    number = 6401


class NullHandle(BadInput):
    """None was given in place of a conversation."""

    number = 8418


class InvalidPriority(BadInput):
    """A broker priority has a level that does not exist."""

    number = 33302


class PriorityTwice(BadInput):
    """Another broker priority has the same contract, local service and remote service."""

    number = 33303


class SystemObject(BadInput):
    """Every database has it as it is: it cannot be changed, and a contract cannot list it."""

    number = 9663


class NotSupportedYet(BadInput):
    """Service Broker can do this, and konverse cannot yet."""


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
    """What one transaction sends does not fit into one commit, or it has too many savepoints."""


class PoolInUse(BadInput):
    """Another process uses the pool of that name; the text says which one."""


class InvalidState(BadInput):
    """The conversation endpoint is in a state that does not allow this; 8427 when it is to be ended."""

    number = 8429


class InvalidError(BadInput):
    """END WITH ERROR with a wrong code (8419), without a description (8422), or without either (8424)."""

    number = 8419


class TimerRefused(BadInput):
    """The conversation endpoint is in a state that does not allow a timer."""

    number = 8458


class MoveRefused(BadInput):
    """The conversation endpoint, or the group that it was to be moved to, is in a state that does not allow this."""

    number = 8438


class InvalidTimeout(BadInput):
    """A timer or a lifetime is not between a millisecond and 2,147,483,647 seconds."""

    number = 8411


class TimerBeyondLifetime(BadInput):
    """A timer would be due after the lifetime of its conversation."""

    number = 8410


class ConversationEnded(KonverseError):
    """The conversation was ended; nothing was written."""

    number = 8429


class ConversationOver(ConversationEnded):
    """A conversation with the id that was given is over, and nothing new was to be begun."""


class Unavailable(KonverseError):
    """A server cannot be reached."""

    retriable = True


class KafkaUnavailable(Unavailable):
    """No Kafka broker answers."""


class AccessDenied(KafkaUnavailable):
    """Kafka refuses an operation on a resource to the principal of this process; the text says what to grant."""

    principal = operation = resource = ""


class RedisUnavailable(Unavailable):
    """Redis does not answer. Never raised by work on conversations, which goes on without it."""


class ValidatorUnavailable(Unavailable):
    """Bodies cannot be held against their schemas here: a library is missing, or the process for it stands still."""


class QueueDisabled(KonverseError):
    """The STATUS of the queue is OFF: what is in it stays there until it is ON."""

    retriable = True
    number = 9617


class GroupLocked(KonverseError):
    """Another transaction has the conversation group. What was received comes again, and is not counted as failed."""

    retriable = True
    number = 1222


class ServiceAltered(KonverseError):
    """A service was moved to another queue, where what was waited for is received from now on."""

    number = 8468


class NoPartition(KonverseError):
    """This process has no partition of the queue, and nothing of it lives here: as many others read as it has any."""

    retriable = True


class QueueFull(KonverseError):
    """Too many records wait for their acknowledgement; nothing was written."""

    retriable = True


class SteppedDown(KonverseError):
    """Another owner has taken the partition. What was not committed will be received again there."""

    retriable = True


class OutcomeUnknown(KonverseError):
    """The record was handed to Kafka and no answer came: it may or may not be in the log."""

    def __init__(self, text: str, token: bytes = b"") -> None:
        super().__init__(text)
        self.token = token
        """For `broker.outcome`, in this process or another one, now or after a crash; empty when it is no message."""


class OutcomeExpired(KonverseError):
    """What became of a message cannot be known any more. Do not send it again without asking the receiver."""


class SessionTakenOver(KonverseError):
    """Somebody asked for the outcome of messages of this session, which closed it: connect again to go on."""


class BrokerClosed(KonverseError):
    """The broker, session or reader has been closed."""


class TopicMismatch(KonverseError):
    """A topic is missing, was created again, or has settings that would lose messages."""


class MalformedRecord(KonverseError):
    """The bytes are not a record of this kind; the one error of every decoder."""


class PartitionHalted(KonverseError):
    """Kafka contradicted itself (hash, offset or topic id): the partition stops rather than guess (protocol I17)."""


class StackError(KonverseError):
    """The local stack cannot be started, found or stopped."""


class NotInstalled(StackError):
    """An optional part of konverse is not installed; the text names the extra."""


def without_middle(text: str, most: int) -> str:
    """The text, as far as it is no longer: its beginning names the object, and its end the remedy."""
    if len(text) <= most:
        return text
    begin = most - _END_CHARACTERS - _LEFT_OUT_CHARACTERS
    left_out = f"… ({len(text) - begin - _END_CHARACTERS:,} characters more) …"
    return f"{text[:begin]}{left_out}{text[-_END_CHARACTERS:]}"
