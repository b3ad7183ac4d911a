"""probe: where the time goes in a pipeline, and what each remedy is worth."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pipefix.audit import observe
from pipefix.audit.finding import AuditFacts, Finding
from pipefix.audit.rules import audit
from pipefix.diagnosis.diagnose import diagnose, settled
from pipefix.diagnosis.diagnosis import Diagnosis
from pipefix.measurement import calibrate
from pipefix.measurement.consumer import Consumer, consumer_for
from pipefix.measurement.experiments import POOL, REAL
from pipefix.measurement.machine import Machine, look
from pipefix.measurement.measure import Plan, measure
from pipefix.measurement.measurement import Measurement
from pipefix.plan.advise import advise
from pipefix.plan.plan import Plan as Advice
from pipefix.plan.remedies.fusing import LEAST_BUDGET
from pipefix.report import tell, timeline
from pipefix.report.runfile import Run
from pipefix.subject.subject import Subject
from pipefix.verbs import fused, read_back
from pipefix.verbs.target import Progress, load_target, silent
from pipefix.vocabulary.errors import UnreadableFile
from pipefix.vocabulary.stage import IN_SAMPLE

VERBS = frozenset({"convert", "swap", "tune"})
"""Commands that remedies may name."""

ASIDE, MOST_ASIDE, TRIED_ASIDE = 0.05, 3.0, 2
"""Part of the budget, and seconds at most, for each thing that is tried beside the pipeline; and how many there are."""
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
    subject = load_target(target, batch_size=batch_size, workers=workers)
    consumer = consumer_for(subject, step_ms=step_ms, target_rate=target_rate)
    looked = look_at(
        subject, consumer, budget=budget, recording_bytes=recording_bytes, trace=trace is not None, progress=say, seed=seed,
        trial_workers=trial_workers, begun=begun,
    )  # fmt: skip
    run = looked.run
    if trace is not None:
        try:
            timeline.write(looked.found.traced, trace, main=os.getpid(), target=subject.target)
        except UnreadableFile as error:
            error.known = run
            raise
    return run


@dataclass(frozen=True)
class Looked:
    """What one look at a pipeline found, and the run file that tells it."""

    run: Run
    found: Measurement
    plan: Advice
    """What could be done; empty where nothing was measured."""


def look_at(
    subject: Subject,
    consumer: Consumer,
    *,
    budget: float,
    recording_bytes: int = 1_000_000_000,
    trace: bool = False,
    progress: Progress = silent,
    seed: int = 0,
    trial_workers: tuple[int, ...] | None = None,
    begun: float | None = None,
) -> Looked:
    """Measure, diagnose and advise. ``begun``: when the budget began to run."""
    begun = time.perf_counter() if begun is None else begun
    machine = look()
    tries = budget >= LEAST_BUDGET and not subject.iterable
    aside = min(MOST_ASIDE, ASIDE * budget) if tries else 0.0
    measured = 1 - TRIED_ASIDE * aside / budget
    plan = Plan(
        budget=max(1.0, measured * budget - (time.perf_counter() - begun)),
        recording_bytes=recording_bytes,
        trial_workers=_trials(subject, machine, budget) if trial_workers is None else trial_workers,
        events=trace,
        observe=observe.worker_facts,
        enough=settled,
        seed=seed,
        progress=lambda phase, done: progress(phase, measured * done),
    )
    found = measure(subject, consumer, plan, cores=machine.effective_cores)
    found.seam_cost = calibrate.seam_cost()
    diagnosis = diagnose(found) if found.of(REAL.name) else None
    if aside and diagnosis is not None and not found.partial:
        progress("trying what fixes would bring", measured)
        _try_aside(subject, consumer, found, diagnosis, aside)
    progress("done", 1.0)
    run, advice = _told(subject, machine, found, diagnosis)
    assert run.instrument is not None
    instrument = msgspec.structs.replace(run.instrument, seconds=time.perf_counter() - begun)
    return Looked(msgspec.structs.replace(run, instrument=instrument), found, advice)


def _trials(subject: Subject, machine: Machine, budget: float) -> tuple[int, ...]:
    """Worker counts worth trying: around the number of cores and around what is set now."""
    if budget < QUIET_BUDGET:
        return ()
    now, cores = subject.settings.num_workers, max(1, int(machine.effective_cores))
    wanted = [cores, 2 * cores, now // 2 or 1, 2 * now or 1]
    unlike = [count for count in dict.fromkeys(wanted) if count != now]
    return tuple(sorted(unlike[: 3 if budget >= 30 else 2]))


def _try_aside(subject: Subject, consumer: Consumer, found: Measurement, diagnosis: Diagnosis, each: float) -> None:
    """What fixes would bring, seen beside the pipeline in about so many seconds each; an interruption leaves what was measured."""
    try:
        found.fused = fused.calls(subject, diagnosis, each)
        found.record = read_back.record(subject, consumer, diagnosis, each, found.first_batch)
    except KeyboardInterrupt:
        found.partial = True


def _told(subject: Subject, machine: Machine, found: Measurement, diagnosis: Diagnosis | None) -> tuple[Run, Advice]:
    if diagnosis is None:
        return tell.nothing_measured(subject, machine.as_dict(), found), Advice(())
    advice = advise(found, diagnosis, target=subject.target, machine=machine, cuda=bool(machine.gpus), verbs=VERBS)
    run = tell.run(
        subject,
        machine.as_dict(),
        found,
        diagnosis,
        steps=advice,
        findings=_audit(subject, machine, found, diagnosis),
        replaces={arm.name: sorted(map(str, arm.replaces)) for arm in POOL},
    )
    return run, advice


def _audit(subject: Subject, machine: Machine, found: Measurement, diagnosis: Diagnosis) -> list[Finding]:
    epoch = found.settings.epoch
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
        epoch_s=diagnosis.sample.value * epoch if epoch is not None else None,
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
