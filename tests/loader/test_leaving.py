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
