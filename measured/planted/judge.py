"""One planted pipeline, probed and judged: built, checked against what it really spends, probed, checked again."""

from __future__ import annotations

import contextlib
import gc
import importlib
import pkgutil
import statistics
import time
from pathlib import Path
from typing import Any

import msgspec

from measured.planted import ledger, quiet, tuning
from measured.planted.pipelines import Pipeline, Planted
from measured.planted.truth import POOL, Truth, drifted, truth_of
from pipefix.vocabulary.errors import MissingExtra
from tests.doubles.invariants import broken

_current: list[Pipeline] = []

_TARGET = '''"""A training file as a user would write it."""
import sys

sys.path.insert(0, {root!r})
from measured.planted.judge import current_loader, current_step

loader = current_loader()
consume = current_step()


def train_step(batch):
    consume(batch)
'''


def preload() -> None:
    """Import what every case needs, once; with one thread a library, as a loader's workers have."""
    import cv2
    import torch

    import pipefix

    for module in pkgutil.walk_packages(pipefix.__path__, "pipefix."):
        if not module.name.endswith(("__main__", ".sitecustomize", ".auto")):  # the last would observe what is judged
            # What stands on an optional package, or on code that was not built here, is left out.
            with contextlib.suppress(ImportError, MissingExtra):
                importlib.import_module(module.name)
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    gc.collect()
    gc.freeze()  # what was just imported is no part of any pipeline: collecting garbage must not go through it


def current_loader() -> Any:
    """The loader of the pipeline under judgement, for the target file."""
    return _current[-1].loader


def current_step() -> Any:
    return _current[-1].step


def target_of(pipeline: Pipeline) -> tuple[Any, dict[str, Any]]:
    """What to probe, and how: the live loader, or a training file where the consumer is real."""
    planted = pipeline.planted
    if planted.consumer == "real":
        _current[:] = [pipeline]
        file = pipeline.folder / "train.py"
        file.write_text(_TARGET.format(root=str(Path(__file__).resolve().parents[2])))
        return f"{file}:loader", {}
    if planted.consumer == "emulated":
        return pipeline.loader, {"step_ms": pipeline.step_s * planted.batch_size * 1e3}
    return pipeline.loader, {}


def reality(pipeline: Pipeline, seconds: float = 0.5) -> tuple[dict[str, float], float]:
    """What the untouched pipeline spends just now: seconds a sample per stage, and of its loader alone.

    Wall seconds: where workers crowd the processors, that is part of what their stages take.
    """
    planted = pipeline.planted
    ledger.clear()
    supply = tuning.pace(pipeline.loader, seconds)[0] / planted.batch_size
    costs = {}
    for stage, spent in ledger.spent().items():
        if stage in POOL:
            costs[stage] = spent.wall_s
    if planted.workers:
        # Large batches take a varying time to hand over, by the state of the memory they are put in; never longer than all of it.
        costs["ipc"] = min(tuning.handover(pipeline, 0.2), supply)
    if planted.consumer == "emulated":
        costs["step"] = pipeline.step_s
    elif planted.consumer == "real":
        costs["step"] = step_s(pipeline)
    return costs, supply


def step_s(pipeline: Pipeline) -> float:
    """Seconds a sample of the real step, alone."""
    batch = {"labels": [0] * pipeline.planted.batch_size}
    taken = []
    for _ in range(5):
        begun = time.perf_counter()
        pipeline.step(batch)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken) / pipeline.planted.batch_size


def mean_truth(planted: Planted, readings: list[tuple[dict[str, float], float]]) -> tuple[Truth, dict[str, float]]:
    """The truth by the readings before and after the probe together."""
    stages = readings[0][0].keys()
    costs = {stage: statistics.fmean(reading[0].get(stage, 0.0) for reading in readings) for stage in stages}
    supply = statistics.fmean(reading[1] for reading in readings)
    return truth_of(costs, planted.workers, supply=supply), costs


def judge(planted: Planted, *, budget: float, full: bool = False) -> dict[str, Any]:
    """Probe it; the outcome is right, wrong, inconclusive or drifted (the pipeline was not what had been planted)."""
    from pipefix import probe

    began = time.perf_counter()
    with tuning.build(planted) as pipeline:
        before = reality(pipeline)
        target, options = target_of(pipeline)
        others = quiet.Others()
        asked = time.perf_counter()
        run = probe(target, budget=budget, trial_workers=(), **options)
        answered = time.perf_counter()
        others_share = others.share()
        after = reality(pipeline)
        step = pipeline.step_s
    found, costs = mean_truth(planted, [before, after])
    verdict = run.verdict
    assert verdict is not None
    said = (
        "balanced"
        if verdict.kind == "balanced"
        else "inconclusive"
        if verdict.kind == "inconclusive"
        else verdict.stage or verdict.kind
    )
    kind = "balanced" if planted.truth == "balanced" else "step-bound" if planted.truth == "step" else "input-bound"
    right = verdict.kind == kind and (kind == "balanced" or verdict.stage == planted.truth)
    why = drifted(planted.truth, found)
    if why is None and others_share > quiet.BUSY:
        why = f"other programs used {others_share:.0%} of the processors during the probe"
    outcome = "drifted" if why else "right" if right else "inconclusive" if said == "inconclusive" else "wrong"
    return {
        "name": planted.name,
        "outcome": outcome,
        "drift": why,
        "truth": planted.truth,
        "said": said,
        "kind": verdict.kind,
        "confidence": verdict.confidence,
        "sentence": verdict.sentence,
        "broken": broken(run),
        "dominance": found.dominance,
        "others": others_share,
        "spent": costs,
        "supply_s": [before[1], after[1]],
        "step_s": step,
        "probed": {figure.stage: figure.wall_s.value for figure in run.stages if figure.wall_s is not None},
        "probed_sample_s": run.sample_s.value if run.sample_s else None,
        "unattributed_s": run.unattributed_s,
        "probe_s": answered - asked,
        "case_s": time.perf_counter() - began,
        "planted": msgspec.to_builtins(planted),
    } | ({"run": msgspec.to_builtins(run)} if full else {})
