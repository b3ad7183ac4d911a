"""The plan as a whole: what comes first, what falls away, and that no measurement makes it stumble."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipefix.measurement.measurement import Block, TriedCache
from pipefix.plan import cache_disk
from pipefix.plan.advise import WORTH_MAKING, advise, saved
from pipefix.plan.plan import Plan, Proposed
from pipefix.plan.remedies.caches import DESCRIBED_BYTES
from pipefix.vocabulary.gain import Modelled
from pipefix.vocabulary.quantity import Interval, exactly
from pipefix.vocabulary.stage import INPUT
from tests.plan.builders import JPEGS, MACHINE, SLOW_NETWORK, STEP_BOUND, TEXTS, World
from tests.plan.test_throughput import worlds


def ids(plan: Plan) -> list[str]:
    return [step.id for step in plan.proposed]


RANKED = [
    # The resized cache gains less for certain than workers do, and costs ten minutes: free settings come first.
    (JPEGS, False, ["workers-4", "cache-resized-256", "handover-slots"]),
    (JPEGS, True, ["workers-4", "augment-gpu", "cache-resized-256", "handover-slots"]),
    (SLOW_NETWORK, False, ["workers-16", "cache-resized-256", "batched-fetch"]),
    (TEXTS, False, ["cache-decoded", "workers-4"]),
]


class TestRanking:
    @pytest.mark.parametrize(("world", "cuda", "steps"), RANKED, ids=["pictures", "beside a GPU", "a late store", "texts"])
    def test_what_comes_first(self, world: World, cuda: bool, steps: list[str]) -> None:
        assert ids(world.with_arms().plan(cuda=cuda)) == steps

    def test_a_step_that_limits(self) -> None:
        """Nothing is left to gain; that fewer workers would do is told, and proposed by nobody."""
        plan = STEP_BOUND.with_arms().plan()
        assert not plan.proposed
        fewer = next(step for step in plan if step.id == "workers-1")
        assert "as fast as today" in fewer.why and "1 worker and its memory" in fewer.why

    def test_a_step_that_computes_beside_workers_hides_nothing(self) -> None:
        """Where it said that the step is not the only one worth work, every remedy was declined as one that would wait for it."""
        tried = STEP_BOUND.but(fields={"trials": {"workers-1": [(1.4, 1.0)] * 4}}).plan()
        assert ids(tried) == ["workers-1"]
        case = STEP_BOUND.but(settings={"collate": "pad_batch"}, collate=0.005,
                              arms={"collate-recorded": exactly(1.5), "loader-floor": exactly(1.5)}).case()  # fmt: skip
        assert "collate-faster" not in ids(advise(case))
        case.measurement.blocks += [Block("loader-floor", (), 1.0, 1)] * 2
        assert "collate-faster" in ids(advise(case))

    def test_a_step_that_takes_most_of_the_time_hides_nothing_without_workers(self) -> None:
        plan = STEP_BOUND.but(workers=0).with_arms().plan()
        assert set(ids(plan)) == {"workers-1", "cache-resized-256"}
        gain = next(step.speedup for step in plan.proposed if step.id == "cache-resized-256")
        assert 1.05 < gain.value < 1.6, "the step itself stays"

    def test_one_off_costs_count_against_a_step(self) -> None:
        case = JPEGS.case()
        cheap = JPEGS.step_called("workers-4")
        assert isinstance(cheap, Proposed)
        free = saved(cheap, case)
        costly = Proposed(
            id="x", stage=cheap.stage, title="x", why="x", gain=cheap.gain, command="x", seconds=100.0, disk_bytes=50e9
        )
        assert free - saved(costly, case) == 150.0

    def test_the_lower_end_counts(self) -> None:
        case = JPEGS.case()
        sure, unsure = (
            Proposed(id="x", stage=INPUT[0], title="x", why="x", gain=Modelled(gain), command="x")
            for gain in (exactly(1.5), Interval(2.0, 1.2, 3.0))
        )
        assert saved(sure, case) > saved(unsure, case)


def test_of_a_loader_that_was_given_in_python_remedies_are_calls() -> None:
    """They were  pipefix convert '<DataLoader object>' --to lmdb ..., which finds no such file."""
    plan = JPEGS.with_arms().plan(target="<DataLoader object>", cuda=True)
    commands = {step.id: step.command for step in plan.proposed}
    assert commands["cache-resized-256"] == "pipefix.convert(loader, to='lmdb', store='resized', size=256, out='cache-resized')"
    assert commands["workers-4"].endswith("all settings at once: pipefix.tune(loader)")
    assert commands["augment-gpu"] == "pipefix.swap(loader, to='kornia')"


def test_a_cache_whose_size_nobody_saw_does_not_take_none() -> None:
    """Within a short budget others fell away beside one that gained more "for 0 B of disk"."""
    late = {store: TriedCache(late=True) for store in ("resized", "decoded", "sample")}
    plan = SLOW_NETWORK.but(fields={"tried_caches": late}).with_arms().plan()
    assert {"cache-source", "cache-resized-256"} <= set(ids(plan))
    assert not [step.why for step in plan if "0 B of disk" in step.why]


def test_what_falls_away_still_says_what_it_would_take() -> None:
    told = JPEGS.step_called("cache-source").disk_bytes
    records = 50_000 * cache_disk.of_record(JPEGS.source_bytes + DESCRIBED_BYTES)
    assert told == cache_disk.of_parts(50_000, 50_000, records)


@given(
    worlds(),
    st.sampled_from(["map", "batched", "iterable"]),
    st.sampled_from([None, 1, 2, 64]),
    st.sampled_from([None, 2, 100, 10**9]),
    st.sampled_from([None, MACHINE]),
    st.booleans(),
    st.sampled_from(["input-bound", "step-bound", "balanced", "inconclusive"]),
    st.sampled_from(
        [{}, {"first_batch": 1.0, "epoch_restart": 0.5}, {"looks": {}}, {"transfer": {"pinned": 1e-3, "pageable": 2e-3}}]
    ),
    st.booleans(),
)
@settings(deadline=None)
def test_any_measurement_gives_a_plan(
    world: World,
    kind: str,
    batch: int | None,
    length: int | None,
    machine: object,
    cuda: bool,
    verdict: str,
    fields: dict[str, object],
    arms: bool,
) -> None:
    world = world.but(settings={"kind": kind, "batch_size": batch, "length": length}, fields=fields, verdict=verdict)
    plan = (world.with_arms() if arms else world).plan(machine=machine, cuda=cuda)
    assert plan.steps == (*plan.proposed, *plan.declined), "what is proposed comes first"
    assert len({step.id for step in plan}) == len(plan.steps)
    for step in plan:
        assert step.why
        assert "nan" not in step.why
        assert "inf" not in step.why.replace("inference", "")
        if isinstance(step, Proposed):
            assert step.command
            assert 0 < step.speedup.low <= step.speedup.value <= step.speedup.high
            assert step.speedup.value >= WORTH_MAKING
            assert step.seconds is None or step.seconds >= 0
