"""The outbox against a plain list: records pushed, acknowledged and cut in any order and any runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from konverse.dialog.state.outbox import Run, Stream
from tests.kit.builders import address_of, identifier

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("acknowledge"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 30), st.integers(0, 30)),
    ),
    max_size=30,
)


@given(STEPS)
def test_an_outbox_returns_the_pushed_records_that_are_not_acknowledged(steps: list[tuple[str, int, int]]) -> None:
    stream = Stream(address_of(), identifier("the owner"))
    pushed: list[bytes] = []
    acknowledged = 0
    for step, number, count in steps:
        if step == "push":
            run = [str(len(pushed) + place).encode() for place in range(number)]
            stream.push(Run(stream.heads[0], b"", len(pushed), b"", run))
            pushed += run
        elif step == "acknowledge":
            stream.acknowledge(number)
            acknowledged = max(acknowledged, min(number, len(pushed)))
        else:
            first = max(number, acknowledged)
            runs = stream.cut(first, count)
            assert [body for run in runs for body in run.bodies] == pushed[first : first + count]
            numbers = [run.sequence + place for run in runs for place in range(len(run.bodies))]
            assert numbers == [*range(first, min(first + count, len(pushed)))]
        assert (stream.acked, stream.next) == (acknowledged, len(pushed))
    assert [body for run in stream.cut(acknowledged, len(pushed)) for body in run.bodies] == pushed[acknowledged:]
