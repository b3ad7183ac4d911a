#!/usr/bin/env python3
"""FastLoader against DataLoader, in turns on the same data; results go to benchmarks/loaders.{json,md}, part by part.

    scripts/bench_loaders.py same        twelve unmodified pipelines, 0 to 4 workers: time of an epoch, with the workers' start
    scripts/bench_loaders.py handover    a batch of 18 MiB from worker to training process: wall, CPU and page faults
    scripts/bench_loaders.py starting    8 workers and a dataset of 1.2 million paths: the first batch, by start method
    scripts/bench_loaders.py slow        1 % of samples 100 times slower, 8 workers, in order: throughput over the ideal
    scripts/bench_loaders.py peers       the fused path beside every accelerated loader that is installed, on the same pictures
    scripts/bench_loaders.py memory      four workers over a list of 1.2 million paths for an epoch: PSS over one copy

What is there of earlier parts stays. ``--only`` names pipelines, start methods, or peers and inputs. ``peers`` may be run in
portions of ``--seconds``, which go on where one stopped; ``--python`` names interpreters of environments that peers are in.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "scripts"), os.environ.get("PYTHONPATH", "")])

import psutil  # noqa: E402
import torch  # noqa: E402
from peers_bench import peers  # noqa: E402
from peers_bench import table as peers_table  # noqa: E402
from torch.utils.data import ConcatDataset, DataLoader, Dataset  # noqa: E402

from pipefix.loader.fast_loader import FastLoader  # noqa: E402

KINDS: tuple[Any, ...] = (DataLoader, FastLoader)
PLACE = ROOT / "benchmarks" / "loaders"


class Paths(Dataset[Any]):
    """What datasets hold: a path and a label each."""

    def __init__(self, count: int) -> None:
        self.paths = [f"/data/imagenet/train/n{number % 1000:08d}/n{number % 1000:08d}_{number}.JPEG" for number in range(count)]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> int:
        return len(self.paths[index])


class Large(Dataset[torch.Tensor]):
    """One sample is a batch of 18 MiB."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((24, 3, 256, 256), float(index))


