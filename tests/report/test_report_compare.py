"""Comparing two runs: ratios with intervals, a gate that noise does not open, and runs that are not alike refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pipefix.report import terminal
from pipefix.report.compare import Comparison, compare, ratio
from pipefix.report.program_figures import ProgramFigures
from pipefix.report.runfile import Run, StageFigures, Throughput, read
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.quantity import Interval, exactly
from pipefix.vocabulary.settings import LoaderSettings

RUNS = Path(__file__).resolve().parents[2] / "fixtures" / "runs"
MACHINE = {"cpu_model": "A", "effective_cores": 4.0, "logical_cores": 8, "memory_bytes": 64e9, "system": "Linux", "gpus": []}


def a_run(rate: float, spread: float = 0.02, **changes: Any) -> Run:
    delivered = Interval(rate, rate * (1 - spread), rate * (1 + spread))
    stages = [
        StageFigures(stage="storage", wall_s=Interval(1e-3, 0.9e-3, 1.1e-3), share=0.2),
        StageFigures(stage="decode", wall_s=Interval(3.1e-3, 3.0e-3, 3.2e-3), share=0.7),
    ]
    run = Run(
        target="data.py:loader", machine=MACHINE, consumer="train_step", throughput=Throughput(delivered=delivered), stages=stages
    )
    return replace(run, **changes)


def faster_decode(run: Run) -> Run:
    decode = StageFigures(stage="decode", wall_s=Interval(1.2e-3, 1.15e-3, 1.25e-3), share=0.4)
    return replace(run, stages=[run.stages[0], decode])


def test_a_comparison_in_full() -> None:
    after = faster_decode(a_run(1153, settings=LoaderSettings(num_workers=4), partial=True))
    assert terminal.lines(compare(a_run(812), after).document(), width=80) == [
        "pipefix compare data.py:loader",
        "─" * 80,
        "RESULT   Delivered 1.42x (1.38-1.46): 812 -> 1,153 samples/s; decode 3.10 ->",
        "         1.20 ms/sample.",
        "BEFORE   no verdict",
        "         data.py:loader",
        "AFTER    no verdict",
        "         data.py:loader",
        "─" * 80,
        "",
        "Seconds a sample, after over before",
        "  stage           after/before            a sample         share",
        "  storage  1.00x (0.87-1.15) ~  1.00 ms -> 1.00 ms  20 % -> 20 %",
        "  decode     0.39x (0.37-0.41)  3.10 ms -> 1.20 ms  70 % -> 40 %",
        "  ~ within noise",
        "",
        "Changed settings",
        "  - num_workers: 0 -> 4",
        "",
        "Doubts",
        "  - The second run was interrupted: its figures are what was known by then.",
    ]


def test_a_difference_within_noise_is_called_that() -> None:
    comparison = compare(a_run(100), a_run(101))
    assert not comparison.settled
    assert (
        comparison.sentence == "No change that these runs can tell from noise: delivered 1.01x (0.98-1.04), 100 -> 101 samples/s."
    )


def test_runs_too_short_for_an_interval_are_not_told_to_show_no_change() -> None:
    """70x of two probes of a few seconds was called no change."""
    told = compare(a_run(10, spread=math.inf), a_run(700, spread=math.inf)).sentence
    assert told == "Probed for too short to tell a change from noise: delivered 70.0x (no interval), 10 -> 700 samples/s."


def test_errors_add_in_quadrature() -> None:
    quotient = ratio(Interval(100, 90, 110), Interval(100, 100, 100))
    assert (quotient.low, quotient.high) == (pytest.approx(0.9), pytest.approx(1.1))
    both = ratio(Interval(100, 90, 110), Interval(100, 90, 110))
    assert both.low < 0.9
    assert both.high > 1.1
    assert both.high < 1.1 / 0.9


positive = st.floats(min_value=1e-6, max_value=1e6)


@given(positive, positive, positive, positive)
def test_a_ratio_lies_within_its_interval_and_turns_over(before: float, two: float, spread: float, other: float) -> None:
    above, below = (
        Interval(before, before / (1 + spread), before * (1 + spread)),
        Interval(two, two / (1 + other), two * (1 + other)),
    )
    quotient, turned = ratio(above, below), ratio(below, above)
    assert quotient.low <= quotient.value <= quotient.high
    assert turned.low * quotient.high == pytest.approx(1.0, rel=1e-6)


def test_an_interval_without_an_end_settles_nothing() -> None:
    quotient = ratio(Interval(2, float("-inf"), float("inf")), exactly(1.0))
    assert (quotient.low, quotient.value, quotient.high) == (float("-inf"), 2.0, float("inf"))
    once = compare(a_run(100), a_run(80, spread=float("inf")), max_regression=0.05)
    assert once.gate is not None and "delivers 0.80x (no interval) of the first" in once.gate, "it was at least 0.00"


def against(rate: float, spread: float, limit: float) -> Comparison:
    return compare(a_run(100, spread), a_run(rate, spread), max_regression=limit)


@pytest.mark.parametrize(
    ("rate", "spread", "limit", "expected"),
    [
        (80, 0.01, 0.05, True),
        (96, 0.01, 0.05, False),  # a loss, and a small one
        (97, 0.001, 0.02, True),
        (80, 0.30, 0.05, False),  # too noisy to stop anybody's merge
        (100, 0.01, 0.0, False),
        (130, 0.01, 0.05, False),
        (98, 0.001, 0.0, True),
    ],
)
def test_the_gate(rate: float, spread: float, limit: float, expected: bool) -> None:
    assert against(rate, spread, limit).regressed is expected


def test_the_gate_says_what_it_found() -> None:
    allowed = "of the first; a loss of at most 5.0 % was allowed"
    assert against(80, 0.01, 0.05).gate == f"Regression: the second run delivers 0.80x (0.79-0.81) {allowed}."
    assert against(99, 0.01, 0.05).gate == f"No regression: the second run delivers 0.99x (0.98-1.00) {allowed}."
    unsure = against(80, 0.3, 0.05).gate
    assert unsure is not None and unsure.startswith("No regression that is certain: ")
    assert unsure.endswith("Longer probes would settle it.")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"target": "other.py"}, "their targets differ (data.py:loader and other.py)"),
        ({"target": "data.py:other"}, "their targets differ (data.py:loader and data.py:other)"),
        ({"machine": {**MACHINE, "cpu_model": "B"}}, "their processors differ (A and B)"),
        ({"machine": {**MACHINE, "effective_cores": 2.0}}, "their usable CPUs differ (4 and 2)"),
        ({"machine": {**MACHINE, "gpus": [{"name": "T4"}]}}, "their GPUs differ (none and T4)"),
        ({"machine": {**MACHINE, "memory_bytes": 32e9}}, "their memories differ (64.0 GB and 32.0 GB)"),
        ({"consumer": "emulated, 5 ms"}, "their consumers differ (train_step and emulated, 5 ms)"),
        ({"throughput": Throughput(delivered=exactly(5.0), unit="rows/s")}, "their units differ (samples/s and rows/s)"),
    ],
)
def test_runs_that_are_not_alike_are_refused_unless_forced(changes: dict[str, Any], reason: str) -> None:
    other = replace(a_run(100), **changes)
    with pytest.raises(BadUsage) as caught:
        compare(a_run(100), other)
    assert str(caught.value) == f"These two runs cannot be compared: {reason}."
    assert caught.value.advice == "To compare them all the same, add --force (in Python force=True)."
    assert compare(a_run(100), other, force=True).doubts[0] == f"Forced: {reason}."


def test_two_emulated_consumers_must_be_the_same() -> None:
    slow, fast = (a_run(100, consumer=f"emulated, {step} ms a step") for step in (5, 9))
    with pytest.raises(BadUsage, match="their consumers differ"):
        compare(slow, fast)
    assert compare(slow, slow).doubts == []


def test_the_steps_of_a_program_need_not_take_the_same_time_to_the_microsecond() -> None:
    """Of two probes inside programs, which emulate the step as it was timed there, none could be compared."""
    first, second = (a_run(100, target="train.py:14", consumer=f"emulated: {ms} ms a batch") for ms in (12.345, 12.402))
    told = "The program's step is emulated as long as it took there: 12.345 ms a batch, and then 12.402 ms a batch."
    assert compare(first, second).doubts == [told]


@pytest.mark.parametrize("figures", [None, Throughput(delivered=exactly(float("nan"))), Throughput(delivered=exactly(0.0))])
def test_a_run_without_throughput_cannot_even_be_forced(figures: Throughput | None) -> None:
    with pytest.raises(BadUsage) as caught:
        compare(a_run(100), replace(a_run(1), throughput=figures), force=True)
    assert str(caught.value) == "The second run, of data.py:loader, holds no throughput: there is nothing to compare."


def test_a_programs_run_says_how_a_rate_is_measured_in_it() -> None:
    """It was told to make a fresh run file of a target that a program does not have."""
    program = replace(a_run(1), throughput=None, program=ProgramFigures(command=["train.py"], exit_code=0, seconds=9.0))
    with pytest.raises(BadUsage) as caught:
        compare(program, a_run(100))
    assert caught.value.advice.endswith("pipefix run --probe PROGRAM")


def test_checkouts_in_other_places_are_the_same_target() -> None:
    comparison = compare(a_run(100, target="/ci/1/data.py:loader"), a_run(100, target="/ci/2/data.py:loader"))
    assert comparison.doubts == ["The targets lie in different places: /ci/1/data.py:loader and /ci/2/data.py:loader."]


@pytest.mark.parametrize(
    ("before", "after", "alike"),
    [
        ("/data/imagenet/train", "/data/cifar10/train", False),
        ("/data/imagenet/train/", "/data/imagenet/train", True),
        ("/data/imagenet/train", "imagenet/train", True),
        ("./train", "train", True),
        ("/data/imagenet/train", "train.py", False),
        ("/data/mytrain", "train", False),
        ("/ci/1/train.py:14", "/ci/2/train.py:15", False),
    ],
)
def test_folders_are_the_same_target_only_where_their_paths_agree(before: str, after: str, alike: bool) -> None:
    runs = a_run(100, target=before), a_run(100, target=after)
    if alike:
        assert compare(*runs)
    else:
        with pytest.raises(BadUsage, match="their targets differ"):
            compare(*runs)


def test_what_makes_one_doubt_is_said() -> None:
    versions = {**MACHINE, "versions": {"torch": "2.9", "pillow": "11"}}, {**MACHINE, "versions": {"torch": "2.10", "pillow": "11"}}
    comparison = compare(a_run(100, machine=versions[0]), a_run(100, machine=versions[1], partial=True))
    assert comparison.doubts == [
        "The second run was interrupted: its figures are what was known by then.",
        "Library versions differ: torch 2.9 -> 2.10.",
    ]
    assert compare(a_run(100, machine={}), a_run(100)).doubts == ["The first run does not say on which machine it was made."]


def test_a_run_beside_itself_is_told() -> None:
    same = "Both files hold one and the same run: this compares it with itself."
    run = a_run(100, created="2026-11-20T14:03:27+01:00", partial=True)
    assert same in compare(run, run).doubts
    assert same not in compare(run, replace(run, created="2026-11-20T14:09:27+01:00")).doubts


def test_a_stage_that_only_one_run_measured_is_shown_with_a_dash() -> None:
    before = replace(a_run(100), stages=[*a_run(100).stages, StageFigures(stage="ipc", declined="no workers")])
    after = replace(a_run(100), stages=[*a_run(100).stages, StageFigures(stage="ipc", wall_s=exactly(1e-4))])
    row = next(line for line in terminal.lines(compare(before, after).document()) if "ipc" in line)
    assert row.split() == ["ipc", "-", "-", "->", "100", "µs", "-", "->", "-"]


def test_what_lies_beside_the_rate_is_what_the_runs_hold() -> None:
    slow = read(RUNS / "decode-bound-workers.json")
    busy = replace(slow, machine={**slow.machine, "while_measured": {"nvml_utilisation": 0.4}}, startup=None)
    assert [(change.what, change.before, change.after) for change in compare(slow, busy).beside] == [
        ("consumer fed", "40 %", "40 %"),
        ("GPU busy", "unknown", "40 %"),
        ("first batch", "430 ms", "unknown"),
        ("first batch of a later epoch", "310 ms", "unknown"),
        ("a sample, median", "2.91 ms", "2.91 ms"),
        ("a sample, 99th percentile", "6.71 ms", "6.71 ms"),
        ("peak memory", "2.31 GB", "2.31 GB"),
    ]
    page = compare(slow, busy).html()
    assert all(figure in page for figure in ("GPU busy", "a sample, 99th percentile", "2.31 GB"))
