"""Lets `pipefix fix` loose on slow pipelines, and holds what it predicted and measured against plain loaders run in turn.

One pipeline a process. The gain that counts is measured apart from `fix`: the user's own loader, and the same with the plan it wrote,
neither with anything of pipefix's clocks inside.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import ROOT, WORK, Record

TITLE = "Fix"
ISSUE = "6, bar 4"
MINUTES = 25
QUICK = {"budget": 6.0, "pairs": 1, "seconds": 0.5}
PLACE = WORK / "fix"
HELD = 0.9


def one(name: str, kept: Path, options: argparse.Namespace) -> None:
    """One pipeline, in a process of its own."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    from benchmarks.pipelines_to_fix import PIPELINES
    from pipefix import fix

    loader, consumer = PIPELINES[name](PLACE)
    out = PLACE / "out" / name.replace(" ", "-")
    shutil.rmtree(out, ignore_errors=True)
    begun = time.perf_counter()
    report = fix(loader, budget=options.budget, out=out, yes=True, progress=told, **consumer)
    took = time.perf_counter() - begun
    fixed = report.fixed
    result: dict[str, Any] = {
        "name": name,
        "verdict": report.before.verdict.kind,
        "stage": report.before.verdict.stage,
        "stopped": fixed.stopped,
        "fix_s": took,
        "kept": [step(one, held=one.held) for one in fixed.applied],
        "left": [{**step(one), "why": one.why} for one in fixed.refused],
        "same": fixed.same.sentence if fixed.same else "nothing was changed",
        "kind": fixed.same.kind if fixed.same else "equal",
        "promised": fixed.promised,
        "confirmed": fixed.total.gain.value if fixed.total else None,
    }
    if fixed.applied:
        from pipefix.loader.planning import as_planned
        from pipefix.plan import planfile

        plan = planfile.read(out / planfile.NAME)
        ratios = measured(loader, as_planned.loader(loader, plan, out), consumer.get("step_ms", 0) / 1e3, options)
        result |= {"measured": statistics.median(ratios), "ratios": ratios}
        result["held"] = (result["measured"] - 1) / (fixed.promised - 1)
    kept.write_text(json.dumps(result, indent=1))
    shutil.rmtree(out, ignore_errors=True)


def told(words: str, done: float) -> None:
    if sys.stderr.isatty():
        print(f"\r{words[:100]:100s} {done:4.0%}", end="", file=sys.stderr)


def step(one: Any, **more: Any) -> dict[str, Any]:
    gain = one.measured.gain if one.measured else None
    return {
        "id": one.id,
        "predicted": [one.predicted.value, one.predicted.low, one.predicted.high] if one.predicted else None,
        "measured": [gain.value, gain.low, gain.high] if gain else None,
        **more,
    }


def measured(before: Any, after: Any, step_s: float, options: argparse.Namespace) -> list[float]:
    """Gains of interleaved pairs of plain loaders."""
    ratios = []
    for number in range(options.pairs):
        pair = [before, after] if number % 2 == 0 else [after, before]
        paces = {id(loader): pace(loader, options.seconds, step_s) for loader in pair}
        ratios.append(paces[id(after)] / paces[id(before)])
    return ratios


def pace(loader: Any, seconds: float, step_s: float) -> float:
    """Samples a second, from when the pipeline has filled."""
    iterator = iter(loader)
    for _ in range(1 + 3 * loader.num_workers):
        next(iterator)
    begun = time.perf_counter()
    samples = 0
    while True:
        samples += len(next(iterator)[1])
        if step_s:
            time.sleep(step_s)
        spent = time.perf_counter() - begun
        if spent >= seconds and samples >= 4 * 32 * max(1, loader.num_workers):
            break
    stop = getattr(iterator, "_shutdown_workers", None)
    if stop is not None:
        stop()
        loader._iterator = None  # workers that would live on are asked for again
    return samples / spent


