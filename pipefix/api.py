"""The verbs, composed from the rooms. The command line and the library make the same calls."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pipefix.audit import observe
from pipefix.audit.finding import AuditFacts
from pipefix.audit.rules import audit
from pipefix.diagnosis.diagnose import diagnose, settled
from pipefix.diagnosis.diagnosis import Diagnosis, StageCost
from pipefix.measurement import calibrate
from pipefix.measurement.consumer import consumer_for
from pipefix.measurement.machine import Machine, look
from pipefix.measurement.measure import Plan, measure, silent
from pipefix.measurement.measurement import Measurement
from pipefix.report import runfile
from pipefix.report.runfile import Run
from pipefix.subject.load import load
from pipefix.subject.subject import Subject
from pipefix.vocabulary.stage import IN_SAMPLE, ORDER
from pipefix.vocabulary.version import VERSION

Progress = Callable[[str, float], None]

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
    subject = load(target, batch_size=batch_size, workers=workers)
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
    run = _run(subject, machine, found)
    if trace is not None:
        _write_trace(found, trace)
    return msgspec.structs.replace(run, instrument=_instrument(found, time.perf_counter() - begun))


def doctor(target: Any = None) -> tuple[dict[str, Any], list[runfile.Finding]]:
    """Audit the machine, and the settings of a target's loader, without measuring a pipeline."""
    machine = look()
    facts = AuditFacts(machine=machine)
    if target is not None:
        subject = load(target)
        facts = AuditFacts(machine=machine, settings=subject.settings, **observe.loader_facts(subject.loader))
    return machine.as_dict(), [_finding(one) for one in audit(facts)]


