"""Trials for real: processes that start, are watched, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import pipefix
from pipefix.measurement.consumer import consumer_for
from pipefix.plan import planfile
from pipefix.subject.load import load
from pipefix.tuning import trial as trials
from pipefix.tuning.child import TrialWork
from pipefix.tuning.space import Settings
from pipefix.tuning.trial import TrialProcesses
from tests.tuning.paced import Paced, as_list
from tests.tuning.real_trials import Wide, alive, children, nothing_left, state

__all__ = ["nothing_left"]  # a fixture


@pytest.mark.usefixtures("nothing_left")
def test_a_slow_loader_is_given_workers_and_a_plan(tmp_path: Path) -> None:
    loader: DataLoader[Any] = DataLoader(Paced(0.004), batch_size=4, collate_fn=as_list)
    threads = torch.get_num_threads()
    tuned = pipefix.tune(loader, budget=5.0, trials=3, max_workers=4, write=tmp_path / "pipefix.plan.toml")
    assert tuned.settings.num_workers is not None and tuned.settings.num_workers >= 2
    assert tuned.evidence is not None
    assert tuned.evidence.after.value > 1.3 * tuned.evidence.before.value
    assert 1 < len(tuned.trials) <= 5
    assert tuned.certificate.fed is None
    assert planfile.read(tmp_path / "pipefix.plan.toml") == tuned.plan
    assert loader.num_workers == 0, "the user's own loader is left as it was"
    assert torch.get_num_threads() == threads
    assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ


@pytest.mark.usefixtures("nothing_left")
def test_an_emulated_consumer_that_is_fed_keeps_its_settings_and_writes_nothing(tmp_path: Path) -> None:
    loader: DataLoader[Any] = DataLoader(Paced(0.0005), batch_size=2, num_workers=1, persistent_workers=True, collate_fn=as_list)
    tuned = pipefix.tune(loader, step_ms=40, stall=0.2, budget=4.0, trials=1, write=tmp_path / "pipefix.plan.toml")
    assert not tuned.changed
    assert tuned.certificate.fed
    assert tuned.certificate.emulated
    assert "The emulated consumer (40 ms a batch) is fed" in tuned.certificate.sentence
    assert tuned.certificate.demand == pytest.approx(50, rel=0.1)
    assert not list(tmp_path.iterdir())


GROWING = """
import json, os, sys
sys.path.insert(0, {root!r})
from torch.utils.data import DataLoader
from tests.tuning.limited import Hungry
from pipefix.tuning import usage
import pipefix
limit = usage.read([os.getpid()]).memory_bytes + 600e6
loader = DataLoader(Hungry(4_000_000_000, seconds=0.002), batch_size=8, num_workers=1)
tuned = pipefix.tune(loader, budget=300.0, trials=1, max_memory=limit, max_workers=1)
print(json.dumps([[one.status, one.used and one.used.memory_bytes / limit] for one in tuned.trials]))
"""


def test_a_trial_that_outgrows_its_memory_is_ended(root: Path) -> None:
    """In a process of its own: pages that a large one shares with its trials count for each of them in part only.

    The worker grows by 500 MB a second at most, so that a watcher who comes late still comes in time; and the trial is given many
    times as long as that takes, for it is over as soon as it is ended.
    """
    told = subprocess.run([sys.executable, "-c", GROWING.format(root=str(root))], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    trials = json.loads(told.stdout)
    assert any(status in ("ended", "refused") for status, _ in trials), trials
    assert all(used is None or used < 1 for status, used in trials if status == "ended"), trials


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("engine", [None, "processes"])
def test_workers_stand_still_between_blocks(engine: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a trial had asked for ahead would be made while another is measured beside it."""
    monkeypatch.setattr(trials, "LEAVING", 60.0)  # a busy machine needs a part of it, and whoever stands still needs it all
    subject = load(DataLoader(Wide(), batch_size=8))
    before = set(children())
    trial = TrialProcesses(TrialWork(subject, lambda one: consumer_for(one), lots=1)).start(
        Settings(2, engine=engine), lambda _: None
    )
    try:
        for _ in range(2):
            assert trial.block(0.2).rate > 0
            until = time.monotonic() + 60
            still: list[int] = []
            while len(still) < 2 and time.monotonic() < until:
                time.sleep(0.01)
                still = [pid for pid in set(children()) - before if state(pid) == "T"]
            assert len(still) == 2
    finally:
        begun = time.monotonic()
        trial.close()
    assert time.monotonic() - begun < 50, "they are woken up to end"
    assert trial._process.exitcode == 0


KILLED = """
import sys
sys.path.insert(0, {root!r})
from torch.utils.data import DataLoader
from tests.tuning.paced import Paced, as_list
import pipefix
print("ready", flush=True)
pipefix.tune(DataLoader(Paced(0.01), batch_size=4, num_workers=2, collate_fn=as_list), budget=60.0)
"""


def test_nothing_outlives_a_tuner_that_is_killed(root: Path) -> None:
    before = set(children())
    process = subprocess.Popen([sys.executable, "-c", KILLED.format(root=str(root))], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    until = time.monotonic() + 60
    while len(born := set(children()) - before - {process.pid}) < 3 and time.monotonic() < until:
        time.sleep(0.02)
    assert len(born) >= 3
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    until = time.monotonic() + 40
    while (left := [pid for pid in born if alive(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left
