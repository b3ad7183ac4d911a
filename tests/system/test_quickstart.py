"""The quickstart as a newcomer types it: every command of the page, in its order, beside a loader and a training script."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from pipefix.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line.startswith("pipefix ")]
DATA = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Waves(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        time.sleep(0.0005)
        return torch.linspace(0, index + 1, 64).sin()

train_loader = DataLoader(Waves(), batch_size=16, shuffle=True)
"""
PROGRAM = """
import argparse
import torch
from train_data import train_loader

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(20 * parser.parse_args().epochs):
    for waves in train_loader:
        optimizer.zero_grad()
        model(waves).mean().backward()
        optimizer.step()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train_data.py").write_text(DATA)
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIPEFIX_BUDGET", "1s")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.mark.timeout(400)
def test_every_command_works_as_printed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert len(COMMANDS) >= 7
    for command in COMMANDS:
        words = ["--probe=1" if word == "--probe" else word for word in shlex.split(command)[1:]]
        code = main(words)
        told = capfd.readouterr()
        assert code == 0, f"{command}: {told.err}"
    assert (folder / "before.html").exists()
    assert (folder / "fixed" / "pipefix.fix.html").exists()