def _trials(subject: Subject, machine: Machine, budget: float) -> tuple[int, ...]:
    """Worker counts worth trying: around the number of cores and around what is set now."""
    if budget < QUIET_BUDGET:
        return ()
    now, cores = subject.settings.num_workers, max(1, int(machine.effective_cores))
    wanted = [cores, 2 * cores, now // 2 or 1, 2 * now or 1]
    unlike = [count for count in dict.fromkeys(wanted) if count != now]
    return tuple(sorted(unlike[: 3 if budget >= 30 else 2]))


# -- measurement and diagnosis as a run file -----------------------------------------------------------------------------


def _run(subject: Subject, machine: Machine, found: Measurement) -> Run:
    head = Run(
        pipefix=VERSION,
        created=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        target=subject.target,
        partial=found.partial,
        machine=machine.as_dict(),
        settings=found.settings,
        consumer=found.consumer,
        startup=runfile.StartUp(
            first_batch_s=found.first_batch, epoch_restart_s=found.epoch_restart, load_target_s=subject.load_seconds
        ),
        cold=found.cold,
    )
    if not found.of("real"):
        caveat = runfile.Caveat(id="interrupted", sentence="The probe was interrupted before the first block was measured.")
        verdict = runfile.Verdict(kind="inconclusive", stage=None, sentence="Inconclusive: nothing was measured.", confidence=0.0)
        return msgspec.structs.replace(head, partial=True, verdict=verdict, caveats=[caveat])
    diagnosis = diagnose(found)
    return msgspec.structs.replace(
        head,
        verdict=runfile.Verdict(
            kind=diagnosis.verdict.kind,
            stage=str(diagnosis.verdict.stage) if diagnosis.verdict.stage is not None else None,
            sentence=diagnosis.verdict.sentence,
            confidence=round(diagnosis.verdict.confidence, 4),
        ),
        throughput=runfile.Throughput(delivered=diagnosis.sample.inverted(), demand=diagnosis.demand),
        sample_s=diagnosis.sample,
        stages=_stages(diagnosis),
        unattributed_s=diagnosis.unattributed,
        arms=_arms(found),
        remedies=_remedies(subject, machine, found, diagnosis),
        audit=_audit(subject, machine, found, diagnosis),
        caveats=_caveats(subject, diagnosis),
        tail=_tail(diagnosis),
        step_split=_step_split(found),
        waits=_waits(found, diagnosis),
    )


def _stages(diagnosis: Diagnosis) -> list[runfile.StageFigures]:
    figures = []
    for stage in ORDER:
        cost = diagnosis.stages.get(stage)
        if cost is None:
            figures.append(runfile.StageFigures(stage=str(stage), declined=diagnosis.declined.get(stage, "not measured")))
        else:
            figures.append(_stage(cost))
    return figures


def _stage(cost: StageCost) -> runfile.StageFigures:
    ops = [runfile.Op(name=op.name, wall_s=op.wall, cpu_s=op.cpu, calls=op.calls, opaque=op.opaque) for op in cost.ops]
    return runfile.StageFigures(
        stage=str(cost.stage),
        wall_s=cost.wall,
        cpu_s=cost.cpu,
        share=cost.share,
        hidden=cost.hidden,
        bytes=cost.bytes,
        marginal_gain=cost.gain,
        ops=ops,
    )


def _arms(found: Measurement) -> list[runfile.Arm]:
    from pipefix.measurement.experiments import POOL

    replaced = {arm.name: sorted(str(stage) for stage in arm.replaces) for arm in POOL}
    measured: dict[str, list[float]] = {}
    for block in found.blocks:
        measured.setdefault(block.arm, []).append(round(block.rate, 3))
    arms = [runfile.Arm(name=name, replaces=replaced.get(name, []), rates=rates) for name, rates in measured.items()]
    arms += [runfile.Arm(name=name, rates=[rate for rate, _ in pairs]) for name, pairs in found.trials.items()]
    declined = [(name, why) for name, why in found.declined.items() if name not in measured]
    return arms + [runfile.Arm(name=name, replaces=replaced.get(name, []), declined=why) for name, why in declined]


def _remedies(subject: Subject, machine: Machine, found: Measurement, diagnosis: Diagnosis) -> list[runfile.RemedyFigures]:
    from pipefix.plan.advise import advise

    plan = advise(found, diagnosis, target=subject.target, machine=machine, cuda=bool(machine.gpus))
    return [_remedy(step) for step in plan.steps]


def _remedy(step: Any) -> runfile.RemedyFigures:
    proposed = type(step).__name__ == "Proposed"
    return runfile.RemedyFigures(
        id=step.id,
        stage=str(step.stage),
        title=step.title,
        status="proposed" if proposed else "declined",
        why=step.why,
        speedup=step.speedup,
        cost=runfile.Cost(disk_bytes=step.disk_bytes, seconds=step.seconds) if proposed else None,
        command=step.command if proposed else None,
        measured=step.measured,
    )


def _finding(finding: Any) -> runfile.Finding:
    return runfile.Finding(
        id=finding.id, severity=finding.severity, found=finding.found, advice=finding.advice, rule=finding.rule
    )


def _audit(subject: Subject, machine: Machine, found: Measurement, diagnosis: Diagnosis) -> list[runfile.Finding]:
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
    return [_finding(one) for one in audit(facts)]


def _growth(found: Measurement) -> Any:
    """Of the process whose private memory grew most between two looks."""
    grown = []
    for looks in found.looks.values():
        (made, first), (later, last) = looks[0], looks[-1]
        growth = observe.growth(observe.worker_of(first), observe.worker_of(last), later - made) if later > made else None
        if growth is not None:
            grown.append(growth)
    return max(grown, key=lambda one: one.bytes, default=None)


def _caveats(subject: Subject, diagnosis: Diagnosis) -> list[runfile.Caveat]:
    told = [runfile.Caveat(id=name, sentence=sentence) for name, sentence in diagnosis.caveats]
    if subject.assumed:
        given = ", ".join(subject.assumed)
        told.append(
            runfile.Caveat(
                id="assumed", sentence=f"No DataLoader was given, so {given} was assumed; name yours with FILE.py:loader."
            )
        )
    return told


def _tail(diagnosis: Diagnosis) -> runfile.Tail | None:
    tail = diagnosis.tail
    if not tail:
        return None
    return runfile.Tail(
        p50_s=tail["p50"],
        p95_s=tail["p95"],
        p99_s=tail["p99"],
        max_s=tail["max"],
        samples=int(tail["samples"]),
        head_of_line_s=tail.get("blocked"),
    )


def _step_split(found: Measurement) -> runfile.StepSplit | None:
    parts = found.step_split
    if not parts:
        return None
    return runfile.StepSplit(
        forward_s=parts.get("forward"),
        backward_s=parts.get("backward"),
        optimizer_s=parts.get("optimizer"),
        other_s=parts.get("other"),
    )


def _waits(found: Measurement, diagnosis: Diagnosis) -> runfile.Waits:
    rows = [row for block in found.of("real")[-3:] for row in block.rows][:600]
    start = rows[0].asked
    return runfile.Waits(
        at_s=[round((row.asked - start) / 1e9, 6) for row in rows],
        wait_s=[round((row.got - row.asked) / 1e9, 6) for row in rows],
        step_s=[round((row.done - row.got) / 1e9, 6) for row in rows],
        fed=diagnosis.fed,
        period=found.workers if found.workers > 1 else None,
    )


def _instrument(found: Measurement, seconds: float) -> runfile.Instrument:
    diagnosed = bool(found.of("real"))
    diagnosis = diagnose(found) if diagnosed else None
    return runfile.Instrument(
        seam_cost_s=found.seam_cost,
        seams_per_sample=diagnosis.calls_per_sample if diagnosis is not None else None,
        slowdown=diagnosis.slowdown if diagnosis is not None else None,
        seconds=seconds,
        peak_rss_bytes=float(found.peak_rss),
        recording_bytes=float(found.recorded_bytes),
    )


def _write_trace(found: Measurement, path: Path) -> None:
    from pipefix.report import trace as chrome

    chrome.write(found_slices(found), path)


def found_slices(found: Measurement) -> list[Any]:
    """The traced operations, batches, waits and steps as neutral slices."""
    from pipefix.report.trace import Slice

    slices = []
    for pid, stage, op, begun, ended in found.events:
        slices.append(Slice(pid=pid, tid=0, name=op, stage=stage, begin_ns=begun, end_ns=ended))
    return slices
