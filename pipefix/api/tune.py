"""pipefix.tune: find the loader settings that keep training from waiting, by a few trials beside the present ones."""

from __future__ import annotations

import datetime
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import torch

from pipefix.api import search_space
from pipefix.api.target import Progress, check_followed, consumed, loaded, placed, silent, unseen
from pipefix.fixes.apply_plan import fixed, tuned_on
from pipefix.measurement.consumer import consumer_for
from pipefix.measurement.gpu import forks_without_cuda
from pipefix.measurement.stream_parts import whole_stream_each
from pipefix.plan import planfile, tuned_plan
from pipefix.plan.planfile import BeforeAfter, LoaderChange, PlanFile
from pipefix.report import tune_report
from pipefix.report.document import Document
from pipefix.report.shown import Shown
from pipefix.report.tune_report import Certificate, ConsumerName, TuneReport, TuneReporter
from pipefix.subject.subject import Subject
from pipefix.system.machine import Machine, look
from pipefix.tuning.batch_sizes import sweep
from pipefix.tuning.child import TrialWork
from pipefix.tuning.results import BatchSize, Goal, Trial, TuneResult, TuningPlan
from pipefix.tuning.space import Space
from pipefix.tuning.trial import TrialProcesses, can_fork
from pipefix.tuning.tuner import Tuner
from pipefix.tuning.usage import Vram
from pipefix.vocabulary import amounts
from pipefix.vocabulary.commands import command, undone_by
from pipefix.vocabulary.errors import BadUsage, PipefixError, TargetError, UnreadableFile
from pipefix.vocabulary.generators import untouched
from pipefix.vocabulary.quantity import counted
from pipefix.vocabulary.shards import GIVE_PARTS, shards_of

