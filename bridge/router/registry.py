"""Declares routers: `broker.router` and `app.router`. `konverse run` and `RoutingService.run` start them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from konverse.bridge.reader.activation import Activation, HandlerRegistry
from konverse.bridge.runtime.arguments import Count, checked
from konverse.routing.step import FORWARD, REDIRECT_TO
from konverse.schemas.errors import AlreadyExists
from konverse.schemas.identifiers import check_name
from konverse.schemas.limits import CLASSIFY_MS_MAX

from .service import RouterClauses, RoutingService
from .watchdog import Classify

if TYPE_CHECKING:
    from konverse.bridge.reader.activation import Host

CLASSIFY_TIMEOUT_S: Final = CLASSIFY_MS_MAX / 1000

GROUPS_PER_COMMIT: Final = 1_000


class RouterRegistry(HandlerRegistry):
    """Handlers and routers that an `App` or a `Broker` declares."""

    def __init__(self, opened: Callable[[], AbstractContextManager[Host]]) -> None:
        """`opened` opens the connection of a router that is started with `RoutingService.run`."""
        super().__init__()
        self._opened = opened
        self._routers: dict[str, RoutingService] = {}

    @property
    def routers(self) -> list[RoutingService]:
        """The routers declared with `router`, in order of declaration."""
        return list(self._routers.values())

    @checked
    def router(  # noqa: PLR0913  # the clauses of a router
        self,
        service: str,
        *,
        contracts: Sequence[str] | None = None,
        mode: str = FORWARD,
        redirect_type: str = REDIRECT_TO,
        max_readers: int = 1,
        batch: Count = GROUPS_PER_COMMIT,
        max_messages: Count | None = None,
        classify_timeout_s: float | None = CLASSIFY_TIMEOUT_S,
    ) -> Callable[[Classify], RoutingService]:
        """Make a service of this database a router: the decorated function classifies the first message of each dialog.

        The function takes the message and returns a `Target` or the name of a service, or `Unclassifiable` or None,
        which ends the dialog with Error 1 (behaviour 232). With mode "forward" the router passes messages on and
        replies back (230, 231); with "redirect" it tells the initiator where to go (233), by a message of type
        `redirect_type`. `contracts`, if given, must be exactly those that the service lists, in any order: the union
        of the contracts that its targets accept. `max_readers`, `batch` and `max_messages` are those of `activate`.
        A classifier that does not return within `classify_timeout_s` seconds is logged, and a reader process that
        serves this queue alone then ends itself. The decorator returns a `RoutingService` in place of the function.
        Raises InvalidSettings, InvalidProcedure for a function that cannot be called with one message, AlreadyExists
        for a service that is a router already, unless that router was refused when it was started.
        """
        check_name("service", service)
        listed = None if contracts is None else tuple(contracts)
        clauses = RouterClauses(listed, mode, redirect_type, max_readers, batch, max_messages, classify_timeout_s)
        clauses.check(service)
        known = self._routers.get(service)
        if known is not None and not known.refused:
            raise AlreadyExists(f"service {service!r} is a router already; set its `classify` to change how it decides")

        def register(classify: Classify) -> RoutingService:
            made = self._routers[service] = RoutingService(service, clauses, classify, self._opened)
            return made

        return register

    def answering(self, broker: Host) -> list[Activation]:
        """The activations of all queues of this database, those of routers included.

        Raises AlreadyExists for a queue with two activations, and the errors of `RoutingService.run` for a router.
        """
        answering = {activation.queue: activation for activation in self.activations}
        for router in self.routers:
            activation = router.activation(broker)
            if activation.queue in answering:
                raise AlreadyExists(
                    f"queue {activation.queue!r} of router {router.service!r} has another router or handler already, "
                    "and a router needs a queue of its own. Put its service on another queue with "
                    "broker.admin.alter_service"
                )
            answering[activation.queue] = activation
        return list(answering.values())
