"""Bad input, and the answer to it: one paragraph that says what, the value found, and what to type."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pipefix.cli.main import main

HEAD = """
import os, time
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Good(Dataset):
    length = 64
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        return torch.ones(8, 8) * index
"""

ROOT = Path(__file__).resolve().parents[2]


class Told(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def paragraph(self) -> str:
        """Our own words on stderr: from the line that begins them to the end."""
        at = self.err.find("pipefix:")
        return self.err[at:].strip() if at >= 0 else ""

    def check(self, code: int, *words: str) -> Told:
        assert self.code == code, self.err
        for word in words:
            assert word in self.paragraph, f"{word!r} is not said in:\n{self.err}"
        assert "bug in pipefix" not in self.err
        ours = ROOT / "pipefix"
        assert f'File "{ours}' not in self.err, f"a frame of ours is shown:\n{self.err}"
        lines = self.paragraph.splitlines()
        assert 2 <= len(lines) <= 12 and len(self.paragraph) < 1500, "one paragraph"
        assert lines[-1].startswith("  "), "what to do comes last"
        return self


Tell = Callable[..., Told]


@pytest.fixture(autouse=True)
def forgets_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PIPEFIX_TRACEBACK", str(tmp_path / "traceback.txt"))
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name in [name for name, module in sys.modules.items() if "pytest-" in (getattr(module, "__file__", None) or "")]:
        del sys.modules[name]


@pytest.fixture
def target(tmp_path: Path) -> Callable[[str], Path]:
    """A file with the class ``Good`` and what is given."""

    def write(text: str) -> Path:
        path = tmp_path / "train.py"
        path.write_text(HEAD + textwrap.dedent(text), encoding="utf-8")
        # Python takes a file of the same length and second for the one that it has compiled.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
        return path

    return write


@pytest.fixture
def tell(target: Callable[[str], Path], capfd: pytest.CaptureFixture[str]) -> Tell:
    """Probe a target through the command line, in this process."""

    def tell(text: str | Path, *arguments: str, budget: float = 1.0) -> Told:
        path = text if isinstance(text, Path) else target(text)
        code = main(["probe", str(path), "--budget", str(budget), "--quiet", *arguments])
        captured = capfd.readouterr()
        return Told(code, captured.out, captured.err)

    return tell
