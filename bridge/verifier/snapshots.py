"""Compares snapshots with the second fold: each must hold the state that follows from the logs up to its offset (I3).

A recovering owner trusts a snapshot, so a wrong one would change everything that follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.bridge.verifier.fold.state import NOT_YET, Output, SecondState, Side, WaitingRow
from konverse.schemas.wire.snapshot import sections

from .journal import JournalJudge
from .starting_state import StartingState, begin_at

DETAIL_CHARACTERS_MAX: Final = 500


def differences(start: StartingState, fold: SecondFold, *, is_whole: bool) -> Iterator[str]:
    """Report where a snapshot differs from `fold`, which has reached the snapshot's offset.

    `is_whole`: the fold began at the beginning of the logs, so the statistics can be compared too.
    """
    end = start.end
    name = f"the snapshot of journal offset {end.offset}"
    other = SecondFold(fold.address, fold.writer, fold.brief)
    begin_at(start, other, JournalJudge((end.incarnation, end.data_topic_id, end.journal_topic_id)))
    yield from other.problems
    ours, theirs = _memory(fold), _memory(other)
    for what, expected in ours.items():
        if theirs[what] != expected:
            yield f"I3: {name} differs in {what}: {_which(expected, theirs[what])}"
    if is_whole:
        counted, said = _counted(fold), next(sections(start.data))[1]["statistics"]
        wrong = [
            what for (what, number), theirs in zip(counted.items(), said, strict=False) if number not in (None, theirs)
        ]
        if wrong:
            yield f"I3: {name} has other statistics: {', '.join(wrong)}"


def _which(ours: Any, theirs: Any) -> str:
    """The entries that differ, cut to a readable length."""
    if isinstance(ours, dict):
        keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
        ours, theirs = ({key: known.get(key) for key in keys} for known in (ours, theirs))
    return f"{theirs} instead of {ours}"[:DETAIL_CHARACTERS_MAX]


def _memory(fold: SecondState) -> dict[str, Any]:
    """The present state of a fold, without its history."""
    past, batches = fold.past, fold.batches
    known = {writer for writer in fold.accepted if writer not in fold.forgotten}
    return {
        "times": (fold.now_ms, fold.floor_ms, fold.journal_ms, fold.ingested_to, fold.clean),
        "endpoints": {side.key: _side(side) for side in fold.living.values()},
        "losses": fold.losses.hole,
        "unused": sorted(fold.unused),
        "writers": {
            writer: (
                len(fold.accepted[writer]),
                fold.closed.get(writer),
                fold.heirs.get(writer),
                fold.seen.get(writer),
                fold.losses.facts(writer),
            )
            for writer in known
        },
        "notices": fold.told,
        "answers": fold.answers,
        "tombstones": fold.tombstones,
        "cleaned": fold.cleanups.cleaned,
        "named": (fold.named.living, fold.named.over),
        "outputs": {to: _outputs(fold, to, said) for to, said in fold.outputs.items() if said},
        "mailbox": fold.mailbox,
        "attempts": (
            past.failures,
            past.suspended,
            {*past.handed},
            {frozenset(case) for case in past.accused},
            past.wary,
        ),
        "rows": {row[:5]: _row(fold, row) for row in batches.waiting},
        "batches": (
            batches.settled,
            batches.asked,
            {query: batches.decided(query) for query in batches.judged},
            batches.excluded,
        ),
        "stubs": fold.moves.stubs,
        "pieces": fold.moves.installing,
    }


def _counted(fold: SecondState) -> dict[str, int | None]:
    """The statistics of a snapshot, in its order; None: the second fold does not count this one."""
    tally, verdicts = fold.tally, Counter(fold.verdicts.values())
    thrown = sum(len(side.thrown_away) - side.thrown_before for side in fold.sides)
    return {
        "accepted": verdicts["accepted"],
        "duplicates": tally["duplicate"],
        "gaps": tally["gap"],
        "malformed": tally["malformed"],
        "foreign": tally["foreign"],
        "bounced": sum(count for verdict, count in verdicts.items() if verdict.startswith("bounced")) + fold.given_back,
        "discarded": verdicts["discarded"] + thrown + fold.tally["rejected"],
        "misnumbered": tally["misnumbered"],
        "undeliverable": None,
        "void": tally["row void"],
        "missing": fold.batches.missing,
        "strays": tally["no peer"],
        "strangers": tally["stranger"],
        "forwarded": verdicts["forwarded"] + verdicts["sent on"] + tally["failed elsewhere by a loss"],
        "lost": None,
        "forged": tally["forged"],
    }


def _side(side: Side) -> tuple[Any, ...]:
    waiting = [] if side.ended else side.heard[len(side.consumed) :]
    return (
        side.index, side.code, side.opener, side.peer_at, side.numbering, len(side.heard), len(side.consumed),
        [(heard.type, heard.body, heard.timestamp_ms, heard.origin) for heard in waiting],
        side.error is not None, side.rang is not None, side.timer_ms, side.expires_ms, side.end_of_stream,
        side.voices, side.group, side.generation, side.previous,
        side.finished, side.peer_finished, side.answer, side.askers, side.level,
    )  # fmt: skip


def _row(fold: SecondState, row: WaitingRow) -> tuple[Any, ...]:
    judge = None if row[:5] in fold.batches.asked else row.judge  # after a veto the product does not keep it
    return judge, row.envelope.conversation, row.record.offset, row.record.body or b""


def _outputs(fold: SecondState, to: Any, said: list[Output]) -> tuple[int, int, list[Output]]:
    acked = fold.acknowledged.get(to, 0)
    return len(said), acked, [one._replace(order=NOT_YET if one.order == NOT_YET else 0) for one in said[acked:]]
