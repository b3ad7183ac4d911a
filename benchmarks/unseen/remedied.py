"""What comes of every remedy that a probe of an unseen pipeline proposes, done as its command says, on a copy with few samples."""

from __future__ import annotations

import ast
import functools
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from benchmarks.unseen.judged import answered, laid_out, module_of, probed
from benchmarks.unseen.pipeline import Unseen, length_of, text
from measured.planted.children import in_child
from pipefix.loader.fast_loader import FastLoader
from pipefix.report import runfile
from pipefix.report.card import card
from pipefix.report.runfile import RemedyFigures

FEWEST_SAMPLES = 256
"""That the copy has."""
FEWEST_BYTES = 2e6
"""That a cache of it takes: of less, what it takes however few its samples are is a tenth and more."""
COMMAND_S = 300.0
"""After which a command is ended: the slowest samples take a second, and `convert` looks at some of them several times."""
ARGUMENTS = re.compile(r"(?:Data|pipefix\.Fast)Loader\(.*?\)")


def judge(drawn: Unseen, *, budget: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pipeline, file = laid_out(drawn, folder)
        begun = time.perf_counter()
        run = probed(pipeline, file, budget)
        spent = time.perf_counter() - begun
        done = []
        for remedy in run.proposed:
            length = _copied(remedy, length_of(pipeline))
            file.write_text(text(pipeline, str(folder), timed=False, length=length))
            done.append(_done(remedy, pipeline, folder, length / length_of(pipeline)))
        verdict = run.verdict
        assert verdict is not None
        return {
            "name": pipeline.name, "kind": verdict.kind, "stage": verdict.stage, "sentence": verdict.sentence,
            "first_acts": _first_acts(run), "next": card(run).next, "remedies": done, "probe_s": spent,
        }  # fmt: skip


def _copied(remedy: RemedyFigures, length: int) -> int:
    """How many of so many samples the copy has on which a remedy is tried."""
    if remedy.id == "cache-source":
        return length  # all samples read a few files, each of which is once in each part of such a cache
    disk_bytes = remedy.cost.disk_bytes if remedy.cost is not None else None
    return min(length, max(FEWEST_SAMPLES, math.ceil(length * FEWEST_BYTES / disk_bytes))) if disk_bytes else FEWEST_SAMPLES


def _first_acts(run: runfile.Run) -> bool | None:
    """Whether the first remedy acts on the named stage, or the card says why it does not; None where there is nothing to act on."""
    if run.verdict is None or run.verdict.kind != "input-bound" or not run.proposed:
        return None
    first = run.proposed[0]
    named = "sampler" if "sampler takes" in run.verdict.sentence else run.verdict.stage
    return named in (first.stage, *first.relieves) or any(sentence.startswith("It leaves ") for sentence in card(run).next)


def _done(remedy: RemedyFigures, pipeline: Unseen, folder: Path, copied: float) -> dict[str, Any]:
    words = remedy.command or ""
    begun = time.perf_counter()
    if words.startswith("pipefix "):
        told = _typed(words, folder)
    elif (found := ARGUMENTS.search(words)) is not None:
        told = _loaded(found.group(), pipeline, folder)
    else:
        told = {"how": "by hand", "ok": True}
    disk = remedy.cost.disk_bytes if remedy.cost is not None else None
    made = told.get("disk_bytes", 0)
    off = made / (disk * copied) - 1 if made and disk else None
    command = words.replace(f"{folder}{os.sep}", "")  # a result tells no path of this machine
    return {"id": remedy.id, "command": command, "disk_bytes": made, "disk_off": off, "seconds": time.perf_counter() - begun} | told


def _typed(words: str, folder: Path) -> dict[str, Any]:
    """A command of pipefix, as it is typed."""
    arguments = shlex.split(words)[1:]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pipefix", *arguments], cwd=folder, env=environment, capture_output=True, text=True,
            timeout=COMMAND_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"how": "typed", "ok": False, "error": f"it did not end within {COMMAND_S:.0f} s"}
    told: dict[str, Any] = {"how": "typed", "ok": ended.returncode == 0}
    if ended.returncode:
        return told | {"error": f"exit code {ended.returncode}: {ended.stderr[-1500:]}"}
    if "--out" in arguments and arguments[0] == "convert":
        cache = folder / arguments[arguments.index("--out") + 1]
        told["disk_bytes"] = sum(path.stat().st_blocks * 512 for path in cache.rglob("*") if path.is_file())
    return told


def _loaded(call: str, pipeline: Unseen, folder: Path) -> dict[str, Any]:
    """A loader with the arguments that are to be changed: it gives as many samples as the one that there is."""
    name, options = arguments_of(call)
    kind = FastLoader if name == "pipefix.FastLoader" else DataLoader

    def work() -> dict[str, Any]:
        module = module_of(pipeline, folder, length=FEWEST_SAMPLES)
        own = module.loader
        kept = {
            "batch_size": own.batch_size, "num_workers": own.num_workers, "collate_fn": own.collate_fn,
            **({} if pipeline.shape == "stream" else {"sampler": own.sampler}),
        }  # fmt: skip
        counts = [0, 0]
        for number, loader in enumerate((own, kind(module.dataset, **(kept | options)))):
            for _, batch in zip(range(4), loader, strict=False):
                counts[number] += len(batch[0] if isinstance(batch, list | tuple) else batch)
        return {"samples": counts}

    answer = in_child(work, timeout=COMMAND_S)
    if "error" in answer:
        return {"how": "loader", "ok": False, "error": f"{answer['error']}\n{answer.get('log', '')}"[-1500:]}
    before, after = answered(answer)["samples"]
    return {"how": "loader", "ok": before == after > 0, "error": "" if before == after else f"{before} samples became {after}"}


@functools.cache
def arguments_of(call: str) -> tuple[str, dict[str, Any]]:
    """``DataLoader(..., num_workers=2)`` taken apart."""
    parsed = ast.parse(call, mode="eval").body
    assert isinstance(parsed, ast.Call)
    return ast.unparse(parsed.func), {str(each.arg): ast.literal_eval(each.value) for each in parsed.keywords}
