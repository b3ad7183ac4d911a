"""How soon the commands that must answer at once do: best of several, less what they waited for a CPU that other programs had."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from measured.row import Row, at_most

RUN = str(Path(__file__).resolve().parent.parent / "fixtures" / "runs" / "decode-bound-workers.json")
COMMANDS = {
    "pipefix --help": (["--help"], 0.25),
    "pipefix show RUN": (["show", RUN], 0.6),
    "pipefix doctor --help": (["doctor", "--help"], 0.25),
    "pipefix doctor": (["doctor"], 6.0),
}
"""Each with the seconds that it may take. `doctor` imports torch, and asks every optional package."""
TRIES = 7


def rows() -> Iterator[Row]:
    for name, (words, limit) in COMMANDS.items():
        tries = TRIES if limit < 1 else 3
        best = min(seconds(words) for _ in range(tries))
        yield at_most(f"weight: {name}", best, "s", limit, source="what feels like at once" if limit < 1 else "importing torch")


def seconds(words: list[str]) -> float:
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "pipefix", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    taken = time.perf_counter() - begun
    queued = Path(f"/proc/{process.pid}/schedstat")
    if queued.exists():
        taken -= int(queued.read_text().split()[1]) / 1e9
    process.wait()
    return taken
