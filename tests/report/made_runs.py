"""Run files as probes of one pipeline would have written them: its code's own costs, how busy the machine was, and chance."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from pipefix.report.runfile import Run, StageFigures, Throughput
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.settings import LoaderSettings

BLOCKS_NOISE, BETWEEN_RUNS = 0.02, 0.01
"""Relative standard deviations: of a figure within a run, and of the same figure in another run of the same code."""


@dataclass(frozen=True)
class Costs:
    """Seconds a sample of one pipeline's code on an idle machine."""

    storage_waits: float
    cpu: dict[str, float]


@dataclass(frozen=True)
class Load:
    """What a neighbour does to a run."""

    queued: float = 0.0
    """Part of the making of samples that they queue for a CPU."""
    pace: dict[str, float] = field(default_factory=dict)
    """Factor of CPU time by stage: caches and memory are shared, and not all work feels it alike."""
    others_cores: float | None = None
    reference: float | None = None
    """Factor of the reference work's CPU time; None: an older run, which has none."""


def some_costs(chance: random.Random) -> Costs:
    cpu = {"storage": 0.05e-3, "decode": 2e-3, "augment": 1e-3, "collate": 0.1e-3}
    return Costs(chance.uniform(0, 2e-3), {stage: each * math.exp(chance.gauss(0, 0.7)) for stage, each in cpu.items()})


def busy(chance: random.Random, *, told: bool = True) -> Load:
    """A neighbour that computes; ``told``: whether the system says what others use."""
    slower = chance.uniform(1.0, 1.5)
    pace = {stage: slower ** chance.uniform(0.6, 1.4) for stage in ("storage", "decode", "augment", "collate")}
    others_cores = chance.uniform(0.5, 2.0) if told else None
    return Load(queued=chance.uniform(0.1, 0.75), pace=pace, others_cores=others_cores, reference=slower if told else None)


def slower_stage(costs: Costs, chance: random.Random, by: float) -> Costs:
    """The same pipeline, its samples dearer by so much, all in one of the stages that matter."""
    whole = costs.storage_waits + sum(costs.cpu.values())
    at = chance.choice(["decode", "augment", "waits"])
    if at == "waits":
        return Costs(costs.storage_waits + by * whole, costs.cpu)
    return Costs(costs.storage_waits, {**costs.cpu, at: costs.cpu[at] + by * whole})


def probed(costs: Costs, load: Load, chance: random.Random, *, workers: int = 2, noise: float = BLOCKS_NOISE) -> Run:
    """What a probe would write of it."""
    stages, whole = [], 0.0
    for stage, own in costs.cpu.items():
        cpu = own * load.pace.get(stage, 1.0) * math.exp(chance.gauss(0, BETWEEN_RUNS))
        waits = costs.storage_waits * math.exp(chance.gauss(0, BETWEEN_RUNS)) if stage == "storage" else 0.0
        wall = (cpu + waits) / (1 - load.queued)
        whole += wall
        stages.append(StageFigures(stage=stage, wall_s=_around(wall, noise), cpu_s=_around(cpu, noise), waiting_s=waits))
    figures = {"others_cores": load.others_cores, "reference_cpu_s": load.reference and 1e-4 * load.reference}
    meanwhile = {name: figure for name, figure in figures.items() if figure is not None}
    machine = {"cpu_model": "A", "effective_cores": 2.0, "memory_bytes": 64e9, "system": "Linux", "gpus": []}
    machine |= {"while_measured": meanwhile} if meanwhile else {}
    return Run(
        target="data.py:loader",
        machine=machine,
        settings=LoaderSettings(num_workers=workers),
        throughput=Throughput(delivered=_around(workers / whole * math.exp(chance.gauss(0, BETWEEN_RUNS)), noise)),
        stages=stages,
    )


def _around(value: float, noise: float) -> Interval:
    return Interval(value, value / (1 + noise), value * (1 + noise))
