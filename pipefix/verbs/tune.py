"""tune: the settings that keep the consumer fed with the least, found by few trials and held against what was there."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipefix.plan import planfile
from pipefix.plan.planfile import Evidence, LoaderChange, PlanFile, TunedOn
from pipefix.report.tunefile import BatchSize, Certificate, Resources, Setting, TrialFigures, TuneReport
from pipefix.verbs.target import Progress, load_target, silent
from pipefix.vocabulary.errors import BadUsage, TargetError
from pipefix.vocabulary.quantity import percent, rate, seconds, size
from pipefix.vocabulary.version import VERSION

if TYPE_CHECKING:
    from pipefix.measurement.machine import Machine
    from pipefix.subject.subject import Subject
    from pipefix.tuning.limits import Limits
    from pipefix.tuning.space import Settings, Space
    from pipefix.tuning.tuner import Found, Tried

LOTS = 16
"""Trials that batches are dealt out to."""
FEW_BATCHES = 8
"""A trial reads at least so many batches before its samples come again, or they are not dealt out."""


@dataclass(frozen=True)
class Tuned:
    """What a tuning came to."""

    settings: LoaderChange
    """What to change, with its evidence; nothing is set where the settings stay as they are."""
    evidence: Evidence | None
    """Throughput before and after, side by side."""
    trials: tuple[TrialFigures, ...]
    certificate: Certificate
    plan: PlanFile
    """As written, or as it would be: an older plan's cache and augmentation are kept in it."""
    report: TuneReport

    @property
    def changed(self) -> bool:
        return bool(self.report.changes)


