"""Programs are started for real. Where torch is not the subject, a stand-in of a few lines takes its place."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipefix.report import runfile
from pipefix.report.program_figures import ProgramFigures

ROOT = Path(__file__).resolve().parents[2]
PATH = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "doubles" / "without_compiler")])
STAND_IN = {
    "torch/__init__.py": "from . import autograd\nfrom .optim.optimizer import Optimizer\ndef is_grad_enabled(): return True\n",
    "torch/autograd.py": "def backward(): pass\n",
    "torch/utils/__init__.py": "",
    "torch/utils/data/__init__.py": "from .dataloader import DataLoader\n",
    "torch/utils/data/dataloader.py": """\
        class Batches:
            def __init__(self, loader): self.left = iter(loader.dataset)
            def __iter__(self): return self
            def __next__(self): return next(self.left)
        class DataLoader:
            num_workers = 0
            def __init__(self, dataset, batch_size=1): self.dataset, self.batch_size = dataset, batch_size
            def __iter__(self): return Batches(self)
        """,
    "torch/optim/__init__.py": "",
    "torch/optim/optimizer.py": """\
        hooks = []
        register_optimizer_step_pre_hook = register_optimizer_step_post_hook = hooks.append
        class Optimizer:
            def step(self):
                for hook in hooks: hook(self, (), {})
        """,
}


@dataclass
class Ran:
    code: int
    out: str
    err: str
    run: runfile.Run | None

    @property
    def program(self) -> ProgramFigures:
        assert self.run is not None, self.err
        assert self.run.program is not None
        return self.run.program


@dataclass
class Place:
    """A folder with a program in it."""

    folder: Path
    environment: dict[str, str]
    python: Sequence[str] = (sys.executable,)
    """What the program is run with where pipefix is not."""

    def write(self, text: str, name: str = "train.py") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def command(self, words: Sequence[str], options: Sequence[str] = ()) -> list[str]:
        return [sys.executable, "-m", "pipefix", "run", *options, *words]

    def run(self, *words: str, options: Sequence[str] = (), **others: Any) -> Ran:
        """The program with pipefix."""
        done = self.started(self.command(words or ["train.py"], options), **others)
        file = self.folder / "pipefix-run" / "run.json"
        return Ran(done.returncode, done.stdout, done.stderr, runfile.read(file) if file.exists() else None)

    def alone(self, *words: str, **others: Any) -> Ran:
        """The program without pipefix."""
        done = self.started([*self.python, *(words or ["train.py"])], **others)
        return Ran(done.returncode, done.stdout, done.stderr, None)

    def verb(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another of pipefix's commands."""
        return self.started([sys.executable, "-m", "pipefix", *words])

    def started(self, command: Sequence[str], **others: Any) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **others.pop("env", {})}
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=100, **others)


@pytest.fixture
def place(tmp_path: Path, preloaded: str) -> Place:
    """Programs here import torch itself; without pipefix, in a process that has it loaded already."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIPEFIX_")}
    return Place(tmp_path, environment | {"PYTHONPATH": PATH}, preloaded.split())


@pytest.fixture
def light(place: Place) -> Place:
    """Programs here find the stand-in for torch."""
    place.python = (sys.executable,)
    for name, text in STAND_IN.items():
        place.write(text, f"library/{name}")
    place.environment["PYTHONPATH"] = os.pathsep.join([str(place.folder / "library"), str(ROOT)])
    return place


LOOP = """\
    import sys, time, torch
    from torch.utils.data import DataLoader
    loader = DataLoader(range(1, 21), batch_size=4)
    optimizer = torch.Optimizer()
    for batch in loader:
        optimizer.step()
"""


@pytest.fixture
def looping(light: Place) -> Callable[..., Place]:
    """A program that loops over a loader, and then does what the test says."""

    def written(then: str = "", inside: str = "") -> Place:
        body = textwrap.dedent(LOOP) + textwrap.indent(textwrap.dedent(inside), "    ") + textwrap.dedent(then)
        light.write(body)
        return light

    return written
