"""A probe from end to end: what is in the run that it returns, whatever the loader's workers."""

from __future__ import annotations

import json
import math
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pipefix
from pipefix.plan.remedy import all_remedies
from pipefix.report import runfile
from pipefix.report.runfile import Run
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.stage import ORDER
from tests.doubles.invariants import broken
from tests.doubles.ticks import PROBE, Ticks

PIPELINE = """
import io
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

HERE = Path(__file__).parent / "samples"


def parse(data):
    return np.load(io.BytesIO(data))


def flip(pixels):
    return torch.from_numpy(np.ascontiguousarray(pixels[::-1])).float().sqrt()


class Samples(Dataset):
    def __init__(self):
        self.paths = sorted(HERE.glob("*.npy"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return flip(parse(self.paths[index].read_bytes())), index % 2


data = Samples()
loader = DataLoader(data, batch_size=8, num_workers=WORKERS, shuffle=True)
model = torch.nn.Linear(32, 2)


def train_step(batch):
    pixels, labels = batch
    loss = torch.nn.functional.cross_entropy(model(pixels).mean(dim=1), labels)
    loss.backward()
"""


def pipeline(folder: Path, workers: int) -> Path:
    import numpy as np

    (folder / "samples").mkdir()
    for index in range(64):
        np.save(folder / "samples" / f"{index:02d}.npy", np.full((32, 32), index, np.float32))
    path = folder / "train.py"
    path.write_text(textwrap.dedent(PIPELINE).replace("WORKERS", str(workers)), encoding="utf-8")
    return path


class Probed(NamedTuple):
    run: Run
    trace: dict[str, Any]
    phases: list[str]
    workers: int


@pytest.fixture(scope="module", params=[0, 2], ids=["no workers", "two workers"])
def probed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Probed:
    folder = tmp_path_factory.mktemp("probed")
    path = pipeline(folder, request.param)
    phases: list[str] = []
    with pytest.MonkeyPatch.context() as during:
        Ticks().given_to(PROBE, during)
        run = pipefix.probe(
            f"{path}:loader",
            budget=4.0,  # fake clock
            trace=folder / "trace.json",
            progress=lambda phase, done: phases.append(phase),
        )
    return Probed(run, json.loads((folder / "trace.json").read_bytes()), phases, request.param)


class TestRun:
    def test_it_is_read_as_it_was_written(self, probed: Probed) -> None:
        written = runfile.encode(probed.run)
        assert runfile.encode(runfile.decode(written, origin="run.json")) == written

    def test_its_head_says_what_was_probed_and_found(self, probed: Probed) -> None:
        run, verdict = probed.run, probed.run.verdict
        assert run.target.endswith("train.py:loader")
        assert (run.settings.batch_size, run.settings.num_workers, run.settings.dataset) == (8, probed.workers, "Samples")
        assert run.consumer == "train_step"
        assert run.machine and not run.partial
        assert run.throughput is not None and run.sample_s is not None and verdict is not None
        assert run.throughput.delivered.value == pytest.approx(1 / run.sample_s.value)
        assert (verdict.stage is not None) == (verdict.kind in ("input-bound", "step-bound"))
        assert 0 <= verdict.confidence <= 1 or math.isnan(verdict.confidence)  # arms decided: nothing was resampled

    def test_every_stage_has_figures_or_says_why_not(self, probed: Probed) -> None:
        assert [one.stage for one in probed.run.stages] == [str(stage) for stage in ORDER]
        for one in probed.run.stages:
            assert (one.wall_s is None) == (one.declined is not None)
        declined = {one.stage: one.declined for one in probed.run.stages if one.declined}
        assert ("ipc" in declined) == (probed.workers == 0)
        assert not {"storage", "decode", "augment", "collate", "step"} & declined.keys()

    def test_intervals_hold_their_values(self, probed: Probed) -> None:
        run = probed.run
        for one in [one.wall_s for one in run.stages] + [one.marginal_gain for one in run.stages] + [run.sample_s]:
            if one is not None and getattr(one, "how", "measured") == "measured":
                assert one.low <= one.value <= one.high

    def test_operations_of_the_file_are_named(self, probed: Probed) -> None:
        names = {op.name for one in probed.run.stages for op in one.ops}
        assert "flip" in names
        assert {"parse", "numpy.load"} & names
        assert probed.run.stages[0].bytes == pytest.approx(32 * 32 * 4 + 128, rel=0.1)

    def test_every_block_of_every_arm_is_kept(self, probed: Probed) -> None:
        arms = {arm.name: arm for arm in probed.run.arms}
        assert len(arms) == len(probed.run.arms)
        assert arms["real"].rates
        assert arms["consumer-alone"].rates
        assert arms["decode-recorded"].replaces == ["decode"]
        for arm in arms.values():
            assert bool(arm.rates) != bool(arm.declined), arm.name
            assert all(rate > 0 for rate in arm.rates)

    def test_nothing_is_told_that_no_evidence_stands_under(self, probed: Probed) -> None:
        assert broken(probed.run) == []

    def test_the_instrument_states_its_own_cost(self, probed: Probed) -> None:
        told = probed.run.instrument
        assert told is not None
        for name in ("seam_cost_s", "slowdown", "seconds", "peak_rss_bytes", "recording_bytes"):
            assert getattr(told, name) > 0, name
        assert told.seams_per_sample is not None and told.seams_per_sample >= 2

    def test_every_remedy_is_proposed_or_declined_with_a_reason(self, probed: Probed) -> None:
        remedies = probed.run.remedies
        assert {one.id for one in remedies} >= {kind.id for kind in all_remedies()} - _families(remedies)
        for one in remedies:
            assert one.why
            if one.status == "proposed":
                assert one.speedup is not None and one.cost is not None and one.command

    def test_the_tail_is_of_single_samples(self, probed: Probed) -> None:
        tail = probed.run.tail
        assert tail is not None and tail.samples > 0
        assert 0 < tail.p50_s <= tail.p95_s <= tail.p99_s <= tail.max_s
        assert tail.head_of_line_s is not None and tail.head_of_line_s >= 0

    def test_waits_are_in_order(self, probed: Probed) -> None:
        waits = probed.run.waits
        assert waits is not None and waits.fed is not None
        assert len(waits.at_s) == len(waits.wait_s) == len(waits.step_s) > 0
        assert waits.at_s == sorted(waits.at_s) and waits.at_s[0] == 0
        assert 0 <= waits.fed <= 1

    def test_progress_was_told(self, probed: Probed) -> None:
        assert probed.phases[0] == "loading the target"
        assert "tracing" in probed.phases
        assert any(phase.startswith("round 1") for phase in probed.phases)


