"""The verbs, composed from the rooms. The command line and the library make the same calls."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pipefix.audit import observe
from pipefix.audit.finding import AuditFacts, Finding
from pipefix.audit.rules import audit
from pipefix.caches import convert as conversion
from pipefix.caches import forecast as forecasting
from pipefix.caches import target as cached_target
from pipefix.caches import verify as verifying
from pipefix.caches.convert import Converted, State
from pipefix.caches.dataset import CachedDataset as CachedDataset
from pipefix.caches.forecast import Forecast
from pipefix.caches.table import GroupSampler as GroupSampler
from pipefix.caches.verify import Checked
from pipefix.diagnosis.diagnose import diagnose, settled
from pipefix.diagnosis.diagnosis import Diagnosis
from pipefix.kernels import kernel
from pipefix.loader.fast_loader import FastLoader as FastLoader
from pipefix.measurement import calibrate
from pipefix.measurement.consumer import consumer_for
from pipefix.measurement.experiments import POOL, REAL
from pipefix.measurement.machine import Machine, look
from pipefix.measurement.measure import Plan, measure, silent
from pipefix.measurement.measurement import Measurement
from pipefix.plan.advise import advise
from pipefix.report import conversion as telling
from pipefix.report import runfile, tell, timeline
from pipefix.report.runfile import Run
from pipefix.report.swapfile import PanelPicture, SwapReport
from pipefix.subject import failure
from pipefix.subject.load import load
from pipefix.subject.subject import Subject
from pipefix.vocabulary.errors import BadUsage, TargetError, UnreadableFile
from pipefix.vocabulary.stage import IN_SAMPLE

if TYPE_CHECKING:
    from pipefix.augment.parity import Parity
    from pipefix.augment.swap import Swap

Progress = Callable[[str, float], None]

VERBS = frozenset({"convert", "swap"})
"""Commands that remedies may name."""

QUIET_BUDGET = 8.0
"""Below this many seconds other worker counts are not tried: there would be no time left for the pipeline itself."""


def probe(
    target: Any,
    *,
    budget: float = 60.0,
    step_ms: float | None = None,
    target_rate: float | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    recording_bytes: int = 1_000_000_000,
    trace: Path | None = None,
    progress: Progress | None = None,
    seed: int = 0,
    trial_workers: tuple[int, ...] | None = None,
) -> Run:
    """Measure where the time goes in ``target`` (section 4 of the README lists what can be named) and what each remedy is worth."""
    begun = time.perf_counter()
    say = progress or silent
    say("loading the target", 0.0)
    subject = _load(target, batch_size=batch_size, workers=workers)
    consumer = consumer_for(subject, step_ms=step_ms, target_rate=target_rate)
    machine = look()
    plan = Plan(
        budget=max(1.0, budget - (time.perf_counter() - begun)),
        recording_bytes=recording_bytes,
        trial_workers=_trials(subject, machine, budget) if trial_workers is None else trial_workers,
        events=trace is not None,
        observe=observe.worker_facts,
        enough=settled,
        seed=seed,
        progress=say,
    )
    found = measure(subject, consumer, plan, cores=machine.effective_cores)
    found.seam_cost = calibrate.seam_cost()
    run = _told(subject, machine, found)
    assert run.instrument is not None
    instrument = msgspec.structs.replace(run.instrument, seconds=time.perf_counter() - begun)
    run = msgspec.structs.replace(run, instrument=instrument)
    if trace is not None:
        try:
            timeline.write(found.traced, trace, main=os.getpid(), target=subject.target)
        except UnreadableFile as error:
            error.known = run
            raise
    return run


def doctor(target: Any = None) -> tuple[dict[str, Any], list[runfile.Finding]]:
    """Audit the machine, and the settings of a target's loader, without measuring a pipeline."""
    machine = look()
    found = kernel.native()
    absent = (found.why, found.advice) if isinstance(found, kernel.Absent) else None
    facts = AuditFacts(machine=machine, no_kernel=absent)
    if target is not None:
        subject = _load(target)
        seen = observe.loader_facts(subject.loader)
        facts = AuditFacts(machine=machine, settings=subject.settings, no_kernel=absent, **seen)
    return machine.as_dict(), [tell.finding(one) for one in audit(facts)]


