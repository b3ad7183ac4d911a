"""Jobs of two and four ranks with one thing planted: is the rank named, and what it does?"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.cases.programs import started
from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record

TITLE = "Ranks that make the others wait"
ISSUE = "16, bar 4"
MINUTES = 25
QUICK = {"only": ["storage-2-0"]}
SAID = {
    "storage": ("straggler", "its storage is slower"),
    "decode": ("straggler", "decoded and augmented more slowly"),
    "step": ("straggler", "its step, backward apart"),
    "start": ("late-start", "at the beginning of epochs"),
    "same samples": ("same-samples", "goes through all"),
    "same order": ("same-order", "same shuffled order"),
    "uneven": ("uneven-ranks", "batches and rank"),
}
STRAGGLES = ("storage", "decode", "step", "start")


def jobs() -> dict[str, tuple[str, int, int, int]]:
    """By name: what is planted, ranks, the guilty one, workers."""
    found: dict[str, tuple[str, int, int, int]] = {}
    for fault in STRAGGLES:
        for ranks, guilty, workers in ((2, 0, 0), (2, 1, 0), (2, 1, 1), (2, 0, 1), (4, 0, 0), (4, 2, 0), (4, 3, 0)):
            found[f"{fault}-{ranks}-{guilty}-{workers}"] = (fault, ranks, guilty, workers)
    for number, (ranks, workers) in enumerate(((2, 0), (2, 1), (4, 0), (2, 0), (2, 1), (4, 0), (2, 0), (2, 1), (4, 0), (2, 0))):
        found[f"none-{ranks}-{workers}-{number}"] = ("none", ranks, -1, workers)
    for fault in ("same samples", "same order", "uneven"):
        for number, (ranks, workers) in enumerate(((2, 0), (2, 1), (4, 0), (2, 0))):
            found[f"{fault}-{ranks}-{workers}-{number}"] = (fault, ranks, ranks - 1, workers)
    return found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="*", default=[], help="jobs whose name contains one of these")


def tried(fault: str, ranks: int, guilty: int, workers: int) -> dict[str, Any]:
    words = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone", "ranks.py"]
    words += ["--fault", fault, "--rank", str(guilty), "--workers", str(workers)]
    with tempfile.TemporaryDirectory() as place:
        ran = started(words, Path(place), ["--out", place])
        program = json.loads((Path(place) / "run.json").read_text())["program"]
    told = [(one["id"], one["found"]) for one in program["findings"]]
    return {"fault": fault, "ranks": ranks, "guilty": guilty, "workers": workers, "told": told, "code": ran.returncode} | (
        {"stderr": ran.stderr[-6000:].replace(place, "FOLDER")} if ran.returncode else {}
    )


def right(one: dict[str, Any]) -> bool:
    """The one thing that was planted is told, with its rank and what it does, and nothing else."""
    if one["fault"] == "none":
        return not one["told"]
    name, said = SAID[one["fault"]]
    named = [found for kind, found in one["told"] if kind == name and said in found]
    if one["fault"] in STRAGGLES:
        named = [found for found in named if f"rank {one['guilty']} makes" in found]
    return bool(named) and len(one["told"]) == 1


def measure(options: argparse.Namespace, record: Record) -> bool:
    done: dict[str, Any] = record.body.setdefault("jobs", {})
    wanted = {name: job for name, job in jobs().items() if not options.only or any(part in name for part in options.only)}
    for name, job in wanted.items():
        if name in done:
            continue
        if record.over():
            return False
        done[name] = tried(*job)
        record.save()
        print(
            f"{name:24s} {'right' if right(done[name]) else 'WRONG'} {done[name]['told']} {done[name].get('stderr', '')}",
            flush=True,
        )
    return len(done) >= len(wanted)


def bars(body: dict[str, Any]) -> list[Bar]:
    every = body["jobs"].values()
    slow = [right(one) for one in every if one["fault"] in STRAGGLES]
    healthy = [right(one) for one in every if one["fault"] == "none"]
    others = [right(one) for one in every if one["fault"] not in (*STRAGGLES, "none")]
    return [
        at_least("stragglers named with their rank and stage", sum(slow) / len(slow) if slow else None, 0.95, "{:.1%}"),
        none_of("healthy jobs with a finding", sum(not one for one in healthy)),
        at_least(
            "doubled samples, repeated orders, uneven ranks told", sum(others) / len(others) if others else None, 1.0, "{:.1%}"
        ),
    ]


def table(body: dict[str, Any]) -> str:
    cells = []
    for fault in (*SAID, "none"):
        these = [one for one in body["jobs"].values() if one["fault"] == fault]
        wrong = sorted({found for one in these if not right(one) for _, found in one["told"]} or {""})
        cells.append([fault, f"{len(these)}", f"{sum(map(right, these))}", "; ".join(wrong)])
    return f"""
Jobs of `benchmarks/programs/ranks.py` on two and four ranks (gloo, one machine), started by torchrun under `pipefix run`. Right: the one
thing planted is told with the rank that has it, and nothing else is told.

{rows(["planted", "jobs", "right", "told instead"], cells)}"""
