"""Describes what was probed in one line each: loader settings, machine, cold storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from pipefix.report.runfile import Run
from pipefix.vocabulary import quantity
from pipefix.vocabulary.settings import LoaderSettings


def settings_line(settings: LoaderSettings) -> list[str]:
    """The loader in short phrases."""
    data = settings.dataset or "dataset"
    if settings.length is not None:
        data += f" of {quantity.counted(settings.length, 'sample')}"
    if settings.drawn is not None:
        data += f", {settings.drawn:,} drawn an epoch"
    workers = "no workers"
    if settings.num_workers:
        workers = quantity.counted(settings.num_workers, "worker")
        details = [settings.start_method] if settings.start_method else []
        if settings.prefetch_factor is not None:
            details.append(f"prefetch {settings.prefetch_factor}")
        workers += f" ({', '.join(details)})" if details else ""
    flags = {"pinned": settings.pin_memory, "persistent": settings.persistent_workers, "out of order": not settings.in_order}
    batch = "batch size decided elsewhere"
    if settings.mean_batch is not None:
        batch = f"batch {quantity.number(settings.mean_batch)} on average, by the batch sampler"
    if settings.batch_size is not None:
        batch = f"batch {settings.batch_size:,}"
    return [data, batch, workers, *(words for words, is_so in flags.items() if is_so)]


def machine_line(machine: Mapping[str, Any]) -> list[str]:
    """Processor, the CPUs that may be used, memory, devices and versions, as far as the run says."""
    phrases = [str(machine["cpu_model"])] if machine.get("cpu_model") else []
    cores, allowed, memory = (figure(machine, name) for name in ("logical_cores", "effective_cores", "memory_bytes"))
    if cores is not None:
        may = f"{quantity.number(allowed)} of " if allowed is not None and allowed != cores else ""
        phrases.append(f"{may}{quantity.counted(int(cores), 'CPU')}")
    if memory is not None:
        phrases.append(f"{quantity.size(memory)} of memory")
    gpus = Counter(gpu_names(machine))
    phrases += [name if count == 1 else f"{count} x {name}" for name, count in gpus.items()] or ["no GPU"]
    phrases += [f"Python {machine['python']}"] if machine.get("python") else []
    versions = machine.get("versions")
    if isinstance(versions, Mapping) and versions.get("torch"):
        phrases.append(f"torch {versions['torch']}")
    return phrases if machine else []


def figure(facts: Mapping[str, Any], name: str) -> float | None:
    """A fact of a machine that is a figure: the file may be anybody's."""
    value = facts.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and quantity.known(value) else None


def while_measured(run: Run) -> dict[str, float]:
    """Figures of the machine during the run, beside the pipeline's own."""
    facts = run.machine.get("while_measured")
    return {name: value for name in facts if (value := figure(facts, name)) is not None} if isinstance(facts, Mapping) else {}


def gpu_names(machine: Mapping[str, Any]) -> list[str]:
    gpus = machine.get("gpus")
    return [str(gpu.get("name", "GPU")) for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []


def verdict_line(run: Run) -> str:
    """``input-bound (decode), 812 samples/s``."""
    kind = run.verdict.kind if run.verdict is not None else "no verdict"
    stage = f" ({run.verdict.stage})" if run.verdict is not None and run.verdict.stage else ""
    rate = f", {quantity.rate(run.throughput.delivered.value, run.throughput.unit)}" if run.throughput is not None else ""
    return f"{kind}{stage}{rate}"


def step_phrases(run: Run) -> list[str]:
    """The parts of a step that are known, a batch: ``forward 1.20 ms``."""
    parts = msgspec.structs.asdict(run.step_split) if run.step_split is not None else {}
    return [
        f"{name.removesuffix('_s')} {quantity.seconds(value)}" for name, value in parts.items() if quantity.known(value) and value
    ]


_COLD = {
    "residency_before": quantity.percent, "residency_after": quantity.percent, "files": quantity.number, "bytes": quantity.size,
}  # fmt: skip


def cold_sentence(run: Run) -> str | None:
    """What was found about cold storage, or why nothing was."""
    if run.cold.get("declined"):
        return f"declined: {run.cold['declined']}"
    told = {name: text(known) for name, text in _COLD.items() if (known := figure(run.cold, name)) is not None}
    ratio = run.cold.get("ratio")
    if isinstance(ratio, Mapping):
        value, low, high = (quantity.number(figure(ratio, end)) for end in ("value", "low", "high"))
        told["ratio"] = f"{value} ({quantity.between(low, high)})"
    return "; ".join(f"{name.replace('_', ' ')} {text}" for name, text in told.items()) or None