class Uneven(Dataset[float]):
    """Every hundredth sample, at an uneven place, takes a hundred times as long. A sample is the seconds that it took."""

    def __init__(self, count: int, quick: float) -> None:
        self.count, self.quick = count, quick
        chosen = torch.Generator().manual_seed(1)
        self.slow = set(torch.randperm(count, generator=chosen)[: count // 100].tolist())

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> float:
        begun = time.perf_counter()
        time.sleep(self.quick * (100 if index in self.slow else 1))
        return time.perf_counter() - begun

    def seconds(self) -> float:
        return self.quick * (self.count - len(self.slow) + 100 * len(self.slow))


SHORT_S, MOST = 6.0, 40
"""Arms that are over soon have as many rounds as fit in so long, up to so many."""
ENGINES = (("cv2", 2), ("tensors", 2), ("huge samples", 2), ("sleepy I/O", 8), ("python-heavy", 2))
"""Pipelines whose samples draw nothing, and workers."""
LONGER = 4
"""Epochs in one, so that what was made of it before it began is a small part."""


def in_turns(rounds: int, arms: dict[str, Callable[[], float]], short: float = 0.0) -> dict[str, list[float]]:
    """Each arm's figures; the order changes from round to round. The first time is not counted."""
    found: dict[str, list[float]] = {name: [] for name in arms}
    begun = time.perf_counter()
    for run in arms.values():
        run()
    for turn in range(max(rounds, min(MOST, int(short / (time.perf_counter() - begun))))):
        for name in list(arms)[:: 1 if turn % 2 else -1]:
            gc.collect()
            found[name].append(arms[name]())
    return found


def same(rounds: int, only: list[str], counts: tuple[int, ...] = (0, 1, 2, 3, 4)) -> dict[str, Any]:
    from loader_pipelines import pipelines

    cells: dict[str, Any] = {}
    for name, (dataset, options) in pipelines().items():
        if only and name not in only:
            continue
        for workers in counts:
            arms = {kind.__name__: kind(dataset, num_workers=workers, **options) for kind in KINDS}
            figures = in_turns(rounds, {kind: lambda loader=loader: epoch(loader) for kind, loader in arms.items()}, SHORT_S)
            pairs = [theirs / ours for theirs, ours in zip(figures["DataLoader"], figures["FastLoader"], strict=True)]
            cells[f"{name}, {workers}"] = {
                "ratio": statistics.median(pairs),
                "rounds": len(pairs),
                "lowest": min(pairs),
                "highest": max(pairs),
                "seconds": {kind: statistics.median(times) for kind, times in figures.items()},
                "explain": arms["FastLoader"].explain(),
            }
            print(f"{name}, {workers} workers: {statistics.median(pairs):.2f}", file=sys.stderr)
    return cells


def epoch(loader: Any) -> float:
    torch.manual_seed(0)
    begun = time.perf_counter()
    for batch in loader:
        del batch
    return time.perf_counter() - begun


def handover(rounds: int, _: list[str]) -> dict[str, Any]:
    """Cost of a batch in the process that trains, which reads every page of it."""
    found: dict[str, Any] = {}
    arms = {
        "DataLoader": lambda: DataLoader(Large(), batch_size=None, num_workers=1),
        "FastLoader": lambda: FastLoader(Large(), batch_size=None, num_workers=1, engine="processes"),
    }
    for turn in range(rounds):
        for name in list(arms)[:: 1 if turn % 2 else -1]:
            wall, cpu, faults = [], [], []
            iterator = iter(arms[name]())
            for number in range(len(Large())):
                time.sleep(0.05)  # the batch has arrived: what is timed is taking it over
                before, spent, begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time(), time.perf_counter()
                batch = next(iterator)
                batch.view(-1)[::1024].sum()
                del batch
                if number >= 12:
                    wall.append(time.perf_counter() - begun)
                    cpu.append(time.process_time() - spent)
                    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
            for figure, values in (("wall_ms", wall), ("cpu_ms", cpu)):
                found.setdefault(name, {}).setdefault(figure, []).append(statistics.median(values) * 1e3)
            found[name].setdefault("faults", []).append(statistics.median(faults))
    return {name: {figure: statistics.median(values) for figure, values in parts.items()} for name, parts in found.items()}


FIRST = """
import sys, time, json, warnings
warnings.simplefilter("ignore")
import torch
from torch.utils.data import DataLoader
from pipefix.loader.fast_loader import FastLoader
import bench_loaders
if __name__ == "__main__":
    kind, method = sys.argv[1:]
    dataset = bench_loaders.Paths(1_200_000)
    taken = []
    for epoch in range(2):
        begun = time.perf_counter()
        iterator = iter({"DataLoader": DataLoader, "FastLoader": FastLoader}[kind](
            dataset, batch_size=64, num_workers=8, multiprocessing_context=method))
        next(iterator)
        taken.append(time.perf_counter() - begun)
        del iterator
    print(json.dumps(taken))
"""


def starting(rounds: int, only: list[str]) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for method in only or ["fork", "forkserver", "spawn"]:
        for _ in range(rounds):
            for kind in KINDS:
                # Given in the command, so that nothing is left behind when it is killed; what workers need is in this module.
                order = [sys.executable, "-c", FIRST, kind.__name__, method]
                done = subprocess.run(order, capture_output=True, text=True, check=True, cwd=ROOT)
                first, second = json.loads(done.stdout.splitlines()[-1])
                cell = cells.setdefault(method, {}).setdefault(kind.__name__, {"first": [], "second": []})
                cell["first"].append(first)
                cell["second"].append(second)
    return {
        method: {kind: {which: statistics.median(times) for which, times in both.items()} for kind, both in kinds.items()}
        for method, kinds in cells.items()
    }


def slow(rounds: int, _: list[str]) -> dict[str, Any]:
    dataset = Uneven(25_600, 0.001)
    ideal = dataset.seconds() / 8
    options: dict[str, Any] = {"batch_size": 32, "num_workers": 8}
    arms: dict[str, Any] = {
        "DataLoader": DataLoader(dataset, **options),
        "FastLoader": FastLoader(dataset, **options),
        "FastLoader, rng='sample'": FastLoader(dataset, rng="sample", **options),
    }
    worked: dict[str, list[float]] = {kind: [] for kind in arms}

    def run(kind: str) -> float:
        begun = time.perf_counter()
        spent = sum(float(batch.sum()) for batch in arms[kind])
        taken = time.perf_counter() - begun
        worked[kind].append(taken / (spent / 8))
        return taken

    figures = in_turns(rounds, {kind: lambda kind=kind: run(kind) for kind in arms})
    return {
        "ideal_s": ideal,
        "over_ideal": {kind: statistics.median(times) / ideal for kind, times in figures.items()},
        "over_work": {kind: statistics.median(ratios[1:]) for kind, ratios in worked.items()},
    }


def memory(rounds: int, _: list[str]) -> dict[str, Any]:
    """PSS of all processes over that of the parent before, at the end of an epoch."""
    found: dict[str, list[float]] = {}
    dataset = Paths(1_200_000)
    for kind in KINDS * rounds:
        gc.collect()
        before = psutil.Process().memory_full_info().pss
        for number, batch in enumerate(kind(dataset, batch_size=1024, num_workers=4, shuffle=True)):
            del batch
            if number == len(dataset) // 1024 - 8:
                processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
                found.setdefault(kind.__name__, []).append(sum(one.memory_full_info().pss for one in processes) / before)
    return {kind: statistics.median(ratios) for kind, ratios in found.items()}


def engines(rounds: int, only: list[str]) -> dict[str, Any]:
    """Who makes the samples: epochs of workers that live on."""
    from loader_pipelines import pipelines

    known = pipelines()
    cells: dict[str, Any] = {}
    for name, workers in ENGINES:
        if only and name not in only:
            continue
        dataset, options = ConcatDataset([known[name][0]] * LONGER), known[name][1]
        options = {**options, "num_workers": workers, "persistent_workers": True, "shuffle": False}
        arms: dict[str, Any] = {"DataLoader": DataLoader(dataset, **options)}
        arms |= {engine: FastLoader(dataset, engine=engine, **options) for engine in ("processes", "subprocess", "threads")}
        for kind, loader in arms.items():
            for _ in loader:
                break
            told = loader.explain() if kind != "DataLoader" else ""
            assert "No threads" not in told, told
        figures = in_turns(rounds, {kind: lambda loader=loader: epoch(loader) for kind, loader in arms.items()}, SHORT_S)
        cells[f"{name}, {workers}"] = {
            "seconds": {kind: statistics.median(times) for kind, times in figures.items()},
        }
        print(f"{name}, {workers}: {cells[f'{name}, {workers}']}", file=sys.stderr)
    return cells


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "same": same,
    "handover": handover,
    "starting": starting,
    "slow": slow,
    "memory": memory,
    "engines": engines,
    "peers": peers,
}


def machine() -> dict[str, Any]:
    model = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), platform.machine()
    )
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": model,
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines() if os.path.exists(path) else []


