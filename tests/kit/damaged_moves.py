"""Damaged histories of conversations that moved: the destination or the timing contradicts the journals."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from konverse.bridge.verifier.check import judge
from konverse.schemas.wire.moved import decode_moved, encode_moved
from konverse.schemas.wire.operations import Relocate
from konverse.schemas.wire.records import Kind

from .damages import Damage, History, Logs, counting, damage, envelope_of, rewrite


def _installing(logs: Logs, _: History) -> list[object]:
    """Places of INSTALL records whose endpoint fits into one piece."""
    found = [(at, envelope_of(record)) for at, record in enumerate(logs.data)]
    return [at for at, e in found if e is not None and e.kind is Kind.INSTALL and e.suffix.fragment == (0, 1)]


@damage(_installing)
def an_endpoint_arrives_otherwise_than_it_left(logs: Logs, at: int) -> None:
    header = logs.data[at].header
    moved = decode_moved(logs.data[at].body or b"")
    body = encode_moved(moved._replace(received=moved.received + 1, consumed=moved.consumed + 1))
    logs.data[:] = [one._replace(body=body) if one.header == header else one for one in logs.data]


def _with_gates(logs: Logs, _: History) -> list[object]:
    """Logs with a move that would still wait for its outputs if nothing had acknowledged them."""
    copy = Logs(logs.place, [*logs.journal], [*logs.data])
    _acknowledge_nothing(copy)
    return [judge(copy.place, copy.journal, copy.data, ()).fold.gates] * any(
        isinstance(operation, Relocate) for _, commit in counting(copy) for operation in commit.operations.rare
    )


def _acknowledge_nothing(logs: Logs) -> None:
    for _, commit in counting(logs):
        rewrite(logs, commit.number, lambda one: replace(one, output_acks=()))


@damage(lambda logs, everywhere: [*filter(None, _with_gates(logs, everywhere))])
def an_endpoint_leaves_before_what_it_sent_has_arrived(logs: Logs, _: object) -> None:
    _acknowledge_nothing(logs)


DAMAGED_MOVES: Final[dict[str, tuple[Damage, set[str]]]] = {
    "an endpoint arrives otherwise than it left": (an_endpoint_arrives_otherwise_than_it_left, {"I3"}),
    "an endpoint leaves before what it sent has arrived": (an_endpoint_leaves_before_what_it_sent_has_arrived, {"I20"}),
}
"""Same shape as `DAMAGES`."""