def line(result: dict[str, Any]) -> str:
    steps = ", ".join(one["id"] for one in result["kept"]) or "nothing kept"
    gain = f"{result['promised']:.2f}x promised, {result['measured']:.2f}x measured" if result["kept"] else ""
    return f"{result['name']:40s} {steps:40s} {gain} ({result['fix_s']:.0f} s)"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", nargs="*", default=[], help="pipelines whose name contains one of these; the rest is left for later"
    )
    parser.add_argument("--budget", type=float, default=25.0, help="seconds that fix measures in each round (default 25)")
    parser.add_argument("--pairs", type=int, default=5, help="runs of both loaders in turn (default 5)")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of each (default 1.5)")


def measure(options: argparse.Namespace, record: Record) -> bool:
    from benchmarks.pipelines_to_fix import PIPELINES, slow_storage

    done: list[dict[str, Any]] = record.body.setdefault("pipelines", [])
    record.body["budget_s"] = options.budget
    wanted = [name for name in PIPELINES if not options.only or any(part in name for part in options.only)]
    if options.quick:
        wanted = wanted[:1]
    for name in wanted:
        if name in [one["name"] for one in done]:
            continue
        if record.over():
            return False
        kept = PLACE / "one.json"
        kept.unlink(missing_ok=True)
        arguments = [name, str(kept), str(options.budget), str(options.pairs), str(options.seconds)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": str(slow_storage(PLACE))}
        subprocess.run([sys.executable, "-m", "benchmarks.cases.fix", *arguments], check=False, env=environment, cwd=ROOT)
        if kept.exists():
            done.append(json.loads(kept.read_text()))
            record.save()
            print(line(done[-1]), flush=True)
    return options.quick or len(done) == len(PIPELINES)


def bars(body: dict[str, Any]) -> list[Bar]:
    pipelines = body["pipelines"]
    kept = [one for one in pipelines if one["kept"]]
    bound = [one.get("measured", 1.0) for one in pipelines if one["verdict"] == "input-bound"]
    held = sum(one["held"] >= HELD for one in kept) / len(kept) if kept else None
    return [
        at_least("different slow pipelines", len(pipelines), 12, "{:.0f}"),
        at_least("plans that brought at least 90 % of the gain that was predicted", held, 0.9, "{:.1%}"),
        at_least("median gain of the input-bound ones", statistics.median(bound) if bound else None, 2.0, "{:.2f}x"),
        none_of("pipelines slower than before", sum(one["measured"] < 0.98 for one in kept)),
    ]


def table(body: dict[str, Any]) -> str:
    pipelines = body["pipelines"]
    steps = [one for result in pipelines for one in result["kept"]]
    right = sum(one["held"] >= HELD for one in steps)
    figures = [(*one["predicted"], one["measured"][0]) for one in steps if one["predicted"] and one["measured"]]
    inside = sum(low <= brought <= high for _, low, high, brought in figures)
    less = sum(brought < low for _, low, _, brought in figures)
    cells = []
    for one in pipelines:
        names = ", ".join(kept["id"] for kept in one["kept"]) or "nothing"
        figures = [f"{one['promised']:.2f}x", f"{one['measured']:.2f}x", f"{one['held']:.0%}"] if one["kept"] else ["", "", ""]
        cells.append([one["name"], one["verdict"], names, *figures, one["same"]])
    left = [f"- {one['name']}: {left['id']}: {left['why']}" for one in pipelines for left in one["left"] if left["measured"]]
    return f"""
Each pipeline was handed to `pipefix fix --yes`, which measured {body["budget_s"]:g} s in each round. Promised is the product of what its
probes predicted for the steps that were kept; measured is the median of pairs of plain loaders, without and with the plan. Of single
steps {right} of {len(steps)} brought at least {HELD:.0%} of what was predicted; {inside} lay within the predicted interval, {less} below it.

{rows(["pipeline", "verdict", "kept", "promised", "measured", "part of it", "samples"], cells)}

What was tried and taken back, or left alone:

{chr(10).join(left)}"""


if __name__ == "__main__":
    pipeline, kept_at, budget, pairs, seconds = sys.argv[1:]
    one(pipeline, Path(kept_at), argparse.Namespace(budget=float(budget), pairs=int(pairs), seconds=float(seconds)))
