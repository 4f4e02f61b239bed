"""A router between the clients that send orders and the depot, without servers."""

from __future__ import annotations

from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.transaction.received import Message
from konverse.routing.decisions import Decision
from konverse.routing.routed import Routed
from konverse.routing.router import Router
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import read_error
from tests.kit.desk import Desk


class Office(Desk):
    """A router between the clients that send orders and the depot."""

    def __init__(self, router: Router | None = None, decision: Decision | None = None) -> None:
        super().__init__()
        self.router = router or Router()
        self.decision = decision or Target("depot")
        self.asked: list[Message] = []

    def decide(self, message: Message) -> Decision:
        """The classifier: records the message and returns the test's decision."""
        self.asked.append(message)
        return self.decision

    def route(self) -> Routed:
        """Route the waiting messages, commit, and deliver the outputs. When the step raises, it is rolled back."""
        transaction = self.take()
        try:
            routed = self.router.step(transaction, self.decide)
        except Exception:
            self.staging.roll_back(transaction)
            raise
        self.commit(transaction)
        self.side.deliver(self.depot)
        self.side.deliver(self.pair.home)
        return routed

    @property
    def waiting(self) -> bool:
        """Whether some endpoint has messages that a transaction could receive."""
        return any(endpoint.waits and not endpoint.held for endpoint in self.staging.ready)

    def inner(self, conversation: bytes) -> Endpoint:
        """The router's endpoint of the incoming conversation."""
        found = self.side.state.endpoint(Role.TARGET, conversation)
        assert found is not None
        return found

    def outer(self) -> Endpoint:
        """The depot's endpoint of the only outgoing conversation."""
        (found,) = self.depot.state.sides[Role.TARGET].values()
        return found

    def outbound(self) -> Endpoint:
        """The router's endpoint of the only outgoing conversation."""
        (found,) = self.side.state.sides[Role.INITIATOR].values()
        return found

    def home(self, conversation: bytes) -> Endpoint:
        """The initiator of an incoming conversation, in the client's partition."""
        found = self.pair.home.state.endpoint(Role.INITIATOR, conversation)
        assert found is not None
        return found

    def reply(self, *bodies: bytes) -> None:
        """The depot answers."""
        self.depot.send(self.outer(), *bodies)
        self.depot.deliver(self.side)


def bodies(endpoint: Endpoint) -> list[bytes | None]:
    """Bodies of the messages that wait."""
    return [body for _, _, body, _ in endpoint.queue]


def error(endpoint: Endpoint) -> tuple[int, str]:
    """Code and description of the Error that waits."""
    assert endpoint.error is not None
    return read_error(endpoint.error[2] or b"")