def page(known: dict[str, Any]) -> str:
    here = known["machine"]
    lines = [
        "# FastLoader against DataLoader",
        "",
        f"`scripts/bench_loaders.py`, {here['cores']} cores ({here['cpu']}), {here['memory_gb']} GB, Python {here['python']},",
        f"torch {here['torch']}. Arms in turns; medians.",
    ]
    if "same" in known:
        ratios = [cell["ratio"] for cell in known["same"].values()]
        below = sum(ratio < 0.97 for ratio in ratios)
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        lines += [
            "",
            "## Unmodified pipelines",
            "",
            "Throughput of FastLoader over DataLoader's, an epoch each with the start of its workers.",
            f"Geometric mean {mean:.2f}, lowest {min(ratios):.2f}, {below} of {len(ratios)} below 0.97.",
            "",
            "| pipeline, workers | rounds | ratio | lowest-highest pair | DataLoader s | FastLoader s |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        for name, cell in known["same"].items():
            theirs, ours = cell["seconds"]["DataLoader"], cell["seconds"]["FastLoader"]
            ratio = f"{cell['ratio']:.2f} | {cell['lowest']:.2f}-{cell['highest']:.2f}"
            lines.append(f"| {name} | {cell['rounds']} | {ratio} | {theirs:.3f} | {ours:.3f} |")
    if "handover" in known:
        lines += [
            "",
            "## A batch of 18 MiB, taken over",
            "",
            "| loader | wall ms | CPU ms | minor faults |",
            "|---|---:|---:|---:|",
        ]
        lines += [
            f"| {kind} | {cell['wall_ms']:.2f} | {cell['cpu_ms']:.2f} | {cell['faults']:.0f} |"
            for kind, cell in known["handover"].items()
        ]
    if "starting" in known:
        lines += ["", "## First batch, 8 workers, 1.2 million paths", "", "Seconds; a process's first loader and its second.", ""]
        lines += ["| start method | DataLoader | FastLoader | ratio |", "|---|---:|---:|---:|"]
        for method, cell in known["starting"].items():
            for which in ("first", "second"):
                theirs, ours = cell["DataLoader"][which], cell["FastLoader"][which]
                lines.append(f"| {method}, {which} | {theirs:.2f} | {ours:.2f} | {theirs / ours:.1f} |")
    if "slow" in known:
        cell = known["slow"]
        lines += ["", "## 1 % of samples 100 times slower, 8 workers, in order", ""]
        lines += [
            f"Time of an epoch, with the workers' start, over the ideal ({cell['ideal_s']:.2f} s), and over what samples really",
            "took, shared by all workers (a sleep is longer than it was asked to be).",
            "",
            "| loader | over the ideal | over what samples took |",
            "|---|---:|---:|",
        ]
        lines += [f"| {kind} | {over:.2f} | {cell['over_work'][kind]:.2f} |" for kind, over in cell["over_ideal"].items()]
    if "memory" in known:
        cell = known["memory"]
        lines += ["", "## Four workers over a list of 1.2 million paths, an epoch", ""]
        both = f"DataLoader {cell['DataLoader']:.2f}, FastLoader {cell['FastLoader']:.2f}"
        lines.append(f"PSS of all processes over the parent's before: {both}.")
    if "engines" in known:
        lines += ["", "## Who makes the samples", ""]
        lines += [
            "Seconds an epoch, of workers that live on: as `DataLoader` does it, and by `engine=`.",
            "",
            "| pipeline, workers | DataLoader | processes | subprocess | threads |",
            "|---|---:|---:|---:|---:|",
        ]
        for name, cell in known["engines"].items():
            each = [f"{seconds:.2f}" for seconds in cell["seconds"].values()]
            lines.append(f"| {name} | {' | '.join(each)} |")
    if "peers" in known:
        lines += peers_table(known["peers"])
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--workers", type=int, action="append", default=[], help="of part same; what is there of others stays")
    parser.add_argument("--python", action="append", default=[], help="of part peers: another interpreter that peers may be in")
    parser.add_argument("--seconds", type=float, default=0, help="of part peers: how long a portion may be")
    parser.add_argument("--count", type=int, default=1200, help="of part peers: pictures")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    torch.set_num_threads(1)
    more: dict[str, Any] = {"counts": tuple(arguments.workers)} if arguments.workers else {}
    if arguments.part == "peers":
        more = {"pythons": tuple(arguments.python), "seconds": arguments.seconds, "count": arguments.count}
    made = PARTS[arguments.part](arguments.rounds, arguments.only, **more)
    results = PLACE.with_suffix(".json")
    known = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    known["machine"] = machine()
    if arguments.part != "peers" and (arguments.only or arguments.workers):
        made = {**known.get(arguments.part, {}), **made}
    known[arguments.part] = made
    results.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    PLACE.with_suffix(".md").write_text(page(known), encoding="utf-8")
    print(json.dumps({name: value for name, value in made.items() if name != "cells"}, indent=1))


if __name__ == "__main__":
    main()
