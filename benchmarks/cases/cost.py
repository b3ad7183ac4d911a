"""What a probe of the demo pipeline costs: wall time, and peak memory of the whole process tree beside the dataset's own loader's.

Memory is proportional set size where the system tells it: pages that processes share are counted once.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness.bar import Bar, at_most, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import ROOT, Record

TITLE = "What a probe costs"
ISSUE = "2, bar 5"
MINUTES = 2
QUICK: dict[str, Any] = {}
PHOTOS = ROOT / "fixtures" / "datasets" / "photos.py"
RECORDING = 1_000_000_000
OWN = """
import sys, time
sys.path.insert(0, {folder!r})
import photos
end = time.monotonic() + 10
while time.monotonic() < end:
    for batch in photos.train_loader:
        photos.train_step(batch)
        if time.monotonic() >= end:
            break
"""


class Memory(threading.Thread):
    """Samples the memory of a process and all its descendants."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.root = psutil.Process(pid)
        self.peak = 0
        self.peak_processes = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.1):
            try:
                tree = [self.root, *self.root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            total = sum(_held(process) for process in tree)
            if total > self.peak:
                self.peak, self.peak_processes = total, len(tree)


def _held(process: Any) -> int:
    try:
        found = process.memory_full_info()
        return int(getattr(found, "pss", found.rss))
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0


def run(command: list[str]) -> dict[str, Any]:
    begun = time.perf_counter()
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    memory = Memory(child.pid)
    memory.start()
    _, errors = child.communicate()
    wall = time.perf_counter() - begun
    memory.over.set()
    memory.join()
    return {
        "wall_s": wall,
        "peak_bytes": memory.peak,
        "processes": memory.peak_processes,
        "exit_code": child.returncode,
        "errors": errors[-2000:] if child.returncode else "",
    }


def measure(options: argparse.Namespace, record: Record) -> None:
    subprocess.run([sys.executable, str(ROOT / "scripts" / "make_fixtures.py")], check=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.json"
        probe = [sys.executable, "-m", "pipefix", "probe", str(PHOTOS), "--out", str(file)]
        runs = {"own loader": run([sys.executable, "-c", OWN.format(folder=str(PHOTOS.parent))])}
        if not options.quick:
            runs["probe"] = run(probe)
        runs["probe --quick"] = run([*probe, "--quick"])
    record.body["runs"] = runs


def bars(body: dict[str, Any]) -> list[Bar]:
    runs = body["runs"]
    probes = {name: one for name, one in runs.items() if name != "own loader"}
    allowed = 2 * runs["own loader"]["peak_bytes"] + RECORDING
    return [
        at_most("seconds of a probe", runs.get("probe", {}).get("wall_s"), 60.0, "{:.1f}"),
        at_most("seconds of a quick one", runs["probe --quick"]["wall_s"], 20.0, "{:.1f}"),
        at_most(
            "peak memory over twice the loader's own and the recording budget",
            max(one["peak_bytes"] for one in probes.values()) / allowed, 1.0,
        ),
        none_of("commands that did not end well", sum(bool(one["exit_code"]) for one in runs.values())),
    ]  # fmt: skip


def table(body: dict[str, Any]) -> str:
    cells = [
        [name, f"{one['wall_s']:.1f} s", f"{one['peak_bytes'] / 1e6:.0f} MB", one["processes"]]
        for name, one in body["runs"].items()
    ]
    return f"""
`pipefix probe fixtures/datasets/photos.py`, from the shell's prompt to the shell's prompt, and the most memory its processes held
together; beside it ten seconds of the dataset's own loader and model.

{rows(["", "wall", "peak memory", "processes"], cells)}"""
