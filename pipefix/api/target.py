"""Loads the dataset or DataLoader that a verb is used on, with its batch size, workers and training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from pipefix.caches import layout
from pipefix.caches.dataset import CachedDataset
from pipefix.fixes.apply_plan import fixed
from pipefix.measurement.budget import Progress as Progress
from pipefix.measurement.budget import silent as silent
from pipefix.plan.planfile import NAME, LoaderChange, PlanFile
from pipefix.subject.load import load
from pipefix.subject.subject import Subject
from pipefix.vocabulary import amounts
from pipefix.vocabulary.commands import command
from pipefix.vocabulary.errors import BadUsage, TargetError, UnreadableFile


def load_target(target: Any, *, batch_size: int | None = None, workers: int | None = None, step: Any = None) -> Subject:
    """A target may also be a cache, or a subject that is loaded already. ``step``: what consumes its batches, a model or a call."""
    if isinstance(target, Subject):
        return target
    subject = load(target, batch_size=batch_size, workers=workers, directories=(_cached,))
    if step is None:
        return subject
    if isinstance(step, nn.Module):
        return replace(subject, consumer=None, model=step)
    if not callable(step):
        problem = f"step is of type {type(step).__name__}, which cannot be called with a batch."
        raise BadUsage(problem, advice="Give a function that takes a batch and trains on it, or a torch.nn.Module: step=train_step")
    return replace(subject, consumer=step)


def loaded(target: Any, say: Progress, **settings: Any) -> Subject:
    """`load_target`, told as it is done; where there were several, which was taken."""
    say("loading the target", 0.0)
    subject = load_target(target, **settings)
    if subject.choice:
        say(subject.choice, 0.0)
    return subject


def as_planned(subject: Subject) -> Subject:
    """With what the plan of the subject's own `FastLoader` says: the cache above all, which it has in the dataset's place."""
    plan, folder = getattr(subject.loader, "follows", None) or (PlanFile(), Path())
    change = plan.loader or LoaderChange()
    subject = replace(subject, wrapper=" ".join(filter(None, (subject.wrapper, *unseen(subject, "a probe")))))
    if plan.augmentation is not None or (plan.cache, change.worker_threads, change.fuse) == (None, None, None):
        return subject
    # All other settings are the loader's arguments by now.
    settings = LoaderChange(worker_threads=change.worker_threads, fuse=change.fuse)
    return fixed(subject, PlanFile(loader=settings, cache=plan.cache), folder)


def unseen(subject: Subject, measured: str) -> Iterator[str]:
    """Sentences on what the subject's own `FastLoader` is told to do, and is not done in ``measured``: a probe or a trial."""
    plan, _ = getattr(subject.loader, "follows", None) or (PlanFile(), Path())
    own = {name: getattr(subject.loader, name, None) for name in ("fuse", "threads_per_worker", "sample_timeout", "on_bad")}
    fuse = (plan.loader and plan.loader.fuse) or own["fuse"]
    threads = own["threads_per_worker"] or 1 if not subject.batched_fetch else 1
    way = f"fused calls (fuse={fuse!r})" if fuse else "augmentation of whole batches" if plan.augmentation else ""
    way = way or (f"threads (threads_per_worker={threads})" if threads > 1 else "")
    if way:
        code = "figures are those of the dataset's own code, one sample after the other."
        yield f"The loader is told to use {way}, which {measured} does not see into: {code}"
    if own["sample_timeout"]:
        yield f"Samples that take longer than sample_timeout={own['sample_timeout']!r} are waited for in {measured}."
    if own["on_bad"] not in (None, "raise"):
        yield f"Samples that cannot be read are left out here, too (on_bad={own['on_bad']!r})."


def check_followed(loader: Any, plan: Path, go_on: Callable[[Path], str]) -> None:
    """Refuse to write ``plan`` where the loader follows another one: nothing of that would be in it. ``go_on`` is the advice."""
    follows = getattr(loader, "follows", None)
    followed = follows[1] / Path(loader.plan).name if follows is not None else plan
    if followed.resolve() != plan.resolve():
        raise BadUsage(f"The loader follows a plan already, {followed}.", advice=go_on(followed))


def placed(name: str, path: str | Path | None) -> Path | None:
    """Where a file is to be written; refused where that cannot be, before anything is measured."""
    if path is None:
        return None
    if Path(path).is_dir():
        file = Path(path) / {"write": NAME, "trace": "trace.json"}[name]
        raise BadUsage(f"{name}={str(path)!r} is a directory, not a file.", advice=f"Name a file in it: {name}={str(file)!r}")
    folder = Path(path).parent
    if not folder.is_dir():
        make = command("mkdir", "-p", folder)
        raise UnreadableFile(f"{name}={str(path)!r}: there is no folder {folder}.", advice=f"Make it first: {make}")
    return Path(path)


def consumed(step_ms: float | str | None, target_rate: float | str | None, step: Any = None) -> dict[str, float | None]:
    """An emulated consumer, as arguments of `consumer_for`; both may be given as text. There is none beside a ``step``."""
    if step is not None and (step_ms is not None or target_rate is not None):
        given = "step_ms" if step_ms is not None else "target_rate"
        raise BadUsage(f"Both step= and {given}= were given.", advice="Give one: what takes the batches, or how long that takes.")
    return {
        "step_ms": amounts.taken("step_ms", step_ms, amounts.milliseconds),
        "target_rate": amounts.taken("target_rate", target_rate, amounts.rate),
    }


def _cached(path: Path) -> CachedDataset | None:
    """The samples of a cache as they are, pictures as tensors; None where the directory is something else."""
    if not (path / layout.MANIFEST).is_file():
        return None
    cached = CachedDataset(path, images="tensor")
    if cached.manifest.recipe.store == "source":
        raise TargetError(
            f"{path} keeps the files that samples read, and no samples: they are made by the dataset that it was made from.",
            advice="Name that dataset, which reads from it through a plan or CachedDataset(DIR, dataset=dataset): "
            + command("pipefix", "probe", "train.py"),
        )
    return cached
