"""Trials for real: processes that start, are watched, and leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import pipefix
from pipefix.loader.planning.as_planned import with_settings
from pipefix.measurement.consumer import consumer_for
from pipefix.subject.load import load
from pipefix.tuning import usage
from pipefix.tuning.child import EveryNth, TrialWork
from pipefix.tuning.limits import Usage
from pipefix.tuning.space import Settings
from pipefix.tuning.trial import TrialProcesses, can_fork
from pipefix.vocabulary.errors import BadUsage, TargetError
from tests.tuning.paced import Paced, as_list
from tests.tuning.real_trials import Wide, nothing_left

__all__ = ["nothing_left"]  # a fixture


class Failing(Dataset[Any]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise ValueError("sample five is torn")
        return index


@pytest.mark.usefixtures("nothing_left")
def test_a_model_that_cannot_be_fed_is_no_consumer_in_any_trial() -> None:
    subject = replace(load(DataLoader(Paced(0.001), batch_size=8, collate_fn=as_list)), model=torch.nn.Linear(3, 1))
    bench = TrialProcesses(TrialWork(subject, consumer_for, lots=1))
    assert "without a tensor at its top level" in bench.look(Settings(0), lambda _: None).why_none
    with closing(bench.start(Settings(0), lambda _: None)) as trial:
        assert not any(trial.block(0.05).steps)


def test_shared_memory_of_another_program_stays_whatever_number_its_process_has() -> None:
    """With --ipc=host /dev/shm is the machine's, and the numbers of processes are the container's."""
    bench = TrialProcesses(TrialWork(load(DataLoader(Paced(0.0), batch_size=4)), consumer_for, lots=1))
    trial = bench.start(Settings(0), lambda _: None)
    leftover = Path(f"/dev/shm/torch_{trial._process.pid}_1234_0")
    leftover.write_bytes(b"a neighbour's tensor")
    try:
        trial.block(0.01)
        trial.close()
        assert leftover.exists()
    finally:
        leftover.unlink(missing_ok=True)


@pytest.mark.usefixtures("nothing_left")
def test_the_users_own_error_is_told() -> None:
    with pytest.raises(TargetError, match="sample five is torn") as caught:
        pipefix.tune(DataLoader(Failing(), batch_size=8, num_workers=1), budget=3.0)
    assert "Failing" in str(caught.value.user_traceback) or "__getitem__" in str(caught.value.user_traceback)


_COMPUTED_BEFORE = """
import multiprocessing, threading, torch
from pipefix.tuning.trial import _in_a_new_thread
torch.set_num_threads(2)
compute = torch.ones(1 << 20).exp
compute()
process = multiprocessing.get_context("fork").Process(target=compute, daemon=True)
_in_a_new_thread(process.start, threading.Event())
process.join()
assert process.exitcode == 0, process.exitcode
"""


def test_a_trial_computes_where_the_program_has_computed_before() -> None:
    """In a notebook that had trained, no trial gave a batch: it would hang here."""
    subprocess.run([sys.executable, "-c", _COMPUTED_BEFORE], check=True)


def test_what_does_not_fit_together_is_refused() -> None:
    loader: DataLoader[Any] = DataLoader(Paced(0.0), batch_size=4)
    with pytest.raises(BadUsage, match="With 0 trials nothing is tried"):
        pipefix.tune(loader, trials=0)
    with pytest.raises(BadUsage, match="cannot wait 1"):
        pipefix.tune(loader, stall=1.0)
    with pytest.raises(BadUsage, match="There cannot be -1 workers"):
        pipefix.tune(loader, max_workers=-1)
    with pytest.raises(BadUsage, match=r"max_cores: .many. is not a number of CPU cores"):
        pipefix.tune(loader, max_cores="many")


def test_a_copy_of_the_loader_has_the_settings_and_the_loader_keeps_its_own() -> None:
    loader: DataLoader[Any] = DataLoader(Paced(0.0), batch_size=4, shuffle=True, drop_last=True)
    changed = with_settings(loader, **Settings(3, prefetch=4, in_order=False, batch_size=8).arguments())
    assert (changed.num_workers, changed.prefetch_factor, changed.in_order, changed.batch_size) == (3, 4, False, 8)
    assert next(iter(changed.batch_sampler)).__len__() == 8
    assert (loader.num_workers, loader.batch_size, loader.in_order) == (0, 4, True)
    assert with_settings(changed, **Settings(0).arguments()).prefetch_factor is None


def test_lots_share_no_batch_and_leave_none_out() -> None:
    class Numbered:
        iterable = False

        def orders(self) -> Any:
            return iter(range(12))

    lots = [list(EveryNth(Numbered(), number, 3).orders()) for number in range(3)]
    assert sorted(order for lot in lots for order in lot) == list(range(12))


def test_what_a_process_takes_can_be_read() -> None:
    held = torch.ones(8_000_000)
    reading = usage.read([os.getpid()])
    assert reading.memory_bytes > held.numel() * 4
    assert reading.files > 2
    assert usage.cpu_seconds([os.getpid()]) > 0
    assert usage.read([2**22 - 1]) == Usage()
    assert os.getpid() in usage.group(os.getsid(0)) or os.getsid(0) == 0


def test_a_look_reads_files_of_its_own_processes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A login node has thousands of others."""
    read, looked_at = usage._stat, list[int]()
    monkeypatch.setattr(usage, "_stat", lambda pid: (looked_at.append(pid), read(pid))[1])
    assert os.getpid() in usage.group(os.getsid(0)) or os.getsid(0) == 0
    assert not [pid for pid in looked_at if usage._session(pid) not in (None, os.getsid(0))]


def test_without_a_way_to_see_what_trials_take_none_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On macOS no limit was watched, and no process ended."""
    monkeypatch.setattr("pipefix.tuning.trial.ROLLUP", tmp_path / "proc" / "self" / "smaps_rollup")
    assert "smaps_rollup" in (can_fork() or "")
    with pytest.raises(TargetError, match="does not tell what a process takes") as raised:
        pipefix.tune(DataLoader(Failing(), batch_size=8))
    assert raised.value.advice.startswith("It takes Linux")


@pytest.mark.usefixtures("nothing_left")
def test_handing_over_through_reused_memory_runs_and_leaves_nothing() -> None:
    files = usage.read([os.getpid()]).files
    subject = load(DataLoader(Wide(), batch_size=8))
    bench = TrialProcesses(TrialWork(subject, partial(consumer_for, step_ms=5.0), lots=1))
    with closing(bench.start(Settings(2, engine="processes"), lambda _: None)) as trial:
        blocks = [trial.block(0.15) for _ in range(2)]  # of one that the machine holds up, two turns are left
        assert all(block.rate > 0 for block in blocks)
        assert sum(len(block.turns) for block in blocks) > 2
        assert all(0 <= block.stall < 1 for block in blocks)
        assert trial.used.files < files + 60, "no descriptor for each of 20 tensors of 4 batches"
