"""One unseen pipeline: laid out, measured by clocks in its own text, probed, measured again, and the verdict held against that."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import multiprocessing
import os
import pickle
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from benchmarks.unseen.parts import known
from benchmarks.unseen.pipeline import LEADS, Unseen, text, tuned, work
from measured.planted.children import in_child
from measured.planted.truth import Truth, truth_of
from pipefix.diagnosis.diagnose import diagnose
from pipefix.measurement.measurement import Measurement
from pipefix.report import runfile
from tests.doubles.invariants import broken

LEAD = 1.3
"""By how much the stage in question must really lead."""
OVERHEAD_S = 60e-6
"""What fetching, collating and handing over add to a sample, about."""
APART_S = 120.0
"""What one reading may take at most."""
SINE_S = 60e-9
"""About what one round of the sampler's, the collating's or the step's work takes."""


def judge(drawn: Unseen, *, budget: float, keep: Path | None = None) -> dict[str, Any]:
    """What is true of a pipeline, and what the probe said. ``keep``: a folder for the measurement, for other rules to judge."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pipeline, file = laid_out(drawn, folder)
        before = _truth(pipeline, folder)
        with Neighbour(on=pipeline.neighbour, seed=drawn.name):
            begun = time.perf_counter()
            run = probed(pipeline, file, budget, keep and keep / f"{drawn.name}.pickle")
            spent = time.perf_counter() - begun
        after = _truth(pipeline, folder)
        remedy = next((step.id for step in run.remedies if step.status == "proposed"), None)
        told = _told(pipeline, run.verdict, before, after, file.read_text())
        result = told | {"broken": broken(run), "remedy": remedy, "probe_s": spent}
    if keep is not None:
        (keep / f"{drawn.name}.json").write_text(json.dumps(result))
    return result


def judged_anew(name: str, keep: Path) -> dict[str, Any] | None:
    """What today's rules say of a measurement that was kept; None where it was not. Remedies stay as they were told."""
    if not (keep / f"{name}.json").exists():
        return None
    result = json.loads((keep / f"{name}.json").read_text())
    pipeline = Unseen(**result["pipeline"])
    before, after = (Truth("", *_label_and_lead(each)) for each in result["really"])
    verdict = diagnose(pickle.loads((keep / f"{name}.pickle").read_bytes())).verdict
    return result | _told(pipeline, verdict, before, after, text(pipeline, "", timed=False)) | {"anew": True}


def _label_and_lead(really: str) -> tuple[str, float]:
    """``decode 1.52x`` taken apart."""
    label, lead = really.removesuffix("x").rsplit(" ", 1)
    return label, float(lead)


def laid_out(drawn: Unseen, folder: Path) -> tuple[Unseen, Path]:
    """The pipeline as it takes the time that was drawn, and its file, beside the data that it reads."""
    family = known(drawn.family)
    if family.lay_out is not None:
        family.lay_out(folder, np.random.default_rng(1))
    pipeline = _tuned(drawn, folder)
    file = folder / "train.py"
    file.write_text(text(pipeline, str(folder), timed=False))
    return pipeline, file


def probed(pipeline: Unseen, file: Path, budget: float, keep: Path | None = None) -> runfile.Run:
    """What the probe says; its measurement goes into ``keep``.

    In a process of its own: of some libraries no process may be forked once they were used (polars waits for ever, tensorstore
    aborts), and what is true is told by forked processes.
    """
    out = file.with_name("run.json")

    def work() -> dict[str, Any]:
        from pipefix import probe
        from pipefix.api import probe as probing

        if keep is not None:
            measure = probing.measure

            def kept(*args: Any, **options: Any) -> Measurement:
                measurement = measure(*args, **options)
                keep.write_bytes(pickle.dumps(measurement))
                return measurement

            probing.measure = kept

        emulated = {"step_ms": 0.2 * pipeline.batch_size * pipeline.made_s * 1e3} if pipeline.consumer == "emulated" else {}
        probe(f"{file}:loader", budget=budget, **emulated).save(out)
        return {}

    answered(in_child(work, timeout=APART_S + 4 * budget))
    return runfile.read(out)


