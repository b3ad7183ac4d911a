"""Builds a run file from measurement, diagnosis and plan; figures keep all their digits, and nothing is decided."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

import msgspec

from pipefix.diagnosis.diagnosis import Diagnosis
from pipefix.measurement.measurement import Measurement
from pipefix.plan.plan import Proposed, Step
from pipefix.report import runfile
from pipefix.subject.subject import Subject
from pipefix.vocabulary.finding import Finding
from pipefix.vocabulary.gain import Bounded, Gain, MeasuredGain, NotTried, known_from
from pipefix.vocabulary.stage import ORDER, Stage
from pipefix.vocabulary.version import VERSION

TIMELINE_BLOCKS, TIMELINE_BATCHES = 3, 600
"""Of the real arm: the last blocks whose waits are drawn, and how many batches at most."""
COLD_ARM = "real-cold"
CLASSES = 30
"""Of what samples cost, for the histogram."""


def nothing_measured(subject: Subject, machine: Mapping[str, Any], measurement: Measurement) -> runfile.Run:
    """The run of a probe that was interrupted before its first block."""
    return msgspec.structs.replace(
        _head(subject, machine, measurement),
        partial=True,
        verdict=runfile.Verdict(kind="inconclusive", stage=None, sentence="Inconclusive: nothing was measured.", confidence=0.0),
        caveats=[runfile.Caveat(id="interrupted", sentence="The probe was interrupted before the first block was measured.")],
        instrument=_instrument(measurement, None),
    )


def run(
    subject: Subject, machine: Mapping[str, Any], measurement: Measurement, diagnosis: Diagnosis, *,
    steps: Iterable[Step], findings: Iterable[Finding], replaces: Mapping[str, list[str]],
) -> runfile.Run:  # fmt: skip
    """One probe as a run file tells it. ``replaces``: the stages that each arm replaces."""
    delivered = len(measurement.of("plain")) or len(measurement.of("real"))
    step_split = {f"{name}_s": seconds for name, seconds in measurement.step_split.items()}
    return msgspec.structs.replace(
        _head(subject, machine, measurement), verdict=diagnosis.verdict,
        throughput=runfile.Throughput(delivered=known_from(diagnosis.sample.inverted(), delivered), demand=diagnosis.demand),
        sample_s=known_from(diagnosis.sample, delivered), unattributed_s=diagnosis.unattributed,
        stages=[_stage(stage, diagnosis) for stage in ORDER],
        sampler_s=diagnosis.sampler if diagnosis.sampler.value else None,
        sampler_gain=_gain(diagnosis.sampler_gain) if diagnosis.sampler_gain is not None else None,
        arms=_arms(measurement, replaces), remedies=[_remedy(step) for step in steps], audit=list(findings),
        caveats=_caveats(subject, diagnosis), tail=_tail(measurement, diagnosis),
        step_split=runfile.StepSplit(**step_split) if step_split else None,
        waits=_waits(measurement, diagnosis), cold=_cold(measurement, diagnosis),
        instrument=_instrument(measurement, diagnosis),
    )  # fmt: skip


def _head(subject: Subject, machine: Mapping[str, Any], measurement: Measurement) -> runfile.Run:
    meanwhile = dict(measurement.nvml)
    if measurement.others_cores is not None:
        meanwhile["others_cores"] = round(measurement.others_cores, 3)
    if measurement.reference_seconds:
        meanwhile["reference_cpu_s"] = round(median(measurement.reference_seconds), 8)
    startup = runfile.StartUp(
        first_batch_s=measurement.first_batch, epoch_restart_s=measurement.epoch_restart, load_target_s=subject.load_seconds
    )
    return runfile.Run(
        pipefix=VERSION, created=datetime.datetime.now().astimezone().isoformat(timespec="seconds"), target=subject.target,
        partial=measurement.partial, machine={**machine, "while_measured": meanwhile} if meanwhile else dict(machine),
        settings=measurement.settings, given=subject.given, consumer=measurement.consumer, startup=startup,
    )  # fmt: skip


def _cold(measurement: Measurement, diagnosis: Diagnosis) -> dict[str, Any]:
    """How cold the files were, and throughput with them cold over throughput with them in memory; or why none was measured."""
    proof, ratio = measurement.cold, diagnosis.arms.get(COLD_ARM)
    if ratio is None:
        return {"declined": proof["why"]} if proof.get("why") else {}
    residency = {"residency_before": proof["before"], "residency_after": proof["after"]}
    return {**residency, "files": proof["files"], "bytes": proof["bytes"], "ratio": msgspec.to_builtins(ratio)}


def _stage(stage: Stage, diagnosis: Diagnosis) -> runfile.StageFigures:
    cost, blocks = diagnosis.stages.get(stage), diagnosis.verdict.blocks
    if cost is None:
        return runfile.StageFigures(stage=str(stage), declined=diagnosis.declined.get(stage, "not measured"))
    return runfile.StageFigures(
        stage=str(cost.stage), wall_s=known_from(cost.wall, blocks),
        cpu_s=known_from(cost.cpu, blocks) if cost.cpu is not None else None, share=cost.share, hidden=cost.hidden,
        bytes=cost.bytes, marginal_gain=_gain(cost.gain), waiting_s=cost.waiting, ops=list(cost.ops),
    )  # fmt: skip


def _gain(gain: Gain) -> runfile.GainFigures:
    if isinstance(gain, NotTried):
        return runfile.GainFigures(how=gain.how)
    if isinstance(gain, Bounded):
        return runfile.GainFigures(how=gain.how, at_most=gain.at_most)
    blocks = gain.blocks if isinstance(gain, MeasuredGain) else None
    return runfile.GainFigures(gain.told.value, gain.told.low, gain.told.high, blocks, gain.how)


def _arms(measurement: Measurement, replaces: Mapping[str, list[str]]) -> list[runfile.Arm]:
    measured: dict[str, list[float]] = {}
    for block in measurement.blocks:
        measured.setdefault(block.arm, []).append(round(block.rate, 3))
    arms = [runfile.Arm(name=name, replaces=replaces.get(name, []), rates=rates) for name, rates in measured.items()]
    arms += [runfile.Arm(name=name, rates=[rate for rate, _ in pairs]) for name, pairs in measurement.trials.items()]
    declined = [(name, why) for name, why in measurement.declined.items() if name not in measured]
    return arms + [runfile.Arm(name=name, replaces=replaces.get(name, []), declined=why) for name, why in declined]


def _remedy(step: Step) -> runfile.RemedyFigures:
    proposed = isinstance(step, Proposed)
    return runfile.RemedyFigures(
        id=step.id, stage=str(step.stage), title=step.title, status="proposed" if proposed else "declined", why=step.why,
        speedup=_gain(step.gain),
        cost=runfile.RemedyCost(disk_bytes=step.disk_bytes, seconds=step.seconds) if proposed else None,
        command=step.command if proposed else None, measured=step.measured,
        risk=step.risk if isinstance(step, Proposed) else None, relieves=[str(stage) for stage in step.relieves],
    )  # fmt: skip


def _caveats(subject: Subject, diagnosis: Diagnosis) -> list[runfile.Caveat]:
    assumed = (
        f"No DataLoader was given, so {', '.join(subject.assumed)} was assumed; name yours with FILE.py:loader, or let the program "
        "make it: pipefix probe FILE.py --"
    )
    own = [("choice", subject.choice), ("wrapper", subject.wrapper), ("assumed", assumed if subject.assumed else "")]
    told = [*diagnosis.caveats, *((name, sentence) for name, sentence in own if sentence)]
    return [runfile.Caveat(id=name, sentence=sentence) for name, sentence in told]


def _tail(measurement: Measurement, diagnosis: Diagnosis) -> runfile.Tail | None:
    tail = diagnosis.tail
    if not tail:
        return None
    together = tail.get("together", 1.0)
    walls = [wall / 1e9 for row in measurement.rows("real") for wall in row.trace.unit_walls if wall > 0]
    edges, counts = sample_classes([wall / together for wall in walls])
    return runfile.Tail(
        p50_s=tail["p50"], p95_s=tail["p95"], p99_s=tail["p99"], max_s=tail["max"], samples=round(tail["samples"]),
        head_of_line_s=tail.get("blocked"), edges_s=edges, counts=[round(count * together) for count in counts],
    )  # fmt: skip


def sample_classes(costs: list[float]) -> tuple[list[float], list[int]]:
    """Bounds in equal steps on a logarithmic scale, and how many samples lie between them."""
    low, high = min(costs, default=0.0), max(costs, default=0.0)
    if not high > low > 0:
        return [], []
    width = math.log(high / low) / CLASSES
    counts = [0] * CLASSES
    for cost in costs:
        counts[min(CLASSES - 1, int(math.log(cost / low) / width))] += 1
    return [round(low * math.exp(number * width), 9) for number in range(CLASSES + 1)], counts


def _waits(measurement: Measurement, diagnosis: Diagnosis) -> runfile.Waits:
    rows = [row for block in measurement.of("real")[-TIMELINE_BLOCKS:] for row in block.rows][:TIMELINE_BATCHES]
    times = [(row.asked - rows[0].asked, row.got - row.asked, row.done - row.got) for row in rows]
    at, wait, step = ([round(spent / 1e9, 6) for spent in column] for column in zip(*times, strict=True))
    return runfile.Waits(at_s=at, wait_s=wait, step_s=step, fed=diagnosis.fed, loader_s=diagnosis.loader_wait)


def _instrument(measurement: Measurement, diagnosis: Diagnosis | None) -> runfile.Instrument:
    return runfile.Instrument(
        seam_cost_s=measurement.seam_cost, harness_s=measurement.harness_seconds,
        seams_per_sample=diagnosis.calls_per_sample if diagnosis is not None else None,
        slowdown=diagnosis.slowdown if diagnosis is not None else None,
        peak_rss_bytes=float(measurement.peak_rss), recording_bytes=float(measurement.recorded_bytes),
    )  # fmt: skip
