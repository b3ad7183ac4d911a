"""Drift: what is planted is named, noise is not, and the false alarms are as rare as is said."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import pytest

from pipefix.watching.drift import LAST, PATIENCE, Baseline, Drift
from pipefix.watching.window import Notice, StageSeconds, Window
from tests.watching.streams import COSTS, DAY, DRIFTS, MAKING, Job, Plant, named

AT = 200


def run(job: Job, drift: Drift | None = None) -> list[tuple[int, Notice]]:
    drift = drift or Drift()
    return [(window.number, notice) for window in job for notice in drift.feed(window)]


def costing(job: Job, factor: Callable[[int, str], float]) -> Iterator[Window]:
    """Its windows with nothing but stages and processor time; ``factor``: of a stage's cost, by window and stage."""
    for window in job:
        stages = {
            name: StageSeconds(s=cost.s * times, batches=cost.batches)
            for name, cost in window.stages.items()
            if (times := factor(window.number, name))
        }
        yield Window(time=window.time, number=window.number, seconds=30, stages=stages, cpu=window.cpu)


def alarms(numbered_notices: list[tuple[int, Notice]]) -> list[str]:
    return [named(notice.kind, notice.stage) for _, notice in numbered_notices if notice.alarm]


@pytest.mark.parametrize("name", DRIFTS)
def test_a_planted_drift_is_named(name: str):
    notices = run(Job(3, windows=AT + 120, plant=Plant(AT, DRIFTS[name])))
    assert alarms(notices)[0] == name or (name == "larger" and name in alarms(notices))
    assert set(alarms(notices)) <= {name, *([] if name != "larger" else ["storage", "decode"])}
    number, first = next(numbered for numbered in notices if numbered[1].alarm)
    assert number > AT
    if name != "larger":
        assert first.ratio == pytest.approx(1.2, abs=0.09)
        assert first.before == pytest.approx(COSTS[name], rel=0.12)


def test_a_day_of_noise_raises_no_alarm():
    assert alarms(run(Job(5, windows=DAY))) == []


def test_what_ends_is_over():
    drift = Drift()
    notices = run(Job(1, windows=AT + 60, plant=Plant(AT, {"augment": 1.5}), quiet=True), drift)
    assert drift.drifting == ["augment"]
    for window in Job(2, windows=60, quiet=True):
        notices += [(0, notice) for notice in drift.feed(window)]
    assert notices[-1][1].kind == "over"
    assert notices[-1][1].sentence == "Augmentation costs again what it did before."
    assert drift.drifting == []


def test_a_page_cache_that_warms_is_learned_anew_and_what_drifts_then_is_found():
    cold = {"storage": 1.0}
    first = list(Job(1, windows=60, plant=Plant(0, {"storage": 3.0}), quiet=True))
    warm = list(Job(2, windows=60, plant=Plant(0, cold), quiet=True))
    slow = list(Job(3, windows=60, plant=Plant(0, {"storage": 1.25}), quiet=True))
    drift = Drift()
    notices = [notice for window in [*first, *warm, *slow] for notice in drift.feed(window)]
    assert [(notice.kind, notice.stage) for notice in notices] == [("cheaper", "storage"), ("slower", "storage")]
    assert notices[1].before == pytest.approx(COSTS["storage"], rel=0.1)


def test_a_slow_creep_is_found():
    drift = Drift()
    job = Job(4, windows=2000, quiet=True)
    creeping = costing(job, lambda number, stage: math.exp(math.log(1.35) * number / 2000) if stage == "decode" else 1.0)
    notices = [notice for window in creeping for notice in drift.feed(window)]
    assert {named(notice.kind, notice.stage) for notice in notices} == {"decode"}, "near the limit it may be over, and begin again"


def test_a_rise_of_a_tenth_is_no_drift():
    assert alarms(run(Job(6, windows=900, plant=Plant(AT, {"decode": 1.05}), quiet=True))) == []


@pytest.mark.parametrize("factor", [5.0, 100.0])
def test_single_outliers_are_no_drift(factor: float):
    drift = Drift()
    for window in costing(Job(7, windows=400, quiet=True), lambda number, stage: 1.0 if number % 40 else factor):
        assert drift.feed(window) == []


def test_of_a_noisy_figure_only_larger_changes_are_found():
    draw, drift = random.Random(1), Drift()
    for number in range(1, 1000):
        cost = StageSeconds(s=1e-3 * math.exp(draw.gauss(0, 0.15)), batches=9)
        assert drift.feed(Window(time=number, number=number, seconds=30, stages={"decode": cost})) == []


def test_larger_samples_are_given_as_the_reason():
    notices = run(Job(8, windows=AT + 120, plant=Plant(AT, DRIFTS["larger"])))
    kinds = {notice.kind: notice for _, notice in notices if notice.alarm}
    assert "Samples have become larger: 132 kB a sample instead of 110 kB" in kinds["larger"].sentence.replace("133 kB", "132 kB")
    later = [notice for _, notice in notices if notice.alarm and notice.kind != "larger"]
    assert all(notice.cause == "larger-samples" for notice in later)


def test_samples_that_become_larger_are_no_slower_machine():
    """They make all that computes dearer too."""
    larger = {"bytes": 1.4, "storage": 1.3, "decode": 1.4, "augment": 1.4, "collate": 1.4, "cpu": 1.4}
    notices = [notice for _, notice in run(Job(15, windows=AT + 60, plant=Plant(AT, larger), quiet=True)) if notice.alarm]
    assert notices[0].kind == "larger"
    assert {notice.cause for notice in notices[1:]} <= {"larger-samples"}


