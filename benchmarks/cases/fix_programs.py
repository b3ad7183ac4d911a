"""Slow training programs, fixed without an edit: how much sooner is each done?

Each program of ``benchmarks/programs/slow`` is run, put through ``pipefix fix PROGRAM -- ARGUMENTS``, and run again under
``pipefix run --plan``, in turn with itself.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.cases.programs import FOLDER, started
from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import ROOT, Record

TITLE = "Programs fixed as they are"
ISSUE = "16, bar 7"
MINUTES = 20
QUICK = {"only": ["photos"], "turns": 1}
PROGRAMS: dict[str, list[str]] = {
    "photos": ["--data", "{data}", "--epochs", "80"],
    "remote": ["{data}", "14"],
    "records": ["--data", "{data}", "--epochs", "60"],
    "arrays": ["--data", "{data}", "--epochs", "120"],
    "segmentation": ["{data}", "36"],
}
"""As long as they take about a minute: the four or five seconds in which Python and torch start are no data pipeline's."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="*", default=[], help="programs whose name contains one of these")
    parser.add_argument("--turns", type=int, default=3, help="runs without and with the plan, in turn (default 3)")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds to measure in each round of fix (default 20)")


def drawn(folder: Path) -> None:
    """What the programs read."""
    draw = np.random.default_rng(0)

    def picture(height: int, width: int) -> Image.Image:
        coarse = Image.fromarray(draw.integers(0, 255, (height // 16, width // 16, 3), dtype=np.uint8))
        return coarse.resize((width, height), Image.Resampling.BICUBIC)

    for number in range(240):
        path = folder / "photos" / "abcd"[number % 4] / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(384, 512).save(path, quality=90)
    for name in ("small", "volumes", "pairs"):
        (folder / name).mkdir()
    for number in range(800):
        np.save(folder / "small" / f"{number:04d}.npy", draw.random(64, dtype=np.float32))
    with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
        for number in range(600):
            file.write(json.dumps({"values": draw.random(4096).round(6).tolist(), "label": number % 2}) + "\n")
    for number in range(160):
        volume = np.cumsum(draw.integers(-3, 4, (16, 96, 96)), axis=0).clip(-120, 120) + 120
        np.savez_compressed(folder / "volumes" / f"{number:04d}.npz", volume=volume.astype(np.uint8))
    for number in range(96):
        picture(480, 640).save(folder / "pairs" / f"picture-{number:04d}.png")
        mask = Image.fromarray(draw.integers(0, 2, (30, 40), dtype=np.uint8)).resize((640, 480), Image.Resampling.NEAREST)
        mask.save(folder / "pairs" / f"mask-{number:04d}.png")


def tried(name: str, data: Path, options: argparse.Namespace) -> dict[str, Any]:
    script = f"slow/{name}.py"
    words = [script, *(word.format(data=data) for word in PROGRAMS[name])]
    source = (FOLDER / script).read_bytes()
    found: dict[str, Any] = {"name": name, "alone_s": [], "fixed_s": []}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        begun = time.perf_counter()
        given = ["fix", script, "--yes", "-q", "--budget", str(options.budget), "--out", str(folder / "fixed"), "--", *words[1:]]
        fixed = subprocess.run(_pipefix(given), **_in_folder(), timeout=600)
        found |= {"fix_s": time.perf_counter() - begun, "fix_code": fixed.returncode, "kept": kept(fixed.stdout)}
        plan = folder / "fixed" / "pipefix.plan.toml"
        if fixed.returncode or not plan.exists():
            return found | {"stderr": fixed.stderr[-2000:]}
        for _ in range(options.turns):
            for arm, pipefix in (("alone_s", None), ("fixed_s", ["--plan", str(plan), "--out", str(folder / "run")])):
                begun = time.perf_counter()
                ran = started(words, folder, pipefix)
                found[arm].append(time.perf_counter() - begun)
                if ran.returncode:
                    return found | {"stderr": ran.stderr[-2000:]}
        found["planned"] = json.loads((folder / "run" / "run.json").read_text())["program"].get("planned", [])
    found["edited"] = (FOLDER / script).read_bytes() != source
    return found


def _pipefix(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "pipefix", *words]


def _in_folder() -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    return {"cwd": FOLDER, "env": environment, "capture_output": True, "text": True, "check": False}


def gain(one: dict[str, Any]) -> float:
    """How much sooner it is done, start-up included; 1 where nothing was kept."""
    return statistics.median(one["alone_s"]) / statistics.median(one["fixed_s"]) if one["fixed_s"] else 1.0


def kept(told: str) -> list[str]:
    """The steps that fix says it kept, each with what it measured."""
    return [f"{step} {gain}" for step, gain in re.findall(r"^KEPT +(\S+): (\S+)", told, re.MULTILINE)]


def measure(options: argparse.Namespace, record: Record) -> bool:
    done: list[dict[str, Any]] = record.body.setdefault("programs", [])
    wanted = [name for name in PROGRAMS if not options.only or any(part in name for part in options.only)]
    with tempfile.TemporaryDirectory() as place:
        drawn(Path(place))
        for name in wanted:
            if name in [one["name"] for one in done]:
                continue
            if record.over():
                return False
            done.append(tried(name, Path(place), options))
            record.save()
            print(
                f"{name:14s} {gain(done[-1]):.2f}x, fixed in {done[-1]['fix_s']:.0f} s {done[-1]['kept']} {done[-1].get('stderr', '')}"
            )
    return len(done) >= len(wanted)


def bars(body: dict[str, Any]) -> list[Bar]:
    every = body["programs"]
    return [
        at_least("programs fixed", len([one for one in every if one["fixed_s"]]), len(PROGRAMS), "{:.0f}"),
        at_least("how much sooner they are done, median", statistics.median(map(gain, every)), 2.0, "{:.2f}x"),
        none_of("programs whose file was edited", sum(one.get("edited", False) for one in every)),
    ]


def table(body: dict[str, Any]) -> str:
    cells = []
    for one in body["programs"]:
        if not one["fixed_s"]:
            cells.append([one["name"], "", "", "", "not fixed"])
            continue
        alone, fixed = statistics.median(one["alone_s"]), statistics.median(one["fixed_s"])
        cells.append([one["name"], f"{alone:.1f} s", f"{fixed:.1f} s", f"{gain(one):.2f}x", ", ".join(one["kept"])])
    return f"""
Programs of `benchmarks/programs/slow`, whole runs from start to exit, alone and under `pipefix run --plan`, in turn; medians. What
`fix` kept it had verified against the program's own samples.

{rows(["program", "alone", "with the plan", "gain", "kept"], cells)}"""
