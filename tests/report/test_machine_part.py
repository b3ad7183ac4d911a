"""What the machine did is not called the code's: pairs of runs with a neighbour, and pairs with a planted regression."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pipefix.report import terminal
from pipefix.report.comparable import machine_part
from pipefix.report.compare import Comparison
from pipefix.report.compare import compare as compare_runs
from pipefix.report.runfile import Run
from pipefix.vocabulary.quantity import Interval
from tests.report.made_runs import Costs, Load, busy, probed, slower_stage, some_costs

ALLOWED = 0.05
IDLE = Load(others_cores=0.02, reference=1.0)
OLDER = Load(others_cores=0.02)
SEEDS = st.integers(0, 2**32)


def compare(before: Run, after: Run) -> Comparison:
    return compare_runs(before, after, max_regression=ALLOWED)


def test_of_twenty_pairs_slower_by_a_tenth_nineteen_are_caught() -> None:
    chance = random.Random(21)
    caught = 0
    for _ in range(20):
        costs = some_costs(chance)
        slower = slower_stage(costs, chance, 1 / 0.9 - 1)
        caught += compare(probed(costs, IDLE, chance), probed(slower, IDLE, chance)).regressed
    assert caught >= 19


@given(SEEDS, st.booleans())
def test_unchanged_code_beside_a_neighbour_never_fails(seed: int, told: bool) -> None:
    chance = random.Random(seed)
    costs = some_costs(chance)
    idle = IDLE if told else Load()
    comparison = compare(probed(costs, idle, chance), probed(costs, busy(chance, told=told), chance))
    assert not comparison.regressed
    assert not comparison.settled
    assert comparison.machine.sentence


@given(SEEDS)
def test_a_loss_that_no_neighbour_explains_fails_beside_one_too(seed: int) -> None:
    chance = random.Random(seed)
    costs = some_costs(chance)
    slower = slower_stage(costs, chance, 7.0)
    comparison = compare(probed(costs, IDLE, chance), probed(slower, Load(queued=0.2, others_cores=0.5), chance))
    assert comparison.regressed


@given(SEEDS)
def test_on_an_idle_machine_nothing_is_the_machines(seed: int) -> None:
    chance = random.Random(seed)
    costs = some_costs(chance)
    comparison = compare(probed(costs, IDLE, chance), probed(costs, IDLE, chance))
    assert abs(comparison.machine.factor - 1) < 0.06


def pair(load: Load, *, workers: int = 2) -> tuple[Run, Run]:
    chance = random.Random(1)
    costs = some_costs(chance)
    return probed(costs, IDLE, chance, noise=0.0), probed(costs, load, chance, noise=0.0, workers=workers)


def test_what_the_machine_did_is_a_doubt_in_words() -> None:
    before, after = pair(Load(queued=0.7, others_cores=1.9))
    comparison = compare(before, after)
    doubt = comparison.doubts[0]
    assert doubt.startswith(
        "The second run's machine was not as the first's: its samples queued for a CPU 70 % of their time (0 % in the first run); "
        "other programs used 1.90 cores meanwhile (0.02 cores in the first run). Without that the second run delivers "
    )
    assert comparison.sentence.startswith("No change that these runs can tell from the machine's: delivered 0.3")
    assert "Repeat the run when the machine does nothing else." in (comparison.gate or "")
    assert any("other programs" in line for line in terminal.lines(comparison.document(), width=200))


def test_a_neighbour_whose_cost_no_figure_tells_leaves_the_gate_open() -> None:
    """One stage alone computes, and it is slower: its code's doing or the machine's."""
    before, after = pair(Load(pace={"augment": 1.4}, others_cores=1.5))
    before, after = (replace(run, stages=[stage for stage in run.stages if stage.stage == "augment"]) for run in (before, after))
    after = replace(after, throughput=replace(after.throughput, delivered=before.throughput.delivered.scaled(0.7)))
    comparison = compare(before, after)
    assert not comparison.regressed
    assert comparison.doubts[0].endswith("What that cost cannot be told: repeat the run.")


@pytest.mark.parametrize(("load", "fails"), [(IDLE, True), (Load(), False)])
def test_a_stage_of_microseconds_that_is_slower_by_chance_is_not_the_machine(load: Load, fails: bool) -> None:
    """Seen beside a loss of a tenth on an idle machine: eight per cent of 5 µs were taken for the pace of all that computes. Where
    nobody knows who else was there, they still are."""
    chance = random.Random(1)

    def run(decode: float, collate: float) -> Run:
        made = probed(Costs(0.0, {"decode": decode, "collate": collate}), load, chance, noise=0.01)
        stages = [
            replace(stage, cpu_s=Interval(collate, 0.93 * collate, 1.07 * collate)) if stage.stage == "collate" else stage
            for stage in made.stages
        ]
        return replace(made, stages=stages)

    assert compare(run(2e-3, 5e-6), run(2.25e-3, 5.4e-6)).regressed is fails


def test_queueing_of_ones_own_making_is_no_excuse() -> None:
    """More threads in the code, and nobody else on the machine; or more workers than before."""
    assert machine_part(*pair(Load(queued=0.5, others_cores=0.02))).factor == pytest.approx(1.0)
    assert machine_part(*pair(Load(queued=0.5), workers=8)).sentence == ""


def test_a_run_that_says_nothing_of_its_machine_is_compared_as_ever() -> None:
    before, _ = pair(IDLE)
    bare = replace(before, machine={}, stages=[])
    assert machine_part(bare, bare).taken_out(bare.throughput.delivered) == bare.throughput.delivered


def test_a_cache_in_the_dataset_s_place_is_no_faster_machine() -> None:
    """Seen after a fix beside a neighbour: 28x was told as *no change that these runs can tell from the machine's*."""
    chance = random.Random(1)
    before = probed(Costs(1e-4, {"decode": 8e-3, "augment": 2e-3, "collate": 36e-6}), IDLE, chance)
    cached = probed(Costs(0.0, {"decode": 15e-6, "augment": 10e-6, "collate": 8e-6}), Load(others_cores=1.7), chance)
    cached = replace(cached, settings=replace(cached.settings, dataset="CachedDataset", kind="batched"))
    comparison = compare(before, cached)
    assert comparison.sentence.startswith("Delivered ")
    assert comparison.machine.factor == 1.0


@pytest.mark.parametrize("times", [0.2, 5.0])
def test_all_stages_far_slower_or_faster_alike_are_the_codes(times: float) -> None:
    """Pictures of a quarter of the pixels, or of four times as many."""
    chance = random.Random(1)
    costs = some_costs(chance)
    changed = Costs(times * costs.storage_waits, {stage: times * each for stage, each in costs.cpu.items()})
    comparison = compare(probed(costs, IDLE, chance), probed(changed, IDLE, chance))
    assert comparison.settled
    assert comparison.regressed is (times > 1)


@pytest.mark.parametrize(("load", "fails"), [(IDLE, True), (OLDER, False), (Load(others_cores=0.02, reference=1.2), False)])
def test_all_stages_slower_alike_are_the_codes_where_the_reference_work_is_not(load: Load, fails: bool) -> None:
    """Pictures with a fifth more pixels. An older run has no reference work: what all stages share is the machine's there."""
    chance = random.Random(3)
    costs = some_costs(chance)
    larger = Costs(1.2 * costs.storage_waits, {stage: 1.2 * each for stage, each in costs.cpu.items()})
    comparison = compare(probed(costs, IDLE, chance), probed(larger, load, chance))
    assert comparison.regressed is fails
    assert bool(comparison.machine.sentence) is not fails
