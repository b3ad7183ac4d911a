"""The model of throughput: exact on stations it describes, never faster than Amdahl allows, never contrary."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipefix.diagnosis.throughput import PipelineModel, StageTime, doubted, draws, pooled, ratio_of, stage_time
from pipefix.plan.fit import fitted
from pipefix.vocabulary.quantity import Interval, exactly
from pipefix.vocabulary.stage import Stage
from tests.plan.builders import World, computing

ROOT = Path(__file__).resolve().parents[2]
MADE = ("storage", "decode", "augment", "collate")
costs = st.floats(1e-5, 0.05)
shares = st.floats(0.0, 1.0)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    return World(
        **{name: draw(costs) for name in MADE},
        ipc=draw(costs),
        taking=draw(costs),
        step=draw(st.none() | costs),
        workers=draw(st.integers(0, 8)),
        cores=draw(st.sampled_from([0.5, 1.0, 2.0, 3.5, 8.0, 64.0])),
        computing={name: draw(shares) for name in MADE},
    )


def line(world: World) -> PipelineModel:
    return fitted(world.measurement(), world.diagnosis())


def crowded(world: World) -> bool:
    """Whether its workers compete for cores: then wall times alone do not tell what is waiting."""
    return world.cpu >= 0.85 * world.cores * world.seconds


@given(worlds())
def test_agrees_with_the_measurement_where_it_was_measured(world: World) -> None:
    assert float(line(world).seconds()[0]) == pytest.approx(world.seconds, rel=1e-6)


@given(worlds().filter(lambda world: not crowded(world)), st.sampled_from(MADE), st.sampled_from(MADE), st.floats(1.0, 50.0))
def test_is_exact_when_one_goes_and_another_is_faster(world: World, gone: str, faster: str, times: float) -> None:
    now = line(world)
    after = world.but(**{faster: getattr(world, faster) / times}).but(**{gone: 0.0})
    gain = now.speedup(now.scaled(Stage(faster), 1 / times).without(Stage(gone)))
    assert gain.value == pytest.approx(world.seconds / after.seconds, rel=1e-6)


@given(worlds().filter(lambda world: world.workers > 0 and not crowded(world)), st.integers(1, 32))
def test_is_exact_for_other_counts_of_workers_that_have_a_core_each(world: World, count: int) -> None:
    world = world.but(cores=64.0)
    now = line(world)
    gain = now.speedup(now.with_workers(count, 32, 1e6))
    assert gain.value == pytest.approx(world.seconds / world.but(workers=count).seconds, rel=1e-6)


@given(worlds().filter(lambda world: world.workers > 0 and not crowded(world)))
def test_without_workers_nothing_is_handed_over(world: World) -> None:
    world = world.but(cores=64.0)
    now = line(world)
    alone = world.but(workers=0, ipc=0.0, taking=0.0)
    assert now.speedup(now.with_workers(0, 32, 1e6)).value == pytest.approx(world.seconds / alone.seconds, rel=1e-6)


def test_the_first_workers_bring_the_hand_over_with_them() -> None:
    world = World(decode=0.004, workers=0, cores=8.0)
    now = line(world)
    after = now.with_workers(4, 32, 19_267_584)
    handed = (0.0006 + 19_267_584 / 0.9e9) / 32
    assert now.speedup(after).value == pytest.approx(0.004 / ((0.004 + handed) / 4), rel=1e-6)
    assert after.wall(Stage.IPC) == pytest.approx(handed)


@given(worlds(), st.sampled_from(MADE), st.floats(1.0, 100.0), st.floats(1.0, 100.0))
def test_a_faster_stage_never_predicts_a_slower_pipeline(world: World, name: str, a: float, b: float) -> None:
    now, stage = line(world), Stage(name)
    slow, fast = sorted((a, b))
    gains = [now.speedup(now.scaled(stage, 1 / times)) for times in (1.0, slow, fast)] + [now.speedup(now.without(stage))]
    for less, more in itertools.pairwise(gains):
        assert less.value <= more.value * (1 + 1e-9)
        assert less.low <= more.low * (1 + 1e-9)
        assert less.high <= more.high * (1 + 1e-9)


@given(worlds(), st.sampled_from(MADE))
def test_gains_no_more_than_amdahl_allows(world: World, name: str) -> None:
    """Without the stage, at best all the time that is left is that of the other stages of the station that limits."""
    now = line(world)
    gain = now.speedup(now.without(Stage(name))).value
    whole = sum(float(part.wall[0]) for part in (*now.making.values(), *now.taking.values()))
    computing = sum(float(part.cpu[0]) for part in (*now.making.values(), *now.taking.values()))
    walls = whole / max(whole - now.wall(Stage(name)), 1e-12)
    cpus = computing / max(computing - float(now.making[name].cpu[0]), 1e-12)
    makes = sum(float(part.wall[0]) for part in now.making.values())
    pool = makes / max(makes - now.wall(Stage(name)), 1e-12)
    assert 1 - 1e-9 <= gain <= max(walls, cpus, pool) * (1 + 1e-6)


@given(worlds(), st.sampled_from(MADE), st.floats(0.01, 100.0))
def test_a_machine_twice_as_slow_gives_the_same_speedups(world: World, name: str, factor: float) -> None:
    scaled = world.but(
        **{key: getattr(world, key) * factor for key in (*MADE, "ipc", "taking")}, step=world.step * factor if world.step else None
    )
    before, after = line(world), line(scaled)
    first, second = (model.speedup(model.without(Stage(name))) for model in (before, after))
    assert second.value == pytest.approx(first.value, rel=1e-6)
    assert second.low == pytest.approx(first.low, rel=1e-6)


GRIDS = {grid["name"]: grid for grid in json.loads((ROOT / "fixtures/grids/measured.json").read_text())["grids"]}


@pytest.mark.parametrize("name", ["measured-decode", "measured-compute", "measured-text"])
def test_workers_beyond_the_cores_cost_what_they_were_measured_to_cost(name: str) -> None:
    """Two workers on two cores, computing all the time: every count beyond was slower, most between 2 and 30 %."""
    rates = {int(count): rate for count, rate in GRIDS[name]["rates"].items()}
    now = line(World(decode=2 / rates[2], workers=2, cores=2.0))
    for count in (4, 6, 8, 12):
        gain = now.speedup(now.with_workers(count, 32, 0.0))
        assert gain.high < 1.0
        assert gain.value == pytest.approx(rates[count] / rates[2], rel=0.2)
    back = line(World(decode=4 / rates[4], workers=4, cores=2.0, computing={"decode": 0.5}))
    assert back.speedup(back.with_workers(2, 32, 0.0)).value > 1.05


def test_workers_that_wait_do_not_crowd() -> None:
    rates = {int(count): rate for count, rate in GRIDS["measured-wait"]["rates"].items()}
    now = line(World(storage=2 / rates[2], workers=2, cores=2.0, computing={"storage": 0.1}))
    for count in (4, 8, 16):
        assert now.speedup(now.with_workers(count, 32, 0.0)).value == pytest.approx(rates[count] / rates[2], rel=0.05)


def test_more_workers_are_promised_no_more_than_the_cores_can_compute() -> None:
    """By the calling thread's clock a decoder with threads of its own waits: 16 workers looked like 6.7x on cores that are full."""
    waiting = World(
        storage=0.0002, decode=0.006, augment=0.0001, collate=0.0001, ipc=0.0002, taking=0.0001, workers=1,
        computing={"decode": 0.1},
    )  # fmt: skip

    def gains(cpu: float) -> list[float]:
        steps = computing(waiting, cpu).plan().proposed
        return [step.speedup.value for step in steps if step.id.startswith("workers-")]

    assert max(gains(0.0)) > 4
    assert all(gain <= 4 * waiting.seconds / 0.02 + 1e-9 for gain in gains(0.02))
    assert gains(0.03) == []


