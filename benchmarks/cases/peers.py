"""The fused path beside every accelerated loader that is installed, on the same pictures: pictures a second, first batch, memory."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from PIL import Image

from benchmarks.harness.bar import Bar, at_least, at_most
from benchmarks.harness.pictures import pictures
from benchmarks.harness.record import ROOT, WORK, Record
from benchmarks.peer_arms import ARMS

TITLE = "The fused path and its peers"
ISSUE = "4, bar 2"
MINUTES = 120
QUICK = {"rounds": 1, "count": 96, "epochs": 1}
INPUTS = ("originals", "256px", "raw")
WORDS = {"originals": "original files", "256px": "files of 256 px", "raw": "raw pixels of 256 px"}
OURS = ("FastLoader, close", "FastLoader, exact", "FastLoader, no native kernel")
DECODING = "decoding alone"
PEERS = [name for name in ARMS if name not in (*OURS, DECODING)]
LONGEST_S = 150


def drawn(count: int) -> Path:
    """The pictures, and the same with a short side of 256."""
    folder = WORK / f"peers-{count}"
    if not (folder / ".drawn").exists():
        source = pictures(count)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder / "originals", ignore=shutil.ignore_patterns(".drawn"))
        for path in sorted((folder / "originals").rglob("*.jpg")):
            image = Image.open(path).convert("RGB")
            scale = 256 / min(image.size)
            to = folder / "256px" / path.parent.name / path.name
            to.parent.mkdir(parents=True, exist_ok=True)
            image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC).save(to, quality=90)
        (folder / ".drawn").touch()
    return folder


def interpreters(wanted: list[str]) -> dict[str, str | None]:
    """For each arm the first interpreter that can import what it needs."""
    found: dict[tuple[str, str], bool] = {}

    def can(python: str, module: str) -> bool:
        if (python, module) not in found:
            done = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False, cwd=ROOT)
            found[python, module] = done.returncode == 0
        return found[python, module]

    return {name: next((one for one in wanted if can(one, module)), None) for name, (_, module, _) in ARMS.items()}


def run(python: str, arm: str, given: str, folder: Path, workers: int, epochs: int) -> dict[str, Any]:
    """One arm in a process of its own, with the most memory that it and its children had at a time."""
    command = [
        python,
        "-W",
        "ignore",
        str(ROOT / "benchmarks" / "peer_arms.py"),
        arm,
        given,
        str(folder),
        str(workers),
        str(epochs),
    ]
    begun = time.monotonic()
    most = 0
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        process = subprocess.Popen(command, stdout=out, stderr=error, cwd=ROOT, start_new_session=True)
        try:
            while process.poll() is None and time.monotonic() - begun < LONGEST_S:
                most = max(most, _pss(process.pid))
                time.sleep(0.25)
        finally:
            # Some peers' workers outlive them.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        texts = [(file.seek(0), file.read())[1] for file in (out, error)]
    told = next((line for line in texts[0].splitlines() if line.startswith("RESULT ")), None)
    if told is None:
        lines = [line for line in texts[1].strip().splitlines() if line.strip()]
        return {"error": lines[-1][-200:] if lines else f"it ended with {process.returncode}"}
    return {**json.loads(told[len("RESULT ") :]), "pss": most, "took_s": round(time.monotonic() - begun, 1)}


def _pss(pid: int) -> int:
    total = 0
    try:
        every = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return 0
    for one in every:
        try:
            text = Path(f"/proc/{one.pid}/smaps_rollup").read_text(encoding="ascii")
        except OSError:
            continue
        total += next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)
    return total


def table(part: dict[str, Any]) -> str:
    lines = [
        "Batches of 64 from the same pictures, all cores, each in a process of its own and in turns: random resized crop to 224,",
        "antialiased, flip, normalised floats, labels; each with the settings that its documentation or trying found quickest.",
        "Decoding alone: all cores decode the files whole, from memory. Memory is PSS of all of an arm's processes.",
    ]
    if part["missing"]:
        lines.append(f"Not installed where this ran: {', '.join(part['missing'])}.")
    for given in INPUTS:
        cells = [cell for cell in part["cells"] if cell["input"] == given]
        if cells:
            lines += ["", f"### {WORDS[given].capitalize()}", "", *_rows(cells, _rate_of_decoding(part["cells"], given))]
    return "\n".join(lines)


def _rates(cells: list[dict[str, Any]], arm: str) -> list[float]:
    return [statistics.median(cell["rates"]) for cell in cells if cell["arm"] == arm and "rates" in cell]


def _rate_of_decoding(cells: list[dict[str, Any]], given: str) -> float | None:
    of = "originals" if given == "originals" else "256px"
    rates = _rates([cell for cell in cells if cell["input"] == of], DECODING)
    return statistics.median(rates) if rates else None


def _rows(cells: list[dict[str, Any]], decoding: float | None) -> list[str]:
    medians = {arm: statistics.median(rates) for arm in ARMS if (rates := _rates(cells, arm))}
    rivals = {arm: rate for arm, rate in medians.items() if arm in PEERS}
    best = max(rivals, key=lambda arm: rivals[arm]) if rivals else None
    lines = [
        "| loader | rounds | pictures/s | lowest-highest | of the best peer | of decoding | first batch s | memory GB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for arm, rate in sorted(medians.items(), key=lambda pair: -pair[1]):
        own = [cell for cell in cells if cell["arm"] == arm and "rates" in cell]
        rates = [one for cell in own for one in cell["rates"]]
        share = f"{rate / rivals[best]:.2f}" if best is not None else ""
        decoded = f"{rate / decoding:.2f}" if decoding else ""
        first = f"{statistics.median(cell['first_s'] for cell in own):.2f}" if arm != DECODING else ""
        memory = f"{statistics.median(cell['pss'] for cell in own) / 1e9:.2f}" if arm != DECODING else ""
        lines.append(
            f"| {arm} | {len(own)} | {rate:.0f} | {min(rates):.0f}-{max(rates):.0f} | {share} | {decoded} | {first} | {memory} |"
        )
    failed = {cell["arm"]: cell["error"] for cell in cells if "error" in cell}
    return lines + [f"\n{arm} failed: {error}." for arm, error in failed.items()]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", action="append", default=[], help="this loader or input; the rest is left for later; may be repeated"
    )
    parser.add_argument("--python", action="append", default=[], help="another interpreter that peers may be in; may be repeated")
    parser.add_argument("--count", type=int, default=1200, help="pictures")
    parser.add_argument("--epochs", type=int, default=2)


def measure(options: argparse.Namespace, record: Record) -> bool:
    """Every arm once a round, in an order of its own each round."""
    folder = drawn(options.count)
    known = interpreters([sys.executable, *options.python])
    cells = record.body["cells"] = [cell for cell in record.body.get("cells", []) if "rates" in cell]  # what failed is tried again
    record.body["missing"] = [name for name, python in known.items() if python is None]
    had = {(cell["round"], cell["input"], cell["arm"]) for cell in cells}
    left = False
    for turn in range(options.rounds):
        for given in INPUTS[:1] if options.quick else INPUTS:
            arms = [name for name, (_, _, inputs) in ARMS.items() if given in inputs and known[name] is not None]
            random.Random(f"{turn} {given}").shuffle(arms)
            for arm in [*OURS[:1], DECODING] if options.quick else arms:
                if (turn, given, arm) in had:
                    continue
                if record.over() or (options.only and arm not in options.only and given not in options.only):
                    left = True
                    continue
                python = known[arm]
                assert python is not None
                print(f"round {turn + 1}, {WORDS[given]}, {arm}: ", end="", file=sys.stderr, flush=True)
                cores = len(os.sched_getaffinity(0))
                cells.append({"round": turn, "input": given, "arm": arm, **run(python, arm, given, folder, cores, options.epochs)})
                record.save()
                cell = cells[-1]
                rate = f"{statistics.median(cell['rates']):.0f} pictures/s" if "rates" in cell else cell["error"]
                print(f"{rate} ({cell.get('took_s', 0)} s in all)", file=sys.stderr)
    return not left


# -- what it shows ---------------------------------------------------------------------------------------------------------


LEAST = {"originals": (1.6, 1.1), "256px": (1.35, 1.2), "raw": (2.2, 1.6)}
"""Of the best peer's rate: with the native kernel, and without it."""


