"""Checks of batch queries after a run (I19): of each batch the rows of one set of attempts are received, or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.batches import ABANDONED, Batch
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import BounceId

from .batching import Query, decisions
from .executing import Execution, Written
from .moves import verdict_of
from .places import Place

if TYPE_CHECKING:
    from .world import World

References = dict[Address, SecondFold]


def check_batches(world: World, references: References) -> Iterator[str]:
    """Violations of all queries."""
    told = {place.address: decisions(place) for place in world.places}
    for query in world.queries:
        judged = references[query.judge.address].batches.judged.get(query.id, [])
        numbers = [batch.number for batch, _ in judged if batch.number != ABANDONED]
        if numbers != [*range(len(numbers))] or (len(numbers) < query.batches and not query.abandoned):
            yield f"I19: batches {numbers} of {query.batches} of query {query.id.hex()} were decided"
        accepted = 0
        for batch, by in judged:
            yield from _told(query, batch, references, told)
            if batch.number != ABANDONED:
                executions = _winners(query, batch, by)
                if executions is None:
                    yield f"I19: batch {batch.number} of {query.id.hex()} was won by attempts of several runs"
                    continue
                yield from _rows(world, query, batch, executions, references)
                accepted += sum(len(one.rows) for one in executions)
        taken = sum(one.query == query.id for reference in references.values() for one in reference.batches.taken)
        if taken != accepted:
            yield f"I19: {taken} rows of {query.id.hex()} were accepted, {accepted} have won"
        yield from _bounced(query, references)
    for place in world.places:
        yield from _same(place, references[place.address])


def _told(
    query: Query, batch: Batch, references: References, told: dict[Address, dict[tuple[bytes, int, bool], int]]
) -> Iterator[str]:
    """Check that every partition received each decision once, homes before targets."""
    for begins, places in ((True, query.homes), (False, query.targets)):
        for place in places:
            if references[place.address].batches.told.count((query.id, begins, batch.number)) != 1:
                yield f"I19: {place.name} was not told once of batch {batch.number} of {query.id.hex()}"
    for home in query.homes:
        there = told[home.address].get((query.id, batch.number, True), -1)
        for target in query.targets:  # within one partition the counters keep the order, not the log
            if target is not home and there > told[target.address].get((query.id, batch.number, False), -1):
                yield f"I19: {target.name} was told of batch {batch.number} of {query.id.hex()} before {home.name}"


def _winners(query: Query, batch: Batch, by: bytes) -> list[Execution] | None:
    """The winning executions, one for each task of one run; None when they belong to several runs."""
    winners = []
    for number, attempt in enumerate(batch.attempts):
        wanted = (query.id, by, batch.number, number, len(batch.attempts))
        found = [e for e in query.executions.get(attempt, ()) if (e.query, e.run, e.batch, e.task, e.tasks) == wanted]
        if len(found) != 1:
            return None
        winners += found
    return winners


def _rows(
    world: World, query: Query, batch: Batch, executions: list[Execution], references: References
) -> Iterator[str]:
    """Check that the accepted rows are those of the winners, in the order of tasks and numbers."""
    for place in world.places:
        by_offset = {record.offset: record for record in place.data.records}
        for begins in (True, False):
            expected = [
                row
                for execution in executions
                for row in sorted(execution.rows, key=lambda row: row.number)
                if row.address == place.address and row.begins == begins
            ]
            taken = [
                one
                for one in references[place.address].batches.taken
                if (one.query, one.begins, one.batch) == (query.id, begins, batch.number)
            ]
            found = []
            for one in taken:
                record = by_offset[one.offset]
                conversation = decode(record.header or b"").conversation
                found.append(Written(place.address, begins, one.number, conversation, record.body))
            if found != expected:
                yield (f"I19: {place.name} took {found} of batch {batch.number} of {query.id.hex()}, "
                       f"its winners wrote {expected}")  # fmt: skip
    several = {row.address for execution in executions for row in execution.rows}
    world.sometimes.happened("batch for several", len(several) > 1)


def _bounced(query: Query, references: References) -> Iterator[str]:
    """Check that winning rows which could not be received came back to the query's mailbox (M237)."""
    happened = query.world.sometimes.happened
    boxes = {name for reference in references.values() for name in (*reference.mailbox, *reference.fates)}
    for address, reference in references.items():
        for (writer, counter), here in reference.verdicts.items():
            if writer != query.id:
                continue
            verdict = verdict_of(references, writer, address, counter) or here
            if verdict == "discarded":
                yield f"I6: row {counter} of {writer.hex()} was to return and was discarded"
            if verdict.startswith("bounced"):
                happened("row bounced")
                if BounceId(writer, counter, address) not in boxes:
                    yield f"I6: the bounce of row {counter} of {writer.hex()} reached no mailbox"


def _same(place: Place, reference: SecondFold) -> Iterator[str]:
    """Check that product and reference agree about batches, and that no row still waits."""
    state, batches = place.shadow.state, reference.batches
    if state.pending.attempts or batches.waiting:
        yield f"L1: {place.name}: {len(batches.waiting)} rows wait for a decision"
    if state.pending.rows or state.pending.size_bytes:
        yield f"I15: {place.name}: {state.pending.rows} rows are counted, none waits"
    if state.pending.decided != batches.settled:
        yield f"I19: {place.name}: decided are {state.pending.decided}, the reference says {batches.settled}"
    ours = {query: (one.decided, one.by, one.vetoed) for query, one in state.judgements.items()}
    theirs = {
        query: (judged[-1][0].number if judged else -1, judged[-1][1] if judged else b"", batches.excluded[query])
        for query, judged in batches.judged.items()
    }
    if ours != theirs:
        yield f"I19: {place.name}: judgements are {ours}, the reference says {theirs}"