def test_work_that_computes_does_not_scale_past_the_cores_and_waiting_does() -> None:
    computes = line(World(decode=0.01, workers=2, cores=4.0))
    waits = line(World(storage=0.01, workers=2, cores=4.0, computing={"storage": 0.0}))
    assert 1.6 < computes.speedup(computes.with_workers(16, 32, 0)).value < 2.0
    assert computes.speedup(computes.with_workers(4, 32, 0)).value == pytest.approx(2.0)
    assert waits.speedup(waits.with_workers(16, 32, 0)).value == pytest.approx(8.0)


def test_workers_that_share_cores_are_not_taken_for_waiting() -> None:
    """Four workers on two cores: each stage takes twice as long as its work. Two workers would be as fast."""
    world = World(decode=0.008, augment=0.004, workers=4, cores=2.0, computing={"decode": 0.5, "augment": 0.5})
    now = line(world)
    assert 1.0 < now.speedup(now.with_workers(2, 32, 0)).value < 1.15, "and none is in another's way"
    assert 0.5 < now.speedup(now.with_workers(1, 32, 0)).value < 0.6
    assert now.speedup(now.without(Stage.AUGMENT)).value == pytest.approx(1.5)


def test_another_programs_load_is_not_taken_for_our_own() -> None:
    """Workers that were kept from idle cores of ours by somebody else will be again: their times stay as they were measured."""
    world = World(decode=0.02, augment=0.005, step=0.006, workers=2, cores=2.0, computing={"decode": 0.2, "augment": 0.2})
    measurement, diagnosis = world.measurement(), world.diagnosis()
    diagnosis.starved = 0.7
    for stage, cost in diagnosis.stages.items():
        diagnosis.stages[stage] = replace(cost, waiting=0.0)
    now = fitted(measurement, diagnosis)
    assert float(now.seconds()[0]) == pytest.approx(0.0125)
    assert now.speedup(now.without(Stage.DECODE)).value == pytest.approx(0.0125 / 0.006)


