"""Samples that leave, hang, or raise what is no error: each is told with its index and the user's frames."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import connection, current_process
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from pipefix.hooks import torch_internals
from pipefix.measurement import failing, run_arms, worker_endings
from pipefix.measurement.experiments import PLAIN
from pipefix.measurement.worker_endings import Sockets
from pipefix.subject import failure
from pipefix.vocabulary import tracebacks
from pipefix.vocabulary.errors import TargetError
from tests.measurement.planted import pool

BAD = 5


class Acting(Dataset[Any]):
    """One sample does what it must not."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == BAD:
            self.act()
        return torch.zeros(1)


def leave() -> None:
    sys.exit(0)


def interrupt() -> None:
    raise KeyboardInterrupt("used as control flow")


def hang() -> None:
    lock = threading.Lock()
    with lock, lock:
        pass


def ended(act: Callable[[], object], workers: int, **options: Any) -> TargetError:
    built = DataLoader(Acting(act), batch_size=2, num_workers=workers)
    running = pool(built, **options)
    try:
        with pytest.raises(TargetError) as raised:
            running.block(PLAIN, 5.0)
        return raised.value
    finally:
        running.close(at_once=True)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(("act", "raised"), [(leave, "SystemExit: 0"), (interrupt, "KeyboardInterrupt: used as control flow")])
def test_what_is_no_error_is_told_as_one(act: Callable[[], object], raised: str, workers: int) -> None:
    error = ended(act, workers)
    assert f"dataset[{BAD}] raised {raised}" in str(error)
    assert f"in {act.__name__}" in (error.user_traceback or "")
    assert error.exit_code == 3


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_hangs_is_interrupted_where_it_is(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_arms, "OUTLIVES", 50.0)  # half a second after the worker's limit, a busy one has not answered yet
    error = ended(hang, workers, limit=1.0)
    assert f"dataset[{BAD}] raised TimeoutError: interrupted by pipefix after 1 s without an answer" in str(error)
    assert "in hang" in (error.user_traceback or "")


def deaf() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(600)


def test_a_worker_that_cannot_be_interrupted_is_given_up() -> None:
    assert "No worker handed over a batch for 1.5 s" in str(ended(deaf, 1, limit=1.0))


class Stubborn(Dataset[Any]):
    """Later samples are made by workers that no signal but the last ends."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> Any:
        if index >= 2:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            deaf()
        return torch.zeros(1)


def test_workers_that_hear_nothing_are_soon_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each signal had a second: three of them, after Ctrl-C."""
    waited: list[float] = []

    def wait_noted(sentinels: list[Any], seconds: float) -> list[Any]:
        ended = connection.wait(sentinels, seconds)
        if not ended:
            waited.append(seconds)
        return ended

    monkeypatch.setattr(worker_endings, "wait", wait_noted)
    iterator = iter(DataLoader(Stubborn(), batch_size=1, num_workers=2))
    next(iterator)
    processes = torch_internals.processes_of(iterator)
    worker_endings.abandon(iterator)
    assert not any(process.is_alive() for process in processes)
    assert sum(waited) <= 2 * worker_endings.SILENCE


def test_ctrl_c_stays_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt) as raised:
        signal.raise_signal(signal.SIGINT)
    assert not failure.is_raised_by_code(raised.value)
    with pytest.raises(KeyboardInterrupt) as thrown:
        interrupt()
    assert failure.is_raised_by_code(thrown.value)


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="there are no real-time signals")
def test_a_death_by_a_signal_without_a_name_is_told() -> None:
    """``signal.Signals`` knows the first and the last of the real-time signals only."""
    death = RuntimeError("DataLoader worker (pid 1) is killed by signal")
    error = failing.raised("The loader", death, [SimpleNamespace(exitcode=-35)])
    assert "it was killed by signal 35" in str(error)
    assert error.advice == "Probe with --workers 0 to see the error itself."


def test_frames_of_a_file_called_like_us_are_the_users() -> None:
    here = Path(failure.__file__).resolve().parents[1]
    assert tracebacks.is_ours(str(here / "subject" / "failure.py"))
    assert not tracebacks.is_ours(str(here.parent / "pipefix_demo.py"))


def test_the_sockets_folder_goes_and_nothing_foreign_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another test may have given this process a folder of multiprocessing's own.
    monkeypatch.setitem(current_process()._config, "tempdir", None)  # type: ignore[attr-defined]
    for foreign in (False, True):
        sockets = Sockets()
        with sockets.given(None):
            pass
        assert sockets._folder is not None
        folder = Path(sockets._folder)
        for name in ["listener-a1", "pym-3-b2", *(["notes.txt"] if foreign else [])]:
            (folder / name).touch()
        sockets.remove()
        assert sorted(path.name for path in folder.glob("*")) == (["notes.txt"] if foreign else [])
        assert folder.exists() == foreign
        if foreign:
            (folder / "notes.txt").unlink()
            folder.rmdir()
