"""After a probe everything is as before it: random state, objects, modules, processes, descriptors, files."""

from __future__ import annotations

import builtins
import io
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from torch.utils.data import DataLoader
from torchvision import transforms

import pipefix
from pipefix.measurement import schedule
from pipefix.vocabulary.errors import TargetError
from tests.doubles.ticks import PROBE, Ticks
from tests.manners.residue import NOTHING, held, note_forks, settled
from tests.subject import pipelines

BUDGET = 1.0


@pytest.fixture(scope="module", autouse=True)
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Other programs write into the machine's own."""
    kept = tempfile.tempdir
    tempfile.tempdir = str(tmp_path_factory.mktemp("temporary"))
    yield
    tempfile.tempdir = kept


@pytest.fixture(autouse=True)
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    Ticks(5e-4).given_to(PROBE, monkeypatch)


@pytest.fixture(scope="module", autouse=True)
def warmed(own_temporary_folder: None) -> Iterator[None]:
    """Libraries open what they keep (thread pools, a resource tracker) the first time they are used."""
    with pytest.MonkeyPatch.context() as patches:
        note_forks(patches)
        with pytest.MonkeyPatch.context() as clock:
            Ticks(5e-4).given_to(PROBE, clock)
            _probe_once()
        yield


def _probe_once() -> None:
    for workers in (0, 1):
        pipefix.probe(pipelines.loader("map", workers), budget=BUDGET)


def test_the_objects_of_a_probe_in_the_training_process() -> None:
    composed = transforms.Compose([pipelines.soften, transforms.RandomHorizontalFlip()])
    operations = list(composed.transforms)

    class Held(pipelines.Map):
        def __init__(self) -> None:
            super().__init__()
            self.transform, self.function, self.listed = composed, pipelines.soften, [pipelines.soften]

        def __getitem__(self, index: int) -> Any:
            return self.listed[0](self.function(self.transform(pipelines.work(index))))

    theirs = DataLoader(Held(), batch_size=4, shuffle=True)
    dataset: Any = theirs.dataset
    parts, whole, kind = dict(vars(dataset)), dict(vars(theirs)), dict(vars(Held))
    module = {name: value for name, value in vars(pipelines).items() if not name.startswith("__")}
    listed = list(dataset.listed)
    pipefix.probe(theirs, budget=BUDGET)
    assert list(vars(dataset)) == list(parts) and all(vars(dataset)[name] is value for name, value in parts.items())
    assert list(vars(theirs)) == list(whole) and all(vars(theirs)[name] is value for name, value in whole.items())
    assert dict(vars(Held)) == kind
    assert composed.transforms == operations and dataset.listed == listed
    assert all(vars(pipelines)[name] is value for name, value in module.items())


LIBRARIES: list[tuple[Any, str]] = [
    (builtins, "open"), (io, "open"), (os, "open"), (os, "read"), (os, "stat"), (Image, "open"), (Image.Image, "load"),
    (ImageFile.ImageFile, "load"), (np, "load"), (np, "fromfile"), (torch, "load"), (torch, "stack"), (torch.Tensor, "backward"),
    (transforms.Compose, "__call__"), (sys, "excepthook"), (threading.Thread, "start"),
]  # fmt: skip


@pytest.mark.parametrize("workers", [0, 2])
def test_libraries_and_the_interpreter(workers: int) -> None:
    from multiprocessing import connection, queues

    def state() -> list[Any]:
        named = [getattr(owner, name) for owner, name in LIBRARIES]
        ours = dict(vars(connection.Connection))
        assert "poll" not in ours, "an earlier probe has left its wrapper behind"
        interpreter = [
            sys.getrecursionlimit(),
            signal.getsignal(signal.SIGINT),
            sys.argv,
            sys.path[:],
            os.getcwd(),
            dict(os.environ),
        ]
        torch_s = [torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype()]
        return [*named, ours, queues._ForkingPickler, *interpreter, *torch_s]

    before = state()
    pipefix.probe(pipelines.loader("map", workers), budget=BUDGET)
    assert state() == before


def test_with_workers_the_parent_never_asks_the_dataset() -> None:
    theirs = pipelines.loader("map", 2)
    assert isinstance(theirs.dataset, pipelines.Map)
    pipefix.probe(theirs, budget=BUDGET)
    assert theirs.dataset.asked_in == {}


def test_a_user_s_own_iterator_goes_on() -> None:
    theirs = DataLoader(pipelines.Map(), batch_size=4, num_workers=1, persistent_workers=True)
    iterator = iter(theirs)
    first = next(iterator)[1].tolist()
    pipefix.probe(theirs, budget=BUDGET)
    assert theirs._iterator is iterator
    assert [first, *(batch[1].tolist() for batch in iterator)] == [list(range(at, at + 4)) for at in range(0, pipelines.LENGTH, 4)]
    iterator._shutdown_workers()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("kind", "workers"), [("map", 0), ("sized stream", 2)])
def test_nothing_is_left_behind(kind: str, workers: int) -> None:
    before = held()
    pipefix.probe(pipelines.loader(kind, workers), budget=BUDGET, trial_workers=(1,))
    assert settled(before) == NOTHING


def fail_at_3(index: int) -> None:
    if index == 3:
        raise ValueError("a torn sample")


class Torn(pipelines.Map):
    def __getitem__(self, index: int) -> Any:
        fail_at_3(index)
        return super().__getitem__(index)


class Ended(pipelines.Map):
    def __getitem__(self, index: int) -> Any:
        if index == 6:
            os._exit(3)
        return super().__getitem__(index)


def interrupting(beginning: str) -> Any:
    """Interrupts the probe, as Ctrl-C would, in its phase that begins so."""

    def progress(phase: str, done: float) -> None:
        if phase.startswith(beginning):
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize(("kind", "workers"), [(Torn, 0), (Ended, 2)])
def test_nothing_is_left_behind_after_an_error(kind: type[pipelines.Map], workers: int) -> None:
    before, limit = held(), sys.getrecursionlimit()
    with pytest.raises(TargetError):
        pipefix.probe(DataLoader(kind(), batch_size=4, num_workers=workers), budget=BUDGET)
    assert settled(before) == NOTHING
    assert sys.getrecursionlimit() == limit and builtins.open is io.open


def test_an_interrupt_gives_what_is_known_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "LONGEST", schedule.SHORTEST)
    before, handler = held(), signal.getsignal(signal.SIGINT)
    run = pipefix.probe(pipelines.loader("map", 2), budget=30, progress=interrupting("round 2"), step_ms=2)
    assert run.partial and run.verdict is not None
    assert any(arm.rates for arm in run.arms)
    assert settled(before) == NOTHING
    assert signal.getsignal(signal.SIGINT) is handler


HERE = os.getpid()


class Hanging(pipelines.Map):
    """Its sample 6 presses Ctrl-C, and is not done before it is ended."""

    def __getitem__(self, index: int) -> Any:
        if index == 6:
            os.kill(HERE, signal.SIGINT)
            threading.Event().wait()
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_ends_a_dataset_that_hangs(workers: int) -> None:
    """The signal reaches this process only, as ``kill -INT`` sends it: the workers are still in their sample."""
    before = held()
    run = pipefix.probe(DataLoader(Hanging(), batch_size=4, num_workers=workers), budget=5)
    assert run.partial
    assert settled(before) == NOTHING
