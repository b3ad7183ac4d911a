"""The whole of `pipefix fix`, timing included."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pipefix.cli.main import main

CODE = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Waits(Dataset):
    def __len__(self):
        return 20_000
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.full((8,), float(index))

loader = DataLoader(Waits(), batch_size=8)
"""


def test_a_pipeline_that_waits_is_given_workers_and_they_are_taken_back(tmp_path, monkeypatch, capsys):
    """The whole of it, timing included: four milliseconds of sleep a sample leave no doubt that workers help, and an epoch
    of more than a minute none that they are worth their start, on a machine that is busy with other tests too."""
    (tmp_path / "waits_for_workers.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    try:
        assert main(["fix", "waits_for_workers.py", "--only", "workers", "--budget", "5", "-q"]) == 0
    finally:
        sys.modules.pop("waits_for_workers", None)
    said = capsys.readouterr().out
    assert "Kept" in said and "workers-" in said
    assert "num_workers" in Path("pipefix.plan.toml").read_text()
    events = [json.loads(line)["event"] for line in Path("pipefix.log.jsonl").read_text().splitlines()]
    assert events == ["started", "begun", "kept", "ended"]
    assert json.loads(Path("pipefix.after.json").read_text())["outcomes"][0]["outcome"] == "applied"
    assert "Predicted and measured" in Path("pipefix.fix.html").read_text()
    assert main(["fix", "--undo"]) == 0
    assert not Path("pipefix.plan.toml").exists()
