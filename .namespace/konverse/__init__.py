"""Service Broker conversations on Kafka: exactly once and in order, whatever process dies.

An application starts with `connect`, which returns a `Broker`; all other calls are made on the broker and on the
objects that it returns. An `App` holds the handlers that `konverse run` starts.

    connect, Broker, App                 where a program starts
    Dialog, ClientTransaction            sending: `broker.begin_dialog`, `broker.transaction`
    BouncedMessage, BounceReason         messages that came back: `dialog.bounced`
    Pool, PoolStatistics, Undelivered    reused conversations: `broker.pool`
    Reader, Transaction, Message, NewDialog  receiving: `broker.reader`, and the argument of a handler
    Inbox                                exactly-once effects in the application's own database
    RoutingService, Routed, Target,
        Unclassifiable, origin_of        routers: `broker.router`
    ConversationSide, Leaked, Suspended  what operators look for
    DEFAULT, DIALOG_TIMER, END_DIALOG,
        ERROR, read_error, read_redirect types and documents that Service Broker and routers define

Importing the package loads none of these names: each is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from konverse.bridge.admin.instructions import Suspended
    from konverse.bridge.admin.leaks import ConversationSide, Leaked
    from konverse.bridge.broker import Broker, connect
    from konverse.bridge.client.dialog import BouncedMessage, Dialog
    from konverse.bridge.client.pool.pool import Pool
    from konverse.bridge.client.pool.routes import Undelivered
    from konverse.bridge.client.transaction import ClientTransaction
    from konverse.bridge.inbox import Inbox
    from konverse.bridge.reader.reader import Reader
    from konverse.bridge.router.service import RoutingService
    from konverse.bridge.worker.app import App
    from konverse.dialog.pool.places import PoolStatistics
    from konverse.dialog.transaction.begun import NewDialog
    from konverse.dialog.transaction.received import Message
    from konverse.dialog.transaction.transaction import Transaction
    from konverse.routing.decisions import Unclassifiable
    from konverse.routing.documents import read_redirect
    from konverse.routing.routed import Routed
    from konverse.schemas.catalog.table_entries import Target
    from konverse.schemas.origins import origin_of
    from konverse.schemas.system_messages import DEFAULT, DIALOG_TIMER, END_DIALOG, ERROR, read_error
    from konverse.schemas.wire.records import BounceReason

__all__ = [
    "DEFAULT",
    "DIALOG_TIMER",
    "END_DIALOG",
    "ERROR",
    "App",
    "BounceReason",
    "BouncedMessage",
    "Broker",
    "ClientTransaction",
    "ConversationSide",
    "Dialog",
    "Inbox",
    "Leaked",
    "Message",
    "NewDialog",
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
    "App": "bridge.worker.app",
    "NewDialog": "dialog.transaction.begun",
    "Broker": "bridge.broker",
    "ClientTransaction": "bridge.client.transaction",
    "ConversationSide": "bridge.admin.leaks",
    "Leaked": "bridge.admin.leaks",
    "connect": "bridge.broker",
    "BouncedMessage": "bridge.client.dialog",
    "BounceReason": "schemas.wire.records",
    "Dialog": "bridge.client.dialog",
    "Inbox": "bridge.inbox",
    "Pool": "bridge.client.pool.pool",
    "PoolStatistics": "dialog.pool.places",
    "Reader": "bridge.reader.reader",
    "Routed": "routing.routed",
    "RoutingService": "bridge.router.service",
    "Suspended": "bridge.admin.instructions",
    "Target": "routing.decisions",
    "Unclassifiable": "routing.decisions",
    "Undelivered": "bridge.client.pool.routes",
    "Message": "dialog.transaction.received",
    "Transaction": "dialog.transaction.transaction",
    "DEFAULT": "schemas.system_messages",
    "DIALOG_TIMER": "schemas.system_messages",
    "END_DIALOG": "schemas.system_messages",
    "ERROR": "schemas.system_messages",
    "origin_of": "schemas.origins",
    "read_error": "schemas.system_messages",
    "read_redirect": "routing.documents",
}


def __dir__() -> list[str]:
    """The public names, whether loaded yet or not."""
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Load the module of a public name on first use."""
    if name in _MODULES:
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(f"konverse.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'konverse' has no attribute {name!r}")
