"""What ends a conversation from above: END WITH CLEANUP, and a broker that gives it up (protocol.md section 6)."""

from __future__ import annotations

from konverse.schemas.errors import PartitionHalted
from konverse.schemas.operations import Cleanup, Fail, Withdraw
from konverse.schemas.records import Role
from konverse.schemas.system_messages import error_body

from .endings import discard, end_endpoint, fail
from .endpoint import Endpoint
from .named import How
from .partition import Partition
from .states import SENDING, State


def clean_up(state: Partition, operation: Cleanup) -> None:
    """CLEANUP: the endpoint, what it has not read, and what it has said in vain so far go at once (behaviour 120).

    A peer that has ended itself waits for the end of this side to be forgotten, and hears of nothing else.
    """
    endpoint = _known(state, operation.endpoint)
    if endpoint.committed in (State.DISCONNECTED_INBOUND, State.ERROR):
        end_endpoint(state, endpoint, None)
        return
    discard(state, endpoint)
    endpoint.stream.take_back(endpoint.role, endpoint.conversation)
    if endpoint.role is Role.TARGET:
        state.remember_cleaned(endpoint.conversation, endpoint.stream.address)
    state.named.end((endpoint.role, endpoint.conversation), How.CLEANED_UP, state.now_ms)
    endpoint.committed = State.CLOSED
    state.forget(endpoint)


def withdraw(state: Partition, operation: Withdraw) -> None:
    """WITHDRAW: of a side that has ended WITH ERROR only the Error leaves (behaviour 111).

    A side is forgotten already when its peer had ended before: that takes nothing any more.
    """
    index = operation.endpoint
    endpoint = state.table[index] if 0 <= index < len(state.table) else None
    if endpoint is not None and endpoint.committed is State.DISCONNECTED_OUTBOUND:
        endpoint.stream.take_back(endpoint.role, endpoint.conversation, ends=False)


def give_up(state: Partition, operation: Fail) -> None:
    """FAIL: both sides of an open conversation get an Error; what was accepted before can be received."""
    endpoint = _known(state, operation.endpoint)
    if endpoint.committed in SENDING:
        fail(state, endpoint, state.ingest_to, error_body(operation.code, operation.description))


def _known(state: Partition, index: int) -> Endpoint:
    endpoint = state.table[index] if 0 <= index < len(state.table) else None
    if endpoint is None:
        raise PartitionHalted(
            f"a commit of {state.identity.data_topic}/{state.identity.partition} ends endpoint {index}, where nobody "
            "lives: the journal or the data log was changed. Nothing further is done with this partition"
        )
    return endpoint
