"""Real runs of `pipefix fix`, killed at random moments, and what must hold afterwards."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from pipefix.caches.dataset import CachedDataset
from pipefix.fixes import caches_made, verify
from pipefix.fixes.choice import Wishes
from pipefix.fixes.log import NAME, read_entries
from pipefix.fixes.session import ProbeResult, Session
from pipefix.fixes.undo import undo
from pipefix.measurement.consumer import Consumer
from pipefix.plan import backups, planfile
from pipefix.plan.plan import Plan
from pipefix.subject.load import load
from pipefix.vocabulary.errors import BadUsage
from tests.fixes.benchtop import MACHINE, measured, step

ROOT = Path(__file__).resolve().parents[2]
TARGET = """
import time
from pathlib import Path
import torch
from torch.utils.data import DataLoader, Dataset

class Files(Dataset):
    def __init__(self):
        self.paths = sorted((Path(__file__).parent / "files").glob("*.bin"))
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            data = file.read()
        time.sleep(0.003)
        return torch.frombuffer(bytearray(data), dtype=torch.uint8), index

loader = DataLoader(Files(), batch_size=8)
"""


class Forked:
    """A process forked from this one, where everything is loaded already; it is asked as a `subprocess.Popen` is."""

    stderr = None

    def __init__(self, work: Callable[[], object]) -> None:
        self.returncode: int | None = None
        ready, begun = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.close(begun)
            code = 1
            try:
                work()
                code = 0
            except BadUsage:
                code = 2
            except Exception:  # noqa: BLE001 - told, and seen by the exit code
                traceback.print_exc()
            finally:
                os._exit(code)
        # Only then is there a process group that can be killed.
        os.close(begun)
        os.read(ready, 1)
        os.close(ready)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = 600) -> int:
        until = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("forked", timeout)
            time.sleep(0.005)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        self.wait(timeout)
        return b"", b""


def planted_run(folder: Path) -> None:
    """A whole run with everything real but what takes long: the probe's plans and the timing are planted."""
    gains = iter((1.5, 1.5, 0.7, 1.5, 2.0))
    plans = iter(([step("workers-2")], [step("cache-source")], [step("cache-resized-256"), step("cache-decoded")], []))

    def look(*_: Any) -> ProbeResult:
        return ProbeResult(Plan(tuple(next(plans, ()))), None)

    def faster(*_: Any, **__: Any) -> Any:
        time.sleep(0.1)
        return measured(next(gains, 1.5))

    subject = load(str(folder / "train.py"))
    with mock.patch.object(verify, "faster", faster):
        Session(subject, Consumer(), MACHINE, folder, Wishes(yes=True), look, lambda *_: None).run()


