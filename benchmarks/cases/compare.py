"""Pairs of probes of the same pipeline: unchanged code beside programs that take the machine's CPUs, and code a tenth slower.

Each probe is a process of its own. `pipefix compare --max-regression 5%` is to fail for none of the one, and for all but one of the
other.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import ROOT, Record
from pipefix.report import runfile
from pipefix.report.compare import compare

TITLE = "Comparing runs"
ISSUE = "21, bar 4"
MINUTES = 45
QUICK = {"pairs": 1}
CODE = ("report",)
ALLOWED = 0.05

PIPELINE = """
import hashlib
import time
import numpy as np
from torch.utils.data import DataLoader, Dataset

SLOWER, KIND = {slower!r}, {kind!r}

def spend(rounds, data=b"x" * 65536):
    for _ in range(rounds):
        hashlib.sha256(data).digest()

class Samples(Dataset):
    def __len__(self):
        return 100000

    def __getitem__(self, index):
        extra = 9 if SLOWER else 0  # about a tenth of what a sample costs
        with open(__file__, "rb") as file:
            data = file.read()
        time.sleep(0.0005)
        spend(16 + (extra if KIND == "decode" else 0))
        values = np.frombuffer(data[:256], dtype=np.uint8).astype("float32")
        spend(24 + (extra if KIND == "augment" else 0))
        return np.sqrt(values).sum()

loader = DataLoader(Samples(), batch_size=8, num_workers=2)
"""
BUSY = "while True: sum(i * i for i in range(100000))"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=20, help="of either kind (default 20)")
    parser.add_argument("--budget", type=int, default=20, help="seconds that a probe measures (default 20)")


def measure(options: argparse.Namespace, record: Record) -> bool:
    pairs = record.body.setdefault("pairs", [])
    with tempfile.TemporaryDirectory(prefix="pipefix-compare-") as folder:
        while len(pairs) < 2 * options.pairs:
            if record.over():
                return False
            planted = len(pairs) % 2 == 1
            kind = ("decode", "augment")[len(pairs) // 2 % 2]
            pairs.append(_pair(Path(folder), kind, planted, options.budget, neighbours=1 + len(pairs) // 2 % 3))
            record.save()
            print(f"pair {len(pairs)}: {pairs[-1]}", file=sys.stderr)
    return True


def _pair(folder: Path, kind: str, planted: bool, budget: int, neighbours: int) -> dict[str, Any]:
    before = _probed(folder, kind, False, budget)
    with _busy(0 if planted else neighbours):
        after = _probed(folder, kind, planted, budget)
    found = compare(before, after, max_regression=ALLOWED)
    return {
        "planted": planted, "kind": kind, "neighbours": 0 if planted else neighbours, "ratio": found.ratio.value,
        "own": found.own.value, "machine": found.machine.factor, "failed": found.regressed, "said": found.sentence,
    }  # fmt: skip


def _probed(folder: Path, kind: str, slower: bool, budget: int) -> runfile.Run:
    script, out = folder / "pipeline.py", folder / "run.json"
    script.write_text(PIPELINE.format(slower=slower, kind=kind), encoding="utf-8")
    command = [sys.executable, "-m", "pipefix", "probe", f"{script}:loader", "--budget", str(budget), "--out", str(out), "-q"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return runfile.read(out)


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """So many programs that compute without end."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def bars(body: dict[str, Any]) -> list[Bar]:
    pairs = body["pairs"]
    return [
        none_of("failures of unchanged code beside a neighbour", sum(one["failed"] for one in pairs if not one["planted"])),
        at_least("planted regressions found, of twenty", _found(pairs), 19, "{:.1f}"),
    ]


def _found(pairs: list[dict[str, Any]]) -> float | None:
    planted = [one for one in pairs if one["planted"]]
    return 20 * sum(one["failed"] for one in planted) / len(planted) if planted else None


def table(body: dict[str, Any]) -> str:
    cells = [
        [
            "a tenth slower" if one["planted"] else f"unchanged, beside {one['neighbours']}", one["kind"], f"{one['ratio']:.2f}x",
            f"{one['machine']:.2f}x", f"{one['own']:.2f}x", "fails" if one["failed"] else "passes",
        ]
        for one in body["pairs"]
    ]  # fmt: skip
    return rows(["code", "planted in", "delivered", "machine's part", "without it", "the gate"], cells)
