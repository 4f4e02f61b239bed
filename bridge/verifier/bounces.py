"""Compares mailboxes with the verdicts of other partitions: they must agree about each bounced message (I6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from konverse.bridge.verifier.fold.state import SecondState
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.records import Bounce, BounceId, Kind

Folds = Mapping[Address, SecondState]


def astray(folds: Folds) -> Iterator[tuple[Address, str]]:
    """Yield (home, text) for each bounced message that contradicts the log of its destination.

    A message that is or was in a mailbox must not have been accepted where it was sent. A bounce that was accepted at
    home must be in the mailbox, or have left it.
    """
    far = {name: verdict for fold in folds.values() for name, verdict in fold.far_verdicts.items()}
    for at, fold in folds.items():
        for name in (*fold.mailbox, *fold.fates):
            there = folds.get(name.at)
            verdict = there.verdicts.get((name.writer, name.counter)) if there is not None else None
            if verdict == "forwarded":
                verdict = far.get((name.writer, name.at, name.counter))
            if verdict is not None and not verdict.startswith("bounced"):
                yield at, f"record {_name(name)} bounced to this home, but its destination has it as {verdict}"
        for home, said in fold.outputs.items():
            there = folds.get(home)
            if there is None:
                continue
            for one, counter in zip(said, there.accepted.get(fold.writer, ()), strict=False):
                if (
                    counter >= 0 and one.kind is Kind.BOUNCE and isinstance(one.detail, Bounce)
                ):  # below 0: accepted before the verification begins
                    name = BounceId(*one.detail[:3])
                    if name not in there.mailbox and name not in there.fates:
                        yield home, f"the bounce of record {_name(name)} was accepted, but is in no mailbox"


def _name(name: BounceId) -> str:
    return f"{name.counter} of {name.writer.hex()} to {name.at.topic}/{name.at.partition}"