@dataclass
class Project:
    """A folder with a target in it."""

    folder: Path
    samples: int = 300
    warm: bool = False
    """Runs are forked from here, with planted plans and timing: many more of them in the same time."""
    wrong: list[str] = field(default_factory=list)
    """What did not hold."""

    def __post_init__(self) -> None:
        (self.folder / "files").mkdir(parents=True, exist_ok=True)
        for number in range(self.samples):
            (self.folder / "files" / f"{number:04d}.bin").write_bytes(random.Random(number).randbytes(2000))
        (self.folder / "train.py").write_text(TARGET)
        self._print = self._theirs()

    def _theirs(self) -> str:
        """A fingerprint of what is not ours."""
        told = hashlib.sha256()
        for path in sorted([self.folder / "train.py", *(self.folder / "files").iterdir()]):
            told.update(path.name.encode() + path.read_bytes())
        return told.hexdigest()

    def start(self, *arguments: str) -> Any:
        if self.warm:
            return Forked(lambda: undo(self.folder) if "--undo" in arguments else planted_run(self.folder))
        command = [sys.executable, "-m", "pipefix", "fix", *arguments]
        return subprocess.Popen(
            command, cwd=self.folder, env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def fix(self, budget: float) -> Any:
        return self.start("train.py", "--yes", "-q", f"--budget={budget}")

    def finish(self, process: Any, *codes: int, within: float = 180) -> None:
        try:
            _, notes = process.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.wrong.append(f"no end within {within} s")
            return
        if process.returncode not in codes:
            self.wrong.append(f"ended with {process.returncode}: {notes.decode(errors='replace')[-600:]}")

    def kill(self, process: Any, *, all_of_it: bool) -> bool:
        """Kill it (its workers too, or leave them to find out). False where it was over before."""
        if process.poll() is not None:
            return False
        (os.killpg if all_of_it else os.kill)(process.pid, signal.SIGKILL)
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
        if not _gone(process.pid, 60):
            self.wrong.append("processes of the killed run live on")
            os.killpg(process.pid, signal.SIGKILL)
        return True

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check(self, *, swept: bool) -> str | None:
        """At rest: the plan is that of the last step that is in effect, and what it names is there. Returns the plan's text."""
        if self._theirs() != self._print:
            self.wrong.append("the user's files changed")
        plan = self.folder / planfile.NAME
        text = planfile.text_of(plan)
        states = [backups.before(plan, number).read_text() for number in backups.numbers(plan)]
        if any(one == other for one, other in pairwise([*states, text or ""])):
            self.wrong.append("a change of the plan was begun and is not settled")
        if text is not None and not states:
            self.wrong.append("a plan without a backup of what was there before")
        if swept and (left := caches_made.unused(self.folder)):
            self.wrong.append(f"left over: {left}")
        if text is not None:
            self._check_cache(planfile.decode(text, origin="plan"))
        if list(self.folder.glob(".pipefix-*")):
            self.wrong.append("a draft was left")
        return text

    def _check_cache(self, plan: Any) -> None:
        if plan.cache is None:
            return
        found = CachedDataset(self.folder / plan.cache.path)
        if len(found) != self.samples:
            self.wrong.append(f"the cache holds {len(found)} of {self.samples} samples")

    def undo_all(self) -> None:
        """Take everything back: the project is as it was before the first run, but for plans that gave way."""
        while True:
            try:
                undo(self.folder)
            except BadUsage:
                break
            self.check(swept=False)
        ours = [one.name for one in self.folder.iterdir() if one.name in (planfile.NAME, "pipefix-caches")]
        if ours:
            self.wrong.append(f"after all was undone there is still {ours}")


def _gone(group: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def campaign(
    folder: Path,
    kills: int,
    *,
    seed: int,
    budget: float,
    seconds: float = 0,
    warm: bool = False,
    note: Callable[[dict[str, Any]], object] = dict,
) -> dict[str, Any]:
    """Kill runs at random moments. After each, either `--undo` or the next run is to bring a state that holds.

    ``note`` is given the counts after each kill.
    """
    chance, begun = random.Random(seed), time.perf_counter()
    project = Project(folder, warm=warm)
    told = {"kills": 0, "in the middle of a step": 0, "settled by --undo": 0, "settled by the next run": 0, "over before": 0}
    whole = 0.0
    while told["kills"] < kills and not 0 < seconds < time.perf_counter() - begun:
        process, started = project.fix(budget), time.perf_counter()
        if whole == 0.0:
            project.finish(process, 0)
            whole = time.perf_counter() - started
            project.check(swept=True)
            project.undo_all()
            continue
        try:
            process.wait(chance.uniform(0.1, 0.95) * whole)
        except subprocess.TimeoutExpired:
            pass
        if not project.kill(process, all_of_it=chance.random() < 0.5):
            told["over before"] += 1
            project.finish(process, 0)
            project.undo_all()
            continue
        told["kills"] += 1
        told["in the middle of a step"] += _in_a_step(project.folder)
        if chance.random() < 0.6:
            # 2: nothing had been done yet that could be taken back.
            project.finish(project.start("--undo"), 0, 2)
            told["settled by --undo"] += 1
            project.check(swept=True)
        else:
            project.finish(project.fix(budget), 0)
            told["settled by the next run"] += 1
            project.check(swept=True)
        project.undo_all()
        note({**told, "wrong": project.wrong})
    return {**told, "wrong": project.wrong}


def _in_a_step(folder: Path) -> int:
    """Whether the log, which tells of each step as it begins, ends in the middle of one."""
    try:
        entries = read_entries((folder / NAME).read_bytes(), origin=NAME)
    except FileNotFoundError:
        return 0
    return int(bool(entries) and entries[-1].event == "begun")
