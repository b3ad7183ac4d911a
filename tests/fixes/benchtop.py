"""A session on a bench: a real dataset of small files, with a planted plan and planted measurements in place of timing.
Caches are built in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.utils.data import DataLoader, Dataset

from pipefix.caches import pool
from pipefix.fixes import speedup
from pipefix.fixes.attempt import FixContext, ProbeResult
from pipefix.fixes.cache_process import Builder
from pipefix.fixes.choice import Wishes
from pipefix.fixes.fix import Session
from pipefix.fixes.outcome import Measured
from pipefix.measurement.consumer import Consumer
from pipefix.plan.plan import Declined, Plan, Proposed, Step
from pipefix.plan.planfile import Change, LoaderChange, PlanFile
from pipefix.plan.remedy import Remedy, all_remedies
from pipefix.subject.load import load
from pipefix.system.machine import Machine
from pipefix.vocabulary.gain import Modelled
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.stage import Stage
from tests.caches.killing import Killed

MACHINE = Machine(system="Linux", kernel="6.1", python="3.11", effective_cores=2.0, memory_bytes=16_000_000_000)


class Lines(Dataset[Any]):
    """Each sample is what a small file says."""

    def __init__(self, folder: Path, count: int = 12) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.paths = [folder / f"{number}.txt" for number in range(count)]
        for number, path in enumerate(self.paths):
            if not path.exists():
                path.write_text(f"{number:02d}" * 50)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        with open(self.paths[index], "rb") as file:
            data = file.read()
        return torch.tensor(list(data)), index


def about(value: float, spread: float = 0.03) -> Interval:
    return Interval(value, value * (1 - spread), value * (1 + spread))


def step(id: str, gain: float = 2.0, **facts: Any) -> Proposed:
    facts = {"stage": Stage.STORAGE, "title": f"Do {id}", "why": "it is slow", "command": f"do {id}", **facts}
    facts = {"disk_bytes": 1e6 if id.startswith("cache-") else None, **facts}
    kind = next((kind for kind in all_remedies() if kind.id in (id, id.rpartition("-")[0])), Remedy)
    facts = {"change": change_of(id), "by_hand": kind.by_hand, **facts}
    return Proposed(id=id, gain=Modelled(about(gain)), **facts)


def change_of(id: str) -> Change | None:
    """What the remedy of this id merges into a plan."""
    kind, _, form = id.rpartition("-")
    if kind == "workers":
        return LoaderChange(num_workers=int(form))
    if kind == "fuse":
        return LoaderChange(fuse=form)  # type: ignore[arg-type]
    return next((kind.change for kind in all_remedies() if kind.id == id), None)


def declined(id: str, why: str = "nothing is read") -> Declined:
    return Declined(id=id, stage=Stage.STORAGE, title=f"Do {id}", why=why)


def measured(gain: float, spread: float = 0.03) -> Measured:
    return Measured(gain=about(gain, spread), before=about(100.0), after=about(100.0 * gain), pairs=4)


def context(loader: DataLoader[Any], folder: Path, plan: PlanFile | None = None) -> FixContext:
    """For a fixer by itself. This process builds caches."""
    subject = load(loader)
    return FixContext(subject, plan or PlanFile(), folder, Builder(subject))


class Bench:
    """Plans are given out in turn (the last one again and again); measured gains likewise, 1.5x where none is planted."""

    def __init__(self, folder: Path, *plans: Sequence[Step], gains: Sequence[float] = (), target: Any = None) -> None:
        self.folder = folder
        self.data = Lines(folder / "data")
        self.target = DataLoader(self.data, batch_size=4) if target is None else target
        self.plans = [Plan(tuple(one)) for one in plans] or [Plan(())]
        self.gains = list(gains)
        self.looks: list[Any] = []
        self.asked: list[str] = []
        self.start_s = 0.0
        """That each epoch takes to begin."""

    def look(self, subject: Any, consumer: Consumer, seconds: float) -> ProbeResult:
        self.looks.append(subject)
        plan = self.plans[min(len(self.looks), len(self.plans)) - 1]
        return ProbeResult(plan, None)

    def faster(self, before: Any, after: Any, **options: Any) -> Measured:
        return measured(self.gains.pop(0) if self.gains else 1.5)

    def epoch_starts(self, subject: Any) -> list[float]:
        return [self.start_s] * 3

    def session(self, ask: Callable[[str], bool] | None = None, **wishes: Any) -> Session:
        subject = load(self.target)
        return Session(subject, Consumer(), MACHINE, self.folder / "out", Wishes(**wishes), self.look, lambda *_: None, ask)

    def run(self, ask: Callable[[str], bool] | None = None, **wishes: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for owner, name, planted in (
                (speedup, "faster", self.faster), (speedup, "epoch_starts", self.epoch_starts),
                (pool, "can_fork", lambda: False),
            ):  # fmt: skip
                stack.enter_context(mock.patch.object(owner, name, planted))
            return self.session(ask, **wishes).run()

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def plan_text(self) -> str | None:
        path = self.out / "pipefix.plan.toml"
        return path.read_text() if path.exists() else None


@contextlib.contextmanager
def killed_at(number: int) -> Iterator[list[str]]:
    """Inside, the process dies before its ``number``-th act that changes anything on the disk. Yields the acts so far."""
    from pipefix.caches import folder as cache_folder
    from pipefix.caches.building import Building
    from pipefix.fixes import fix_log
    from pipefix.plan import planfile
    from pipefix.vocabulary import files

    acts: list[str] = []

    def dying(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **kwargs: Any) -> Any:
            if len(acts) >= number:
                raise Killed
            acts.append(name)
            return real(*args, **kwargs)

        return act

    with contextlib.ExitStack() as stack:
        for owner, name in (
            (fix_log.Log, "write"), (files, "write_whole"), (planfile, "write_whole"), (files, "move"), (files, "remove"),
            (cache_folder, "remove"), (Building, "finished"), (Building, "seal"),
        ):  # fmt: skip
            stack.enter_context(mock.patch.object(owner, name, dying(name, getattr(owner, name))))
        yield acts
