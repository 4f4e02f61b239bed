"""The exhaustive search of claim and commit finds no violation in the product, and one in each mutant."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

import pytest

from konverse.dialog.fold.journal import JournalHead
from konverse.dialog.owner.events import Appended, Effect, Phase, PhaseEvent
from konverse.dialog.owner.owner import Owner
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.wire.journal import Claim, Commit
from tests.simulation.exhaustive.model import Scope
from tests.simulation.exhaustive.search import search
from tests.simulation.exhaustive.worker import Product

WHOLE: Final = Scope()
SMALL: Final = Scope(commits=1, copies=0)
DOUBLED: Final = Scope(commits=1, copies=1)


@pytest.mark.timeout(400)  # the whole takes a minute of computing, more when other tests run
@pytest.mark.parametrize(
    ("scope", "states_min"),
    [
        pytest.param(DOUBLED, 53_000, id="one commit in each life"),
        pytest.param(WHOLE, 390_000, id="two commits in each life", marks=pytest.mark.nightly),
    ],
)
def test_every_invariant_holds_in_every_state(scope: Scope, states_min: int) -> None:
    found = search(scope)
    assert found.violation is None, "\n".join([*found.path, found.violation])
    assert found.states >= states_min
    assert found.commits_max == scope.messages


# ------------------------------------------------------------------------------------- rules by which records count


class AnyWriterCommits(JournalHead):
    """Neither epoch nor owner of a COMMIT is compared."""

    def accepts(self, record: Claim | Commit) -> bool:
        if isinstance(record, Claim) or record.number != self.number + 1:
            return super().accepts(record)
        return record.previous_hash == self.hash


class EpochNotCompared(JournalHead):
    """The epoch of a COMMIT is not compared."""

    def accepts(self, record: Claim | Commit) -> bool:
        if isinstance(record, Commit) and record.owner == self.owner and record.number == self.number + 1:
            return record.previous_hash == self.hash
        return super().accepts(record)


class OwnerNotCompared(JournalHead):
    """The owner of a COMMIT is not compared."""

    def accepts(self, record: Claim | Commit) -> bool:
        if isinstance(record, Commit) and record.epoch == self.epoch and record.number == self.number + 1:
            return record.previous_hash == self.hash
        return super().accepts(record)


class NumberNotCompared(JournalHead):
    """The number of a COMMIT is not compared: its hash contradicts the journal."""

    def accepts(self, record: Claim | Commit) -> bool:
        if isinstance(record, Claim) or (record.epoch, record.owner) != (self.epoch, self.owner):
            return super().accepts(record)
        if record.previous_hash != self.hash:
            raise PartitionHalted("a commit that does not follow the one before it")
        return True


class AnyNumberCommits(JournalHead):
    """Neither number nor hash of a COMMIT is compared."""

    def accepts(self, record: Claim | Commit) -> bool:
        if isinstance(record, Claim):
            return super().accepts(record)
        return (record.epoch, record.owner) == (self.epoch, self.owner)


class EqualEpochClaims(JournalHead):
    """A CLAIM counts when its epoch is not below the last one."""

    def accepts(self, record: Claim | Commit) -> bool:
        return (isinstance(record, Claim) and record.epoch == self.epoch) or super().accepts(record)


class AnyEpochClaims(JournalHead):
    """The epoch of a CLAIM is not compared."""

    def accepts(self, record: Claim | Commit) -> bool:
        return isinstance(record, Claim) or super().accepts(record)


class OnlyOneClaimCounts(JournalHead):
    """Only the first CLAIM counts: takeover is impossible."""

    def accepts(self, record: Claim | Commit) -> bool:
        return not (isinstance(record, Claim) and self.epoch) and super().accepts(record)


# ------------------------------------------------------------------------------------------- rules of the owner


class AnyOffsetCounts(Owner):
    """A COMMIT is considered committed at any offset."""

    def step(self, event: Any, now_ms: int) -> list[Effect]:
        if isinstance(event, Appended) and event.offset is not None and self.phase is Phase.LEADING:
            return self._committed(event.offset, event.timestamp_ms)
        return super().step(event, now_ms)


class UnknownIsCommitted(Owner):
    """A missing answer is considered an acknowledgement."""

    def step(self, event: Any, now_ms: int) -> list[Effect]:
        if event == Appended(None) and self.phase is Phase.LEADING:
            return self._committed(self.fold.head.offset + 1, self.fold.head.offset + 1)
        return super().step(event, now_ms)


class ClaimNotReadBack(Owner):
    """An acknowledged CLAIM leads, whatever stands before it."""

    def step(self, event: Any, now_ms: int) -> list[Effect]:
        if isinstance(event, Appended) and event.offset is not None and self.phase is Phase.CLAIMING:
            head = self.fold.head
            head.take(
                Claim(head.epoch + 1, self.claim_id, 0, b"", b"", b"", clean=False),
                b"",
                event.offset,
                event.timestamp_ms,
            )
            self._enter(PhaseEvent.CLAIMED)
            return self._lead(now_ms)
        return super().step(event, now_ms)


class LostClaimLeads(Owner):
    """An owner that has read its CLAIM back leads, even when another CLAIM counts."""

    def _journal_folded(self, now_ms: int) -> list[Effect]:
        return self._lead(now_ms) if self.phase is Phase.READING_BACK else super()._journal_folded(now_ms)


class OwnRecordCounts(Owner):
    """An owner that finds its COMMIT in the tail considers it committed without judging the records before it."""

    def _judge_tail(self, event: Any) -> list[Effect]:
        flight = self._in_flight
        assert flight is not None
        own = next(record for record in event.records if record.data == flight.data)
        return self._committed(own.offset, own.timestamp_ms)


class EmitsAtOnce(Owner):
    """Outputs leave with the commit, before it counts."""

    def commit(self, now_ms: int) -> list[Effect]:
        effects = super().commit(now_ms)
        if self._in_flight is not None:
            for window, limit in self._in_flight.limits:
                window.limit = limit
        return [*effects, *self.emitter.pending()]


def the_same_in_all_lives(name: str, _life: int) -> bytes:
    """A claim id that was used before."""
    return name.encode().ljust(16)


REFUTED: Final = {
    "neither epoch nor owner compared": (Product(AnyWriterCommits), SMALL, "I1"),
    "epoch not compared, claim ids used again": (
        Product(EpochNotCompared, claim_id=the_same_in_all_lives),
        SMALL,
        "I1",
    ),
    "owner not compared, lost claims lead": (Product(OwnerNotCompared, LostClaimLeads), SMALL, "I1"),
    "number not compared": (Product(NumberNotCompared), DOUBLED, "I17"),
    "neither number nor hash compared": (Product(AnyNumberCommits), DOUBLED, "I2"),
    "a claim of the same epoch counts": (Product(EqualEpochClaims), SMALL, "I1"),
    "a claim of any epoch counts": (Product(AnyEpochClaims), SMALL, "I1"),
    "only one claim ever counts": (Product(OnlyOneClaimCounts), SMALL, "L1"),
    "offset not compared": (Product(owner=AnyOffsetCounts), SMALL, "I2"),
    "unknown taken for committed": (Product(owner=UnknownIsCommitted), SMALL, "I2"),
    "claim not read back": (Product(owner=ClaimNotReadBack), SMALL, "I2"),
    "lost claim leads": (Product(owner=LostClaimLeads), SMALL, "I2"),
    "own record counts wherever it is found": (Product(owner=OwnRecordCounts), SMALL, "I2"),
    "emitted before the commit counts": (Product(owner=EmitsAtOnce), SMALL, "I8"),
}


@pytest.mark.parametrize(("product", "scope", "invariant"), REFUTED.values(), ids=REFUTED)
def test_a_product_without_a_rule_is_refuted(product: Product, scope: Scope, invariant: str) -> None:
    found = search(scope, product)
    assert found.violation is not None
    assert found.violation.startswith(f"{invariant}:"), "\n".join([*found.path, found.violation])


EQUIVALENT: Final = {
    "epoch not compared": Product(EpochNotCompared),
    "owner not compared": Product(OwnerNotCompared),
}


@pytest.mark.nightly
@pytest.mark.parametrize("product", EQUIVALENT.values(), ids=EQUIVALENT)
def test_epoch_and_owner_guard_each_other(product: Product) -> None:
    """Either check alone suffices: a claim id is used once, and only one CLAIM of an epoch counts."""
    assert search(DOUBLED, product).violation is None


def test_the_path_to_a_violation_is_described_in_words() -> None:
    program = (
        "import sys; from tests.simulation.exhaustive import __main__ as program, model, search, worker;"
        "from tests.simulation.test_exhaustive import UnknownIsCommitted as owner;"
        "program.search = lambda scope: search.search(scope, worker.Product(owner=owner)); sys.exit(program.main())"
    )
    done = subprocess.run([sys.executable, "-c", program, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["violation"] == "I2: A1 takes COMMIT(1, number 1) of A1 for committed, and it does not count"
    assert found["path"] == [
        "A1 starts: it reads the journal to its end and makes its claim",
        "CLAIM(1) of A1 lands at 0, and A1 learns that",
        "A1 stops waiting for COMMIT(1, number 1) of A1, which is on its way and may land later",
    ]