_ASLEEP = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""With it torch answers whether there is CUDA without waking it up: trials are forked, and would find it awake and unusable."""


@dataclass(frozen=True, repr=False)
class Tuned(Shown):
    """What a tuning came to."""

    settings: LoaderChange
    """What to change, with its evidence; nothing is set where the settings stay as they are."""
    plan: PlanFile
    """As written, or as it would be: what an older plan says of anything that was not tuned is kept in it."""
    report: TuneReport

    @property
    def changed(self) -> bool:
        return bool(self.report.changes)

    @property
    def evidence(self) -> BeforeAfter | None:
        """Throughput before and after, side by side."""
        return self.settings.evidence

    @property
    def trials(self) -> tuple[Trial, ...]:
        return tuple(self.report.trials)

    @property
    def certificate(self) -> Certificate:
        """Whether the consumer is fed."""
        return self.report.certificate

    def document(self, *, full: bool = False) -> Document:
        return tune_report.report(self.report)

    def figures(self) -> TuneReport:
        return self.report


def tune(
    target: Any,
    *,
    stall: float | str = 0.01,
    step: Any = None,
    step_ms: float | str | None = None,
    target_rate: float | str | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    batch_sizes: bool = False,
    budget: float | str = 90.0,
    trials: int = 8,
    max_workers: int | None = None,
    max_memory: float | str | None = None,
    max_shm: float | str | None = None,
    max_files: int | None = None,
    max_cores: float | str | None = None,
    max_vram: float | str | None = None,
    keep_order: bool = False,
    write: str | Path | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tuned:
    """Find loader settings for ``target`` that keep its consumer fed, or deliver most, within hard limits.

    Args:
        target: what `pipefix.probe` takes.
        stall: share of the time that the consumer may wait: 0.01, or ``"1%"``.
        step: what consumes the batches: a function that takes one and trains on it, or a model; instead of the target file's own.
        step_ms: milliseconds that an emulated training step takes a batch, in place of the target's own.
        target_rate: samples a second that an emulated consumer takes.
        batch_size: instead of the loader's.
        workers: worker processes, instead of the loader's.
        batch_sizes: also measure other batch sizes; none of them is chosen.
        budget: seconds to spend; text may have a unit, such as ``"2m"``.
        trials: settings to try at most.
        max_workers: never try more workers.
        max_memory: bytes that the whole loop may take, or text such as ``"8GB"`` (default: what is free).
        max_shm: bytes of /dev/shm (default: what is free).
        max_files: files open in one process (default: its limit).
        max_cores: CPU cores that the loop may keep busy.
        max_vram: bytes of the device's memory (default: what is free).
        keep_order: never try ``in_order=False``.
        write: the plan file to write, where something is to change; of an older one there a backup is kept.
        seed: of the sampler's order.
        progress: called with a phase and the part that is done, 0 to 1.

    Returns:
        The settings with their evidence, every trial, and the certificate: whether the consumer is fed, and how sure that is.
    """
    say = progress or silent
    share, seconds = amounts.taken("stall", stall, amounts.share), amounts.taken("budget", budget, amounts.seconds)
    sizes = {"max_memory": max_memory, "max_shm": max_shm, "max_vram": max_vram}
    memory, shm, device = (amounts.taken(name, value, amounts.size) for name, value in sizes.items())
    cores = amounts.taken("max_cores", max_cores, amounts.cores)
    emulated, write = consumed(step_ms, target_rate, step), placed("write", write)
    if trials < 1:
        raise BadUsage(f"With {trials} trials nothing is tried.", advice="Give at least one: trials=8.")
    if max_workers is not None and max_workers < 0:
        raise BadUsage(f"There cannot be {max_workers} workers.", advice="Give none or more: max_workers=0.")
    if not 0 <= share < 1:
        raise BadUsage(f"The consumer cannot wait {share:g} of its time.", advice="Give less than one: stall=0.01 (--stall 1%).")
    older = planfile.read(write) if write is not None and write.is_file() else None
    home, vram, threads = Path.cwd(), Vram(), torch.get_num_threads()  # the target's code may leave home
    # A process that is forked after OpenMP made its threads hangs when it computes: nothing computes in parallel until then.
    torch.set_num_threads(1)
    previous, os.environ[_ASLEEP] = os.environ.get(_ASLEEP), "1"
    try:
        subject = loaded(target, say, batch_size=batch_size, workers=workers, step=step)
        own, plan_target = subject.loader, subject.plan_target  # which may have a device= and augment= that later loaders have not
        notes = list(unseen(subject, "a trial"))
        subject = _reading_its_cache(subject, older, write, home, notes)
        _check_forks(subject, emulated=any(emulated.values()))
        machine, ranks = look(), search_space.ranks_here()
        space = _without_copies(subject, search_space.space(subject, machine, max_workers, keep_order, ranks=ranks), notes)
        limits = search_space.limits(machine, memory, shm, max_files, cores, search_space.least(device, vram.free), ranks=ranks)
        consumer = _consumer(subject, emulated)
        work = TrialWork(
            subject, lambda loaded: consumer_for(loaded, **emulated, loader=own),
            search_space.lots(subject), seed, threads, search_space.own_cpus(machine.effective_cores, ranks),
        )  # fmt: skip
        bench = TrialProcesses(work, vram)
        plan = TuningPlan(space, Goal(share, consumer.present), search_space.start(subject), limits, seconds, trials)
        with untouched(subject.loader):
            result = Tuner(bench, plan, progress=say).run()
            if result.batch is not None and result.batch.why_none:
                consumer = ConsumerName("none", present=False, why_none=result.batch.why_none)
            swept: list[BatchSize] = []
            if batch_sizes and not result.partial:
                result = _with_sizes(swept, bench, result, subject, plan)
    finally:
        torch.set_num_threads(threads)
        os.environ.pop(_ASLEEP, None)
        os.environ.update({_ASLEEP: previous} if previous is not None else {})
        vram.close()
    telling = TuneReporter(
        subject.target, subject.settings, plan, result, consumer, swept, dealt=work.lots > 1,
        vram=_unwatched(vram.why, device, gpus=bool(machine.gpus)), ranks=ranks,
        program=subject.program, workers=subject.given.get("workers"),
    )  # fmt: skip
    return _tuned(telling, plan_target, machine, older, write, home, notes, followed=(getattr(own, "follows", None) or (None,))[0])


def _without_copies(subject: Subject, space: Space, notes: list[str]) -> Space:
    """Of a stream that every worker goes through whole, more of them deliver copies: no more are tried than it has."""
    if not subject.iterable or shards_of(subject.dataset) is not None or not whole_stream_each(subject):
        return space
    own = max(1, subject.settings.num_workers)
    notes.append(f"Trials had no more than {counted(own, 'worker')}: each goes through the whole stream. {GIVE_PARTS}")
    return replace(space, most_workers=min(own, space.most_workers), open=False)


def _consumer(subject: Subject, emulated: dict[str, float | None]) -> ConsumerName:
    if any(emulated.values()):
        return ConsumerName(consumer_for(subject, **emulated).name, present=True, emulated=True)
    name = "train_step" if subject.consumer is not None else "model" if subject.model is not None else "none"
    return ConsumerName(name, present=name != "none")


def _check_forks(subject: Subject, *, emulated: bool) -> None:
    why = can_fork()
    if why is None:
        return
    advice = "It takes Linux; pipefix probe and doctor run here too."
    if forks_without_cuda():
        advice = "Run it from the command line, pipefix tune FILE.py:NAME, and let the file not touch the GPU while it is imported."
        if emulated or (subject.consumer is None and subject.model is None):
            advice += " Where it is imported by your own program, tune before CUDA is used."
    raise TargetError(f"{subject.target}: trials run in processes of their own, and {why}.", advice=advice)


def _unwatched(why: str | None, limit: float | None, *, gpus: bool) -> str | None:
    """What is to be said where the device's memory is not watched."""
    if why is None:
        return None
    if limit is not None:
        return f"--max-vram could not be watched: {why}."
    return f"The device's memory was not watched: {why}." if gpus else None


