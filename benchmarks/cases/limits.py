"""Tunes within limits drawn at random, on a made-up machine and on this one: no crash, no limit broken, nothing left behind."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.tuning import usage
from pipefix.vocabulary.errors import BadUsage, TargetError
from tests.tuning import grids
from tests.tuning.limited import Hungry, made_up

TITLE = "Tuning within limits"
ISSUE = "6, bar 2"
MINUTES = 12
QUICK = {"count": 10, "real": 0}


def real(seed: int) -> dict[str, Any]:
    """One tuning here, its limits watched from outside as well."""
    import pipefix

    draw = np.random.default_rng(seed)
    most = int(draw.choice([1, 60, 200])) * 1_000_000
    limit = usage.read([os.getpid()]).memory_bytes * 1.2 + float(draw.choice([50e6, 250e6, 500e6]))
    loader: DataLoader[Any] = DataLoader(Hungry(most), batch_size=8, num_workers=int(draw.choice([0, 2, 4])))
    before = set(like_this_one())
    shm = set(os.listdir("/dev/shm"))
    facts = {"said": f"workers that grow to {most // 1_000_000} MB, starting with {loader.num_workers}", "limit_mb": limit / 1e6}
    memory = 0.0
    try:
        tuned = pipefix.tune(loader, budget=6.0, trials=4, max_memory=limit, max_shm=float(draw.choice([1e6, 50e6, 1e9])))
        memory = max((trial.used.memory_bytes for trial in tuned.report.trials), default=0.0)
        ending = tuned.report.sentence
    except (BadUsage, TargetError) as error:
        ending = f"refused: {error}"
    left = [name for name in set(os.listdir("/dev/shm")) - shm if name.startswith("torch_")]
    stayed = sorted(set(like_this_one()) - before)
    return {
        **facts, "ending": ending, "memory_mb": memory / 1e6,
        "breaches": ["memory"] if memory > limit else [], "orphans": [*left, *stayed],
    }  # fmt: skip


def like_this_one() -> list[int]:
    """Processes with this one's command line: what it forked has the same, wherever it went."""
    own = Path("/proc/self/cmdline").read_bytes()
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := usage._stat(int(name))) is not None and fields[0] != "Z":
            try:
                same = Path(f"/proc/{name}/cmdline").read_bytes() == own
            except OSError:
                continue
            if same:
                pids.append(int(name))
    return pids


def case(seed: int) -> dict[str, Any]:
    try:
        return made_up(seed, grids.every())
    except Exception as error:  # noqa: BLE001 - whatever is raised is the crash that is counted
        return {"seed": seed, "crash": f"{type(error).__name__}: {error}", "log": traceback.format_exc()[-2000:]}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=1000, help="limits on the made-up machine (default 1000)")
    parser.add_argument("--real", type=int, default=20, help="limits on this machine (default 20)")


def measure(options: argparse.Namespace, record: Record) -> bool:
    cases: list[dict[str, Any]] = record.body.setdefault("cases", [])
    lived: list[dict[str, Any]] = record.body.setdefault("real", [])
    with ProcessPoolExecutor(max(1, os.cpu_count() or 1), mp_context=multiprocessing.get_context("fork")) as pool:
        while len(cases) < options.count and not record.over():
            cases += pool.map(case, range(len(cases), min(len(cases) + 40, options.count)))
            record.save()
    while len(lived) < options.real and not record.over():
        lived.append({"seed": len(lived), **real(len(lived))})
        record.save()
        print(lived[-1], flush=True)
    for crash in (one["log"] for one in cases if "log" in one):
        print(crash)
    return len(cases) >= options.count and len(lived) >= options.real


def bars(body: dict[str, Any]) -> list[Bar]:
    every = [*body["cases"], *body["real"]]
    return [
        at_least("random limits", len(every), 1000, "{:.0f}"),
        none_of("crashes", sum("crash" in one for one in every)),
        none_of("breaches", sum(bool(one.get("breaches")) for one in every)),
        none_of("times that something was left behind", sum(bool(one.get("orphans")) for one in every)),
    ]


def table(body: dict[str, Any]) -> str:
    endings = Counter(one.get("ending", "crash") for one in body["cases"])
    lived = [[one["said"], one["ending"], f"{one['memory_mb']:.0f} MB", f"{one['limit_mb']:.0f} MB"] for one in body["real"]]
    return f"""
{len(body["cases"])} limits on a made-up machine and {len(body["real"])} here. Memory, shared memory, open files and CPU cores, each limited or not,
from far too little to plenty; pipelines that leak and pipelines that take more than they seem to.

{rows(["what came of it (made-up machine)", "times"], endings.most_common())}

{rows(["here, for real", "result", "most memory", "limit"], lived)}"""