def convert(
    target: Any,
    *,
    to: str = "lmdb",
    store: str = "source",
    out: str | Path | None = None,
    size: int | None = None,
    quality: int = 90,
    workers: int | None = None,
    on_bad: str = "raise",
    max_bad: float = 0.01,
    tokenizer: str | None = None,
    text: str | None = None,
    update: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Store what ``target`` reads or makes in a cache, or go on with one that was begun."""
    recipe = conversion.recipe_of(to, store, size, quality, on_bad, max_bad, tokenizer, text)
    say = progress or silent
    say("loading the target", 0.0)
    subject = _load(target)
    folder = Path(out) if out is not None else Path(f"cache-{store}")
    return conversion.convert(
        subject.dataset, recipe, folder, target=subject.target, workers=workers, update=update, progress=_Pace(say)
    )


def forecast(
    target: Any,
    *,
    to: str = "lmdb",
    store: str = "source",
    out: str | Path | None = None,
    size: int | None = None,
    quality: int = 90,
    workers: int | None = None,
    on_bad: str = "raise",
    max_bad: float = 0.01,
    tokenizer: str | None = None,
    text: str | None = None,
    progress: Progress | None = None,
) -> Forecast:
    """What `convert` would take and bring, from a sample."""
    recipe = conversion.recipe_of(to, store, size, quality, on_bad, max_bad, tokenizer, text)
    say = progress or silent
    say("loading the target", 0.0)
    subject = _load(target)
    folder = Path(out) if out is not None else Path(f"cache-{store}")
    return forecasting.forecast(subject.dataset, recipe, folder, target=subject.target, workers=workers, progress=_Pace(say))


def verify(
    cache: str | Path,
    *,
    sample: int | None = None,
    seed: int = 0,
    repair: bool = False,
    target: Any = None,
    progress: Progress | None = None,
) -> Checked:
    """Check a cache's every byte, or some of its records; with ``repair`` make what is damaged anew from its source."""
    say = progress or silent

    def part(number: int, count: int) -> None:
        say(f"checking: part {number + 1} of {count}", number / max(count, 1))

    found = verifying.verify(Path(cache), sample=sample, seed=seed, progress=part)
    if repair and not found.sound:
        say("mending", 0.9)
        found = verifying.repair(found, _load(target if target is not None else found.manifest.target).dataset)
    return found


class _Pace:
    """A conversion's state as a sentence and the part done."""

    def __init__(self, say: Progress) -> None:
        self._say = say
        self._begun: float | None = None

    def __call__(self, state: State) -> None:
        now = time.perf_counter()
        new = state.done - state.before
        if new and self._begun is None:
            self._begun = now
        pace = new / (now - self._begun) if self._begun is not None and now > self._begun + 0.5 else 0.0
        words = telling.doing(
            state.phase, done=state.done, samples=state.samples, written=state.written, read=state.read, a_second=pace
        )
        self._say(words, state.done / state.samples if state.samples else 0.0)


def _load(target: Any, *, batch_size: int | None = None, workers: int | None = None) -> Subject:
    """A target may also be a cache."""
    return load(target, batch_size=batch_size, workers=workers, directories=(cached_target.dataset,))


@dataclass(frozen=True)
class Swapped:
    """A swap's two halves, and what is told of it."""

    swap: Swap
    report: SwapReport
    parity: Parity | None
    subject: Subject

    def dataset(self, *, index: bool = False) -> Any:
        """A copy of the dataset whose transforms are the part that stays; with ``index`` samples come with their index."""
        return self.swap.dataset(self.subject.dataset, index=index)

    def module(self, **settings: Any) -> Any:
        """What is done to whole batches, on their device: ``images, labels = module((images, labels))``."""
        return self.swap.module(**settings)

    def loader(self, **settings: Any) -> Any:
        """DALI's loader over the dataset's files: batches of (images, labels)."""
        return self.swap.loader(self.subject.dataset, **settings)

    @property
    def sheet(self) -> list[PanelPicture]:
        """The rows of the contact sheet."""
        from pipefix.report import tell_swap

        return [] if self.parity is None else tell_swap.sheet(self.parity.sheet)


def swap(
    target: Any,
    *,
    to: str = "kornia",
    check: bool = False,
    write: Path | None = None,
    run: Path | None = None,
    samples: int = 16,
    device: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Swapped:
    """Read the transforms of a target's dataset and cut them into what stays there and what a module does to whole batches.

    Nothing of the target's is changed: the answer's ``dataset()`` and ``module()`` are the two halves. ``check`` holds them against
    torchvision on ``samples`` pictures of the dataset; ``write`` writes code that needs no pipefix; ``run`` is a run file of the
    same target, which predicts the gain.
    """
    from pipefix.augment import samples as sampled
    from pipefix.augment import support
    from pipefix.augment.hold import hold
    from pipefix.augment.parity import front_of
    from pipefix.augment.split import split
    from pipefix.augment.swap import Swap, find
    from pipefix.augment.translate import translate
    from pipefix.report import tell_swap

    say = progress or silent
    say("loading the target", 0.0)
    support.check(to)
    subject = _load(target)
    place = find(subject.dataset)
    if place is None:
        raise TargetError(
            f"{subject.target}: the dataset keeps its transforms under none of the usual names (transform, transforms, augment).",
            advice="Keep them as an attribute of the dataset, self.transform, and call that in __getitem__.",
        )
    where = _device(device)
    with failure.told("Reading samples of the dataset"):
        pictures = sampled.pictures(subject.dataset, place, samples if check else 8)
    sizes = {sampled.size_of(picture) for picture in pictures}
    cut = split(translate(place.transform), to, size=sampled.size_of(pictures[0]), same_size=len(sizes) == 1 and len(pictures) > 1)
    made = Swap(cut, place, seed)
    parity = None
    if check:
        say("checking", 0.1)
        with failure.told("The part of the transforms that stays"):
            images = front_of(cut, pictures, seed)
        parity = hold(cut, pictures, images, to, seed=seed, device=where, progress=lambda phase, done: say(phase, 0.1 + 0.9 * done))
    if write is not None:
        _write(cut, to, seed, write)
    report = tell_swap.report(subject.target, made, parity, runfile.read(run) if run is not None else None, write)
    return Swapped(made, report, parity, subject)


def _device(name: str | None) -> str:
    """The device to check on, which must be there."""
    import torch

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cpu" and not (name.startswith("cuda") and torch.cuda.is_available()):
        has = "a CUDA device" if torch.cuda.is_available() else "no CUDA device"
        raise BadUsage(f"The device {name!r} cannot be used: this machine has {has}.", advice="Leave --device away, or give cpu.")
    return name


def _write(cut: Any, to: str, seed: int, path: Path) -> None:
    from pipefix.augment.write import code

    try:
        text = code(cut, to, seed=seed)
    except ValueError as error:
        raise BadUsage(str(error), advice="Write it with --to kornia, which has more operations.") from error
    runfile.write_whole(text.encode(), path, what="code")


def _trials(subject: Subject, machine: Machine, budget: float) -> tuple[int, ...]:
    """Worker counts worth trying: around the number of cores and around what is set now."""
    if budget < QUIET_BUDGET:
        return ()
    now, cores = subject.settings.num_workers, max(1, int(machine.effective_cores))
    wanted = [cores, 2 * cores, now // 2 or 1, 2 * now or 1]
    unlike = [count for count in dict.fromkeys(wanted) if count != now]
    return tuple(sorted(unlike[: 3 if budget >= 30 else 2]))


def _told(subject: Subject, machine: Machine, found: Measurement) -> Run:
    if not found.of(REAL.name):
        return tell.nothing_measured(subject, machine.as_dict(), found)
    diagnosis = diagnose(found)
    return tell.run(
        subject,
        machine.as_dict(),
        found,
        diagnosis,
        steps=advise(found, diagnosis, target=subject.target, machine=machine, cuda=bool(machine.gpus), verbs=VERBS),
        findings=_audit(subject, machine, found, diagnosis),
        replaces={arm.name: sorted(map(str, arm.replaces)) for arm in POOL},
    )


def _audit(subject: Subject, machine: Machine, found: Measurement, diagnosis: Diagnosis) -> list[Finding]:
    length = found.settings.length
    sample = [cost for stage, cost in diagnosis.stages.items() if stage in IN_SAMPLE and cost.cpu is not None]
    wall = sum(cost.wall.value for cost in sample)
    facts = AuditFacts(
        machine=machine,
        settings=found.settings,
        growth=_growth(found),
        cpu_share=sum(cost.cpu.value for cost in sample if cost.cpu is not None) / wall if wall else None,
        input_share=1 - diagnosis.fed if diagnosis.fed is not None else None,
        throttled_share=found.throttled,
        first_batch_s=found.first_batch,
        epoch_restart_s=found.epoch_restart,
        epoch_s=diagnosis.sample.value * length if length is not None else None,
        **observe.run_facts(subject.loader, found.facts, found.paths),
    )
    return audit(facts)


def _growth(found: Measurement) -> Any:
    """Of the process whose private memory grew most between two looks."""
    grown = []
    for looks in found.looks.values():
        (made, first), (later, last) = looks[0], looks[-1]
        growth = observe.growth(observe.worker_of(first), observe.worker_of(last), later - made) if later > made else None
        if growth is not None:
            grown.append(growth)
    return max(grown, key=lambda one: one.bytes, default=None)
