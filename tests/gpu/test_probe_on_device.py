"""Whole probes with a device: its stage, what the device waits for, and verdicts where the truth is planted."""

from __future__ import annotations

import itertools
import json
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset

import pipefix
from pipefix.diagnosis.attribution import exposed_share
from pipefix.measurement import experiments
from pipefix.measurement.consumer import UserStep
from pipefix.measurement.worker_probe import close_fetchers
from pipefix.report.runfile import Run
from pipefix.vocabulary import quantity
from tests.gpu.conftest import Note
from tests.gpu.test_border import cycles_of
from tests.measurement import planted

pytestmark = pytest.mark.gpu

SUPPLIED = """
import time
import torch
from torch.utils.data import DataLoader, Dataset


class Supplied(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        time.sleep(SUPPLY / 1e3)
        return torch.ones(3, 32, 32)


loader = DataLoader(Supplied(), batch_size=4, num_workers=2, pin_memory=PINNED)


def train_step(batch):
    batch.to("cuda", non_blocking=True)
    torch.cuda._sleep(CYCLES)
"""

Probe = Callable[..., Run]


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    """Probe a loader that supplies a batch every 2 x ``supply`` ms to a device that takes ``demand`` ms for one."""

    def run(*, supply: float, demand: float, pinned: bool = False, budget: float = 8.0) -> Run:
        text = SUPPLIED.replace("SUPPLY", str(supply)).replace("CYCLES", str(cycles_of(demand))).replace("PINNED", str(pinned))
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return pipefix.probe(f"{path}:loader", budget=budget, trial_workers=())

    return run


class TestRun:
    def test_the_transfer_stage_is_there(self, probe: Probe, note: Note) -> None:
        run = probe(supply=1.0, demand=3.0)
        stage = next(one for one in run.stages if one.stage == "transfer")
        assert stage.declined is None
        assert stage.wall_s is not None
        assert stage.wall_s.value > 0
        assert {op.name for op in stage.ops} == {"copy from pinned memory", "copy from ordinary memory", "copy into pinned memory"}
        note("48 kB batch, pinned copy a sample", quantity.seconds(stage.wall_s.value))
        pinning = next(one for one in run.remedies if one.id == "pinning")
        assert "no CUDA device" not in pinning.why

    def test_what_nvml_said_is_kept_beside_the_machine(self, probe: Probe) -> None:
        run = probe(supply=1.0, demand=3.0)
        assert run.machine["gpus"]
        assert all(value >= 0 for value in run.machine.get("while_measured", {}).values())

    @pytest.mark.parametrize("pinned", [False, True])
    @pytest.mark.parametrize(("supply", "demand", "fed", "within"), [(10.0, 4.0, 0.2, 0.06), (1.0, 12.0, 1.0, 0.03)])
    def test_what_is_slow_decides(
        self, probe: Probe, note: Note, supply: float, demand: float, fed: float, within: float, *, pinned: bool
    ) -> None:
        run = probe(supply=supply, demand=demand, pinned=pinned)
        assert run.verdict is not None
        assert run.waits is not None
        assert run.waits.fed is not None
        note(f"supply {2 * supply:g} ms, demand {demand:g} ms, pinned {pinned}", f"{run.verdict.kind}, {run.waits.fed:.1%} fed")
        assert (run.verdict.kind == "step-bound") == (fed == 1.0)
        assert run.waits.fed == pytest.approx(fed, abs=within)


class Steady(Dataset[Any]):
    """One batch a sample, so many milliseconds each."""

    def __init__(self, milliseconds: float) -> None:
        self.seconds = milliseconds / 1e3

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        until = time.perf_counter() + self.seconds
        time.sleep(0.8 * self.seconds)
        while time.perf_counter() < until:
            pass
        return torch.ones(16)


class TestExposedWait:
    """What the loop says the device waited for, against what the profiler saw of it."""

    @pytest.mark.parametrize(("supply", "demand"), [(10.0, 3.0), (10.0, 6.0), (10.0, 9.0), (4.0, 10.0)])
    def test_it_agrees_with_the_profiler_within_a_hundredth(self, supply: float, demand: float, note: Note, tmp_path: Path) -> None:
        spin = cycles_of(demand)
        built = DataLoader(Steady(supply), batch_size=1, num_workers=1, prefetch_factor=4)
        running = planted.pool(built, UserStep(lambda batch: torch.cuda._sleep(spin)))
        try:
            running.block(experiments.PLAIN, 0.2)
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
                block = running.block(experiments.PLAIN, 2.0)
        finally:
            running.close()
            close_fetchers()
        idle = self.idle(seen, tmp_path / "kineto.json", len(block.rows))
        found = exposed_share([block], 2)
        note(f"supply {supply:g} ms, demand {demand:g} ms", f"exposed wait {found:.2%}, by the profiler {idle:.2%}")
        assert found == pytest.approx(idle, abs=0.01)
        # Of what is planted, within more: handing a batch over takes part of a millisecond, which makes the supply slower.
        assert found == pytest.approx(max(0.0, 1 - demand / supply), abs=0.08)

    @staticmethod
    def idle(seen: Any, path: Path, last: int) -> float:
        """Part of the time in which none of the last so many kernels ran or had been launched: from a launch to its kernel's begin
        some 0.1 ms pass under the profiler, in which no data is waited for."""
        seen.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        launched = {event["args"]["correlation"]: event["ts"] for event in events if event.get("cat") == "cuda_runtime"}
        kernels = sorted(
            (event["ts"], event["dur"], launched[event["args"]["correlation"]]) for event in events if event.get("cat") == "kernel"
        )[-last:]
        assert len(kernels) == last
        waits = [max(0.0, launch - (begun + duration)) for (begun, duration, _), (_, _, launch) in itertools.pairwise(kernels)]
        return float(sum(waits) / (kernels[-1][0] - kernels[0][0]))