def bars(body: dict[str, Any]) -> list[Bar]:
    """Ours with the native kernel is the quicker of `close` and `exact`, both of which keep to the peers' output."""
    found = []
    for given, limits in LEAST.items():
        cells = [cell for cell in body["cells"] if cell["input"] == given]
        best = quickest(cells, PEERS)
        for name, arms, least in (("FastLoader", OURS[:2], limits[0]), (OURS[2], OURS[2:], limits[1])):
            ours = quickest(cells, arms)
            ratio = ours / best if ours and best else None
            found.append(at_least(f"{WORDS[given]}: {name}, of the best peer's pictures/s", ratio, least))
    ours = quickest([cell for cell in body["cells"] if cell["input"] == "originals"], OURS[:2])
    decoding = _rate_of_decoding(body["cells"], "originals")
    first, memory = worst(body["cells"], "first_s"), worst(body["cells"], "pss")
    return [
        *found,
        at_least("original files: of the machine's rate of decoding alone", ours / decoding if ours and decoding else None, 0.85),
        at_most("construction to first batch, s", first, 0.5),
        at_most("PSS on JPEG input, GB", memory and memory / 1e9, 0.9),
    ]


def quickest(cells: list[dict[str, Any]], arms: Sequence[str]) -> float | None:
    """Pictures a second of the best of these arms."""
    return max((statistics.median(rates) for arm in arms if (rates := _rates(cells, arm))), default=None)


def worst(cells: list[dict[str, Any]], figure: str) -> float | None:
    """The highest median of a figure, of ours with the native kernel on files."""
    groups = [
        [cell[figure] for cell in cells if cell["arm"] == arm and cell["input"] == given and "rates" in cell]
        for arm in OURS[:2]
        for given in ("originals", "256px")
    ]
    return max((statistics.median(group) for group in groups if group), default=None)
