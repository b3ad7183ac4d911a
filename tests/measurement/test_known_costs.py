"""From the probe to the advice on pipelines whose every cost is known: the clock moves by what their steps say they take."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, SequentialSampler

import pipefix
from pipefix.measurement import calibrate
from tests.doubles.ticks import PROBE, Ticks
from tests.measurement import planted

BATCH = 4
MS = 1e-3


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ticks]:
    clock = Ticks(1e-7).given_to(PROBE, monkeypatch)
    monkeypatch.setattr(planted, "burn", clock.passes)
    monkeypatch.setattr(calibrate, "seam_cost", float)  # clocks that nobody waits for
    yield clock
    planted.forget_calls()


def probed(folder: Path, decode: float, augment: float, collate: float, step: float, budget: float = 4.0, **options: Any) -> Any:
    """Milliseconds a sample; of `collate` and `step`, a batch."""
    planted.forget_calls()
    for place, cost in enumerate((decode, augment, collate)):
        planted.WORK[place] = cost * MS
    return pipefix.probe(planted.loader("map", planted.files(folder), **options), step_ms=step, budget=budget)  # fake clock


@pytest.mark.parametrize(
    ("decode", "augment", "collate", "step", "kind", "stage"),
    [
        (5.0, 1.0, 2.0, 2.0, "input-bound", "decode"),
        (1.0, 6.0, 2.0, 2.0, "input-bound", "augment"),
        (0.2, 0.2, 20.0, 2.0, "input-bound", "collate"),
        (0.2, 0.1, 0.2, 40.0, "step-bound", "step"),
    ],
)
def test_the_verdict_is_that_of_the_costs(
    decode: float, augment: float, collate: float, step: float, kind: str, stage: str, tmp_path: Path, ticks: Ticks
) -> None:
    run = probed(tmp_path, decode, augment, collate, step)
    assert (run.verdict.kind, run.verdict.stage) == (kind, stage)
    costs = {"decode": decode, "augment": augment, "collate": collate / BATCH, "step": step / BATCH}
    costs_ms = {stage.stage: stage.wall_s.value / MS for stage in run.stages if stage.wall_s is not None}
    assert {name: costs_ms[name] for name in costs} == pytest.approx(costs, rel=0.02, abs=0.01)
    whole = sum(costs.values())
    assert run.throughput.delivered.value == pytest.approx(1e3 / whole, rel=0.02)
    gains = {stage.stage: stage.marginal_gain.value for stage in run.stages if stage.marginal_gain is not None}
    assert gains[stage] == pytest.approx(whole / (whole - costs[stage]), rel=0.05)


@pytest.mark.parametrize(("decode", "augment", "stage"), [(400.0, 30.0, "decode"), (30.0, 400.0, "augment")])
def test_batches_of_seconds_get_a_verdict_in_a_budget_of_a_few_of_them(
    decode: float, augment: float, stage: str, tmp_path: Path, ticks: Ticks
) -> None:
    """A batch takes 1.7 s, and four of them are read before the first arm."""
    run = probed(tmp_path, decode, augment, 10.0, 5.0, budget=12.0)  # fake clock
    assert (run.verdict.kind, run.verdict.stage) == ("input-bound", stage), run.verdict.sentence
    gain = next(figures.marginal_gain for figures in run.stages if figures.stage == stage)
    assert gain is not None and gain.how == "measured" and gain.value == pytest.approx(1735 / 135, rel=0.2)
    assert next(arm for arm in run.arms if arm.name == "storage-from-memory").declined


def test_a_sampler_that_takes_longest_is_told_with_what_it_is_worth(tmp_path: Path, ticks: Ticks) -> None:
    class Computing(SequentialSampler):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[int]:
            for index in super().__iter__():
                planted.burn(5.0 * MS)
                yield index

    files = planted.files(tmp_path)
    run = probed(tmp_path, 1.0, 0.5, 2.0, 2.0, sampler=Computing(files))
    assert (run.verdict.kind, run.verdict.stage) == ("input-bound", None), run.verdict.sentence
    assert (
        "the sampler takes 67 % of the time, 5.00 ms a sample; if it were free, throughput would be 3.00x" in run.verdict.sentence
    )


class Unknown:
    """A library that no hook knows."""

    @staticmethod
    def unpack(path: str) -> np.ndarray:
        planted.burn(6.0 * MS)
        return np.zeros((8, 8, 3), np.uint8)


class Inline(planted.Mapped):
    """Calls it in the midst of ``__getitem__``, between calls of its own functions."""

    def __getitem__(self, index: int) -> Any:
        picture = Unknown.unpack(self.paths[index])[:, ::2]
        return planted.augment(picture), str(index)


def test_a_call_of_a_library_that_no_hook_knows_is_named_with_what_it_is_worth(tmp_path: Path, ticks: Ticks) -> None:
    planted.forget_calls()
    planted.WORK[1] = 1.0 * MS
    dataset = Inline(planted.files(tmp_path))
    loader = DataLoader(dataset, batch_size=BATCH, collate_fn=planted.collate)
    run = pipefix.probe(loader, step_ms=0.1, budget=4.0)  # fake clock
    assert (run.verdict.kind, run.verdict.stage) == ("input-bound", "decode"), run.verdict.sentence
    line = Inline.__getitem__.__code__.co_firstlineno + 1
    assert f"decode (Unknown.unpack at test_known_costs.py:{line}) takes" in run.verdict.sentence
    gain = next(figures.marginal_gain for figures in run.stages if figures.stage == "decode")
    assert gain is not None and gain.how == "measured" and gain.value == pytest.approx(7.0, rel=0.2)


def test_what_is_advised_is_worth_what_the_costs_say(tmp_path: Path, ticks: Ticks) -> None:
    """Without workers all stages follow each other: 6 ms of 7 are made, and a step of 1 ms takes them."""
    run = probed(tmp_path, decode=5.0, augment=0.5, collate=2.0, step=4.0)
    proposed = {remedy.id: remedy.speedup for remedy in run.remedies if remedy.status == "proposed" and remedy.speedup is not None}
    assert proposed, [remedy.id for remedy in run.remedies]
    assert all(speedup.value <= 7.0 for speedup in proposed.values()), "none can be faster than the step"
    assert any(identity.startswith("cache") and speedup.value > 1.5 for identity, speedup in proposed.items()), proposed


def test_a_probe_ends_by_the_figures_that_it_tells(tmp_path: Path, ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a timed call is known when the verdict is first asked for, and not only afterwards."""
    seam_costs: list[float] = []
    monkeypatch.setattr(calibrate, "seam_cost", lambda: 1e-6)
    for question in ("settled", "wanting"):
        monkeypatch.setattr(sys.modules["pipefix.api.probe"], question, lambda found: seam_costs.append(found.seam_cost) or ())  # type: ignore[func-returns-value]
    run = probed(tmp_path, 5.0, 1.0, 2.0, 2.0)
    assert run.instrument.seam_cost_s == 1e-6
    assert set(seam_costs) == {1e-6}