def _with_sizes(sizes: list[BatchSize], bench: Any, result: TuneResult, subject: Subject, plan: TuningPlan) -> TuneResult:
    """Other batch sizes are measured into ``sizes``; the result, partial where that was interrupted."""
    own = subject.settings.batch_size
    if not own or result.batch is None:
        return result
    try:
        most = subject.settings.epoch or math.inf
        sizes.extend(sweep(bench, result, own, plan.limits, seconds=plan.budget / 30, most=most))
    except KeyboardInterrupt:
        return replace(result, partial=True, enough="it was interrupted")
    return result


def _tuned(
    telling: TuneReporter, plan_target: str, machine: Machine, older: PlanFile | None, write: Path | None, home: Path,
    notes: list[str], *, followed: PlanFile | None = None,
) -> Tuned:  # fmt: skip
    """The plan, written where it says anything new and nothing interrupted the tuning; and the report. ``write``: from ``home``.
    ``plan_target``: what the plan says that it is for. ``followed``: the plan that the loader follows, and was tuned with."""
    result, changes = telling.result, telling.changes()
    follows = older is not None and followed == older
    evidence = None
    if changes and result.before is not None and result.after is not None:
        evidence = BeforeAfter(before=result.before, after=result.after)
    loader = LoaderChange(**changes, evidence=evidence)  # type: ignore[arg-type]
    same = older if older is not None and (follows or older.is_for(plan_target)) else None
    created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    new = PlanFile(created=created, target=plan_target, machine=tuned_on(machine))
    plan = tuned_plan.new_plan(new, same, changes, evidence, telling.plan.space.declined or {}, follows=follows)
    gone = [] if follows else tuned_plan.given_up(older, plan)
    ran = any(trial.status == "run" for trial in result.tried)
    writes = write is not None and not result.partial and bool(changes or (gone and ran and same is not None))
    if write is not None and gone and not writes:
        notes.append(f"{write} still says {', '.join(gone)}, which was not tried.")
    report = telling.report(created=plan.created, written=str(write) if writes else None)
    report = msgspec.structs.replace(report, notes=[*notes, *report.notes])
    tuned = Tuned(loader, plan, report)
    if not writes:
        return tuned
    assert write is not None
    try:
        backup = tuned_plan.write(plan, home / write)
    except UnreadableFile as error:
        error.known = replace(tuned, report=msgspec.structs.replace(report, written=None))
        raise
    if backup is None:
        return tuned
    place = (home / write).resolve()
    back = undone_by(place.parent if place.parent != home.resolve() else ".")
    if place.name != planfile.NAME:
        back = command("mv", backup, place)
    remarks = [f"The plan as it was is kept as {backup.name}; {back} puts it back."]
    if same is None and older is not None:
        remarks.insert(0, f"The older plan in {write} was one of {older.target}: nothing of it is taken over.")
    elif gone:
        remarks.insert(0, f"{write} no longer says {', '.join(gone)}: what is written now was held against your code without it.")
    return replace(tuned, report=msgspec.structs.replace(report, notes=[*remarks, *report.notes]))


def _reading_its_cache(subject: Subject, older: PlanFile | None, write: Path | None, home: Path, notes: list[str]) -> Subject:
    """The subject as it is with the cache that the plan names: tuned is what is going to run."""
    if write is not None:
        other = "or write none: --no-write"
        check_followed(subject.loader, home / write, lambda plan: f"Go on from that one, {command('--write', plan)}, {other}")
    own, folder = getattr(subject.loader, "follows", None) or (PlanFile(), Path())
    if own.cache is not None and own.augmentation is None:
        notes.append(f"Trials read from {own.cache.path}, as the plan of the loader itself says.")
        return fixed(subject, PlanFile(cache=own.cache), folder)
    if older is None or write is None or not older.is_for(subject.plan_target):
        return subject
    if older.augmentation is not None:
        notes.append(f"Trials ran without the operations that {write} moves to the device.")
    elif older.cache is not None:
        try:
            cached = fixed(subject, PlanFile(cache=older.cache), (home / write).resolve().parent)
        except PipefixError as error:
            notes.append(f"Trials ran without the cache that {write} names: {error}")
        else:
            notes.append(f"Trials read from {older.cache.path}, as {write} says.")
            return cached
    return subject