def test_the_schedulers_record_tells_queueing_from_waiting() -> None:
    """Four workers on two cores wait for a disk (4 ms) and for cores (4 ms) in each 12 ms: two workers would take 8 ms each."""
    world = World(storage=0.006, decode=0.006, workers=4, cores=1.4, computing={"storage": 0.0, "decode": 0.6667})
    measurement, diagnosis = world.measurement(), world.diagnosis()
    stages = diagnosis.stages
    stages[Stage.STORAGE] = replace(stages[Stage.STORAGE], waiting=0.004)
    stages[Stage.DECODE] = replace(stages[Stage.DECODE], waiting=0.0)
    now = fitted(measurement, diagnosis)
    assert float(now.seconds()[0]) == pytest.approx(0.003)
    assert 0.008 <= sum(float(part.wall[0]) for part in now.making.values()) <= 0.012


def test_a_step_on_the_cpu_shares_the_cores_with_the_workers() -> None:
    now = line(World(decode=0.002, step=0.001, step_computing=1.0, workers=2, cores=1.0))
    assert float(now.seconds()[0]) == pytest.approx(0.003)
    assert now.speedup(now.without(Stage.DECODE)).value == pytest.approx(3.0)


def test_a_device_takes_its_time_also_where_a_step_hides_behind_the_making() -> None:
    """30 ms to make a sample, 20 ms of a step, of which the CPU is busy with one: workers bring 1.5 times as much and no more."""
    making, taking = {"decode": stage_time(0.030, 0.0)}, {"step": stage_time(0.001, 0.0)}
    now = PipelineModel(making, taking, 0, 8.0, device=0.020)
    assert float(now.seconds()[0]) == pytest.approx(0.031)
    assert now.speedup(replace(now, workers=8)).value == pytest.approx(0.031 / 0.020)
    assert replace(now, device=0.0).speedup(replace(now, workers=8, device=0.0)).value > 8


