"""pipefix.probe: measure a pipeline, diagnose it, and say what each remedy is worth."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec

from pipefix.api import try_remedies
from pipefix.api.run_files import Run as Run
from pipefix.api.target import Progress, as_planned, consumed, load_target, placed, silent
from pipefix.api.try_remedies import making
from pipefix.audit import loader_facts, storage_facts
from pipefix.audit.facts import AuditFacts, StepFacts, audit
from pipefix.audit.on_workers import handle_before_fork
from pipefix.caches.cut import says_random
from pipefix.diagnosis.diagnose import diagnose, settled, wanting
from pipefix.diagnosis.diagnosis import Diagnosis
from pipefix.measurement import calibrate
from pipefix.measurement.budget import MeasurementPlan
from pipefix.measurement.consumer import Consumer, consumer_for
from pipefix.measurement.experiments import FAILED, POOL, REAL
from pipefix.measurement.measure import measure
from pipefix.measurement.measurement import Measurement, TriedCache
from pipefix.measurement.stream_parts import WORKERS, whole_stream_each
from pipefix.plan.advise import advise
from pipefix.plan.case import Case, Moving
from pipefix.plan.operations import operations_of
from pipefix.plan.plan import Plan as Advice
from pipefix.plan.planfile import CacheChange, LoaderChange
from pipefix.plan.remedies.pictures import LEAST_BUDGET
from pipefix.plan.remedy import WORTH_TRYING
from pipefix.report import run_figures, runfile
from pipefix.report import trace as trace_file
from pipefix.report.shown import shown
from pipefix.subject import failure
from pipefix.subject.subject import Subject
from pipefix.system.machine import Machine, look
from pipefix.vocabulary import amounts
from pipefix.vocabulary.errors import MissingExtra, TargetError, UnreadableFile
from pipefix.vocabulary.finding import Finding
from pipefix.vocabulary.held_transforms import held_transforms
from pipefix.vocabulary.stage import IN_SAMPLE, Stage

ASIDE, MOST_ASIDE, TRIED_ASIDE = 0.05, 3.0, 2
"""Part of the budget, and seconds at most, for each thing that is tried beside the pipeline; and how many there are without
workers."""
PATIENT = 2.0
"""So many times as long all conversions together may take to make their first samples; what comes later is not tried."""
LEAST_PATIENT, SLOW_SAMPLES, MOST_PATIENT = 4.0, 10, 0.25
"""Seconds that they may take in any case; and of slow samples as long as so many of these, up to this part of the budget."""
QUIET_BUDGET = 8.0
"""Below this many seconds other worker counts are not tried: there would be no time left for the pipeline itself."""


def probe(
    target: Any,
    *,
    budget: float | str = 60.0,
    step: Any = None,
    step_ms: float | str | None = None,
    target_rate: float | str | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    recording_bytes: int | str = 1_000_000_000,
    trace: str | Path | None = None,
    progress: Progress | None = None,
    seed: int = 0,
    trial_workers: tuple[int, ...] | None = None,
) -> Run:
    """Measure where the time goes in a data pipeline, and what each remedy is worth. Runs the target's code; changes nothing of it.

    Args:
        target: FILE.py, FILE.py:name, package.module:name, a directory of class folders, a cache, a Dataset or a DataLoader.
        budget: seconds to spend (trials of fixes may take some more); text may have a unit, such as ``"2m"``.
        step: what consumes the batches, instead of the target file's own: a model, of which a copy is trained, or a function that
            takes one and trains on it, and is called as it is: have it train a copy.
        step_ms: milliseconds that an emulated training step takes a batch, in place of the target's own.
        target_rate: samples a second that an emulated consumer takes.
        batch_size: instead of the loader's.
        workers: worker processes, instead of the loader's.
        recording_bytes: memory to record samples in; a number, or text such as ``"8GB"``.
        trace: a file to write: some samples as a trace for Perfetto.
        progress: called with a phase and the part that is done, 0 to 1.
        seed: of the probe's own choices.
        trial_workers: worker counts that are tried; chosen by the probe where they are None.

    Returns:
        The run: verdict, stages, arms, remedies, audit and caveats. It prints its card, and has ``save`` and ``html``.
    """
    begun = time.perf_counter()
    say = progress or silent
    trace = placed("trace", trace)
    trace = trace.absolute() if trace is not None else None  # the target's code may change the working directory
    say("loading the target", 0.0)
    seconds = amounts.taken("budget", budget, amounts.seconds)
    memory = amounts.taken("recording_bytes", recording_bytes, amounts.size)
    subject = load_target(target, batch_size=batch_size, workers=workers, step=step)
    consumer = consumer_for(subject, **consumed(step_ms, target_rate, step))
    subject = as_planned(subject)
    with failure.exits_as_target_error("The target's code"):
        told, measurement, _ = look_at(
            subject, consumer, budget=seconds, recording_bytes=memory, trace=trace is not None, progress=say, seed=seed,
            trial_workers=trial_workers, begun=begun,
        )  # fmt: skip
    run = shown(told)
    if trace is not None:
        try:
            trace_file.write(measurement.traced, trace, main=os.getpid(), target=subject.target)
        except UnreadableFile as error:
            error.known = run
            raise
    return run


def look_at(
    subject: Subject, consumer: Consumer, *, budget: float, recording_bytes: int = 1_000_000_000, trace: bool = False,
    progress: Progress = silent, seed: int = 0, trial_workers: tuple[int, ...] | None = None, begun: float | None = None,
) -> tuple[runfile.Run, Measurement, Advice]:  # fmt: skip
    """Measure, diagnose and advise; nothing is advised where nothing was measured. ``begun``: when the budget began to run."""
    begun = time.perf_counter() if begun is None else begun
    machine = look()
    tries = budget >= LEAST_BUDGET and not subject.iterable
    aside = min(MOST_ASIDE, ASIDE * budget) if tries else 0.0
    measured = 1 - (TRIED_ASIDE + bool(subject.settings.num_workers)) * aside / budget
    plan = MeasurementPlan(
        budget=max(1.0, measured * budget - (time.perf_counter() - begun)), recording_bytes=recording_bytes,
        trial_workers=_trials(subject, machine, budget) if trial_workers is None else trial_workers, events=trace,
        observe=loader_facts.worker_facts, seam_cost=calibrate.seam_cost(), enough=settled, wanting=wanting, seed=seed,
        progress=lambda phase, done: progress(phase, measured * done),
    )  # fmt: skip
    try:
        measurement = measure(subject, consumer, plan, cores=machine.effective_cores)
    except TargetError as error:
        _blame_shared_handles(error, subject)
        raise
    diagnosis = diagnose(measurement) if measurement.of(REAL.name) else None
    # Where processes forked for other settings gave no batch, or would give none, those for other trials would hang as well.
    hung = bool(measurement.lost_by_fork) or any(why.startswith(FAILED) for why in measurement.declined.values())
    if diagnosis is not None and not measurement.partial and not hung:
        _see_parts(subject, machine, measurement, diagnosis)
    if aside and diagnosis is not None and not measurement.partial and not hung:
        progress("trying what fixes would bring", measured)
        _try_aside(subject, machine, consumer, measurement, diagnosis, aside)
        patience = max(LEAST_PATIENT, PATIENT * aside, min(MOST_PATIENT * budget, SLOW_SAMPLES * making(diagnosis)))
        _try_conversions(subject, machine, measurement, diagnosis, 0.0 if measurement.partial else patience)
    elif diagnosis is not None:
        _try_conversions(subject, machine, measurement, diagnosis, 0.0)  # none is, and each says so
    progress("done", 1.0)
    run, advice = _told(subject, machine, measurement, diagnosis)
    assert run.instrument is not None
    instrument = msgspec.structs.replace(run.instrument, seconds=time.perf_counter() - begun)
    return msgspec.structs.replace(run, instrument=instrument), measurement, advice


def _trials(subject: Subject, machine: Machine, budget: float) -> tuple[int, ...]:
    """Worker counts worth trying: around the number of cores and around what is set now."""
    if budget < QUIET_BUDGET:
        return ()
    now, cores = subject.settings.num_workers, max(1, int(machine.effective_cores))
    unlike = [count for count in dict.fromkeys((cores, 2 * cores, now // 2 or 1, 2 * now or 1)) if count != now]
    return tuple(sorted(unlike[: 3 if budget >= 30 else 2]))


def _see_parts(subject: Subject, machine: Machine, measurement: Measurement, diagnosis: Diagnosis) -> None:
    """Whether workers share a stream that does not say so, where there are several or would be proposed."""
    if not subject.iterable or measurement.shards is not None:
        return
    changes = [step.change for step in advise(Case(measurement, diagnosis, machine=machine)).proposed]
    proposed = [change.num_workers or 0 for change in changes if isinstance(change, LoaderChange)]
    if max(measurement.workers, *proposed, 0) < WORKERS:
        return
    try:
        measurement.whole_stream_each = whole_stream_each(subject)
    except KeyboardInterrupt:
        measurement.partial = True


def _try_aside(
    subject: Subject, machine: Machine, consumer: Consumer, measurement: Measurement, diagnosis: Diagnosis, each: float
) -> None:
    """What fixes would bring, seen beside the pipeline in about so many seconds each; an interruption leaves what was measured."""
    try:
        measurement.fused = try_remedies.fused_calls(subject, diagnosis, each)
        case = Case(measurement, diagnosis, subject.target, machine)
        measurement.record = try_remedies.sample_record(subject, consumer, case, each)
        measurement.handover = try_remedies.handover(subject, consumer, case, each)
        measurement.fused = try_remedies.fused_loader(subject, consumer, case, each)
    except KeyboardInterrupt:
        measurement.partial = True


def _try_conversions(subject: Subject, machine: Machine, measurement: Measurement, diagnosis: Diagnosis, seconds: float) -> None:
    """Caches that would be proposed are begun on a few samples: what `convert` refuses is not told as a remedy. Samples may
    come out the same every time, whatever functions make them: that is seen so, too."""
    known, until = measurement.tried_caches, time.perf_counter() + seconds

    def tried(store: str) -> TriedCache:
        began = try_remedies.begin_cache(subject, store, until - time.perf_counter(), making(diagnosis))
        return began or TriedCache(late=True)

    try:
        first = operations_of(measurement, diagnosis).first_random
        unknown = not held_transforms(subject.dataset) or (first is not None and not says_random(first))
        if diagnosis.part_of_making(Stage.AUGMENT) > WORTH_TRYING and unknown:
            known["sample"] = tried("sample")
            measurement.same_every_time = known["sample"].whole
        while new := {
            step.change.store
            for step in advise(Case(measurement, diagnosis, machine=machine)).proposed
            if isinstance(step.change, CacheChange) and step.change.store not in known
        }:
            known.update({store: tried(store) for store in sorted(new)})
            measurement.same_every_time = any(tried_cache.whole for tried_cache in known.values())
    except KeyboardInterrupt:
        measurement.partial = True


def _blame_shared_handles(error: TargetError, subject: Subject) -> None:
    """Where workers share a handle, it is rarely the sample that wants mending."""
    if error.user_traceback:
        shared = handle_before_fork.check(AuditFacts(settings=subject.settings, **loader_facts.loader_facts(subject.loader)))
        if shared is not None:
            error.advise(f"{shared.found} {shared.advice}")


def _told(subject: Subject, machine: Machine, measurement: Measurement, diagnosis: Diagnosis | None) -> tuple[runfile.Run, Advice]:
    if diagnosis is None:
        return run_figures.nothing_measured(subject, machine.as_dict(), measurement), Advice(())
    moving, whole = (_moving(subject, to) if machine.gpus else None for to in ("kornia", "dali"))
    advice = advise(Case(measurement, diagnosis, subject.target, machine, bool(machine.gpus), moving, whole, subject.given))
    run = run_figures.run(
        subject, machine.as_dict(), measurement, diagnosis, steps=advice,
        findings=_audit(subject, machine, measurement, diagnosis),
        replaces={arm.name: sorted(map(str, arm.replaces)) for arm in POOL},
    )  # fmt: skip
    return run, advice


def _moving(subject: Subject, to: str) -> Moving | None:
    """What `pipefix swap --to` would move; None where it cannot be told."""
    from pipefix.augment import support
    from pipefix.augment.split import split
    from pipefix.augment.transforms import files_of, find

    plan, _ = getattr(subject.loader, "follows", None) or (None, None)
    if plan is not None and plan.augmentation is not None:
        return Moving(frozenset(), "the loader's plan moves transforms to whole batches already")
    try:
        support.check(to)
        at = find(subject.dataset)
        if at is None:
            return Moving(frozenset(), "the dataset keeps its transforms under none of the usual names (transform, augment)")
        files = files_of(subject.dataset) if to == "dali" else ""
        if files and isinstance(files, str):
            return Moving(frozenset(), files)
        cut = split(at.value, to)
    except MissingExtra as error:
        return Moving(frozenset(), f"{str(error).rstrip('.')} ({error.advice})")
    except Exception:  # noqa: BLE001 - the user's own classes may raise anything
        return None
    why = "; ".join(f"{name} stays: {why}" for name, why in (cut.reasons[:1] if to == "dali" else cut.reasons[-1:]))
    return Moving(frozenset(cut.names), why)


def _audit(subject: Subject, machine: Machine, measurement: Measurement, diagnosis: Diagnosis) -> list[Finding]:
    sample = [cost for stage, cost in diagnosis.stages.items() if stage in IN_SAMPLE and cost.waiting is not None]
    wall = sum(cost.wall.value for cost in sample)
    facts = AuditFacts(
        machine=machine,
        settings=measurement.settings,
        growth=max(filter(None, map(loader_facts.growth, measurement.looks.values())), key=lambda grown: grown.bytes, default=None),
        cpu_share=1 - sum(cost.waiting or 0.0 for cost in sample) / wall if wall else None,
        throttled_share=measurement.throttled,
        first_batch_s=measurement.first_batch,
        step=StepFacts(**measurement.step_facts) if measurement.step_facts else None,
        **loader_facts.run_facts(subject.loader, measurement.facts, measurement.paths),
    )
    operations = [operation for cost in sample for operation in cost.ops]
    sample_bytes = facts.batch.bytes / measurement.settings.samples_a_batch if facts.batch is not None else 0.0
    facts = msgspec.structs.replace(facts, unpacked=storage_facts.amplified(measurement.unpacked, operations, sample_bytes))
    reading = diagnosis.stages.get(Stage.STORAGE)
    if reading is not None and measurement.stores:
        facts = msgspec.structs.replace(facts, store=storage_facts.timed(measurement.stores, reading.ops, reading.bytes))
    return audit(facts)
