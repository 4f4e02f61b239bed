"""Service Broker conversations on Kafka: exactly once, in order, whatever dies.

`connect` is the one door; everything else is reached from the `Broker` that it returns. An `App` holds the handlers
that `konverse run` starts. The other names are for types, and for what a handler receives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from konverse.bridge.app import App
    from konverse.bridge.broker import Broker, connect
    from konverse.bridge.dialog import Dialog
    from konverse.bridge.forgotten import ConversationSide, Leaked
    from konverse.bridge.inbox import Inbox
    from konverse.bridge.instructing import Suspended
    from konverse.bridge.mailboxes import BouncedMessage
    from konverse.bridge.pool import Pool
    from konverse.bridge.pool_ways import Undelivered
    from konverse.bridge.reader import Reader
    from konverse.bridge.router import RoutingService
    from konverse.bridge.transactions import ClientTransaction
    from konverse.dialog.begun import Begun
    from konverse.dialog.pooled import PoolStatistics
    from konverse.dialog.received import Message
    from konverse.dialog.transaction import Transaction
    from konverse.routing.decisions import Target, Unclassifiable
    from konverse.routing.documents import read_redirect
    from konverse.routing.routed import Routed
    from konverse.schemas.catalog import DEFAULT, DIALOG_TIMER, END_DIALOG, ERROR
    from konverse.schemas.origins import origin_of
    from konverse.schemas.records import BounceReason
    from konverse.schemas.system_messages import read_error

__all__ = [
    "DEFAULT",
    "DIALOG_TIMER",
    "END_DIALOG",
    "ERROR",
    "App",
    "Begun",
    "BounceReason",
    "BouncedMessage",
    "Broker",
    "ClientTransaction",
    "ConversationSide",
    "Dialog",
    "Inbox",
    "Leaked",
    "Message",
    "Pool",
    "PoolStatistics",
    "Reader",
    "Routed",
    "RoutingService",
    "Suspended",
    "Target",
    "Transaction",
    "Unclassifiable",
    "Undelivered",
    "connect",
    "origin_of",
    "read_error",
    "read_redirect",
]
__version__ = "0.1.0"

_MODULES: Final = {
    "App": "bridge.app",
    "Begun": "dialog.begun",
    "Broker": "bridge.broker",
    "ClientTransaction": "bridge.transactions",
    "ConversationSide": "bridge.forgotten",
    "Leaked": "bridge.forgotten",
    "connect": "bridge.broker",
    "BouncedMessage": "bridge.mailboxes",
    "BounceReason": "schemas.records",
    "Dialog": "bridge.dialog",
    "Inbox": "bridge.inbox",
    "Pool": "bridge.pool",
    "PoolStatistics": "dialog.pooled",
    "Reader": "bridge.reader",
    "Routed": "routing.routed",
    "RoutingService": "bridge.router",
    "Suspended": "bridge.instructing",
    "Target": "routing.decisions",
    "Unclassifiable": "routing.decisions",
    "Undelivered": "bridge.pool_ways",
    "Message": "dialog.received",
    "Transaction": "dialog.transaction",
    "DEFAULT": "schemas.catalog",
    "DIALOG_TIMER": "schemas.catalog",
    "END_DIALOG": "schemas.catalog",
    "ERROR": "schemas.catalog",
    "origin_of": "schemas.origins",
    "read_error": "schemas.system_messages",
    "read_redirect": "routing.documents",
}


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Load a name's module on first use, so that importing one pure module stays cheap."""
    if name in _MODULES:
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(f"konverse.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'konverse' has no attribute {name!r}")
