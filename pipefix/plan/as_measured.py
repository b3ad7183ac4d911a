"""The stations of a pipeline as they were measured: the line that every prediction starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pipefix.diagnosis.diagnosis import Diagnosis, StageCost
from pipefix.measurement import experiments
from pipefix.measurement.measurement import Measurement
from pipefix.plan.model import DRAWS, OTHER, Line, Part, draws, part
from pipefix.vocabulary.stage import IN_SAMPLE, Stage

SATURATED = 0.85
"""On cores that the pipeline itself keeps busier than this, its workers wait for each other."""


def line_of(found: Measurement, diagnosis: Diagnosis) -> Line:
    """The pipeline as it was measured; predicts what was measured where nothing is changed."""
    stages, workers = diagnosis.stages, found.workers
    step = stages.get(Stage.STEP)
    stepping = step.wall.value if step is not None else 0.0
    making = {stage.value: _part(stages[stage]) for stage in (*IN_SAMPLE, Stage.COLLATE) if stage in stages}
    taking = {Stage.STEP.value: part(step.wall, 0.0, name=Stage.STEP.value)} if step is not None else {}
    if workers:
        took = max(0.0, diagnosis.stations.main.value - stepping)
        ipc = stages[Stage.IPC].wall
        making[Stage.IPC.value] = part(ipc, name="ipc").scaled(max(0.0, 1 - took / ipc.value) if ipc.value else 0.0)
        taking[Stage.IPC.value] = part(took)
    pool = diagnosis.stations.pool
    whole = pool.value * workers if workers and pool is not None else diagnosis.stations.main.value - stepping
    rest = max(0.0, whole - sum(float(one.wall[0]) for one in making.values()))
    making[OTHER] = part(rest, 1 - diagnosis.starved)
    line = Line(making, _with_cpu(taking, found, {} if workers else making), workers, found.cores)
    if workers and diagnosis.stations.border is not None:
        line = replace(line, crossing=draws(diagnosis.stations.border, "border"))
    return _uncrowded(line, diagnosis) if line.busy >= SATURATED else line


def _part(cost: StageCost) -> Part:
    computing = cost.cpu.value / cost.wall.value if cost.cpu is not None and cost.wall.value else 1.0
    return part(cost.wall, min(1.0, computing), name=cost.stage.value)


def _with_cpu(taking: dict[str, Part], found: Measurement, made_here: Mapping[str, Part]) -> dict[str, Part]:
    """The step's CPU: what the training process used beyond what is known of it."""
    step = taking.get(Stage.STEP.value)
    blocks = found.of(experiments.PLAIN.name) or found.of(experiments.REAL.name)
    samples = sum(block.samples for block in blocks)
    if step is None or not samples:
        return taking
    used = sum(block.main_cpu for block in blocks) / samples
    known = sum(float(one.cpu[0]) for one in made_here.values())
    known += sum(float(one.cpu[0]) for name, one in taking.items() if name != Stage.STEP.value)
    return {**taking, Stage.STEP.value: Part(step.wall, np.full(DRAWS + 1, max(0.0, used - known)))}


def _uncrowded(line: Line, diagnosis: Diagnosis) -> Line:
    """Wall times as they would be with a core for each worker: what they queued for comes back where cores are shared again.

    What sharing the cores does not explain, another program's doing, stays.
    """
    alone = replace(line, making={name: _served(name, one, line, diagnosis) for name, one in line.making.items()})
    lost = float(sum(line.making[name].wall[0] - one.wall[0] for name, one in alone.making.items()))
    lacking = float(line.seconds()[0]) - float(alone.seconds()[0])
    if lost <= 0 or lacking <= 1e-12:
        return alone
    made = float(sum(one.wall[0] for one in alone.making.values()))
    taken = float(sum(one.wall[0] for one in line.taking.values()))
    wanted = float(line.seconds()[0]) * line.workers if line.workers else float(line.seconds()[0]) - taken
    back = min(1.0, max(0.0, (wanted - made) / lost))
    making = {name: Part(one.wall + back * (line.making[name].wall - one.wall), one.cpu) for name, one in alone.making.items()}
    return replace(alone, making=making)


def _served(name: str, one: Part, line: Line, diagnosis: Diagnosis) -> Part:
    """Computing and waiting, without queueing."""
    cost = next((cost for stage, cost in diagnosis.stages.items() if stage.value == name), None)
    if cost is not None and cost.cpu is not None and cost.waiting is not None and cost.wall.value:
        served = min(1.0, (cost.cpu.value + cost.waiting) / cost.wall.value)
        return Part(np.maximum(one.cpu, one.wall * served), one.cpu)
    return Part(np.maximum(one.cpu, one.wall - (_stretched(line) - 1) * one.cpu), one.cpu)


def _stretched(line: Line) -> float:
    """By how much computing takes longer than its CPU time, as the stage that waits least shows."""
    computing = sum(float(one.cpu[0]) for one in line.making.values())
    known = [one for name, one in line.making.items() if name != OTHER and float(one.cpu[0]) > 0.1 * computing]
    return min((float(one.wall[0] / one.cpu[0]) for one in known), default=1.0)