@pytest.mark.parametrize(
    ("cpu", "cause", "words"),
    [
        (1.0, "busy-machine", "something else keeps the machine busy"),
        (1.4, "more-work", "every sample is more work, or the processors have become slower"),
    ],
)
def test_a_slower_machine_is_one_alarm_of_its_own(cpu: float, cause: str, words: str):
    busy = {"decode": 1.4, "augment": 1.4, "collate": 1.4, "ipc": 1.4, "cpu": cpu}
    drift = Drift()
    notices = run(Job(9, windows=AT + 60, plant=Plant(AT, busy), quiet=True), drift)
    (first,) = [notice for _, notice in notices if notice.alarm]
    assert (first.kind, first.stage, first.cause) == ("machine", None, cause)
    assert first.sentence.startswith("All that computes takes 3") and words in first.sentence
    assert first.before == pytest.approx(COSTS["decode"] + COSTS["augment"] + COSTS["collate"], rel=0.1)
    assert drift.drifting == ["machine"]
    for window in Job(12, windows=60, quiet=True):
        notices += [(0, notice) for notice in drift.feed(window)]
    assert notices[-1][1].sentence == "All that computes costs again what it did before."


def test_a_stage_that_drifts_is_named_on_a_machine_whose_pace_changes_all_the_time():
    """All that computes is up to a third quicker or slower, for half an hour at a time."""
    draw, drift = random.Random(3), Drift()
    paces = [math.exp(draw.uniform(-0.3, 0.3)) for _ in range(AT)]
    job = Job(13, windows=AT + 120, plant=Plant(AT, {"augment": 1.2}), quiet=True)
    paced = costing(job, lambda number, stage: paces[(number - 1) // 60] if stage in MAKING else 1.0)
    notices = [notice for window in paced for notice in drift.feed(window)]
    of_stages = [notice for notice in notices if notice.alarm and notice.kind != "machine"]
    assert [notice.stage for notice in of_stages] == ["augment"]
    assert of_stages[0].ratio == pytest.approx(1.2, abs=0.05)


@pytest.mark.parametrize(("stage", "factor"), [("decode", 0.5), ("augment", 2.0), ("collate", 2.0)])
def test_one_stage_that_changes_says_nothing_of_the_others(stage: str, factor: float):
    notices = run(Job(14, windows=AT + 100, plant=Plant(AT, {stage: factor}), quiet=True))
    assert {notice.stage for _, notice in notices} == {stage}


def test_two_stages_that_compute_are_too_few_to_tell_what_they_share():
    """Then each rises by itself, and the processor time says why."""
    drift, job = Drift(), Job(9, windows=AT + 60, plant=Plant(AT, {"decode": 1.4, "collate": 1.4}), quiet=True)
    without = costing(job, lambda number, stage: 0.0 if stage == "augment" else 1.0)
    raised = [notice for window in without for notice in drift.feed(window) if notice.alarm]
    assert {notice.stage for notice in raised} == {"decode", "collate"}
    assert {notice.cause for notice in raised} == {"busy-machine"}
    assert "something else keeps the machine busy" in raised[0].sentence


def started(before: float, after: float) -> list[Notice]:
    """What is told of a job whose epochs take so many seconds to start, from the twentieth on so many."""
    drift, seconds = Drift(), [before] * 19 + [after] * 40
    windows = [Window(time=number, number=number, seconds=30.0, starts=[each]) for number, each in enumerate(seconds, 1)]
    return [notice for window in windows for notice in drift.feed(window)]


def test_starts_of_epochs_that_take_longer():
    (notice,) = started(1.0, 2.5)
    assert notice.kind == "restarts"
    assert notice.sentence.startswith("Starting an epoch takes 150 % longer: 2.50 s instead of 1.00 s (the job's own beginning)")


def test_starts_that_become_quicker_for_good():
    (notice,) = started(3.0, 1.0)
    assert (notice.kind, notice.stage, notice.alarm) == ("cheaper", None, False)
    assert notice.sentence == "Starting an epoch has become cheaper for good than in the job's own beginning."


# -- baselines -----------------------------------------------------------------------------------------------------------------


def test_a_job_that_is_slower_than_its_baseline_from_the_start():
    baseline = Baseline("run.json", {"storage": COSTS["storage"], "decode": COSTS["decode"] / 1.3})
    notices = run(Job(10, windows=3 * LAST, quiet=True), Drift(baseline))
    assert alarms(notices) == ["decode"]
    assert "instead of 3.08 ms (run.json)" in notices[0][1].sentence
    assert notices[0][0] == LAST


def test_a_cold_first_epoch_is_no_drift_against_a_warm_baseline():
    baseline = Baseline("run.json", {"storage": COSTS["storage"]})
    drift = Drift(baseline)
    for number in range(1, 150):
        storage = COSTS["storage"] * (3.0 if number < PATIENCE else 1.0)
        epoch = 1 if number < PATIENCE else 2
        window = Window(
            time=number, number=number, seconds=30, epochs=epoch, stages={"storage": StageSeconds(s=storage, batches=9)}
        )
        assert drift.feed(window) == []


def test_a_job_below_its_baseline_is_told_so_once():
    baseline = Baseline("run.json", {"decode": COSTS["decode"] * 2})
    notices = run(Job(11, windows=200, quiet=True), Drift(baseline))
    assert [notice.kind for _, notice in notices] == ["cheaper"]


def test_figures_of_too_few_batches_are_left_out():
    drift = Drift()
    for number in range(1, 100):
        cost = StageSeconds(s=1e-3 if number < 50 else 1e-2, batches=1)
        assert drift.feed(Window(time=number, number=number, seconds=30, stages={"decode": cost})) == []