class TestDoubt:
    def test_the_interval_of_a_stage_carries_through(self) -> None:
        def gain(decode: Interval) -> Interval:
            now = PipelineModel({"decode": stage_time(decode, name="decode"), "augment": stage_time(0.004)}, {}, 0, 8.0)
            return now.speedup(now.without(Stage.DECODE))

        doubted_gain = gain(Interval(0.004, 0.003, 0.005))
        assert doubted_gain.value == pytest.approx(2.0)
        assert (doubted_gain.low, doubted_gain.high) == (pytest.approx(1.75, abs=0.05), pytest.approx(2.25, abs=0.05))
        assert gain(exactly(0.004)) == exactly(2.0)

    def test_draws_are_alike_for_the_same_doubt_and_spread_as_its_interval_says(self) -> None:
        drawn = draws(Interval(1.0, 0.8, 1.5), "a")
        assert np.array_equal(drawn, draws(Interval(1.0, 0.8, 1.5), "a"))
        assert not np.array_equal(drawn, draws(Interval(1.0, 0.8, 1.5), "b"))
        low, high = np.percentile(drawn[1:], (2.5, 97.5))
        assert (low, high) == (pytest.approx(0.8, abs=0.05), pytest.approx(1.5, abs=0.1))

    def test_anchoring_keeps_a_measured_gain_and_adds_only_what_is_new(self) -> None:
        """An arm that gained 1.8 where the model says 2: what a cache read adds is the model's, the rest the measurement's."""
        now = PipelineModel({"storage": stage_time(0.004), "augment": stage_time(0.004)}, {}, 0, 8.0)
        arm = now.without(Stage.STORAGE)
        assert now.anchored(exactly(1.8), arm, arm, name="x") == exactly(1.8)
        slower = now.replacing(Stage.STORAGE, stage_time(0.0004))
        assert now.anchored(exactly(1.8), arm, slower, name="x").value == pytest.approx(1.8 / 1.1)


def test_a_ratio_of_nothing_is_finite() -> None:
    nothing = StageTime(np.zeros(401), np.zeros(401))
    assert ratio_of(nothing.wall, nothing.wall).value == 0.0
    assert np.isfinite(ratio_of(np.ones(401), nothing.wall).high)


class TestTwoEvidences:
    def test_that_agree_are_surer_together_and_others_are_told_with_more_doubt(self) -> None:
        arm = Interval(2.0, 1.7, 2.35)
        both = pooled(arm, arm)
        assert both.value == pytest.approx(2.0) and arm.low < both.low < both.high < arm.high
        sure = Interval(2.0, 1.95, 2.05)
        apart, near = pooled(sure, exactly(1.2)), pooled(sure, exactly(1.9))
        assert np.log(apart.high / apart.low) > 2 * np.log(near.high / near.low)

    def test_the_surer_one_weighs_more(self) -> None:
        assert pooled(Interval(2.0, 1.95, 2.05), Interval(1.5, 1.2, 1.9)).value > 1.9
        assert pooled(Interval(2.0, 1.0, 4.0), exactly(1.5)).value < 1.6
        assert pooled(Interval(1.5, 1.45, 1.55), exactly(1.0)).value > 1.35, "a model that sees no gain does not silence an arm"

    @given(st.floats(0.2, 20), st.floats(0.2, 20), st.floats(1.0, 1.5), st.floats(1.0, 1.5))
    def test_lies_between_them(self, a: float, b: float, wide: float, far: float) -> None:
        both = pooled(Interval(a, a / wide, a * wide), Interval(b, b / far, b * far))
        assert min(a, b) * (1 - 1e-9) <= both.value <= max(a, b) * (1 + 1e-9)
        assert both.low <= both.value <= both.high

    def test_a_modelled_gain_has_the_models_own_doubt(self) -> None:
        assert doubted(exactly(1.0)) == exactly(1.0)
        two = doubted(exactly(2.0))
        assert two.low == pytest.approx(1.70, abs=0.01)
        assert two.high == pytest.approx(2.35, abs=0.01)
