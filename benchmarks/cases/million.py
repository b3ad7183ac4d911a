"""A million small records: memory while converting, the time it takes to open the finished cache, and a check that all are there."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from typing import Any

from benchmarks.harness.bar import Bar, at_least, at_most
from benchmarks.harness.page import rows
from benchmarks.harness.record import ROOT, WORK, Record

TITLE = "A million records"
ISSUE = "3, bar 6"
MINUTES = 6
QUICK = {"records": 2000}
CONVERT = """
import sys, threading, time, psutil, json
sys.path[:0] = [{root!r}]
import torch
from tests.caches.sources import Texts, Numbers
from pipefix.caches.convert import convert, recipe_of
from pathlib import Path
me = psutil.Process()
def own(process):
    # What the family holds of its own: files that are mapped, libraries included, are shared with whoever else runs.
    try:
        lines = Path("/proc", str(process.pid), "smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    except OSError:
        return 0
base = own(me)
peak, running = 0, True
def watch():
    global peak
    while running:
        try:
            family = [me, *me.children(recursive=True)]
        except psutil.Error:
            continue
        peak = max(peak, sum(map(own, family)))
        time.sleep(0.2)
watcher = threading.Thread(target=watch)
watcher.start()
begun = time.perf_counter()
done = convert(eval(sys.argv[1]), recipe_of(sys.argv[2], sys.argv[3]), Path(sys.argv[4]), workers=2)
took = time.perf_counter() - begun
running = False
watcher.join()
print(json.dumps({{"seconds": took, "memory_mb": (peak - base) / 1e6, "records": done.manifest.length, "bytes": done.manifest.bytes}}))
"""
OPEN = """
import sys, time, json
sys.path[:0] = [{root!r}]
from pipefix.caches.dataset import CachedDataset
if sys.argv[2] == "parquet":
    import pyarrow.parquet
begun = time.perf_counter()
cached = CachedDataset(sys.argv[1])
opened = time.perf_counter()
cached[len(cached) // 2]
read = time.perf_counter()
print(json.dumps({{"open_ms": (opened - begun) * 1e3, "first_record_ms": (read - opened) * 1e3}}))
"""
CASES = {"rows in parquet": ("Texts({n})", "parquet", "rows"), "samples in lmdb": ("Numbers({n})", "lmdb", "sample")}


def run(code: str, *arguments: str) -> dict[str, float]:
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code.format(root=str(ROOT)), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    told: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"{time.perf_counter() - begun:.1f} s", file=sys.stderr)
    return told


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=1_000_000)


def measure(options: argparse.Namespace, record: Record) -> bool:
    figures = record.body.setdefault("figures", {})
    for name, (dataset, to, store) in CASES.items():
        if name in figures:
            continue
        if record.over():
            return False
        out = WORK / "million"
        shutil.rmtree(out, ignore_errors=True)
        told = run(CONVERT, dataset.format(n=options.records), to, store, str(out))
        looks = [run(OPEN, str(out), to) for _ in range(5)]
        figures[name] = told | {key: sorted(look[key] for look in looks)[2] for key in looks[0]}
        record.save()
        print(name, figures[name], file=sys.stderr)
    return True


def bars(body: dict[str, Any]) -> list[Bar]:
    figures = body["figures"].values()
    return [
        at_least("records", min(told["records"] for told in figures), 1_000_000, "{:.0f}"),
        at_most("peak memory above the interpreter's, MB", max(told["memory_mb"] for told in figures), 500, "{:.0f}"),
        at_most("opening the finished cache, ms", max(told["open_ms"] for told in figures), 50, "{:.1f}"),
    ]


def table(body: dict[str, Any]) -> str:
    cells = [
        [name, f"{told['seconds']:.0f}", f"{told['memory_mb']:.0f}", f"{told['open_ms']:.1f}", f"{told['first_record_ms']:.1f}"]
        for name, told in body["figures"].items()
    ]
    return rows(["store", "seconds", "memory above the interpreter's, MB", "opening, ms", "first record, ms"], cells)
