"""Fits the throughput model to what was measured: where every prediction starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pipefix.diagnosis.diagnosis import Diagnosis, StageCost
from pipefix.diagnosis.throughput import DRAWS, OTHER, PipelineModel, StageTime, draws, stage_time
from pipefix.measurement import experiments
from pipefix.measurement.measurement import Measurement
from pipefix.vocabulary.stage import IN_SAMPLE, Stage

SATURATED = 0.85
"""On cores that the pipeline itself keeps busier than this, its workers wait for each other."""


def fitted(measurement: Measurement, diagnosis: Diagnosis) -> PipelineModel:
    """The pipeline as it was measured; predicts what was measured where nothing is changed."""
    stages, workers = diagnosis.stages, measurement.workers
    step = stages.get(Stage.STEP)
    copying = measurement.transfer.get("exposed", 0.0) / measurement.settings.samples_a_batch
    stepping = (step.wall.value if step is not None else 0.0) + copying
    sampling = diagnosis.sampler.value
    making = {stage.value: _part(stages[stage]) for stage in (*IN_SAMPLE, Stage.COLLATE)}
    taking = {Stage.STEP.value: stage_time(step.wall, 0.0, name=Stage.STEP.value)} if step is not None else {}
    if copying:
        taking[Stage.TRANSFER.value] = stage_time(copying, 0.0)
    if sampling:
        taking["sampler"] = stage_time(sampling)  # no stage, and no remedy touches it
    if workers:
        took = max(0.0, diagnosis.stations.main.value - stepping - sampling)
        ipc = stages[Stage.IPC].wall
        making[Stage.IPC.value] = stage_time(ipc, name="ipc").scaled(max(0.0, 1 - took / ipc.value) if ipc.value else 0.0)
        taking[Stage.IPC.value] = stage_time(took)
    pool = diagnosis.stations.pool
    whole = pool.value * workers if workers and pool is not None else diagnosis.stations.main.value - stepping - sampling
    rest = max(0.0, whole - sum(float(part.wall[0]) for part in making.values()))
    making[OTHER] = stage_time(rest, 1 - diagnosis.starved)
    taking = _with_cpu(taking, measurement, {} if workers else making)
    model = PipelineModel(making, taking, workers, measurement.cores, device=_on_device(measurement))
    if workers and diagnosis.stations.border is not None:
        model = replace(model, crossing=draws(diagnosis.stations.border, "border"))
    return _uncrowded(model, diagnosis) if model.busy >= SATURATED else model


def _on_device(measurement: Measurement) -> float:
    """Seconds a sample that a device works on a step; 0 where there is none, or none that was followed."""
    blocks = measurement.of(experiments.PLAIN.name) or measurement.of(experiments.REAL.name)
    rows = [row for block in blocks for row in block.rows if row.idle is not None and row.trace.samples]
    return float(np.median([row.device / row.trace.samples for row in rows])) / 1e9 if rows else 0.0


def _part(cost: StageCost) -> StageTime:
    computing = cost.cpu.value / cost.wall.value if cost.cpu is not None and cost.wall.value else 1.0
    return stage_time(cost.wall, min(1.0, computing), name=cost.stage.value)


def _with_cpu(taking: dict[str, StageTime], measurement: Measurement, made_here: Mapping[str, StageTime]) -> dict[str, StageTime]:
    """The step's CPU: what the training process used beyond what is known of it."""
    step = taking.get(Stage.STEP.value)
    blocks = measurement.of(experiments.PLAIN.name) or measurement.of(experiments.REAL.name)
    samples = sum(block.samples for block in blocks)
    if step is None or not samples:
        return taking
    used = sum(block.main_cpu for block in blocks) / samples
    known = sum(float(part.cpu[0]) for part in made_here.values())
    known += sum(float(part.cpu[0]) for name, part in taking.items() if name != Stage.STEP.value)
    return {**taking, Stage.STEP.value: StageTime(step.wall, np.full(DRAWS + 1, max(0.0, used - known)))}


def _uncrowded(model: PipelineModel, diagnosis: Diagnosis) -> PipelineModel:
    """Wall times as they would be with a core for each worker: what they queued for comes back where cores are shared again.

    What sharing the cores does not explain, another program's doing, stays.
    """
    alone = replace(model, making={name: _served(name, part, model, diagnosis) for name, part in model.making.items()})
    lost = float(sum(model.making[name].wall[0] - part.wall[0] for name, part in alone.making.items()))
    lacking = float(model.seconds()[0]) - float(alone.seconds()[0])
    if lost <= 0 or lacking <= 1e-12:
        return alone
    making_s = float(sum(part.wall[0] for part in alone.making.values()))
    taking_s = float(sum(part.wall[0] for part in model.taking.values()))
    wanted = float(model.seconds()[0]) * model.workers if model.workers else float(model.seconds()[0]) - taking_s
    back = min(1.0, max(0.0, (wanted - making_s) / lost))
    walls = {name: part.wall + back * (model.making[name].wall - part.wall) for name, part in alone.making.items()}
    return replace(alone, making={name: StageTime(walls[name], part.cpu) for name, part in alone.making.items()})


def _served(name: str, part: StageTime, model: PipelineModel, diagnosis: Diagnosis) -> StageTime:
    """Computing and waiting, without queueing."""
    cost = next((cost for stage, cost in diagnosis.stages.items() if stage.value == name), None)
    if cost is not None and cost.cpu is not None and cost.waiting is not None and cost.wall.value:
        served = min(1.0, (cost.cpu.value + cost.waiting) / cost.wall.value)
        return StageTime(np.maximum(part.cpu, part.wall * served), part.cpu)
    return StageTime(np.maximum(part.cpu, part.wall - (_stretched(model) - 1) * part.cpu), part.cpu)


def _stretched(model: PipelineModel) -> float:
    """By how much computing takes longer than its CPU time, as the stage that waits least shows."""
    computing = sum(float(part.cpu[0]) for part in model.making.values())
    computed = [part for name, part in model.making.items() if name != OTHER and float(part.cpu[0]) > 0.1 * computing]
    return min((float(part.wall[0] / part.cpu[0]) for part in computed), default=1.0)
