"""Names and documents of dynamic routing: requests for routes (service-broker.md 6; behaviours 184 to 192).

A database with a route to the service BROKER_CONFIGURATION asks that service for routes. The request is a dialog with
one message MISSING_ROUTE. The service creates the route, and ends the dialog.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID
from xml.parsers.expat import ExpatError
from xml.sax.saxutils import escape

from konverse.schemas.errors import BadInput, MalformedRecord
from konverse.schemas.system_messages import SYSTEM_NAMESPACE, elements_of

NOTICE: Final = SYSTEM_NAMESPACE + "BrokerConfigurationNotice"
"""Contract of a request."""
MISSING_ROUTE: Final = NOTICE + "/MissingRoute"
"""Message type, and namespace of its body."""
MISSING_BINDING: Final = NOTICE + "/MissingRemoteServiceBinding"
"""Message type of a request for a remote service binding. konverse has none, and never sends it."""
REQUESTING_SERVICE: Final = SYSTEM_NAMESPACE + "ServiceBroker"
"""Service from which requests come."""
_NAMESPACES: Final = tuple(MISSING_ROUTE.replace("http:", scheme) for scheme in ("http:", "https:"))


class MissingRoute(NamedTuple):
    """A request for a route."""

    service: str
    broker_instance: UUID | None = None
    """The broker id that the waiting conversation names."""


def missing_route_body(wanted: MissingRoute) -> bytes:
    """The body of a MISSING_ROUTE, in UTF-8."""
    instance = "" if wanted.broker_instance is None else f"<BROKER_INSTANCE>{wanted.broker_instance}</BROKER_INSTANCE>"
    return (
        f'<MissingRoute xmlns="{MISSING_ROUTE}"><SERVICE_NAME>{escape(wanted.service)}</SERVICE_NAME>{instance}'
        "</MissingRoute>"
    ).encode()


def read_missing_route(body: bytes) -> MissingRoute:
    """The request in the body of a MISSING_ROUTE; MalformedRecord for any other body (behaviour 185)."""
    if not isinstance(body, bytes | bytearray | memoryview):
        raise BadInput(f"the body of a MissingRoute must be bytes, not {type(body).__name__}: give `message.body`")
    try:
        found = elements_of(bytes(body), _NAMESPACES)
        instance = found.get("BROKER_INSTANCE")
        return MissingRoute(found["SERVICE_NAME"], None if instance is None else UUID(instance))
    except (ExpatError, LookupError, ValueError) as error:
        raise MalformedRecord(f"the body of a MissingRoute is not such a document: {error}") from None
