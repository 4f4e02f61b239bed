"""The HTML page about a run: verdict, timeline of the faults, figures, and the command to repeat the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Final

from .campaign import Fault, Outcome
from .checker import ANOMALIES
from .history import Line, read

WIDTH: Final = 1100
LABELS: Final = 190
ROW: Final = 18
CURVE: Final = 90
ANOMALIES_SHOWN: Final = 50

STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222 }
h1 { font-size: 1.6em } h2 { margin-top: 2em; border-bottom: 1px solid #ccc }
table { border-collapse: collapse } td, th { padding: 2px 14px 2px 0; text-align: left; vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums } code, pre { background: #f3f3f3; padding: 2px 4px }
.good { color: #1a7f37 } .bad { color: #b3261e } svg text { font: 11px system-ui, sans-serif } small { color: #666 }
"""


def page(outcomes: Sequence[Outcome], effective_min: int, again: str) -> str:
    """The page as HTML."""
    effective = sum(outcome.effective.total() for outcome in outcomes)
    wrong = sum(len(outcome.verdict.anomalies) for outcome in outcomes)
    verdict = "nothing lost, doubled or reordered" if not wrong else f"{wrong} anomalies"
    enough = f"{effective} faults had an effect that was seen; {effective_min} are needed"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>konverse under faults</title>',
        f"<style>{STYLE}</style></head><body><h1>konverse under faults</h1>",
        f'<p class="{_mood(not wrong)}"><strong>{escape(verdict)}</strong></p>',
        f'<p class="{_mood(effective >= effective_min)}">{escape(enough)}</p>',
        f"<p>Repeat with: <code>{escape(again)}</code></p>",
        "<p>This chooses the same faults. They hit processes and servers, which run in real time, at other points.</p>",
        *(part for outcome in outcomes for part in _cell(outcome)),
        "</body></html>",
    ]
    return "\n".join(parts)


def _mood(good: bool) -> str:
    return "good" if good else "bad"


def _cell(outcome: Outcome) -> Iterable[str]:
    yield f"<h2>{escape(outcome.cell.name)}</h2>"
    yield f"<p>Faults for {outcome.cell.seconds:.0f} s, drained {outcome.drain_s:.1f} s later. {outcome.processes} "
    yield f"processes, seed <code>{escape(outcome.seed)}</code>.</p>"
    yield from _anomalies(outcome)
    yield _time_line(outcome)
    yield "<table><tr><th>fault</th><th>tried</th><th>effect seen</th></tr>"
    tried = Counter(fault.name for fault in outcome.faults)
    for name, times in sorted(tried.items()):
        yield f'<tr><td>{escape(name)}</td><td class="n">{times}</td><td class="n">{outcome.effective[name]}</td></tr>'
    yield "</table><h3>Figures</h3><table>"
    for name, figure in outcome.verdict.figures.items():
        yield f'<tr><td>{escape(name)}</td><td class="n">{figure:,}</td></tr>'
    yield "</table><details><summary>Every fault</summary><table>"
    for fault in sorted(outcome.faults, key=lambda fault: fault.began_s):
        effect = escape(fault.effect) or "<small>no effect was seen</small>"
        yield f'<tr><td class="n">{fault.began_s:.1f} s</td><td>{escape(fault.name)}</td><td>{effect}</td></tr>'
    yield "</table></details>"


def _anomalies(outcome: Outcome) -> Iterable[str]:
    found = outcome.verdict.anomalies
    if not found:
        yield '<p class="good">No anomaly.</p>'
        return
    yield f'<p class="bad">{len(found)} anomalies. Histories are in <code>{escape(str(outcome.folder))}</code>.</p>'
    yield "<table>"
    for anomaly in found[:ANOMALIES_SHOWN]:
        yield f'<tr><td class="bad" title="{escape(ANOMALIES[anomaly.name])}">{escape(anomaly.name)}</td>'
        yield f"<td>{escape(anomaly.where)}</td><td>{escape(anomaly.text)}</td></tr>"
    yield "</table>"


# ----------------------------------------------------------------------------------------------------------- time line


def _time_line(outcome: Outcome) -> str:
    """A row for each kind of fault, and below them curves of the load."""
    rows = sorted({fault.name for fault in outcome.faults})
    lines = [line for line in read(outcome.folder.glob("*-*.jsonl")) if line["t"] >= outcome.began_at]
    length = max([outcome.cell.seconds, *(fault.ended_s for fault in outcome.faults)]) + outcome.drain_s
    height = ROW * len(rows) + 2 * CURVE + 30
    scale = (WIDTH - LABELS) / length
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img" aria-label="time line of faults">']
    for place, name in enumerate(rows):
        parts.append(f'<text x="0" y="{place * ROW + 13}">{escape(name)}</text>')
        bars = (fault for fault in outcome.faults if fault.name == name)
        parts += [_bar(fault, place * ROW, scale) for fault in bars]
    below = ROW * len(rows) + 10
    curves = {"sent and acknowledged /s": ("send", "ok"), "handler runs /s": ("transaction", "invoke")}
    for number, (name, sign) in enumerate(curves.items()):
        parts.append(_curve(name, _rates(lines, sign, outcome.began_at, length), below + number * CURVE, scale))
    step = 10 if length < 200 else 30
    for second in range(0, int(length), step):
        x = LABELS + second * scale
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 16}" stroke="#ddd" stroke-width="0.5"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 3}" fill="#666">{second} s</text>')
    return "\n".join([*parts, "</svg>"])


def _bar(fault: Fault, y: int, scale: float) -> str:
    x, width = LABELS + fault.began_s * scale, max(3.0, (fault.ended_s - fault.began_s) * scale)
    paint = 'fill="#b3261e" fill-opacity="0.75"' if fault.effect else 'fill="none" stroke="#999"'
    title = f"{fault.began_s:.1f} s: {fault.effect or 'no effect was seen'}"
    return (
        f'<rect x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="11" {paint}><title>{escape(title)}</title></rect>'
    )


def _rates(lines: Iterable[Line], sign: tuple[str, str], began_at: float, length: float) -> list[int]:
    """Number of such lines in each second."""
    times = Counter(int(line["t"] - began_at) for line in lines if (line["op"], line["type"]) == sign)
    return [times[second] for second in range(int(length) + 1)]


def _curve(name: str, rates: Sequence[int], y: int, scale: float) -> str:
    top = max([*rates, 1])
    floor = y + CURVE - 20
    points = " ".join(f"{LABELS + second * scale:.1f},{floor - rate / top * (CURVE - 30):.1f}" for second, rate in
                      enumerate(rates))  # fmt: skip
    return (
        f'<text x="0" y="{floor}">{escape(name)}</text><text x="0" y="{floor - 14}" fill="#666">at most {top}</text>'
        f'<polyline points="{points}" fill="none" stroke="#0b57d0" stroke-width="1.2"/>'
    )


def write(path: Path, outcomes: Sequence[Outcome], effective_min: int, again: str) -> None:
    """Write the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(outcomes, effective_min, again), encoding="utf-8")
