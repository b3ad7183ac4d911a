"""Programs that end with workers alive say nothing and leave nothing behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HELD = """
import gc, sys, torch
from pipefix import FastLoader
from tests.loader.pipelines import Tensors

held = []
for options in ({"engine": "torch"}, {"persistent_workers": True}, {"threads_per_worker": 2}, {"rng": "sample", "num_workers": 2}):
    loader = FastLoader(Tensors(64, (64, 64)), 4, **{"num_workers": 1, **options})
    batches = iter(loader)
    held.append((loader, batches, [next(batches) for _ in range(2)]))
"""
LATE = """
class Late:
    \"\"\"Dies when modules are taken apart: names that functions go by are None then.\"\"\"

    def __init__(self, held):
        self.held = held
        self.spaces = [vars(module) for name, module in sys.modules.items() if name.startswith("pipefix")]

    def __del__(self, collect=gc.collect):
        for space in self.spaces:
            for name in list(space):
                if not name.startswith("__"):
                    space[name] = None
        self.held = None
        collect()

torch.late = Late(held)
del loader, batches, held
"""


def test_a_program_that_ends_with_workers_alive(tmp_path: Path, preloaded: str) -> None:
    one_core = "import warnings; warnings.filterwarnings('ignore', 'This DataLoader will create')\n"  # torch's own advice there
    done = subprocess.run(
        [*preloaded.split(), "-c", one_core + HELD + LATE], cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(tmp_path) == []


PINNED = """
import atexit
from torch.utils.data import dataloader
from pipefix import FastLoader
from pipefix.hooks.torch_internals import why_plain

assert why_plain() is None
made = dataloader._MultiProcessingDataLoaderIter.__init__

def pins(iterator, loader):
    made(iterator, loader)
    iterator._pin_memory = True
    atexit.register(lambda: print([worker.is_alive() for worker in iterator._workers]))

dataloader._MultiProcessingDataLoaderIter.__init__ = pins
loader = FastLoader(range(8), num_workers=1, persistent_workers=True)
iter(loader)
"""


def test_kept_workers_end_before_torch_waits_for_them(preloaded: str) -> None:
    """For those whose batches are pinned torch before 2.13 waits at exit, 5 s each, and tells none to end."""
    done = subprocess.run([*preloaded.split(), "-c", PINNED], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "[False]\n")
