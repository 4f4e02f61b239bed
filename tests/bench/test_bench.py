"""The frame of the benchmark, without servers: the order of the runs, and the judgement of their figures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.bounds import BOUNDS
from tests.bench.cases import CASES, chosen, row_names
from tests.bench.child import RunFailed, fresh
from tests.bench.measure import latencies, resident_growth
from tests.bench.model import ROUNDS, Case, Figures, Load, Place, Row, Run, Unwritten
from tests.bench.runner import Measured, Result, Runner, judge

NOWHERE = Place("", "", "nowhere")
LOAD = Load(messages=10_000)


def ours(place: Place, load: Load) -> Figures:
    return {"rate": float(os.getpid())}


def theirs(place: Place, load: Load) -> Figures:
    return {"rate": float(load.messages)}


def filling(place: Place, load: Load) -> Figures:
    return {}


def unwritten(place: Place, load: Load) -> Figures:
    raise Unwritten


def failing(place: Place, load: Load) -> Figures:
    raise ValueError("no leader for partition 3")


CASE = Case((Row("send-100", "rate", "msg/s"),), Run(ours, LOAD, prepare=filling), Run(theirs, LOAD))


@dataclass
class Frame:
    """A runner whose runs are recorded calls in this process."""

    called: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def measure(self, case: Case) -> Measured:
        runner = Runner("", "", "t", self.called.append, self.forgotten.append, self.call, pause_s=0)
        return runner.measure(case)

    def call(self, function: Callable[[Place, Load], Figures], place: Place, load: Load) -> Figures:
        self.called.append(function.__name__)
        self.places.append(place.name)
        return function(place, load)


# --------------------------------------------------------------------------------------------------------------- cases


def test_every_row_has_its_bound_and_every_bound_its_row() -> None:
    assert sorted(row_names()) == sorted(BOUNDS)


def test_a_bound_on_a_ratio_has_a_raw_counterpart() -> None:
    ratios = {row.name for case in CASES if case.raw for row in case.rows}
    assert {name for name, bound in BOUNDS.items() if bound.of == "ratio"} <= ratios


@pytest.mark.parametrize("name", BOUNDS)
def test_only_chooses_one_row(name: str) -> None:
    assert [row.name for case in chosen(name) for row in case.rows] == [name]


def test_an_unknown_row_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(LookupError, match="no row 'sned'; there are send-100, "):
        chosen("sned")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rows[0].name)
def test_every_load_is_whole_batches_also_the_quick_one(case: Case) -> None:
    for run in filter(None, (case.product, case.raw, case.smaller().product, case.smaller().raw)):
        assert run.load.messages > 0
        assert run.load.messages % run.load.batch == 0


# -------------------------------------------------------------------------------------------------------------- rounds


def test_the_sides_run_in_turn_and_each_is_announced() -> None:
    frame = Frame()
    frame.measure(CASE)
    one_round = ["theirs", "filling", "ours"]
    assert [name for name in frame.called if ":" not in name] == one_round * ROUNDS
    assert [name for name in frame.called if ":" in name][:2] == ["send-100: raw 1 of 3", "send-100: product 1 of 3"]


def test_no_two_runs_share_a_name_and_every_name_is_forgotten() -> None:
    frame = Frame()
    frame.measure(CASE)
    assert frame.places[:3] == ["benchtx1x", "benchtx2x", "benchtx2x"]
    assert frame.forgotten == [f"benchtx{number}x" for number in range(1, 2 * ROUNDS + 1)]


def test_an_unwritten_product_is_tried_once_and_the_raw_side_is_measured() -> None:
    frame = Frame()
    measured = frame.measure(Case(CASE.rows, Run(unwritten, LOAD), CASE.raw))
    assert frame.called.count("unwritten") == 1
    assert (len(measured.raw), measured.product, measured.problem) == (ROUNDS, [], "not written yet")


def test_a_run_that_fails_ends_its_case_and_leaves_nothing_behind() -> None:
    def fails(function: Callable[[Place, Load], Figures], place: Place, load: Load) -> Figures:
        raise RunFailed("ended with -9")

    said: list[str] = []
    forgotten: list[str] = []
    measured = Runner("", "", "t", said.append, forgotten.append, fails, pause_s=0).measure(CASE)
    assert (measured.raw, measured.product, measured.problem) == ([], [], "ended with -9")
    assert (said, forgotten) == (["send-100: raw 1 of 3"], ["benchtx1x"])


# ------------------------------------------------------------------------------------------------------------ judgement


def judged(product: list[float], raw: list[float], name: str = "send-100", problem: str = "") -> Result:
    case = Case((Row(name, "rate", "msg/s"),), CASE.product, CASE.raw)
    figures = [{"rate": value} for value in product], [{"rate": value} for value in raw]
    return judge(case, Measured(*figures, problem), quick=False)[0]


def test_the_ratio_is_the_median_of_the_pairs_and_not_the_ratio_of_the_medians() -> None:
    result = judged([90, 40, 300], [100, 50, 200])
    assert (result.value, result.ratio) == (90, 0.9)


@pytest.mark.parametrize(
    ("name", "product", "raw", "holds"),
    [
        ("send-100", 85, 100, True),
        ("send-100", 84, 100, False),
        ("loop-1000-cpu", 4.5, 1, True),
        ("loop-1000-cpu", 4.6, 9, False),
    ],
)
def test_a_bound_holds_up_to_its_limit(name: str, product: float, raw: float, holds: bool) -> None:
    assert judged([product] * 3, [raw] * 3, name).holds is holds


def test_a_row_without_all_its_runs_has_no_value_and_does_not_hold() -> None:
    result = judged([100, 100], [100, 100], problem="ended with -9")
    assert (result.value, result.ratio, result.holds) == (None, None, False)


def test_a_bound_on_a_ratio_does_not_hold_without_a_raw_side() -> None:
    assert judged([100] * 3, []).holds is False


def test_the_file_has_a_record_for_each_row_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    file = tmp_path / "build" / "bench.json"
    report.write([judged([90] * 3, [100] * 3)], file)
    (record,) = json.loads(file.read_text(encoding="utf-8"))
    assert record.pop("command").endswith("python -m tests.bench --only send-100")
    assert record == {
        "name": "send-100",
        "value": 90,
        "unit": "msg/s",
        "ratio": 0.9,
        "bound": "ratio >= 0.85",
        "holds": True,
    }


def test_a_failed_bound_is_reported_with_its_reason_and_its_command() -> None:
    (told,) = report.problems([judged([90] * 3, [100] * 3), judged([80] * 3, [100] * 3)])
    assert "ratio >= 0.85 does not hold. Numbering, remembering" in told
    assert told.endswith("-m tests.bench --only send-100")


# ---------------------------------------------------------------------------------------------------- processes, memory


def test_a_run_has_a_process_of_its_own() -> None:
    first, second = fresh(ours, NOWHERE, LOAD)["rate"], fresh(ours, NOWHERE, LOAD)["rate"]
    assert len({first, second, os.getpid()}) == 3


def test_the_load_arrives_in_the_process() -> None:
    assert fresh(theirs, NOWHERE, LOAD) == {"rate": 10_000}


def test_an_unwritten_function_says_so_across_processes() -> None:
    with pytest.raises(Unwritten, match="test_bench:unwritten"):
        fresh(unwritten, NOWHERE, LOAD)


def test_the_error_for_a_failing_process_contains_its_last_output() -> None:
    with pytest.raises(RunFailed, match=r"failing ended with 1:(.|\n)*ValueError: no leader for partition 3"):
        fresh(failing, NOWHERE, LOAD)


def test_resident_growth_counts_kept_objects_but_not_freed_ones() -> None:
    each_bytes, count = 2_000, 20_000

    def build() -> list[bytes]:
        dropped = [bytes(each_bytes) for _ in range(count)]
        return [bytes(each_bytes) for _ in dropped]

    grown, built = resident_growth(build)
    assert len(built) == count
    assert 0.8 <= grown / (each_bytes * count) <= 1.3


def test_latencies_are_milliseconds() -> None:
    assert latencies("commit", [0.001 * n for n in range(1, 102)]) == pytest.approx(
        {
            "commit_p50_ms": 51,
            "commit_p99_ms": 100,
        }
    )
