"""System messages: their names, and the Error document, written and read (service-broker.md section 4)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from uuid import UUID
from xml.parsers.expat import ExpatError, ParserCreate
from xml.sax.saxutils import escape

from .errors import BadInput, InvalidError, MalformedRecord
from .identifiers import Role
from .limits import ERROR_CODE_MAX, ERROR_DESCRIPTION_CHARACTERS_MAX, FAULT_CHARACTERS_MAX

ERROR_NAMESPACE: Final = "http://schemas.microsoft.com/SQL/ServiceBroker/Error"
_UNDERSTOOD: Final = {
    f"{scheme}://schemas.microsoft.com/SQL/ServiceBroker{end}" for scheme in ("http", "https") for end in ("/Error", "")
}
"""Accepted namespaces of an Error document: ours, and those that the original's documentation prints."""
_NOT_OF_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""A character that cannot occur in an XML document, not even escaped."""
OVER: Final = -8429
ANOTHER_ID: Final = "Begin with another id: an id names one conversation"
"""Advice for a caller whose conversation is over."""
BROKER_ERROR: Final = -9719
BROKER_ERROR_DESCRIPTION: Final = (
    "An operator has given up all conversations of the database. Recently sent messages may not have been processed."
)
"""Description of the Errors of ERROR_BROKER_CONVERSATIONS (behaviour 136)."""
_REJECTED: Final = {
    8408: "the target service does not support the contract of this conversation",
    8425: "the contract of this conversation is not found where the message was received",
    8428: "this message type is not found where the message was received",
    8430: "the body is not what this message type asks for",
    8437: "it came from the target, and the contract lets only the initiator send this message type",
    8457: "it came from the initiator, and the contract lets only the target send this message type",
    8470: "the service that should receive it has been dropped",
    8498: "this message type is not part of the contract where the message was received",
    9615: "the body failed the XML validation of this message type at the target",
    9616: "the body failed the XML validation of this message type at the initiator",
    9704: "to validate the body took more time or memory than is allowed where the message was received",
}
DEFAULT: Final = "DEFAULT"
"""Message type and contract that every database has (behaviour 8)."""
SYSTEM_NAMESPACE: Final = "http://schemas.microsoft.com/SQL/ServiceBroker/"
DIALOG_TIMER: Final = SYSTEM_NAMESPACE + "DialogTimer"
END_DIALOG: Final = SYSTEM_NAMESPACE + "EndDialog"
ERROR: Final = SYSTEM_NAMESPACE + "Error"


def check_error(code: int | None, description: str | None) -> tuple[int, str]:
    """Code and description of END WITH ERROR; (0, "") for a plain end (behaviour 112).

    Raises InvalidError:

    - 8424 when both are missing,
    - 8422 when the description is missing or empty,
    - 8419 when the code is missing or is not 1 to 2,147,483,647,
    - 8419 when the description has over 3,000 characters, or one that XML cannot carry: a control character other than
      tab, line feed and carriage return, half of a surrogate pair, U+FFFE, U+FFFF.
    """
    if code == 0 and description == "":
        return 0, ""
    if not code and (description is None or (code is None and not description)):
        raise InvalidError("END WITH ERROR needs a code and a description, and both are missing", 8424)
    if code is not None and not (description and isinstance(description, str)):
        raise InvalidError(f"END WITH ERROR needs a description, a string that is not empty, not {description!r}", 8422)
    if type(code) is not int or not 0 < code <= ERROR_CODE_MAX:
        raise InvalidError(f"the code of END WITH ERROR must be an integer from 1 to {ERROR_CODE_MAX}, not {code!r}")
    assert description is not None
    if len(description) > ERROR_DESCRIPTION_CHARACTERS_MAX:
        raise InvalidError(
            f"the description of END WITH ERROR has {len(description)} characters; at most "
            f"{ERROR_DESCRIPTION_CHARACTERS_MAX} are sent, so shorten it"
        )
    wrong = _NOT_OF_XML.search(description)
    if wrong is not None:
        raise InvalidError(
            f"the description of END WITH ERROR has U+{ord(wrong[0]):04X} as character {wrong.start() + 1}, which XML "
            "cannot carry; leave it out, or write it in another way"
        )
    return code, description


def error_body(code: int, description: str) -> bytes:
    """The Error document with this code (above 0: an application's) and description, in UTF-8."""
    text = escape(_presentable(description), {"\r": "&#xD;"})  # an XML parser turns a bare one into a line feed
    return (
        f'<?xml version="1.0"?><Error xmlns="{ERROR_NAMESPACE}"><Code>{code}</Code>'
        f"<Description>{text}</Description></Error>"
    ).encode()


def _presentable(text: str) -> str:
    """The text with U+FFFD in place of characters that XML cannot carry."""
    return _NOT_OF_XML.sub("\ufffd", text)


def shortened(text: str) -> str:
    """The text, cut to the length that an Error can carry; for texts that the caller did not write."""
    most, text = ERROR_DESCRIPTION_CHARACTERS_MAX, _presentable(text)
    return text if len(text) <= most else text[: most - 1] + "\u2026"


NO_PEER_BODY: Final = error_body(
    -8462,
    "The remote conversation endpoint is either in a state where no more messages can be exchanged, or it has been "
    "dropped.",
)
"""The Error of a side whose peer is gone.

Among the original's codes -8462 says this, and that the messages may be sent again on a new conversation; -8470 would
say that a service was dropped (service-broker.md 4).
"""
BEGUN_TWICE_BODY: Final = error_body(
    -8462,
    "The conversation was begun once more on the new queue of its service while ALTER SERVICE moved it there, so it "
    f"exists twice and cannot go on. {ANOTHER_ID}.",
)
"""The Error of both sides of a conversation that arrives where its id was begun again (protocol.md M290)."""
LIFETIME_BODY: Final = error_body(-8489, "The dialog has outlived the LIFETIME with which it was begun.")
"""The Error of each side whose conversation's lifetime has passed (behaviour 123)."""


def lost_body(start: int, end: int) -> bytes:
    """The Error of a conversation that may have had messages in deleted data.

    Its code is the original's for a database that was restored: recent messages may be lost.
    """
    return error_body(
        BROKER_ERROR,
        f"The log of this conversation lost records: its records {start} to {end - 1} were deleted before they were "
        "received, and messages of this conversation may be among them.",
    )


ACKED_LOST_BODY: Final = error_body(
    BROKER_ERROR,
    "The log of this conversation lost records that Kafka had acknowledged, and messages of this conversation may be "
    "among them.",
)
"""The Error of a conversation whose log lacks acknowledged records of a sender: they were never received."""


class Rejection(NamedTuple):
    """Why a receiver rejects a message."""

    reason: int
    """The number of Service Broker's error, above 0."""
    fault: str = ""
    """The fault of the body in the parser's words, at most FAULT_CHARACTERS_MAX characters; empty for other reasons."""

    @classmethod
    def of(cls, reason: int, fault: str) -> Rejection:
        """A rejection whose `fault` is cut and made printable: it may quote the body, which can be hostile."""
        return cls(reason, "".join(each if each.isprintable() else "?" for each in fault[:FAULT_CHARACTERS_MAX]))


class Rejected(NamedTuple):
    """The message that was rejected."""

    message_type: str
    conversation: bytes
    role: Role
    """Side that should have received it."""
    sequence: int


def rejected_body(why: Rejection, which: Rejected) -> bytes:
    """The Error document for a rejected message."""
    said = _REJECTED.get(why.reason, "the receiver rejects it") + (f": {why.fault}" if why.fault else "")
    return error_body(
        -why.reason,
        f"A message of type {which.message_type!r} was rejected: {said}. This occurred in the message with "
        f"Conversation ID '{UUID(bytes=which.conversation)}', Initiator: {int(which.role is Role.INITIATOR)}, and "
        f"Message sequence number: {which.sequence}.",
    )


def read_error(body: bytes) -> tuple[int, str]:
    """Code and description of a received Error; MalformedRecord when the body is not an Error document.

    Codes above 0 are the application's, those below 0 Service Broker's: the negated number of its error (behaviour
    131). The original's documentation prints other namespaces, https among them, and names the text Message in place of
    Description; such documents are read as well.
    """
    if not isinstance(body, bytes | bytearray | memoryview):
        raise BadInput(f"the body of an Error must be bytes, not {type(body).__name__}: give `message.body`")
    found: dict[str, str] = {}
    path: list[str] = []

    def begin(name: str, _attributes: object) -> None:
        namespace, _, local = name.rpartition(" ")
        path.append(local if namespace in _UNDERSTOOD else "")
        if len(path) == 2:
            found.setdefault(path[1], "")

    def text(data: str) -> None:
        if len(path) == 2:
            found[path[1]] += data

    def refuse(*_: object) -> None:  # a document type may bring entities, which grow without bound
        raise MalformedRecord("an Error document with a document type declaration, which is not allowed")

    parser = ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.CharacterDataHandler = begin, text
    parser.EndElementHandler = lambda _: path.pop()
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(bytes(body), True)  # noqa: FBT003  # this is all of it
        return int(found["Code"]), found["Description"] if "Description" in found else found["Message"]
    except (ExpatError, LookupError, ValueError) as error:  # LookupError: also an unknown encoding
        raise MalformedRecord(f"the body of an Error is not a valid Error document: {error}") from None