def tune(
    target: Any,
    *,
    stall: float = 0.01,
    step_ms: float | None = None,
    target_rate: float | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    batch_sizes: bool = False,
    budget: float = 90.0,
    trials: int = 8,
    max_workers: int | None = None,
    max_memory: float | None = None,
    max_shm: float | None = None,
    max_files: int | None = None,
    max_cores: float | None = None,
    keep_order: bool = False,
    write: Path | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tuned:
    """Find loader settings for ``target`` that keep its consumer fed, or deliver most, within hard limits."""
    import torch

    from pipefix.measurement.consumer import consumer_for
    from pipefix.measurement.machine import look
    from pipefix.subject import randomness
    from pipefix.tuning.child import Work
    from pipefix.tuning.trial import Processes

    say = progress or silent
    _check(trials, stall)
    older = planfile.read(write) if write is not None and write.is_file() else None
    threads = torch.get_num_threads()
    # A process that is forked after OpenMP made its threads hangs when it computes: nothing computes in parallel until then.
    torch.set_num_threads(1)
    try:
        say("loading the target", 0.0)
        subject = load_target(target, batch_size=batch_size, workers=workers)
        _check_forks(subject, emulated=step_ms is not None or target_rate is not None)
        machine = look()
        space = _space(subject, machine, max_workers, keep_order)
        limits = _limits(machine, max_memory, max_shm, max_files, max_cores)
        consumer = consumer_for(subject, step_ms=step_ms, target_rate=target_rate)
        work = Work(
            subject,
            lambda one: consumer_for(one, step_ms=step_ms, target_rate=target_rate),
            _lots(subject),
            seed=seed,
            threads=threads,
        )
        bench = Processes(work)
        with randomness.untouched(subject.loader):
            found = _tuned(bench, space, limits, _start(subject), consumer.present, stall, budget, trials, seed, say)
            sizes = (
                _batch_sizes(bench, found, subject, limits, consumer.present, budget) if batch_sizes and not found.partial else []
            )
    finally:
        torch.set_num_threads(threads)
    told = _Telling(subject, machine, space, limits, found, consumer, stall, sizes, work.lots)
    return told.tuned(older, write)


def _check(trials: int, stall: float) -> None:
    if trials < 1:
        raise BadUsage(f"With {trials} trials nothing is tried.", advice="Give at least one: --trials 8.")
    if not 0 <= stall < 1:
        raise BadUsage(f"The consumer cannot wait {stall:g} of its time.", advice="Give a share below one: --stall 1%.")


def _check_forks(subject: Subject, *, emulated: bool) -> None:
    from pipefix.tuning.trial import can_fork

    why = can_fork()
    if why is None:
        return
    advice = "Run it from the command line, pipefix tune FILE.py:NAME, and let the file not touch the GPU while it is imported."
    if emulated or (subject.consumer is None and subject.model is None):
        advice += " Where it is imported by your own program, tune before CUDA is used."
    raise TargetError(f"{subject.target}: trials run in processes of their own, and {why}.", advice=advice)


# -- what is searched ------------------------------------------------------------------------------------------------------


def _start(subject: Subject) -> Settings:
    from pipefix.tuning.space import Settings

    now = subject.settings
    return Settings(
        workers=now.num_workers, prefetch=now.prefetch_factor or 2, in_order=now.in_order, pin_memory=now.pin_memory
    ).normal()  # fmt: skip


def _space(subject: Subject, machine: Machine, most: int | None, keep_order: bool) -> Space:
    from pipefix.tuning.space import Space, most_workers

    now = subject.settings
    real = subject.consumer is not None or subject.model is not None
    declined = {}
    if not machine.gpus:
        declined["pin_memory"] = "no CUDA device is present, so there is nothing to copy to"
    elif not real:
        declined["pin_memory"] = "no step of yours copies batches to the device"
    if keep_order:
        declined["in_order"] = "--keep-order was given"
    if subject.iterable:
        declined["in_order"] = "a stream's order is its own"
    if now.start_method in (None, "fork"):
        declined["start_method"] = "fork starts workers quickest"
    else:
        declined["start_method"] = f"{now.start_method} was chosen, and a library may need it; it changes the start, not the pace"
    if not now.batch_size:
        declined["batch_size"] = "your own sampler decides it"
    else:
        declined["batch_size"] = "it is part of the training; --batch-sizes shows what others would deliver"
    return Space(
        most_workers=most_workers(machine.effective_cores, now.num_workers) if most is None else max(most, 0),
        cores=machine.effective_cores,
        reorder=not keep_order and not subject.iterable,
        pin=bool(machine.gpus) and real,
        declined=declined,
    )


def _limits(machine: Machine, memory: float | None, shm: float | None, files: int | None, cores: float | None) -> Limits:
    """What was asked for, and no more than there is."""
    from pipefix.tuning.limits import Limits
    from pipefix.tuning.usage import read

    room = machine.memory_room_bytes
    if room is not None:
        room += int(read([os.getpid()]).memory_bytes)
    return Limits(
        memory_bytes=_least(memory, room),
        shm_bytes=_least(shm, machine.shm_free_bytes),
        files=_least(files, machine.fd_soft),
        cores=cores,
    )


def _least(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _lots(subject: Subject) -> int:
    """How many trials the batches of an epoch are dealt out to."""
    now = subject.settings
    if subject.iterable or not now.length:
        return 1
    return LOTS if now.length // max(1, now.batch_size or 1) >= LOTS * FEW_BATCHES else 1


def _tuned(
    bench: Any, space: Space, limits: Limits, start: Settings, present: bool, stall: float, budget: float, trials: int, seed: int, say: Progress
) -> Found:  # fmt: skip
    from pipefix.tuning.search import Goal
    from pipefix.tuning.tuner import Plan, Tuner

    plan = Plan(space, Goal(stall, present), start, limits, budget, trials, seed)
    return Tuner(bench, plan, progress=say).run()


def _batch_sizes(bench: Any, found: Found, subject: Subject, limits: Limits, present: bool, budget: float) -> list[BatchSize]:
    from pipefix.tuning.batch_sizes import sweep

    own = subject.settings.batch_size
    if not own or found.batch is None:
        return []
    return [
        BatchSize(batch_size=one.batch_size, rate=one.rate, batch_s=one.batch_s, stall=one.stall if present else None, reason=one.reason)
        for one in sweep(bench, found, own, limits, seconds=budget / 30)
    ]  # fmt: skip


# -- telling ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Telling:
    subject: Subject
    machine: Machine
    space: Space
    limits: Limits
    found: Found
    consumer: Any
    stall: float
    sizes: list[BatchSize]
    lots: int

    def tuned(self, older: PlanFile | None, write: Path | None) -> Tuned:
        now = self.subject.settings
        chosen = self.found.chosen
        start = _start(self.subject)
        changes = self._changes(start, chosen)
        evidence = None
        if changes and self.found.before is not None and self.found.after is not None:
            evidence = Evidence(before=self.found.before, after=self.found.after)
        loader = LoaderChange(**changes, evidence=evidence)  # type: ignore[arg-type]
        certificate = self._certificate()
        plan = PlanFile(
            created=_now(), target=self.subject.target, machine=self._machine(), loader=loader if changes else None,
            cache=older.cache if older is not None else None, augmentation=older.augmentation if older is not None else None,
        )  # fmt: skip
        written = None
        if write is not None and changes and not self.found.partial:
            planfile.write(plan, write)
            written = str(write)
        report = TuneReport(
            target=self.subject.target,
            before=_setting(start, persistent=now.persistent_workers),
            after=_setting(
                chosen, persistent=bool(changes.get("persistent_workers", now.persistent_workers)) and chosen.workers > 0
            ),
            sentence=self._sentence(changes),
            certificate=certificate,
            trials=[_figures(one, start) for one in self.found.tried],
            pipefix=VERSION,
            created=plan.created,
            changes=changes,
            rate_before=self.found.before,
            rate_after=self.found.after,
            kept=self.found.kept,
            enough=self.found.enough,
            declined=dict(self.space.declined or {}),
            notes=list(self._notes(start, chosen, changes)),
            batch_sizes=self.sizes,
            limits={name: value for name, value in vars(self.limits).items() if value is not None},
            partial=self.found.partial,
            seconds=self.found.seconds,
            written=written,
        )
        return Tuned(loader, evidence, tuple(report.trials), certificate, plan, report)

    def _changes(self, start: Settings, chosen: Settings) -> dict[str, object]:
        """Arguments of the loader that are to be others."""
        names = {"workers": "num_workers", "prefetch": "prefetch_factor"}
        found = {names.get(name, name): value for name, value in start.changes(chosen).items() if value is not None}
        if not chosen.workers:
            found.pop("prefetch_factor", None)
        now = self.subject.settings
        if chosen.workers and not now.persistent_workers and self._restart_matters():
            found["persistent_workers"] = True
        return found

    def _restart_matters(self) -> bool:
        """Whether starting the workers anew takes more than a two-hundredth of an epoch."""
        length, after = self.subject.settings.length, self.found.after
        if not length or after is None or not self.found.started_s:
            return False
        return self.found.started_s > 0.005 * length / after.value

    def _machine(self) -> TunedOn:
        machine = self.machine
        return TunedOn(
            cores=machine.effective_cores,
            cpu_model=machine.cpu_model,
            memory_bytes=machine.memory_limit_bytes or machine.memory_bytes,
            gpus=[gpu.name for gpu in machine.gpus],
        )

    def _sentence(self, changes: dict[str, object]) -> str:
        from pipefix.tuning.space import said

        found = self.found
        words = said(found.chosen)
        if not any(one.status == "run" for one in found.tried):
            return "Nothing was tried to its end, so the settings stay as they are."
        if found.kept is not None:
            more = " Workers are to be kept between epochs." if "persistent_workers" in changes else ""
            return f"Keep {words}: {found.kept}.{more}"
        if found.before is None or found.after is None:
            return f"Use {words}."
        gain = found.after.value / found.before.value
        told = f"{rate(found.after.value)} instead of {rate(found.before.value)}"
        if found.before is found.after:
            told = f"{rate(found.after.value)}; the settings as they are could not be run"
        elif math.isclose(gain, 1.0, abs_tol=0.02):
            return f"Use {words}: as fast as before ({rate(found.after.value)}), with less."
        return f"Use {words}: {told}."

    def _notes(self, start: Settings, chosen: Settings, changes: dict[str, object]) -> list[str]:
        notes = []
        if start.in_order and not chosen.in_order:
            notes.append(
                "With in_order=False batches come as they are made, not in the sampler's order: a run cannot be repeated batch by batch. "
                "--keep-order leaves that out."
            )
        if self.subject.iterable:
            notes.append("A stream begins anew in every trial, so its first samples are read again and again, from a warm cache.")
        elif self.lots == 1:
            notes.append("The dataset is too small for every trial to read samples of its own; storage is seen from a warm cache.")
        if self.found.started_s and "persistent_workers" in changes:
            notes.append(f"Starting the workers took {seconds(self.found.started_s)}; kept between epochs, they start once.")
        if self.found.used.memory_bytes:
            notes.append(f"The loop with these settings took {size(self.found.used.memory_bytes)} of memory.")
        sweet = _sweet_spot(self.sizes, self.subject.settings.batch_size)
        if sweet:
            notes.append(sweet)
        if self.found.partial:
            notes.append("It was interrupted: no plan was written.")
        return notes

    def _certificate(self) -> Certificate:
        from pipefix.measurement.consumer import Emulated
        from pipefix.tuning import told as telling

        blocks = self.found.blocks
        emulated = isinstance(self.consumer, Emulated)
        base = Certificate(fed=None, emulated=emulated, consumer=self.consumer.name, allowed=self.stall)
        if not blocks:
            return _with(base, sentence="Nothing ran long enough to tell.")
        logs = [math.log(block.rate) for block in blocks]
        delivered = telling.around(math.exp(sum(logs) / len(logs)), telling.doubt(logs))
        batches, spent = sum(len(block.waits) for block in blocks), sum(block.seconds for block in blocks)
        if not self.consumer.present:
            told = f"There is no consumer to feed: {rate(delivered.value)} are what the loader delivers. --step-ms MS emulates one."
            return _with(base, delivered=delivered, batches=batches, seconds=spent, sentence=told)
        waited = telling.stall(blocks)
        demand = blocks[-1].demand
        fed = True if waited.high <= self.stall else False if waited.low > self.stall else None
        who = f"The emulated consumer ({self.consumer.name.removeprefix('emulated: ')})" if emulated else "The consumer"
        verdict = {True: "is fed", False: "is not fed", None: "may or may not be fed"}[fed]
        told = (
            f"{who} {verdict}: it waited {percent(waited.value)} ({percent(waited.low)} to {percent(waited.high)}) of {batches} "
            f"batches' time, and may wait {percent(self.stall)}. It takes {rate(demand or 0.0)}, and {rate(delivered.value)} are delivered."
        )
        return _with(base, fed=fed, stall=waited, delivered=delivered, demand=demand, batches=batches, seconds=spent, sentence=told)


def _with(base: Certificate, **values: Any) -> Certificate:
    import msgspec

    return msgspec.structs.replace(base, **values)


def _setting(settings: Settings, *, persistent: bool) -> Setting:
    return Setting(
        num_workers=settings.workers,
        prefetch_factor=settings.prefetch if settings.workers else None,
        pin_memory=settings.pin_memory,
        persistent_workers=persistent,
        start_method=settings.start_method,
        in_order=settings.in_order,
        worker_threads=settings.worker_threads,
        batch_size=settings.batch_size,
    )


def _figures(one: Tried, start: Settings) -> TrialFigures:
    from pipefix.tuning.space import said

    used = one.used
    return TrialFigures(
        settings=_setting(one.settings, persistent=False),
        said=said(one.settings),
        status=one.status,
        why=one.why,
        reason=one.reason,
        rate=one.rate,
        stall=one.stall,
        used=Resources(memory_bytes=used.memory_bytes, shm_bytes=used.shm_bytes, files=used.files, cores=used.cores),
        seconds=one.seconds,
    )


def _sweet_spot(sizes: Sequence[BatchSize], own: int | None) -> str | None:
    """The smallest batch that delivers nearly the most; never chosen for the user."""
    ran = [one for one in sizes if one.rate is not None]
    if not ran or own is None:
        return None
    most = max(one.rate.value for one in ran if one.rate is not None)
    sweet = min((one for one in ran if one.rate is not None and one.rate.value >= 0.95 * most), key=lambda one: one.batch_size)
    told = (
        f"Of the batch sizes, {sweet.batch_size} is the smallest that delivers within 5 % of the most. The batch size stays {own}."
    )
    ended = [one for one in sizes if one.reason]
    if ended and sweet.batch_size == max(one.batch_size for one in ran):
        told += f" Memory ends before {ended[0].batch_size}: to train with more, accumulate gradients over several batches of {sweet.batch_size}."
    return told


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