def answered(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise RuntimeError(f"{answer['error']}\n{answer.get('log', '')}")
    return answer


def _told(pipeline: Unseen, verdict: Any, before: Truth, after: Truth, code: str) -> dict[str, Any]:
    sampler = "sampler takes" in verdict.sentence
    said = verdict.kind if verdict.kind in ("inconclusive", "balanced") else "sampler" if sampler else verdict.stage or verdict.kind
    own = _own_code(pipeline)
    line = _line_named(own, verdict.sentence, code)
    true = before.label == after.label == pipeline.truth and min(before.dominance, after.dominance) >= LEAD
    right = said == pipeline.truth or line or _as_one_call(pipeline, said, verdict.sentence)
    outcome = "drifted" if not true else "right" if right else "inconclusive" if said in ("inconclusive", "balanced") else "wrong"
    return {
        "name": pipeline.name, "outcome": outcome, "truth": pipeline.truth, "said": said, "line": line,
        "own": _by_own_code(pipeline), "sentence": verdict.sentence,
        "really": [f"{each.label} {each.dominance:.2f}x" for each in (before, after)], "pipeline": asdict(pipeline),
    }  # fmt: skip


def _as_one_call(pipeline: Unseen, said: str, sentence: str) -> bool:
    """Whether both stages of a call that reads and decodes are named, or the other one."""
    both = said == "balanced" and "storage" in sentence and "decode" in sentence
    reads = pipeline.truth in ("storage", "decode") and known(pipeline.family).reads_and_decodes
    return reads and (said in ("storage", "decode") or both)


def _own_code(pipeline: Unseen) -> list[str]:
    """The user's own code of the stage that limits, where it is no library call that pipefix knows: its line is an answer."""
    if pipeline.truth == "collate":
        return [work(pipeline.extra)]
    return [part.code for part in pipeline.parts if part.own and part.stage == pipeline.truth]


def _by_own_code(pipeline: Unseen) -> bool:
    """Whether the line is the only answer: no call that pipefix knows is of that stage."""
    of_stage = [part for part in known(pipeline.family).parts if part.stage == pipeline.truth]
    return pipeline.truth == "collate" or (bool(of_stage) and all(part.own for part in of_stage))


def _line_named(own: list[str], sentence: str, code: str) -> bool:
    """Whether the sentence names a line of that code."""
    found = re.search(r"train\.py:(\d+)", sentence)
    line = code.splitlines()[int(found.group(1)) - 1].strip() if found is not None else ""
    return bool(line) and any(line in part for part in own)


# -- what is true -----------------------------------------------------------------------------------------------------


def module_of(pipeline: Unseen, folder: Path, length: int | None = None, number: int = 0) -> Any:
    """The pipeline with clocks in its text. ``length``: another number of samples than it has. ``number``: of several at once."""
    file = folder / f"timed{number or ''}.py"
    file.write_text(text(pipeline, str(folder), timed=True, length=length))
    spec = importlib.util.spec_from_file_location("timed", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["timed"] = module
    spec.loader.exec_module(module)
    return module


def _spent(module: Any, pipeline: Unseen, seconds: float, together: Callable[[], object]) -> dict[Any, float]:
    """Seconds a sample of each part, of collating, of the sampler and of the step, in this process. ``together``: waits until all
    that are to run beside it are so far."""
    loader = DataLoader(
        module.dataset, batch_size=pipeline.batch_size, collate_fn=module.collate,
        sampler=module.Drawn(len(module.dataset)) if pipeline.sampler == "own" else None,
    )  # fmt: skip
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    next(batches)
    together()
    module.SPENT.clear()
    made, until = 0, time.perf_counter() + seconds
    while made < 2 or time.perf_counter() < until:
        batch = next(batches)
        if pipeline.consumer == "real":
            module.train_step(batch)
        made += 1
    return {name: spent / made / pipeline.batch_size for name, spent in module.SPENT.items()}


def _apart(pipeline: Unseen, folder: Path, seconds: float, *, crossing: bool) -> tuple[dict[int, float], dict[str, float]]:
    """Seconds a sample of each part, and of what is around the samples; in processes of their own, so that no library's threads are
    there when the probe's workers are forked. As many run at once as there are workers with a core each: a library that computes
    on threads of its own is as fast only where it is alone."""
    processes = max(1, min(pipeline.workers, os.cpu_count() or 1))
    barrier = multiprocessing.get_context("fork").Barrier(processes)

    def work(number: int) -> dict[str, float]:
        module = module_of(pipeline, folder, number=number)
        spent = _spent(module, pipeline, seconds, functools.partial(barrier.wait, APART_S))
        if crossing and not number:
            spent["ipc"] = _handover(module, pipeline)
        return {str(name): each for name, each in spent.items()}

    with ThreadPoolExecutor(processes) as pool:
        jobs = [pool.submit(in_child, functools.partial(work, number), timeout=APART_S) for number in range(processes)]
        seen = [answered(job.result()) for job in jobs]
    found = {name: float(np.mean([each[name] for each in seen if name in each])) for name in seen[0]}
    inside = {int(name): spent for name, spent in found.items() if name.isdigit()}
    return inside, {name: spent for name, spent in found.items() if not name.isdigit()}


def _tuned(drawn: Unseen, folder: Path) -> Unseen:
    inside, _ = _apart(drawn, folder, 0.3, crossing=False)
    pipeline = tuned(drawn, inside)
    made = sum(inside.values())
    supply = made / max(1, min(drawn.workers, os.cpu_count() or 1)) + OVERHEAD_S
    if drawn.truth == "step" and drawn.workers:
        supply = max(supply, _supplied(pipeline, folder))
    wanted = {"collate": LEADS * made, "step": LEADS * supply, "sampler": LEADS * supply}.get(drawn.truth)
    if wanted is None:
        return pipeline
    samples = 1 if drawn.truth == "sampler" else pipeline.batch_size
    return replace(pipeline, extra=max(1, int(wanted * samples / SINE_S)))


def _truth(pipeline: Unseen, folder: Path) -> Truth:
    inside, spent = _apart(pipeline, folder, 0.6, crossing=pipeline.workers > 0)
    costs = {"ipc": spent.get("ipc", 0.0), "collate": spent.get("collate", 0.0), "step": spent.get("step", 0.0)}
    cores = os.cpu_count() or 1
    for place, part in enumerate(pipeline.parts):
        # All workers wait at the same time, but only as many compute as there are cores.
        alone = min(pipeline.workers, cores) / pipeline.workers if part.waits and pipeline.workers else 1.0
        costs[part.stage] = costs.get(part.stage, 0.0) + inside[place] * alone
    supply = _supplied(pipeline, folder) if pipeline.workers and pipeline.consumer == "real" else None
    found = truth_of(costs, min(pipeline.workers, cores), supply=supply)
    if found.stage == "ipc":
        # A worker hands over after it has made: what is quicker than making does not limit, though both take turns.
        made = _supplied(pipeline, folder, hands_over=False)
        ahead = costs["ipc"] / made
        found = Truth("input-bound", "ipc", ahead) if ahead > 1 else truth_of(costs | {"ipc": 0.0}, min(pipeline.workers, cores))
    drawn = spent.get("sampler", 0.0)
    if pipeline.truth != "sampler":
        return found
    rest = sum(costs.values()) if not pipeline.workers else max(
        sum(costs.get(stage, 0.0) for stage in ("storage", "decode", "augment", "collate")) / min(pipeline.workers, cores),
        costs["step"] + costs["ipc"],
    )  # fmt: skip
    return Truth("input-bound", "sampler", drawn / rest) if drawn > rest else found


def _supplied(pipeline: Unseen, folder: Path, seconds: float = 1.0, *, hands_over: bool = True) -> float:
    """Seconds a sample of the loader while nobody has it wait: as it is, or where workers hand over nothing of what they made."""

    def work() -> dict[str, Any]:
        loader = module_of(pipeline, folder).loader
        if not hands_over:
            collate = loader.collate_fn
            loader.collate_fn = lambda samples: collate(samples) is None
        batches = itertools.chain.from_iterable(itertools.repeat(loader))
        for _ in range(3 * pipeline.workers):
            next(batches)
        begun, count = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds or not count:
            next(batches)
            count += 1
        return {"supply": (time.perf_counter() - begun) / count / pipeline.batch_size}

    return float(answered(in_child(work, timeout=APART_S))["supply"])


class Ready:
    """A dataset whose batches are there already: what is left is handing them over."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, _: int) -> Any:
        return self.batch.clone()


def _handover(module: Any, pipeline: Unseen, seconds: float = 0.4) -> float:
    batch = next(iter(DataLoader(module.dataset, batch_size=pipeline.batch_size)))
    batches = iter(DataLoader(Ready(batch), batch_size=None, num_workers=min(2, pipeline.workers)))
    for _ in range(8):
        next(batches)
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        next(batches)
        count += 1
    return (time.perf_counter() - begun) / count / pipeline.batch_size


class Neighbour:
    """Another program that computes for a second or two, now and then."""

    def __init__(self, *, on: bool, seed: str) -> None:
        self._process = multiprocessing.get_context("fork").Process(target=_compute, args=(seed, os.getpid())) if on else None

    def __enter__(self) -> Neighbour:
        if self._process is not None:
            self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.join()


def _compute(seed: str, parent: int) -> None:
    rng = random.Random(seed)
    while os.getppid() == parent:
        until = time.monotonic() + rng.uniform(0.5, 2.0)
        while time.monotonic() < until:
            sum(range(1000))
        time.sleep(rng.uniform(0.5, 3.0))
