"""A conversion that is killed at random moments until it gets through, and the same one left alone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from pipefix.caches.dataset import CachedDataset
from pipefix.vocabulary.errors import UnreadableFile

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.caches.sources import Files
from pipefix.caches import survey
from pipefix.caches.convert import convert, recipe_of
survey._part_samples = lambda samples, record_bytes: {each}
paths = sorted(Path(sys.argv[1]).rglob("*.jpg"))
print("begun", flush=True)
convert(Files(paths), recipe_of(sys.argv[3], sys.argv[4]), Path(sys.argv[2]), target="kills", workers=2)
print("done", flush=True)
"""


def start(pictures: Path, out: Path, to: str, store: str, each: int) -> subprocess.Popen[str]:
    code = CODE.format(root=str(ROOT), each=each)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(pictures), str(out), to, store], stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def whole(pictures: Path, out: Path, to: str, store: str, each: int) -> float:
    """Left alone; seconds from its first word to its last."""
    process = start(pictures, out, to, store, each)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    begun = time.perf_counter()
    assert process.wait() == 0
    process.stdout.close()
    return time.perf_counter() - begun


def killed(
    pictures: Path, out: Path, to: str, store: str, each: int, within: float, random: random.Random
) -> tuple[int, list[str]]:
    """Kill it, all its processes or only the first, some time after it began, again and again until it is done before that.

    It is given longer each time: however slow the machine, it gets through. Returns how often it was killed, and what went wrong.
    """
    kills, wrong = 0, []
    while True:
        process = start(pictures, out, to, store, each)
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        try:
            process.wait(random.uniform(0, within * (1 + kills / 4)))
            code = process.returncode
            process.stdout.close()
            if code != 0:
                wrong.append(f"ended with {code}")
            return kills, wrong
        except subprocess.TimeoutExpired:
            kills += 1
            if random.random() < 0.7:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
        if not (out / "manifest.json").exists():
            try:
                CachedDataset(out)
                wrong.append("a half-built cache was opened")
            except UnreadableFile:
                pass


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