def _families(remedies: list[runfile.RemedyFigures]) -> set[str]:
    """Remedies that come in several sizes carry the size in their name: workers-4, cache-resized-256."""
    said = {one.id for one in remedies}
    return {kind.id for kind in all_remedies() if any(name.startswith(f"{kind.id}-") for name in said)}


class TestTrace:
    def test_waits_and_steps_are_the_training_processes(self, probed: Probed) -> None:
        main = next(event["pid"] for event in probed.trace["traceEvents"] if event.get("args") == {"name": "main"})
        drawn = [event for event in probed.trace["traceEvents"] if event["ph"] == "X"]
        assert {event["pid"] for event in drawn if event["cat"] in ("wait", "step")} == {main}
        makers = {event["pid"] for event in drawn if event["cat"] == "decode"}
        assert (main in makers) == (probed.workers == 0)
        assert len(makers) == max(1, probed.workers)

    def test_operations_say_for_which_sample(self, probed: Probed) -> None:
        drawn = [event for event in probed.trace["traceEvents"] if event["ph"] == "X"]
        samples = {event["args"]["sample"] for event in drawn if event["cat"] == "sample"}
        assert samples <= {str(index) for index in range(64)}
        assert {event["args"]["sample"] for event in drawn if event["cat"] == "decode"} <= samples
        assert all(event["args"]["sample"].startswith("batch ") for event in drawn if event["cat"] in ("wait", "step", "batch"))


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    return Ticks().given_to(PROBE, monkeypatch)


def test_settings_that_nobody_gave_are_a_caveat(tmp_path: Path, ticks: Ticks) -> None:
    path = pipeline(tmp_path, 0)
    run = pipefix.probe(f"{path}:data", budget=0.25)  # fake clock
    caveats = {caveat.id: caveat.sentence for caveat in run.caveats}
    assert "batch_size=32" in caveats["assumed"]
    assert "FILE.py:loader" in caveats["assumed"]


def test_a_given_loader_is_none(tmp_path: Path, ticks: Ticks) -> None:
    path = pipeline(tmp_path, 0)
    run = pipefix.probe(f"{path}:loader", budget=0.25, batch_size=16)  # fake clock
    assert "assumed" not in {caveat.id for caveat in run.caveats}
    assert run.settings.batch_size == 16
    assert run.given == {"batch_size": 16}, "to be repeated so"


def test_an_interrupted_probe_is_a_run_all_the_same(tmp_path: Path, ticks: Ticks) -> None:
    path = pipeline(tmp_path, 0)

    def interrupt(phase: str, done: float) -> None:
        if phase == "recording samples":
            raise KeyboardInterrupt

    run = pipefix.probe(f"{path}:loader", budget=3.0, progress=interrupt, trace=tmp_path / "trace.json")  # fake clock
    assert run.partial
    assert run.verdict is not None
    assert (run.verdict.kind, run.verdict.confidence) == ("inconclusive", 0.0)
    assert [caveat.id for caveat in run.caveats] == ["interrupted"]
    assert runfile.decode(runfile.encode(run), origin="run.json").partial
    assert json.loads((tmp_path / "trace.json").read_bytes())["traceEvents"]


def test_figures_that_do_not_fit_together_are_refused_before_anything_runs(tmp_path: Path) -> None:
    path = pipeline(tmp_path, 0)
    with pytest.raises(BadUsage, match="Both a step of"):
        pipefix.probe(f"{path}:loader", step_ms=3.0, target_rate=10.0)


def test_doctor_of_the_machine_alone() -> None:
    machine, findings = pipefix.doctor()
    assert machine["effective_cores"] > 0
    assert all(isinstance(one, runfile.Finding) for one in findings)
